"""Error of every estimator on every folder that has scores: fitted on train, measured on test.

    OMP_NUM_THREADS=1 python -m benchmarks.estimators [folder ...] [--page docs/estimators.md]

One default `Router.fit` per folder (f, g from the prompt alone, signal model, policy) and, where there are
contexts, one with a peek at the specialist's own first characters; then other lengths of the peek, and, as a
separate variant, agreement between all specialists' first characters. Each fit is kept in the cache as soon
as it is done and each folder's numbers in CACHE/FOLDER/estimators.json, so a run that is broken off goes on,
and `--page` puts together what is there (with what `python -m benchmarks.transformer` left there).
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.estimators_page import page
from benchmarks.folders import DATA, SCORED
from benchmarks.kept import CACHE, Cell, Made, kept, paired, per_prompt, write_json
from pandora_router.data import Free, Table, carve
from pandora_router.data.importers import read_folder
from pandora_router.estimators.linear import fit_ridge, grouped_folds
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.estimators.stack.boosted import Boosted
from pandora_router.estimators.stack.peek import Peek
from pandora_router.router import Router, StackRecipe

LENGTHS = (100, 200)  # beside 400, which a whole default fit takes
ONE_LENGTH = ("mmlupro_cot",)  # 350,000 contexts: every length costs five minutes, agreement more
INSPECTION_COST = 0.002


def cheap(table: Table) -> dict[str, Callable[[], Made]]:
    """The training mean, kNN-3 (the paper's f), kNN-50, the default f, and ridges of the reward on each.

    Here f knows the training prompts alone; a router's f knows the calibration prompts as well.
    """
    train, test = table.in_split("train"), table.in_split("test")
    found: dict[str, tuple[Any, float]] = {}

    def all_at_once() -> dict[str, tuple[Any, float]]:
        if not found:
            start = time.process_time()
            fitted = Neighbours.fit(train.prompts, train.reward, train.specialists)
            spent = time.process_time() - start
            vectors = fitted.embedder.embed(test.prompts)
            folds = grouped_folds(train.prompts, 5, 0)
            found["mean"] = np.broadcast_to(fitted.mean, test.reward.shape), 0.0
            for label, k in (("kNN-3", 3), ("kNN-50", 50), ("f", fitted.k)):
                one, start = replace(fitted, k=k), time.process_time()
                predicted = one.predict_vectors(vectors)
                head, _ = fit_ridge(one.leave_one_out(), train.reward, folds)
                found[label] = predicted, spent
                found[f"h({label})"] = head.predict(predicted), spent + time.process_time() - start
        return found

    labels = ("mean", "kNN-3", "h(kNN-3)", "kNN-50", "f", "h(f)")
    return {label: lambda label=label: (*all_at_once()[label], {}) for label in labels}


def routed(table: Table, recipe: StackRecipe) -> Made:
    """g as a whole default fit makes it, with what the report of that fit says."""
    start = time.process_time()
    router = Router.fit(table, costly=recipe, inspection_cost=INSPECTION_COST)
    spent = time.process_time() - start
    test, told = table.in_split("test"), router.record.report
    predicted = router.costly.predict(test.prompts, test.contexts)
    keys = ("coverage_1", "coverage_2", "residual_correlation", "mse")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return predicted, spent, {**{key: told[key] for key in keys}, "peak_gib": peak}


def peeked(table: Table, peek: Peek) -> Made:
    """g with another peek; only the estimator is fitted."""
    train, test = table.in_split("train"), table.in_split("test")
    start = time.process_time()
    g = Boosted.fit(train.prompts, train.reward, train.specialists, contexts=train.contexts, peek=peek)
    spent = time.process_time() - start
    return g.predict(test.prompts, test.contexts), spent, {}


def read(name: str) -> tuple[Table, str]:
    """The folder and its split: the one it came with, or a fifth of train taken for calibration."""
    table = read_folder(DATA / name, fees=Free())
    if (table.split == "calibration").any():
        return table, "as it came"
    return carve(table, seed=0, fraction=0.2), "a fifth of train is calibration"


def measure(name: str, cache: Path, *, fit: bool = True, contexts: bool = True) -> dict[str, Any]:
    """Everything about one folder; what was made before is taken from the cache, and is all without `fit`."""
    table, split = read(name)
    train, test = table.in_split("train"), table.in_split("test")
    makers = {**cheap(table), "g": lambda: routed(table, StackRecipe(peek=0))}
    if contexts and table.contexts is not None:
        makers["own 400"] = lambda: routed(table, StackRecipe(peek=400))
        for far in () if name in ONE_LENGTH else LENGTHS:
            makers[f"own {far}"] = lambda far=far: peeked(table, Peek(far))
        if name not in ONE_LENGTH:
            makers["agreement 400"] = lambda: peeked(table, Peek(400, True))
    settings = {"split": split, "reward": "score", "inspection_cost": INSPECTION_COST, "version": 2}
    cells: dict[str, Cell] = {}
    for label, make in makers.items():
        cell = kept(cache / name / "estimators", label, settings, make if fit else None)
        if cell is not None:
            cells[label] = cell
            print(f"{name} {label}: {cell.seconds:.1f} CPU-s", flush=True)
    errors = {label: per_prompt(cell.predicted, test.reward) for label, cell in cells.items()}
    rows = {
        label: {
            "mse": float(np.nanmean(errors[label])),
            "minus_g": paired(errors[label], errors["g"]),
            "seconds": cell.seconds,
            "told": dict(cell.told),
        }
        for label, cell in cells.items()
    }
    seen = (
        0.0
        if test.contexts is None
        else np.mean([[text is not None for text in row] for row in test.contexts])
    )
    return {
        "folder": name,
        "train": len(train),
        "calibration": len(table.in_split("calibration")),
        "test": len(test),
        "specialists": len(table.specialists),
        "share_seen": float(np.mean(seen)) if seen else 0.0,
        "rows": rows,
    }


def show(found: dict[str, Any]) -> None:
    print(f"\n{found['folder']}: {found['test']} test prompts x {found['specialists']} specialists")
    for label, row in found["rows"].items():
        share = 100 * (row["mse"] / found["rows"]["kNN-3"]["mse"] - 1)
        gap = row["minus_g"]
        print(
            f"  {label:16s} {row['mse']:.4f}  vs kNN-3 {share:+6.1f} %  minus g {gap['gap']:+.4f} "
            f"({gap['error']:.4f})  {row['seconds']:.1f} CPU-s",
            flush=True,
        )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("folders", nargs="*", default=list(SCORED))
    options.add_argument("--cache", type=Path, default=CACHE)
    options.add_argument("--page", type=Path, help="also write this page from all that is in the cache")
    options.add_argument("--no-contexts", action="store_true", help="leave out everything with contexts")
    options.add_argument("--kept", action="store_true", help="fit nothing: only what is in the cache")
    chosen = options.parse_args()
    for name in chosen.folders:
        found = measure(name, chosen.cache, fit=not chosen.kept, contexts=not chosen.no_contexts)
        write_json(chosen.cache / name / "estimators.json", found)
        show(found)
    if chosen.page:
        chosen.page.write_text(page(chosen.cache), encoding="utf-8")


if __name__ == "__main__":
    main()

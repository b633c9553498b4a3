"""What a verdict on a look earns: a short look, a long look, and a short look with a verdict for sale.

    OMP_NUM_THREADS=1 python -m benchmarks.verdicts [SET ...] [--seeds 3] [--page docs/verdicts.md]

The judge is a scorer that reads `LONG` characters of an answer and is fitted on the training prompts: its
verdict is the probability of a right answer, out of fold where a prompt was in training. A short look shows
`SHORT` characters. All three routers are whole `Router.fit`s on the same splits and are measured on prompts
that no fit saw. A short look and a verdict cost the same, a long look as much as both. Cells are kept as by
`benchmarks.learning`.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tools.pages import put

from benchmarks.folders import DATA, beginnings
from benchmarks.kept import CACHE, Cell, kept
from pandora_router.boxes import Costs
from pandora_router.config.experiments import read_experiment
from pandora_router.data import Table
from pandora_router.estimators.stack.boosted import Boosted
from pandora_router.estimators.stack.peek import Peek
from pandora_router.evaluate.estimates import split_of, table_of
from pandora_router.evaluate.statistics import Split, compare
from pandora_router.router import Router, SetRecipe
from pandora_router.router.fitting import parted
from pandora_router.search import Never
from pandora_router.specialists.beginning import with_verdict

EXPERIMENTS = Path(__file__).resolve().parents[1] / "paper" / "experiments"
SETS = ("math_small_pro", "math_gpt", "math_small_o1", "mmlupro_pair")
PRICES = (0.002, 0.01, 0.03)
SHORT, LONG = 100, 400
SEED = 51  # splits from this seed on: no rule was tuned on them
WAYS = ("nothing bought", "short look", "long look", "short look, then verdict")
VERSION = 1


def judged(split: Table) -> Table:
    """The table with the scorer's verdict in every context."""
    train, *others, _ = parted(split)
    assert split.contexts is not None
    reader = Boosted.fit(
        train.prompts, train.score, train.specialists, contexts=train.contexts, peek=Peek(LONG)
    )
    verdicts = dict(zip(train.prompt_ids, reader.out_of_fold, strict=True))
    for part in others:
        verdicts |= dict(zip(part.prompt_ids, reader.predict(part.prompts, part.contexts), strict=True))
    contexts = split.contexts.copy()
    for (i, j), text in np.ndenumerate(split.contexts):
        said = verdicts.get(split.prompt_ids[i])
        if text is not None and said is not None:
            contexts[i, j] = with_verdict(text, float(np.clip(said[j], 0.0, 1.0)))
    return replace(split, contexts=contexts)


def measured(split: Table, whole: Table, price: float) -> tuple[Any, float, dict[str, Any]]:
    """Net reward of each way (prompts, ways), then the number of each prompt and its cluster."""
    begun, boxes = time.process_time(), len(split.specialists)
    short, both = np.full(boxes, price), np.full(boxes, 2 * price)
    fits = {
        "short look": (split, SetRecipe(SHORT), Costs(short)),
        "long look": (split, SetRecipe(LONG), Costs(both)),
        "short look, then verdict": (whole, SetRecipe(SHORT), Costs(short, then=short)),
    }
    nets, told = {}, {}
    for way, (table, recipe, costs) in fits.items():
        router = Router.fit(table, costly=recipe, inspection_cost=costs, remember_test=False)
        test = parted(table)[2]
        test = test.rows(np.isfinite(test.reward).all(axis=1))
        decisions = router.route_batch(test.prompts, beginnings(test))
        nets[way] = earned(router, test, decisions)
        told[way] = float(np.mean([len(decision.purchases) for decision in decisions]))
        told[f"{way}: verdicts"] = float(
            np.mean([sum(bought.verdict for bought in decision.purchases) for decision in decisions])
        )
        if way == "short look":
            never = router.with_policy(Never()).route_batch(test.prompts)
            nets["nothing bought"] = earned(router, test, never)
            cheap = np.array([decision.estimates.cheap for decision in never])
            cluster = np.unique(cheap.round(9), axis=0, return_inverse=True)[1].ravel()
    number = {name: i for i, name in enumerate(split.prompt_ids)}
    prompts = np.array([number[name] for name in test.prompt_ids])
    columns = [nets[way] for way in WAYS]
    return np.column_stack([*columns, prompts, cluster]), time.process_time() - begun, told


def earned(router: Router, test: Table, decisions: list[Any]) -> Any:
    """Reward of each answer less what was spent on estimates."""
    chosen = [router.specialists.index(decision.specialist) for decision in decisions]
    return test.reward[np.arange(len(test)), chosen] - [decision.trace.spent for decision in decisions]


def cells(name: str, seeds: int, cache: Path, *, fit: bool) -> dict[float, list[Cell]]:
    """The finished cells of one set by price; missing ones are made if `fit`."""
    experiment = read_experiment(EXPERIMENTS / f"{name}.yaml")
    table = table_of(experiment, DATA) if fit else None
    found: dict[float, list[Cell]] = {price: [] for price in PRICES}
    for seed in range(SEED, SEED + seeds):
        split = None if table is None else split_of(experiment, table, seed)
        whole: list[Table] = []
        for price in PRICES:

            def make(split: Any = split, price: float = price, whole: list[Table] = whole) -> Any:
                whole += [] if whole else [judged(split)]
                return measured(split, whole[0], price)

            settings = {"short": SHORT, "long": LONG, "version": VERSION}
            cell = kept(cache / "verdicts" / name, f"{price} {seed}", settings, make if fit else None)
            if cell is not None:
                found[price].append(cell)
                print(f"{name} at {price}, seed {seed}: {cell.seconds:.0f} CPU-s", flush=True)
    return found


def page(cache: Path, seeds: int) -> str:
    """The table of all cells in the cache, and how often the verdict was ahead or behind."""
    head = ("set", "price of a look", "splits", *WAYS, "verdict minus short look", "minus long look",
            "verdicts bought")  # fmt: skip
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    scores: dict[str, list[float]] = {"short look": [], "long look": []}
    for name in SETS:
        for price, some in cells(name, seeds, cache, fit=False).items():
            if not some:
                continue
            values = [cell.predicted for cell in some]
            means = np.mean([value[:, : len(WAYS)].mean(axis=0) for value in values], axis=0)
            splits = [
                Split(
                    value[:, 3:4] - value[:, 1:3],
                    value[:, -2].astype(np.int64),
                    value[:, -1].astype(np.int64),
                )
                for value in values
            ]
            gaps = compare(splits)
            told = []
            for k, way in enumerate(scores):
                gap, error = 1e3 * float(gaps.mean[k]), 1e3 * float(gaps.doubt[k])
                told.append(f"{gap:+.1f} ({error:.1f})")
                scores[way].append(gap / error if error > 0.0 else 0.0)
            share = np.mean([cell.told["short look, then verdict: verdicts"] for cell in some])
            row = (name, f"{price:g}", str(len(some)), *(f"{mean:.4f}" for mean in means), *told,
                   f"{share:.2f}")  # fmt: skip
            lines.append(f"| {' | '.join(row)} |")
    said = "; ".join(
        f"against the {way} it is ahead by more than two standard errors in {sum(s > 2.0 for s in found)} of "
        f"{len(found)} rows and behind in {sum(s < -2.0 for s in found)}"
        for way, found in scores.items()
    )
    return f"The short look with a verdict for sale: {said}.\n\n" + "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("sets", nargs="*", default=list(SETS), metavar="SET", help=", ".join(SETS))
    options.add_argument("--seeds", type=int, default=3, help="how many fresh splits")
    options.add_argument("--cache", type=Path, default=CACHE)
    options.add_argument("--page", type=Path, help="write the table of this page from the cells in the cache")
    options.add_argument("--kept", action="store_true", help="fit nothing: only what is in the cache")
    chosen = options.parse_args()
    for seeds in range(1, chosen.seeds + 1) if not chosen.kept else ():
        for name in chosen.sets:
            cells(name, seeds, chosen.cache, fit=True)
    if chosen.page:
        put(page(chosen.cache, chosen.seeds), chosen.page)


if __name__ == "__main__":
    main()

"""Cheap estimates side by side: `python -m benchmarks.cheap [folder ...] [--prompts 6000] [--seeds 2]`.

Each knows 80 % of the prompts and is measured on the others: squared error of f, net reward of the
specialist with the highest f (f-only) and with the highest mean (never inspecting: ridge regression of
rewards on left-out f), as differences to the default in 1e-3 with paired standard errors; processor time of
one prediction of one prompt, embedding included. `float32` is the default without packing, so it shows what
eight bits and the rotation cost.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.folders import DATA
from pandora_router.calibrate.means import RidgeMean
from pandora_router.calibrate.readings import Readings
from pandora_router.data import Free, Table, resplit
from pandora_router.data.importers import read_folder
from pandora_router.estimators.embedders.embedder import Joined, default_embedder
from pandora_router.estimators.embedders.tfidf import fitted_embedder
from pandora_router.estimators.estimator import Remembering
from pandora_router.estimators.linear import LinearHead
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.search import kernels

USUAL = "average of 25, 50, 200"
TIMED = 200


def variants(train: Table) -> dict[str, Callable[[], Remembering]]:
    """The cheap estimates by name, fitted on the training prompts."""
    embedder = fitted_embedder(train.prompts)

    def near(k: int | tuple[int, ...]) -> Neighbours:
        return Neighbours.fit(train.prompts, train.reward, train.specialists, embedder=embedder, k=k)

    def unpacked() -> Neighbours:
        vectors = embedder.embed(train.prompts)
        return Neighbours(embedder, train.specialists, vectors, train.reward)

    def linear(count: int) -> LinearHead:
        return LinearHead.fit(train.prompts, train.reward, train.specialists, embedder=embedder, count=count)

    return {
        USUAL: lambda: near((25, 50, 200)),
        "the same, float32": unpacked,
        "kNN-3 (paper)": lambda: near(3),
        "kNN-50": lambda: near(50),
        "linear, 25 components": lambda: linear(25),
        "linear, 100 components": lambda: linear(100),
    }


def measured(fitted: Remembering, known: Table, test: Table) -> tuple[NDArray[np.float64], float]:
    """Squared error, f-only and mean-only net reward of each test prompt (n, 3); microseconds of one."""
    f, left = fitted.predict(test.prompts), fitted.leave_one_out()
    mean, _ = RidgeMean().fit(Readings(left, known.reward))
    rows, believed = np.arange(len(f)), mean.of(f)
    nets = [test.reward[rows, guess.argmax(axis=1)] for guess in (f, believed)]
    spent = []
    for prompt in test.prompts[:TIMED]:
        for embedder in (default_embedder(), fitted.embedder):  # type: ignore[attr-defined]
            if isinstance(embedder, Joined) or embedder is default_embedder():
                embedder.forget()  # prompts are new to a router
        start = time.process_time()
        fitted.predict([prompt])
        spent.append(1e6 * (time.process_time() - start))
    return np.column_stack([((f - test.reward) ** 2).mean(axis=1), *nets]), float(np.median(spent))


def compare(name: str, prompts: int, seeds: int) -> None:
    """Print the comparison on one folder, over splits 1 to `seeds`."""
    whole = read_folder(DATA / name, fees=Free())
    whole = whole.only(
        [s for s, gone in zip(whole.specialists, whole.missing.mean(axis=0), strict=True) if gone < 0.1]
    )
    whole = whole.rows(~whole.missing.any(axis=1))
    found: dict[str, list[NDArray[np.float64]]] = {}
    spent: dict[str, list[float]] = {}
    for seed in range(1, seeds + 1):
        keep = np.sort(np.random.default_rng(seed).permutation(len(whole))[:prompts])
        table = resplit(whole.rows(keep), seed=seed)
        train, more, test = (table.in_split(part) for part in ("train", "calibration", "test"))
        known = table.rows(
            np.concatenate([np.flatnonzero(table.split == part) for part in ("train", "calibration")])
        )
        for label, make in variants(train).items():
            values, micro = measured(make().remember(more.prompts, more.reward), known, test)
            found.setdefault(label, []).append(values)
            spent.setdefault(label, []).append(micro)
    base = np.concatenate(found[USUAL])
    print(f"\n{name}: {len(known):,} known prompts, {len(whole.specialists)} specialists, {seeds} splits")
    for label, parts in found.items():
        gap = 1e3 * (np.concatenate(parts) - base)
        told = zip(
            np.concatenate(parts).mean(axis=0),
            gap.mean(axis=0),
            gap.std(axis=0) / np.sqrt(len(gap)),
            strict=True,
        )
        words = "  ".join(f"{value:.4f} {more:+6.2f} ({error:.2f})" for value, more, error in told)
        print(f"  {label:24s} {words}  {np.median(spent[label]):5.0f} us", flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("folders", nargs="*", default=["routerdc7", "openllm_pool", "routerbench_part"])
    options.add_argument("--prompts", type=int, default=6000, help="at most so many prompts of a folder")
    options.add_argument("--seeds", type=int, default=2, help="how many fresh splits")
    chosen = options.parse_args()
    kernels.warm()
    for name in chosen.folders:
        compare(name, chosen.prompts, chosen.seeds)


if __name__ == "__main__":
    main()

"""Prints the mean squared error of every estimator on every folder, fitted on train, measured on test.

    OMP_NUM_THREADS=1 python -m benchmarks.estimators [folder ...] [--peeks 100 200 400]

Columns: the training mean, kNN-3 (the paper's f), kNN-50, h(f) = ridge of the reward on leave-one-out kNN-3,
h(kNN-50), the default g (prompt only), g with the specialist's own first characters, and, as a separate
variant, g with agreement between all specialists' first characters (part of it answers already visible).
Differences are paired over test prompts, with one standard error behind them.
"""

from __future__ import annotations

import argparse
import json
import resource
import time

import numpy as np

from benchmarks.folders import SCORED, Folder, load
from pandora_router.estimators.boosted import Boosted
from pandora_router.estimators.heads import fit_ridge, grouped_folds
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.estimators.peek import Peek


def per_prompt(predicted: np.ndarray, reward: np.ndarray) -> np.ndarray:
    """Squared error of each prompt, averaged over the specialists that have a reward."""
    return np.nanmean((predicted - reward) ** 2, axis=1)


def cheap(train: Folder, test: Folder) -> tuple[dict[str, np.ndarray], float]:
    start = time.process_time()
    fitted = Neighbours.fit(train.prompts, train.reward, train.specialists)
    spent = time.process_time() - start
    vectors = fitted.embedder.embed(test.prompts)
    folds = grouped_folds(train.prompts, 5, 0)
    found = {"mean": np.broadcast_to(fitted.mean, test.reward.shape)}
    for k in (3, 50):
        one = fitted.with_k(k)
        found[f"kNN-{k}"] = one.predict_vectors(vectors)
        recalibrated, _ = fit_ridge(one.leave_one_out(), train.reward, folds)
        found[f"h(kNN-{k})"] = recalibrated.predict(found[f"kNN-{k}"])
    return found, spent


def costly(train: Folder, test: Folder, peek: Peek | None) -> tuple[np.ndarray, float, list[float]]:
    start = time.process_time()
    seen = train.contexts if peek else None
    fitted = Boosted.fit(train.prompts, train.reward, train.specialists, contexts=seen, peek=peek)
    spent = time.process_time() - start
    predicted = fitted.predict(test.prompts, test.contexts if peek else None)
    return predicted, spent, [round(float(w), 2) for w in fitted.blend]


def report(name: str, found: dict[str, np.ndarray], reward: np.ndarray, spent: dict[str, float]) -> None:
    errors = {label: per_prompt(predicted, reward) for label, predicted in found.items()}
    print(f"\n{name}: {reward.shape[0]} test prompts x {reward.shape[1]} specialists")
    best = errors["g"]
    for label, error in errors.items():
        gap = error - best
        noise = gap.std() / np.sqrt(len(gap))
        share = 100 * (error.mean() / errors["kNN-3"].mean() - 1)
        print(
            f"  {label:18s} {error.mean():.4f}  vs kNN-3 {share:+6.1f} %"
            f"  minus g {gap.mean():+.4f} ({noise:.4f})"
            + (f"  fit {spent[label]:.1f} CPU-s" if label in spent else "")
        )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folders", nargs="*", default=list(SCORED))
    options.add_argument("--peeks", nargs="*", type=int, default=[400])
    options.add_argument("--specialists", type=int, default=1000, help="only the first ones")
    options.add_argument("--json", default=None, help="also write the means to this file")
    chosen = options.parse_args()
    rows = {}
    for name in chosen.folders:
        folder = load(name).only(chosen.specialists)
        train, test = folder.take(folder.rows("train")), folder.take(folder.rows("test"))
        found, seconds = cheap(train, test)
        spent = {"kNN-3": seconds}
        found["g"], spent["g"], blend = costly(train, test, None)
        if folder.contexts is not None:
            for characters in chosen.peeks:
                for label, together in (("own", False), ("agreement", True)):
                    key = f"g+{label} {characters}"
                    found[key], spent[key], _ = costly(train, test, Peek(characters, together))
        report(name, found, test.reward, spent)
        print(
            f"  blend {blend}  peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB",
            flush=True,
        )
        rows[name] = {label: float(per_prompt(p, test.reward).mean()) for label, p in found.items()}
    if chosen.json:
        with open(chosen.json, "w", encoding="utf-8") as sink:
            json.dump(rows, sink, indent=1)


if __name__ == "__main__":
    main()

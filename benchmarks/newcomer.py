"""Prints how well a specialist added from a few scored prompts is estimated, against a full fit.

    OMP_NUM_THREADS=1 python -m benchmarks.newcomer routerdc7 --prompts 24 48 96 400

Each specialist in turn is the newcomer to a default g fitted on the others; means over newcomers and three
draws of prompts, with the standard error over newcomers.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.folders import load
from pandora_router.estimators.extended import Extended
from pandora_router.estimators.stack.boosted import Boosted


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder")
    options.add_argument("--prompts", type=int, nargs="*", default=[24, 48, 96, 400])
    options.add_argument("--newcomers", type=int, default=5)
    chosen = options.parse_args()
    folder = load(chosen.folder)
    train, test = folder.take(folder.rows("train")), folder.take(folder.rows("test"))
    whole = Boosted.fit(train.prompts, train.reward, train.specialists).predict(test.prompts)
    rows: dict[str, list[float]] = {}
    for j in range(min(chosen.newcomers, len(train.specialists))):
        others = [i for i in range(len(train.specialists)) if i != j]
        names = [train.specialists[i] for i in others]
        base = Boosted.fit(train.prompts, train.reward[:, others], names)
        truth = test.reward[:, j]
        rows.setdefault("full fit", []).append(float(np.nanmean((whole[:, j] - truth) ** 2)))
        scored = np.flatnonzero(np.isfinite(train.reward[:, j]))
        for count in chosen.prompts:
            found, constant = [], []
            for seed in range(3):
                few = np.random.default_rng(seed).permutation(scored)[:count]
                added = Extended.fit(base, "new", [train.prompts[i] for i in few], train.reward[few, j])
                found.append(np.nanmean((added.predict(test.prompts)[:, -1] - truth) ** 2))
                constant.append(np.nanmean((train.reward[few, j].mean() - truth) ** 2))
            rows.setdefault(f"added from {count}", []).append(float(np.mean(found)))
            rows.setdefault(f"mean of {count}", []).append(float(np.mean(constant)))
    for label, values in rows.items():
        print(
            f"{folder.name} {label:16s} {np.mean(values):.4f} ({np.std(values) / np.sqrt(len(values)):.4f})"
        )


if __name__ == "__main__":
    main()

"""How good is a specialist added from a few dozen prompts, against one fitted with all the others?

    python -m benchmarks.newcomers --data ../shared/data [--cache FOLDER] [--seeds 6 7 8] [--sets NAME ...]

Each specialist in turn is left out of the fit and added with `extend`. Printed, for the newcomer's column on
test prompts: mean squared error of the mean against g, coverage within one and two standard deviations, and
error of its correlations with the others; then regret + cost of the knowledge gradient with the whole model.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from benchmarks.standins import SETTINGS, Arrays, arrays
from pandora_router.calibrate import Calibrated, FittedSignal, extend
from pandora_router.calibrate.choose import decide
from pandora_router.search import KnowledgeGradient

PROMPTS = (12, 25, 50, 100)
COST = 0.005


def judge(signal: FittedSignal, full: FittedSignal, test: Arrays) -> tuple[float, ...]:
    """MSE, two coverages and correlation error of the last column, and regret + cost of all."""
    away = (test.g - signal.expected(test.f))[:, -1]
    scaled = np.abs(away) / signal.spread(test.f)[:, -1]
    assert signal.correlation is not None
    assert full.correlation is not None
    rows = signal.correlation.matrix[-1, :-1] - full.correlation.matrix[-1, :-1]
    choice, spent, _ = decide(KnowledgeGradient(), signal.batch(test.f, COST), signal.values(test.f, test.g))
    regret = np.nanmax(test.r, axis=1) - test.r[np.arange(len(choice)), choice]
    loss = float(np.nanmean(regret + spent))
    return float((away**2).mean()), (scaled <= 1).mean(), (scaled <= 2).mean(), np.abs(rows).mean(), loss


def measure(made: dict[str, Arrays]) -> dict[str, list[tuple[float, ...]]]:
    """Leave each specialist out in turn."""
    calibration, test = made["calibration"], made["test"]
    boxes = calibration.f.shape[1]
    found: dict[str, list[tuple[float, ...]]] = {}
    for j in range(boxes):
        order = [k for k in range(boxes) if k != j] + [j]
        c = Arrays(*(part[:, order] for part in (calibration.f, calibration.g, calibration.r)))
        t = Arrays(*(part[:, order] for part in (test.f, test.g, test.r)))
        full = Calibrated().fit(c.f, c.g, c.r)
        found.setdefault("fitted with all", []).append(judge(full, full, t))
        others = Calibrated().fit(c.f[:, :-1], c.g[:, :-1], c.r[:, :-1])
        for n in PROMPTS:
            rows = np.random.default_rng(j).permutation(len(c.f))[:n]
            grown = extend(others, c.f[rows], c.g[rows])
            found.setdefault(f"added from {n}", []).append(judge(grown, full, t))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with the routing data")
    parser.add_argument("--cache", type=Path, help="keep estimates (numbers only) here")
    parser.add_argument("--seeds", type=int, nargs="+", default=[6, 7, 8])
    parser.add_argument(
        "--sets", nargs="+", default=["mirage 4 systems", "mmlupro 8 models"], choices=SETTINGS
    )
    args = parser.parse_args()
    for name in args.sets:
        print(
            f"\n## {name}: MSE against g, coverage 1, coverage 2, correlation error, regret + cost at {COST}"
        )
        splits = [measure(arrays(name, args.data, seed, args.cache)) for seed in args.seeds]
        for way in splits[0]:
            numbers = np.mean([row for split in splits for row in split[way]], axis=0)
            print(way.ljust(18) + "  ".join(f"{number:.4f}" for number in numbers))


if __name__ == "__main__":
    main()

"""What each part of the signal model is worth on real data, and whether the default beats static choices.

    python -m benchmarks.signals --data ../shared/data [--cache FOLDER] [--seeds 3 4 5] [--sets NAME ...]

For every data set and inspection cost: regret + cost of mean-only, inspect-all (argmax of g, as in the
paper), the knowledge gradient on each signal model and with one part of the default switched off at a time,
and `Auto`. All on the same test prompts, averaged over fresh splits; a standard error is that of the paired
difference over prompts, with splits averaged (splits share prompts, so it is not divided by their number).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.standins import SETTINGS, Arrays, arrays
from pandora_router.calibrate import (
    Auto,
    Boosted,
    Calibrated,
    EmpiricalDraws,
    GaussianIndependent,
    GaussianJoint,
    NeighbourSignal,
    SignalModel,
    Unfitted,
    check,
)
from pandora_router.calibrate.choose import decide
from pandora_router.search import KnowledgeGradient, Policy, Relative, Rollout

COSTS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05)
SIGNALS: dict[str, Unfitted] = {
    "calibrated": Calibrated(),
    "  constant scale": Calibrated(scale="constant"),
    "  no correlation": Calibrated(correlation="none"),
    "  no slope": Calibrated(slope=False),
    "  normal law": Calibrated(law="normal"),
    "  boosted mean": Calibrated(mean=Boosted()),
    "gaussian joint": GaussianJoint(),
    "gaussian independent": GaussianIndependent(),
    "neighbours": NeighbourSignal(),
    "draws": EmpiricalDraws(),
}
MARGINAL: dict[str, Policy] = {"relative, normal law": Relative(), "rollout, normal law": Rollout()}
Losses = dict[str, np.ndarray]  # regret + cost of every test prompt, by way of deciding


@dataclass(frozen=True)
class Split:
    """One split of one data set: fitted signal models, and test prompts with every reward."""

    fitted: Mapping[str, SignalModel]
    calibration: Arrays
    test: Arrays

    @classmethod
    def of(cls, made: Mapping[str, Arrays]) -> Split:
        """Fit every signal model on the calibration prompts."""
        calibration, test = made["calibration"], made["test"]
        whole = ~np.isnan(test.r).any(axis=1)
        fitted = {
            name: signal.fit(calibration.f, calibration.g, calibration.r) for name, signal in SIGNALS.items()
        }
        return cls(fitted, calibration, Arrays(test.f[whole], test.g[whole], test.r[whole]))

    def regret(self, choice: np.ndarray) -> np.ndarray:
        """What each test prompt lost against the best specialist in hindsight."""
        rows = np.arange(len(choice))
        return self.test.r.max(axis=1) - self.test.r[rows, choice]

    def search(self, policy: Policy, signal: SignalModel, cost: float) -> np.ndarray:
        """Regret + cost of each test prompt when `policy` searches the boxes of `signal`."""
        f, g = self.test.f, self.test.g
        choice, spent, _ = decide(policy, signal.batch(f, cost), signal.values(f, g))
        return self.regret(choice) + spent

    def losses(self, cost: float, auto: bool) -> tuple[Losses, str]:
        """Regret + cost of each test prompt by each way of deciding, and what `Auto` chose."""
        f, g = self.test.f, self.test.g
        whole_bill = cost * g.shape[1]
        model = self.fitted["calibrated"]
        result = {
            "f-only": self.regret(f.argmax(axis=1)),
            "mean-only": self.regret(model.expected(f).argmax(axis=1)),
            "inspect-all": self.regret(g.argmax(axis=1)) + whole_bill,
            "inspect-all, slope": self.regret(model.values(f, g).argmax(axis=1)) + whole_bill,
        }
        for name, signal in self.fitted.items():
            result[name] = self.search(KnowledgeGradient(), signal, cost)
        for name, policy in MARGINAL.items():
            result[name] = self.search(policy, self.fitted["  normal law"], cost)
        if not auto:
            return result, ""
        calibration = self.calibration
        choice = Auto().choose(calibration.f, calibration.g, calibration.r, cost)
        result["auto"] = self.search(choice.candidate.policy, choice.signal, cost)
        return result, choice.candidate.name


def measure(name: str, data: Path, seeds: list[int], cache: Path | None, auto: bool) -> dict[str, np.ndarray]:
    """Print the tables of one data set; return each way's distance to the envelope (costs,)."""
    splits = [Split.of(arrays(name, data, seed, cache)) for seed in seeds]
    first = splits[0]
    print(f"\n## {name}: {first.test.f.shape[1]} specialists, {len(first.calibration.f)} calibration and")
    print(f"   {len(first.test.f)} test prompts, splits {seeds}")
    describe(splits)
    table: dict[str, list[float]] = {}
    above: dict[str, list[tuple[float, float]]] = {}
    chosen = []
    for cost in COSTS:
        made = [split.losses(cost, auto) for split in splits]
        chosen.append("/".join(pick for _, pick in made))
        mean = {way: float(np.mean([loss[way].mean() for loss, _ in made])) for way in made[0][0]}
        static = "mean-only" if mean["mean-only"] <= mean["inspect-all"] else "inspect-all"
        for way in mean:
            table.setdefault(way, []).append(mean[way])
            gaps = [loss[way] - loss[static] for loss, _ in made]
            error = np.mean([gap.std(ddof=1) / np.sqrt(len(gap)) for gap in gaps])
            above.setdefault(way, []).append((float(np.mean([gap.mean() for gap in gaps])), float(error)))
    show(table, above)
    if auto:
        print("auto chose:", "; ".join(f"{c:g}: {pick}" for c, pick in zip(COSTS, chosen, strict=True)))
    return {way: np.array([gap for gap, _ in gaps]) for way, gaps in above.items()}


def describe(splits: list[Split]) -> None:
    """The signal model on test prompts, averaged over splits."""
    for name in ("calibrated", "gaussian joint", "neighbours", "draws"):
        reports = [check(s.fitted[name], s.test.f, s.test.g, s.test.r) for s in splits]
        mse = {k: np.mean([r.mse[k] for r in reports]) for k in reports[0].mse}
        one, two = (np.mean([getattr(r, f"coverage_{k}") for r in reports]) for k in (1, 2))
        errors = ", ".join(f"{k} {v:.4f}" for k, v in mse.items()) if name == "calibrated" else ""
        print(f"   {name}: coverage {one:.3f} {two:.3f}, h(f) {mse['h(f)']:.4f} {errors}")
        if name == "calibrated":
            rho = np.mean([r.residual_correlation for r in reports])
            slopes = ", ".join(f"{s.fitted[name].slope:.2f}" for s in splits)  # type: ignore[attr-defined]
            print(f"   residual correlation {rho:.2f}, slopes {slopes}")


def show(table: Mapping[str, list[float]], above: Mapping[str, list[tuple[float, float]]]) -> None:
    print("regret + cost at c =".ljust(24) + "".join(f"{c:>13g}" for c in COSTS))
    for way, losses in table.items():
        print(way.ljust(24) + "".join(f"{loss:13.4f}" for loss in losses))
    print(
        "1e-3 above the lower envelope of mean-only and inspect-all (paired standard error), and their mean"
    )
    for way, gaps in above.items():
        cells = "".join(f"{1e3 * gap:+7.1f} ({1e3 * error:3.1f})" for gap, error in gaps)
        print(way.ljust(24) + cells + f"{1e3 * np.mean([gap for gap, _ in gaps]):+9.2f}")


def summarise(results: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    print("\n## 1e-3 above the envelope, mean over costs [highest at a single cost]")
    ways = next(iter(results.values())).keys()
    for way in ways:
        cells = [f"{1e3 * r[way].mean():+7.2f} [{1e3 * r[way].max():+5.1f}]" for r in results.values()]
        average = 1e3 * np.mean([r[way].mean() for r in results.values()])
        print(way.ljust(22) + " ".join(cells) + f" all {average:+6.2f}")
    print("columns: " + " | ".join(results))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with the routing data")
    parser.add_argument("--cache", type=Path, help="keep estimates (numbers only) here")
    parser.add_argument("--seeds", type=int, nargs="+", default=[3, 4, 5])
    parser.add_argument("--sets", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--no-auto", action="store_true", help="leave out the slow part")
    args = parser.parse_args()
    results = {name: measure(name, args.data, args.seeds, args.cache, not args.no_auto) for name in args.sets}
    summarise(results)


if __name__ == "__main__":
    main()

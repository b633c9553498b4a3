"""`python -m paper.sharp --data ../shared/data`: the laws of a costly estimate that is the truth, or nearly.

    python -m paper.sharp --data ../shared/data --wrong 0.05    a judge that is wrong once in twenty

The costly estimate of every prompt is its true reward, as a verifier or a unit test would show it; with
`--wrong p` each score is turned into 1 - score with chance p. Nothing but the cheap estimate is fitted, on a
split that no rule was tuned on. Prints for each experiment and law the regret + inspection cost per prompt
at four costs, in 1e-3, and in brackets what it loses less than the law of quantiles, with the standard error
over prompts. The guard is off. The draws are those of `EmpiricalDraws`: residuals of each specialist by class
of its mean, independent, no slope.
"""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

from pandora_router.boxes.costs import as_costs
from pandora_router.calibrate import Calibrated, EmpiricalDraws, Readings, Unfitted
from pandora_router.calibrate.ways import search
from pandora_router.config.experiments import read_experiment
from pandora_router.evaluate.estimates import split_of, table_of
from pandora_router.evaluate.experiments import Experiment
from pandora_router.router.out_of_fold import Part, cheap_estimates, knowing
from pandora_router.router.recipes import NeighbourRecipe
from pandora_router.router.table_fit import parted
from pandora_router.search import KnowledgeGradient
from pandora_router.types import silent

EXPERIMENTS = Path(__file__).parent / "experiments"
NAMES = ("math_small_o1", "mirage", "routerdc7", "openllm")
COSTS = (0.001, 0.005, 0.01, 0.05)
MOST = 1000
"""Test prompts searched."""
LAWS: dict[str, Unfitted] = {
    "quantiles": Calibrated(law="quantiles"),
    "normal": Calibrated(law="normal"),
    "draws": EmpiricalDraws(),
    "likeliest": Calibrated(law="likeliest"),
}


def readings_of(experiment: Experiment, root: Path, seed: int, wrong: float) -> tuple[Readings, ...]:
    """Training, calibration and test prompts whose costly estimate is the reward, or that of a judge.

    The training prompts of a judge have no costly estimates: it is asked about the others only.
    """
    train, calibration, test, _ = parted(split_of(experiment, table_of(experiment, root), seed))
    cheap = knowing(NeighbourRecipe().fit(train, silent), calibration)
    parts = {"train": train, "calibration": calibration, "test": test}
    f = cheap_estimates(cheap, {name: Part.of(part, len(part)) for name, part in parts.items()}, {"f": None})
    rng, made = np.random.default_rng(seed), []
    for name, part in parts.items():
        turned = rng.random(part.score.shape) < wrong
        costly = part.reward + np.where(turned, 1.0 - 2.0 * part.score, 0.0)
        if wrong and name == "train":
            costly = np.full(costly.shape, np.nan)
        made.append(Readings(f[f"{name}.f"], costly, part.reward))
    return tuple(made)


@click.command()
@click.argument("names", nargs=-1)
@click.option("--data", "root", required=True, type=click.Path(path_type=Path), help="The data folders.")
@click.option("--seed", default=81, help="Of the split.")
@click.option("--wrong", default=0.0, type=click.FloatRange(0.0, 1.0), help="Chance that a score is turned.")
def main(names: tuple[str, ...], root: Path, seed: int, wrong: float) -> None:
    """Print a table for each experiment of paper/experiments."""
    for name in names or NAMES:
        experiment = read_experiment(EXPERIMENTS / f"{name}.yaml")
        train, calibration, test = readings_of(experiment, root, seed, wrong)
        whole = np.flatnonzero(test.complete)[:MOST]
        test, boxes = test.rows(whole), test.cheap.shape[1]
        print(f"{name}, {len(whole)} test prompts, seed {seed}", flush=True)
        print(f"| law | {' | '.join(f'c = {cost}' for cost in COSTS)} |\n|---|{'---|' * len(COSTS)}")
        base = None
        for law, signal in LAWS.items():
            model = signal.fit(calibration, train)
            lost = np.array(
                [search(KnowledgeGradient(), model, test, as_costs(c, boxes)).total(test) for c in COSTS]
            )
            base = lost if base is None else base
            lead = 1e3 * (base - lost)
            error = lead.std(axis=1, ddof=1) / np.sqrt(len(test))
            rows = zip(1e3 * lost.mean(axis=1), lead.mean(axis=1), error, strict=True)
            print(
                f"| {law} | " + " | ".join(f"{a:.1f} ({b:+.1f}, {c:.1f})" for a, b, c in rows) + " |",
                flush=True,
            )


if __name__ == "__main__":
    main()

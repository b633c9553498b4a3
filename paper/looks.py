"""`python -m paper.looks`: what looks earn, measured by the experiments of paper/experiments/looks.

    python -m paper.looks results/looks --data ../shared/data --page docs/results.md

The first split of every experiment is run first, then the second of every one, and so on; the page is written
after each round. Finished splits are kept, so a run that is broken off goes on where it stopped. Without
`--data` nothing is run: the page is written from whatever splits are finished and says how many those are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
from tools.pages import put

from pandora_router.boxes.costs import as_costs
from pandora_router.calibrate.ways import ROUTER
from pandora_router.cli.console import SlowProgress
from pandora_router.cli.options import with_runner
from pandora_router.config.experiments import read_experiment
from pandora_router.errors import UsageError
from pandora_router.evaluate import campaign, results
from pandora_router.evaluate.arms import named
from pandora_router.evaluate.estimates import estimates, table_of
from pandora_router.evaluate.experiments import USUAL, Experiment
from pandora_router.evaluate.results import Results
from pandora_router.evaluate.trials import Trial, trial_of
from pandora_router.report.tables import grid
from pandora_router.run import Runner
from pandora_router.types import Progress

EXPERIMENTS = Path(__file__).parent / "experiments" / "looks"
OWN = "own"
STATIC = ("never inspect", "always inspect", "open everything")
HEAD = """## What looks earn

A look is the beginning of a specialist's answer. This part is written by `python -m paper.looks` from the
splits of `paper/experiments/looks` that are finished; the column "splits" says how many. Five were planned
(seeds 31 to 35, on which no rule was tuned). Numbers are 1e-3 of reward per prompt, averaged over the
inspection costs .002 to .05 of a look. In parentheses is the larger of two standard errors: over prompts,
clustered by distinct f vector, and over splits where there are several. Positive numbers are gains.
"""
REFUNDS = """
### Refunds

Every look comes back in full if the specialist that was looked at is chosen, since its answer goes on.
"Aware" is the router that plans with refunds; "blind" plans as if nothing came back, and what does come back
is counted for both. "Obligatory" is Weitzman's rule, which full refunds make optimal for independent boxes.
"""
OPENED = """
### Estimates from everything that was opened

"Own" is the router whose estimates read each specialist's own beginning. "Opened" is the default: estimates
of all specialists from all beginnings opened so far, used only where they lose less out of fold ("no choice":
always used). "Everything" looks at everybody and reads all beginnings together. The envelope is, at each
cost, the best of never looking, always looking with own beginnings, and everything. **Part of the gain is
answers that are already visible in the beginnings**: specialists that agree on a number or a letter within
the first 400 or 200 characters. rag_adarague is not here: one of its specialists has no beginning to look at,
so the default reads own beginnings there.
"""


def difference(found: Results, worse: str, better: str, costs: Sequence[float] | None = None) -> str:
    """How much more `better` earns than `worse`, averaged over costs, in 1e-3, with its standard error."""
    levels = found.costs if costs is None else costs
    pairs = [((USUAL, c, worse), (USUAL, c, better)) for c in levels]
    splits = []
    for seed in found.seeds.values():
        totals = seed.totals([key for pair in pairs for key in pair])
        splits.append(np.mean([totals[a] - totals[b] for a, b in pairs], axis=0))
    means = np.array([one.mean() for one in splits])
    over_prompts = np.sqrt(np.sum([clustered(*one) for one in _with_clusters(found, splits)])) / len(splits)
    over_splits = means.std(ddof=1) / np.sqrt(len(means)) if len(means) > 1 else 0.0
    return f"{1e3 * means.mean():+.1f} ({1e3 * max(over_prompts, over_splits):.1f})"


def _with_clusters(found: Results, splits: list[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    numbers = [seed.clusters(USUAL)[1] for seed in found.seeds.values()]
    return list(zip(splits, numbers, strict=True))


def clustered(values: np.ndarray, cluster: np.ndarray) -> float:
    """The variance of the mean of `values` when prompts of one cluster are not independent."""
    sums = np.bincount(cluster, values - values.mean(), minlength=int(cluster.max()) + 1)
    return float((sums**2).sum() / len(values) ** 2)


def envelope(found: Results) -> str:
    """How much more "opened" earns than the best static way at each cost, averaged over costs."""
    best = {c: min(STATIC, key=lambda arm: found.mean("total", (USUAL, c, arm))) for c in found.costs}
    splits = []
    for seed in found.seeds.values():
        keys = [(USUAL, c, best[c]) for c in found.costs] + [(USUAL, c, ROUTER) for c in found.costs]
        totals = seed.totals(keys)
        splits.append(
            np.mean([totals[USUAL, c, best[c]] - totals[USUAL, c, ROUTER] for c in found.costs], axis=0)
        )
    means = np.array([one.mean() for one in splits])
    error = np.sqrt(np.sum([clustered(*one) for one in _with_clusters(found, splits)])) / len(splits)
    over_splits = means.std(ddof=1) / np.sqrt(len(means)) if len(means) > 1 else 0.0
    return f"{1e3 * means.mean():+.1f} ({1e3 * max(error, over_splits):.1f})"


def finished(folder: Path, experiments: Path, start: str) -> dict[str, Results]:
    """The experiments whose names begin with `start` that have a finished split, by name."""
    found = {}
    for path in sorted(experiments.glob(f"{start}*.yaml")):
        try:
            found[read_experiment(path).name] = results.read(folder / path.stem)
        except UsageError:
            continue
    return found


def refunds(folder: Path, experiments: Path) -> str:
    """The table of refunds."""
    lines = [
        "| experiment | splits | aware over blind | at the highest cost | aware over obligatory | "
        "aware over never |",
        "|---|---|---|---|---|---|",
    ]
    for found in finished(folder, experiments, "refund_").values():
        cells = [
            difference(found, "blind to refunds", ROUTER),
            difference(found, "blind to refunds", ROUTER, found.costs[-1:]),
            difference(found, "obligatory", ROUTER),
            difference(found, "never inspect", ROUTER),
        ]
        lines.append(f"| {found.title} | {len(found.seeds)} | " + " | ".join(cells) + " |")
    return REFUNDS + "\n" + "\n".join(lines) + "\n"


def opened(folder: Path, experiments: Path) -> str:
    """The table of estimates from everything that was opened."""
    lines = [
        "| experiment | characters | splits | opened over own | no choice over own | everything over own | "
        "opened over the envelope |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, found in finished(folder, experiments, "opened_").items():
        cells = [
            difference(found, OWN, ROUTER),
            difference(found, OWN, "opened, no choice"),
            difference(found, OWN, "open everything"),
            envelope(found),
        ]
        where = name.rsplit("_", 1)[1]
        lines.append(f"| {found.title} | {where} | {len(found.seeds)} | " + " | ".join(cells) + " |")
    return OPENED + "\n" + "\n".join(lines) + "\n" + by_cost(folder, experiments)


def missing(folder: Path, experiments: Path) -> str:
    """The experiments that have no finished split yet, and those with fewer than asked for, in words."""
    done = {**finished(folder, experiments, "refund_"), **finished(folder, experiments, "opened_")}
    names, some = [], []
    for path in sorted(experiments.glob("*.yaml")):
        wanted = len(read_experiment(path).seeds)
        if path.stem not in done:
            names.append(path.stem)
        elif len(done[path.stem].seeds) < wanted:
            some.append(f"{path.stem} ({len(done[path.stem].seeds)} of {wanted})")
    words = f"\nNot measured yet: {', '.join(names)}.\n" if names else ""
    return words + (f"\nSplits that are missing: {', '.join(some)}.\n" if some else "")


def by_cost(folder: Path, experiments: Path) -> str:
    """What "opened" earns over "own" at each cost."""
    every = finished(folder, experiments, "opened_")
    if not every:
        return ""
    costs = next(iter(every.values())).costs
    lines = ["", "The same by inspection cost, opened over own:", ""]
    lines.append("| experiment | " + " | ".join(f"{c:g}" for c in costs) + " |")
    lines.append("|---" * (len(costs) + 1) + "|")
    for name, found in every.items():
        cells = [difference(found, OWN, ROUTER, [c]) for c in costs]
        lines.append(f"| {name.removeprefix('opened_')} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def run(
    settings: Sequence[Experiment], root: Path, folder: Path, runner: Runner, progress: Progress
) -> Iterator[int]:
    """Run the missing splits of `settings` on the data under `root`, one split of each experiment at a time.

    Yields the number of the round after all of its splits are on disk under `folder`.
    """
    for number in range(max(len(one.seeds) for one in settings)):
        asked = [
            campaign.Campaign(one, root, one.seeds[number : number + 1])
            for one in settings
            if number < len(one.seeds)
        ]
        campaign.run(asked, folder, cache=folder / "cache", runner=runner, progress=progress)
        yield number


def page(folder: Path, experiments: Path = EXPERIMENTS, note: str = "") -> str:
    """The part of the page from the finished splits in `folder`; `note` is a sentence about this run."""
    parts = (part(folder, experiments) for part in (refunds, opened, missing))
    return HEAD + (f"\n{note}\n" if note else "") + "".join(parts)


FAR = """### How far to look

The same looks, broken off after fewer characters; this part is written by `python -m paper lengths`. A look
at 400 characters has the price at the head of a column, one at fewer characters its share of that price, and
nothing comes back. Numbers are what the router with estimates from own beginnings earns more than never
inspecting (standard errors over prompts), on the splits {seeds}, at most {most} test prompts of each.

{table}
"""
LENGTHS, WHOLE = (100, 200, 400), 400
PRICES = (0.005, 0.01, 0.02, 0.05)  # of a look at `WHOLE` characters
MOST = 1000  # test prompts of a split


def lengths(names: Sequence[str], root: Path, seeds: Sequence[int], cache: Path, say: Progress) -> str:
    """The table of looks of each length at their prices, for experiments of paper/experiments."""
    rows: list[list[str]] = []
    for name in names:
        setting = read_experiment(EXPERIMENTS.parent / f"{name}.yaml")
        table = table_of(setting, root)
        for far in LENGTHS:
            shorter = replace(setting, peek=far, neighbours=())
            squared, gains = [], []
            for seed in seeds:
                say(f"{name}: {far} characters, seed {seed}", len(rows), len(names) * len(LENGTHS))
                whole = trial_of(estimates(shorter, table, seed, cache), USUAL)
                trial = replace(
                    whole, test=whole.test.rows(slice(MOST)), prompt=whole.prompt[:MOST], sets=None
                )
                squared.append(((trial.test.costly - trial.test.reward) ** 2).mean(axis=1))
                gains.append([_over_never(trial, far / WHOLE * price) for price in PRICES])
            cells = [
                f"{mean:+.1f} ({error:.1f})" for mean, error in map(_of_prompts, zip(*gains, strict=True))
            ]
            rows.append([setting.title, str(far), f"{np.concatenate(squared).mean():.4f}", *cells])
    head = ["experiment", "characters", "squared error of g", *(f"{price:g}" for price in PRICES)]
    return FAR.format(seeds=", ".join(map(str, seeds)), most=MOST, table=grid(head, rows))


def _over_never(trial: Trial, price: float) -> np.ndarray:
    """What the router earns more than never inspecting on each test prompt, estimates from own beginnings."""
    costs, rng = as_costs(price, trial.test.cheap.shape[1]), np.random.default_rng(0)
    earned = []
    for arm in named((ROUTER, "never inspect")):
        routed = arm.route(trial, costs, 0, rng)
        earned.append(trial.test.reward[np.arange(len(trial.test)), routed.choice] - routed.spent)
    return np.asarray(1e3 * (earned[0] - earned[1]))


def _of_prompts(splits: Sequence[np.ndarray]) -> tuple[float, float]:
    values = np.concatenate(splits)
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--data", "root", type=click.Path(path_type=Path, file_okay=False), help="Run missing splits.")
@click.option(
    "--experiments",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=EXPERIMENTS,
    help="Where the experiments lie.",
)
@click.option("--only", multiple=True, help="Only experiments whose names begin so; may be repeated.")
@click.option("--seeds", type=click.IntRange(1), help="Only the first so many splits.")
@click.option("--page", "page_to", type=click.Path(path_type=Path, dir_okay=False), help="The page to write.")
@click.option("--note", default="", help="A sentence about this run, printed under the introduction.")
@with_runner
def main(
    folder: Path,
    root: Path | None,
    experiments: Path,
    only: tuple[str, ...],
    seeds: int | None,
    page_to: Path | None,
    note: str,
    runner: Runner,
) -> None:
    """Run the splits that are missing in FOLDER (with --data) and write the page from all finished ones."""
    if root is not None:
        paths = sorted(experiments.glob("*.yaml"))
        settings = [read_experiment(path) for path in paths if path.stem.startswith(only or ("",))]
        settings = [replace(one, seeds=one.seeds[:seeds]) for one in settings]
        if not settings:
            known = ", ".join(path.stem for path in paths)
            raise UsageError(
                "--only",
                expected=f"the beginning of one of {known}",
                came=repr(only),
                do="Check the spelling.",
            )
        with SlowProgress(resumes=True) as progress:
            for _ in run(settings, root.resolve(), folder.resolve(), runner, progress):
                if page_to is not None:
                    put(page(folder, experiments, note), page_to, "looks")
    elif page_to is not None:
        put(page(folder, experiments, note), page_to, "looks")
    else:
        click.echo(page(folder, experiments, note))


if __name__ == "__main__":
    main()

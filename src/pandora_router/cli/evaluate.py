"""Verbs that measure: `pandora evaluate`, `pandora compare`, `pandora sweep`.

`evaluate` says what each way of routing earns on your data, with significance tests. `compare A B` asks
whether B is significantly worse than A; its exit code is for continuous integration. `sweep` computes losses
on files of estimates that need not fit in memory.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pandora_router.calibrate.ways import ROUTER
from pandora_router.cli.console import Screen, SlowProgress, echo_json, table
from pandora_router.cli.options import FOLDER, with_runner
from pandora_router.errors import UsageError
from pandora_router.folders import replace_text
from pandora_router.text import counted

if TYPE_CHECKING:
    from pandora_router.evaluate.experiments import Experiment
    from pandora_router.evaluate.results import Key, Results
    from pandora_router.run import Runner

COLUMNS = ("total", "regret", "inspection_cost", "inspections", "accuracy", "fee")
FILE = click.Path(path_type=Path, dir_okay=False)


def list_arms(context: click.Context, option: click.Parameter, wanted: bool) -> None:
    """Print the name and meaning of every way to route, and exit."""
    if wanted:
        from pandora_router.evaluate.arms import ARMS, BY_NAME

        rows = [[arm.name, arm.about] for arm in (*ARMS, *BY_NAME)]
        Screen().show(table("Ways to route", ("name", "what it does"), rows, words=2))
        context.exit()


@click.command()
@click.argument("experiments", nargs=-1, required=True, type=FILE)
@click.option("-o", "--output", required=True, type=FOLDER, help="Folder for the results (Parquet).")
@click.option("--data", "root", type=FOLDER, help="Parent of the data folders; else beside the YAML file.")
@click.option("--seeds", type=click.IntRange(1), help="Use only this many splits.")
@click.option("--cache", type=FOLDER, help="Folder for estimates (numbers only); default OUTPUT/cache.")
@click.option("--finished", is_flag=True, help="Run nothing; report the splits that are finished.")
@click.option("--verbose", is_flag=True, help="Show every way to route at every inspection cost.")
@click.option("--json", "as_json", is_flag=True, help="Print every row as JSON.")
@click.option("--report", "report_to", type=FILE, help="Write a Markdown page.")
@click.option("--html", "html_to", type=FILE, help="Write one HTML page with interactive curves, offline.")
@click.option("--plots", "plots_to", type=FOLDER, help="Write figures as PNG and SVG.")
@click.option("--replace", is_flag=True, help="Overwrite existing pages and figures.")
@click.option(
    "--list-arms",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=list_arms,
    help="Print the ways to route that an experiment can name, and exit.",
)
@with_runner
def evaluate(
    experiments: tuple[Path, ...],
    output: Path,
    root: Path | None,
    seeds: int | None,
    cache: Path | None,
    runner: Runner,
    finished: bool,
    verbose: bool,
    as_json: bool,
    report_to: Path | None,
    html_to: Path | None,
    plots_to: Path | None,
    replace: bool,
) -> None:
    """Run EXPERIMENTS (YAML) over fresh splits; finished splits are not run again.

    A pandora.yaml is an experiment too: the router that `pandora fit` makes from it, at the same costs. The
    router is fitted on each split as `pandora fit` would fit it, and measured on prompts of that split
    that it has not seen. Splits run on all cores; results do not depend on their number. With --ray, every
    machine needs this package and the data at the same path.

    \b
    Examples:
      pandora evaluate pandora.yaml -o results
      pandora evaluate mine.yaml -o results --html results/mine.html
      pandora evaluate paper/experiments/math_gpt.yaml -o results --data ../shared/data --seeds 3
      pandora evaluate mine.yaml -o results --finished --verbose
      pandora evaluate --list-arms
    """
    from pandora_router.config.experiments import currency, read_experiment
    from pandora_router.evaluate import campaign, results
    from pandora_router.search import kernels

    read = sorted(((path, read_experiment(path)) for path in experiments), key=lambda pair: pair[1].control)
    settings = [experiment for _, experiment in read]  # negative controls come last
    for file in (report_to, html_to):
        free(file, replace)
    if finished:
        measured = [
            results.read(output / experiment.name, campaign.settings_of(experiment))
            for experiment in settings
        ]
    else:
        campaigns = [
            campaign.Campaign(experiment, (root or path.parent).resolve(), experiment.seeds[:seeds])
            for path, experiment in read
        ]
        keep = (cache or output / "cache").resolve()
        with SlowProgress(resumes=True) as progress:
            kernels.warm(progress)
            measured = campaign.run(campaigns, output, cache=keep, runner=runner, progress=progress)
    if as_json:
        echo_json([row for results_ in measured for row in _rows(results_)])
    else:
        for each, (path, _) in zip(measured, read, strict=True):
            _show(each, verbose, currency(path))
    _write(settings, measured, report_to, html_to, plots_to, replace)


def free(file: Path | None, replace: bool) -> None:
    """Raise `UsageError`, before any work, if `file` exists and `replace` is false."""
    if file is not None and file.exists() and not replace:
        raise UsageError(
            str(file),
            expected="a file that does not exist yet",
            came="one that is there",
            do="Choose another name, or pass --replace.",
        )


def _rows(measured: Results) -> list[dict[str, object]]:
    rows = [row for seed in measured.seeds.values() for row in seed.rows.values()]
    return [{name: (None if value != value else value) for name, value in row.items()} for row in rows]


def _show(measured: Results, verbose: bool, sign: str) -> None:
    """Print the verdict and one small table; with `verbose` every arm at every cost, and more verdicts."""
    from pandora_router.evaluate.arms import DEFAULT
    from pandora_router.evaluate.experiments import cheap_name
    from pandora_router.report import summary, tables

    screen = Screen()
    screen.say(f"\n{measured.title}")
    screen.say(summary.sentence(measured, sign))
    if said := summary.reworded(measured):
        screen.say(said)
    costs, splits = counted(len(measured.costs), "inspection cost"), counted(len(measured.seeds), "split")
    title = f"Averaged over {costs} and {splits}"
    screen.show(table(title, summary.HEAD, summary.cells(measured, sign)))
    if not verbose:
        return
    k = measured.neighbours[0]
    arms = tables.base_arms(measured, k)
    pairs: list[tuple[Key, Key]] = [((k, c, a), (k, c, DEFAULT)) for c in measured.costs for a in arms]
    gaps = dict(zip((first for first, _ in pairs), _gaps(measured, pairs), strict=True))
    for cost in measured.costs:
        rows = [
            [arm, *(f"{measured.mean(name, (k, cost, arm)):z.4f}" for name in COLUMNS), gaps[k, cost, arm]]
            for arm in sorted(arms, key=lambda arm: measured.mean("total", (k, cost, arm)))
        ]
        head = ["way to route", *(name.replace("_", " ") for name in COLUMNS), "1e-3 above the router"]
        screen.show(table(f"Inspection cost {cost:g}, {cheap_name(k)}", head, rows))
    screen.say("In parentheses: standard errors over prompts; over splits. *: both tests agree at 5 %.")
    screen.say(tables.verdict(measured, k).replace("**", ""))


def _gaps(measured: Results, pairs: Sequence[tuple[Key, Key]]) -> list[str]:
    from pandora_router.report import tables

    gaps = measured.compare(pairs)
    return ["" if first == second else tables.difference(gaps, i) for i, (first, second) in enumerate(pairs)]


def _write(
    settings: Sequence[Experiment],
    measured: Sequence[Results],
    report_to: Path | None,
    html_to: Path | None,
    plots_to: Path | None,
    replace: bool,
) -> None:
    images: dict[str, Path] = {}
    with SlowProgress(resumes=True) as progress:
        if plots_to is not None:
            from pandora_router.report import plots

            for done, experiment in enumerate(measured):
                progress(f"{experiment.name}: drawing", done, len(measured))
                for ending in (".png", ".svg"):
                    free(plots_to / (experiment.name + ending), replace)
                sheet = plots.figure(experiment, experiment.neighbours[0])
                images[experiment.name] = plots.save(sheet, plots_to / experiment.name)[0]
        if report_to is None and html_to is None:
            return
        from pandora_router.report import html, summary

        progress("writing the report", len(measured), len(measured) + 1)
        near = {name: relative(image, report_to) for name, image in images.items()} if report_to else {}
        words = summary.markdown(measured, near, settings)
        if report_to is not None:
            replace_text(report_to, words)
        if html_to is not None:
            replace_text(html_to, html.page(measured, words))


def relative(image: Path, page: Path) -> str:
    """Path of an image relative to a page; raises `UsageError` if it is outside the page's folder."""
    try:
        return image.resolve().relative_to(page.resolve().parent).as_posix()
    except ValueError as error:
        raise UsageError(
            "--plots",
            expected="a folder below that of --report",
            came=str(image.parent),
            do="Move one of them.",
        ) from error


@click.command()
@click.argument("a", type=FOLDER)
@click.argument("b", type=FOLDER)
@click.option("--arm", default=ROUTER, show_default=True, help="The way of routing to compare.")
@click.option("--arm-b", help="The way of routing of B, if another one.")
@click.option("--tolerance", type=click.FloatRange(0), default=0.0, help="Loss of reward that is accepted.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def compare(a: Path, b: Path, arm: str, arm_b: str | None, tolerance: float, as_json: bool) -> None:
    """Compare two result folders of one experiment (RESULTS/EXPERIMENT), prompt by prompt.

    Exit code 0: B is not significantly worse at any inspection cost; 1: at some inspection cost it is, by
    more than the tolerance; 2: the results cannot be compared. Significant means that the bootstrap over
    prompts and the replication over splits agree, so at least two common seeds are needed.

    \b
    Examples:
      pandora compare main/math_gpt branch/math_gpt
      pandora compare results/math_gpt results/math_gpt --arm "never inspect" --arm-b auto
    """
    from pandora_router.evaluate import results

    first, second = results.read(a), results.read(b)
    wanted: list[tuple[Key, Key]] = [
        ((k, c, arm_b or arm), (k, c, arm)) for k in second.neighbours[:1] for c in second.costs
    ]
    pairs = [(x, y) for x, y in wanted if x in second.keys and y in first.keys]
    if not pairs or len(set(first.seeds) & set(second.seeds)) < 2:
        raise UsageError(
            "results to compare",
            expected=f"two or more common seeds, with {arm!r} at common inspection costs",
            came=f"seeds {sorted(first.seeds)} and {sorted(second.seeds)}, {len(pairs)} common costs",
            do="Run both with the same YAML and --seeds.",
        )
    gaps = second.compare(pairs, first)
    worse = gaps.star & (gaps.mean > tolerance)
    rows = [
        {"cost": x[1], "difference": float(m), "error": float(e), "split_error": float(s), "worse": bool(w)}
        for (x, _), m, e, s, w in zip(pairs, gaps.mean, gaps.error, gaps.split_error, worse, strict=True)
    ]
    if as_json:
        echo_json({"worse": bool(worse.any()), "splits": gaps.splits, "rows": rows})
    else:
        _show_gaps(rows, gaps.splits)
    sys.exit(1 if worse.any() else 0)


def _show_gaps(rows: list[dict[str, float | bool]], splits: int) -> None:
    columns = ("inspection cost", "difference", "s.e. prompts", "s.e. splits", "significantly worse")
    numbers = ("difference", "error", "split_error")
    cells = [
        [f"{row['cost']:g}", *(f"{1e3 * row[name]:.2f}" for name in numbers), "yes" if row["worse"] else "no"]
        for row in rows
    ]
    title = f"regret + cost, B minus A, 1e-3 of reward, {splits} splits"
    Screen().show(table(title, columns, cells, words=0))


SHOWN = ("total", "total_error", "regret", "inspection_cost", "inspections", "accuracy", "fee", "gain")


@click.command()
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option("--calibration", required=True, type=FILE, help="Rows on which the signal model is fitted.")
@click.option("--cost", "costs", multiple=True, type=click.FloatRange(0), help="Inspection cost; repeatable.")
@click.option(
    "--arm", "arms", multiple=True, help="A way of routing; default: the router and all static ones."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of random arms.")
@click.option("--json", "as_json", is_flag=True, help="Print every row as JSON.")
@with_runner
def sweep(
    files: tuple[Path, ...],
    calibration: Path,
    costs: tuple[float, ...],
    arms: tuple[str, ...],
    seed: int,
    as_json: bool,
    runner: Runner,
) -> None:
    """Evaluate every arm at every cost on FILES (Parquet) of estimates, in bounded memory.

    A row is a prompt with list columns f, g, reward and fee, one number per specialist. reward = score - fee,
    so a column `score` may replace `reward`, and a missing `fee` is 0. `pandora fit --write-estimates` writes
    such files. Row groups are computed on all cores, or with Ray; totals are the same to the last bit.

    \b
    Examples:
      pandora sweep test.parquet --calibration calibration.parquet --cost 0.001 --cost 0.01
      pandora sweep part-*.parquet --calibration calibration.parquet --arm "never inspect" --json
      pandora sweep /shared/part-*.parquet --calibration /shared/calibration.parquet --ray 10.0.0.5:6379
    """
    from pandora_router.evaluate import stream
    from pandora_router.evaluate.experiments import COSTS
    from pandora_router.search import kernels

    paths, calibration_path = [path.resolve() for path in files], calibration.resolve()
    with SlowProgress() as progress:
        kernels.warm(progress)
        swept = stream.sweep(
            paths, calibration_path, costs or COSTS, arms=arms, seed=seed, runner=runner, progress=progress
        )
    rows: list[dict[str, Any]] = [
        {"cost": cost, "arm": arm, "prompts": outcomes.prompts, **outcomes.means()}
        for (cost, arm), outcomes in swept.items()
    ]
    if as_json:
        plain = [{name: (None if value != value else value) for name, value in row.items()} for row in rows]
        echo_json(plain)
        return
    screen = Screen()
    columns = ["arm", *(name.replace("_", " ") for name in SHOWN)]
    for cost in dict.fromkeys(row["cost"] for row in rows):
        own = sorted((row for row in rows if row["cost"] == cost), key=lambda row: row["total"])
        cells = [[str(row["arm"]), *(f"{row[name]:z.4f}" for name in SHOWN)] for row in own]
        screen.show(table(f"Inspection cost {cost:g}, {own[0]['prompts']:,} prompts", columns, cells))

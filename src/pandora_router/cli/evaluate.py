"""`pandora evaluate`: at my inspection cost, what does each way of routing lose, is it real?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from pandora_router.cli.console import SlowProgress
from pandora_router.cli.options import with_runner
from pandora_router.config.experiments import read_experiment
from pandora_router.errors import UsageError
from pandora_router.evaluate import campaign, report, results, tables
from pandora_router.evaluate.arms import DEFAULT
from pandora_router.evaluate.campaign import Asked
from pandora_router.evaluate.experiments import Experiment, cheap_name
from pandora_router.evaluate.results import Key, Results
from pandora_router.folders import replace_text
from pandora_router.run import Runner

NARROW = ("total", "regret", "queries", "accuracy")
WIDE = ("total", "regret", "inspection_cost", "queries", "inspected", "accuracy", "fee", "gain")
FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.argument("experiments", nargs=-1, required=True, type=FILE)
@click.option("-o", "--output", required=True, type=FOLDER, help="Folder for the results (Parquet).")
@click.option("--data", "root", type=FOLDER, help="Where data folders lie; else beside the YAML file.")
@click.option("--seeds", type=click.IntRange(1), help="Only the first so many splits.")
@click.option("--cache", type=FOLDER, help="Where estimates are kept (numbers only); default OUTPUT/cache.")
@click.option("--finished", is_flag=True, help="Run nothing: report the splits that are finished.")
@click.option("--json", "as_json", is_flag=True, help="Print every row as JSON.")
@click.option("--report", "report_to", type=FILE, help="Write a Markdown report.")
@click.option("--html", "html_to", type=FILE, help="Write one HTML page with curves to explore, offline.")
@click.option("--plots", "plots_to", type=FOLDER, help="Write figures as PNG and SVG.")
@click.option("--paper", type=FILE, help="figures.json: draw the paper's curves beside ours.")
@with_runner
def evaluate(
    experiments: tuple[Path, ...],
    output: Path,
    root: Path | None,
    seeds: int | None,
    cache: Path | None,
    runner: Runner,
    finished: bool,
    as_json: bool,
    report_to: Path | None,
    html_to: Path | None,
    plots_to: Path | None,
    paper: Path | None,
) -> None:
    """Run EXPERIMENTS (YAML) over fresh splits; finished splits are not run again.

    Splits run on all cores; results do not depend on how many. Over Ray, every machine needs this package
    and sees the data at the same path.

    \b
    Examples:
      pandora evaluate experiments/math_gpt.yaml -o results --data ../shared/data --seeds 3
      pandora evaluate experiments/*.yaml -o results --finished --report docs/results.md
      pandora evaluate experiments/*.yaml -o results --data /shared/data --ray 10.0.0.5:6379
    """
    read = sorted(((path, read_experiment(path)) for path in experiments), key=lambda pair: pair[1].control)
    settings = [one for _, one in read]  # negative controls come last
    if finished:
        found = [results.read(output / one.name, campaign.settings_of(one)) for one in settings]
    else:
        asked = [Asked(one, (root or path.parent).resolve(), one.seeds[:seeds]) for path, one in read]
        keep = (cache or output / "cache").resolve()
        with SlowProgress(resumes=True) as progress:
            found = campaign.run_all(asked, output, cache=keep, runner=runner, progress=progress)
    if as_json:
        click.echo(json.dumps([row for one in found for row in _rows(one)], indent=1, allow_nan=False))
    else:
        for each in found:
            _show(each)
    _write(settings, found, report_to, html_to, plots_to, paper)


def _rows(one: Results) -> list[dict[str, object]]:
    rows = [row for seed in one.seeds.values() for row in seed.rows.values()]
    return [{name: (None if value != value else value) for name, value in row.items()} for row in rows]


def _show(one: Results) -> None:
    console = Console(highlight=False)
    k, columns = one.neighbours[0], WIDE if console.width >= 120 else NARROW
    arms = tables.base_arms(one, k)
    console.print(f"\n[bold]{escape(one.title)}[/bold]: {len(one.seeds)} splits, {cheap_name(k)}")
    pairs: list[tuple[Key, Key]] = [((k, c, a), (k, c, DEFAULT)) for c in one.costs for a in arms]
    found = one.compare(pairs)
    place = {pair[0]: i for i, pair in enumerate(pairs)}
    for cost in one.costs:
        grid = Grid(title=f"inspection cost {cost:g}", title_justify="left", box=SIMPLE_HEAD)
        grid.add_column("arm", no_wrap=True)
        for name in (*columns, "1e-3 above the router"):
            grid.add_column(name.replace("_", " "), justify="right", no_wrap=name in columns)
        for arm in sorted(arms, key=lambda arm: one.mean("total", (k, cost, arm))):
            at = place[k, cost, arm]
            errors = f"{1e3 * found.error[at]:.1f}; {1e3 * found.split_error[at]:.1f}"
            gap = f"{1e3 * found.mean[at]:+.1f} ({errors}){'*' if found.star[at] else ''}"
            cells = [f"{one.mean(name, (k, cost, arm)):.3f}" for name in columns]
            style = "bold" if arm == DEFAULT else None
            grid.add_row(escape(arm), *cells, "" if arm == DEFAULT else gap, style=style)
        console.print(grid)
    console.print("in parentheses: standard errors over prompts; over splits. *: both tests agree at 5 %")
    console.print(tables.verdict(one, k).replace("**", ""))


def _write(
    settings: Sequence[Experiment],
    found: Sequence[Results],
    report_to: Path | None,
    html_to: Path | None,
    plots_to: Path | None,
    paper: Path | None,
) -> None:
    images: dict[str, Path] = {}
    with SlowProgress(resumes=True) as progress:
        if plots_to is not None:
            from pandora_router.evaluate import curves, plots

            for done, (setting, one) in enumerate(zip(settings, found, strict=True)):
                progress(f"{one.name}: drawing", done, len(found))
                for ending, sheet in curves.sheets(one, setting, paper).items():
                    images[one.name + ending] = plots.save(sheet, plots_to / (one.name + ending))[0]
        if report_to is None and html_to is None:
            return
        progress("writing the report", len(found), len(found) + 1)
        near = {name: relative(image, report_to) for name, image in images.items()} if report_to else {}
        words = report.markdown(found, near, settings, paper)
        if report_to is not None:
            replace_text(report_to, words)
        if html_to is not None:
            from pandora_router.evaluate.page import page

            replace_text(html_to, page(found, words))


def relative(image: Path, page: Path) -> str:
    """Where an image lies as seen from a page."""
    try:
        return image.resolve().relative_to(page.resolve().parent).as_posix()
    except ValueError as error:
        raise UsageError(
            "--plots",
            expected="a folder below that of --report",
            came=str(image.parent),
            do="Move one of them.",
        ) from error

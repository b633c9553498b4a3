"""`python -m paper`: everything about reproducing the paper, from data to pages.

    python -m paper results --data ../shared/data     experiments -> results/, docs/results.md
    python -m paper bidding --data ../shared/data     markets -> results/bidding.md, docs/bidding.md
    python -m paper public --data ../shared/data      published tables -> docs/public.md
    python -m paper claims --data ../shared/data      the paper, claim by claim -> docs/claims.md
    python -m paper lengths math_gpt                  how far to look -> docs/results.md

Finished splits are not run again; a run that is broken off goes on when started again. The seeds of
paper/experiments were chosen so that no rule of the router was tuned on their splits.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
from tools.pages import put

from pandora_router.calibrate.ways import ORACLE
from pandora_router.cli.console import SlowProgress
from pandora_router.cli.options import with_runner
from pandora_router.config.experiments import read_experiment
from pandora_router.errors import UsageError
from pandora_router.evaluate import bids, campaign, results
from pandora_router.evaluate.arms import DEFAULT, STATIC
from pandora_router.evaluate.experiments import Experiment, Sweep
from pandora_router.evaluate.results import Results
from pandora_router.folders import replace_text
from pandora_router.report import html, plots
from pandora_router.run import Runner
from paper import bidding_report, claims_page, curves, looks, public, results_page

HERE = Path(__file__).parent
FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
PLAYED = ("math_small_pro", "adarague", "openllm")  # the experiments that are also played as markets
GENERATED_COST = 0.02


@click.group()
def main() -> None:
    """Reproduce the paper: experiments, findings, its own curves and tables, markets."""


def _files(names: tuple[Path, ...], usual: tuple[str, ...] = ()) -> list[Path]:
    """The experiments that were named, else the usual ones, else all of paper/experiments."""
    if names:
        return list(names)
    if usual:
        return [HERE / "experiments" / f"{name}.yaml" for name in usual]
    return sorted((HERE / "experiments").glob("*.yaml"))


@main.command("results")
@click.argument("experiments", nargs=-1, type=FILE)
@click.option("--data", "root", required=True, type=FOLDER, help="Where the data folders lie.")
@click.option("-o", "--output", default=Path("results"), type=FOLDER, help="Where results are written.")
@click.option("--seeds", type=click.IntRange(1), help="Only the first so many splits.")
@click.option("--finished", is_flag=True, help="Run nothing: write the pages from finished splits.")
@click.option("--quick", is_flag=True, help="Only what the short page shows: no sweeps, no figures.")
@click.option("--page", "page_to", type=FILE, help="The short page to write, usually docs/results.md.")
@click.option("--paper", type=FILE, help="figures.json: the paper's numbers, to stand beside ours.")
@with_runner
def results_command(
    experiments: tuple[Path, ...],
    root: Path,
    output: Path,
    seeds: int | None,
    finished: bool,
    quick: bool,
    page_to: Path | None,
    paper: Path | None,
    runner: Runner,
) -> None:
    """Run the experiments of the paper over fresh splits and write tables, figures and pages."""
    settings = sorted((read_experiment(path) for path in _files(experiments)), key=lambda one: one.control)
    settings = [replace(one, seeds=one.seeds[:seeds]) for one in settings]
    if quick:
        settings = [_quick(one) for one in settings]
    with SlowProgress(resumes=True) as progress:
        if finished:
            found = [one for setting in settings if (one := _finished(output, setting)) is not None]
        else:
            asked = [campaign.Campaign(one, root.resolve()) for one in settings]
            keep = (output / "cache").resolve()
            found = campaign.run(asked, output, cache=keep, runner=runner, progress=progress)
        command = results_page.COMMAND + " --quick" * quick + (f" --seeds {seeds}" if seeds else "")
        if page_to is not None:
            progress("writing the short page", 0, 1)
            put(results_page.short(found, settings, command), page_to, "routing")
        if quick:
            return
        known, images = {one.name: one for one in settings}, {}
        for done, one in enumerate(found):
            progress(f"{one.name}: drawing", done, len(found))
            for ending, sheet in curves.sheets(one, known[one.name], paper).items():
                plots.save(sheet, output / "figures" / (one.name + ending))
                images[one.name + ending] = f"figures/{one.name}{ending}.png"
        words = results_page.long(found, images, settings, paper)
    replace_text(output / "all.md", words)
    replace_text(output / "report.html", html.page(found, words))


def _quick(experiment: Experiment) -> Experiment:
    """What the short page shows and no more."""
    return replace(experiment, arms=(DEFAULT, *STATIC, ORACLE), neighbours=(), sweep=Sweep())


def _finished(output: Path, setting: Experiment) -> Results | None:
    """The finished splits of an experiment, None if there is none of these settings."""
    try:
        return results.read(output / setting.name, campaign.settings_of(setting), setting.seeds)
    except UsageError:
        return None


@main.command("bidding")
@click.argument("experiments", nargs=-1, type=FILE)
@click.option("--data", "root", required=True, type=FOLDER, help="Where the data folders lie.")
@click.option("-o", "--output", default=Path("results"), type=FOLDER, help="Where the long page goes.")
@click.option("--seeds", type=click.IntRange(1), help="Only the first so many splits.")
@click.option("--page", "page_to", type=FILE, help="The short page to write, usually docs/bidding.md.")
@click.option("--paper", type=FILE, help="figures.json: the paper's numbers, to stand beside ours.")
@click.option("--generated", type=click.IntRange(0), default=20, help="Generated instances; 0: none.")
@with_runner
def bidding_command(
    experiments: tuple[Path, ...],
    root: Path,
    output: Path,
    seeds: int | None,
    page_to: Path | None,
    paper: Path | None,
    generated: int,
    runner: Runner,
) -> None:
    """Play routing tables as markets: posted prices and mechanisms, and write the pages about them."""
    keep = (output / "cache").resolve()
    games = [
        bids.Game(one, root.resolve(), k, one.seeds[:seeds], cache=keep)
        for one in (read_experiment(path) for path in _files(experiments, PLAYED))
        for k in one.ks[:2]  # the router's own f and the paper's
    ]
    with SlowProgress() as progress:
        found = bids.run(games, runner, progress)
    images = {}
    for one in found:
        name = f"bidding_{one.name}_k{one.neighbours}"
        plots.save(curves.bidding(one, paper=paper), output / "figures" / name)
        images[name] = f"figures/{name}.png"
    made = bidding_report.generated(generated, GENERATED_COST) if generated else {}
    command = "python -m paper bidding"
    replace_text(output / "bidding.md", bidding_report.markdown(found, made, images, command, GENERATED_COST))
    if page_to is not None:
        replace_text(page_to, bidding_report.short(found, made, command, GENERATED_COST))


@main.command("public")
@click.option(
    "--data", "root", default=Path("../shared/data"), type=FOLDER, help="Where the data folders lie."
)
@click.option("--seeds", type=click.IntRange(1), default=3, help="How many seeds, from 41 on.")
@click.option("--page", "page_to", type=FILE, required=True, help="The page, usually docs/public.md.")
def public_command(root: Path, seeds: int, page_to: Path) -> None:
    """Fit on the training prompts of published benchmarks and write our rows beside the published ones."""
    with SlowProgress() as progress:
        words = public.markdown(root, range(41, 41 + seeds), progress)
    replace_text(page_to, words)


@main.command("claims")
@click.option(
    "--data", "root", default=Path("../shared/data"), type=FOLDER, help="Where the data folders lie."
)
@click.option("--paper", type=FILE, help="figures.json: the paper's numbers, to stand beside ours.")
@click.option("-o", "--output", default=Path("results"), type=FOLDER, help="Where estimates are kept.")
@click.option("--page", "page_to", type=FILE, required=True, help="The page, usually docs/claims.md.")
def claims_command(root: Path, paper: Path | None, output: Path, page_to: Path) -> None:
    """Run the paper's system on stand-ins for its domains and judge each of its claims."""
    with SlowProgress() as progress:
        words = claims_page.markdown(root.resolve(), paper, (output / "cache").resolve(), progress)
    replace_text(page_to, words)


@main.command("lengths")
@click.argument("names", nargs=-1, required=True)
@click.option(
    "--data", "root", default=Path("../shared/data"), type=FOLDER, help="Where the data folders lie."
)
@click.option("--seeds", type=click.IntRange(1), default=2, help="How many seeds, from 311 on.")
@click.option("-o", "--output", default=Path("results"), type=FOLDER, help="Where estimates are kept.")
@click.option("--page", "page_to", type=FILE, help="The page to write, usually docs/results.md.")
def lengths_command(
    names: tuple[str, ...], root: Path, seeds: int, output: Path, page_to: Path | None
) -> None:
    """Looks of 100, 200 and 400 characters at their prices, on experiments of paper/experiments."""
    drawn = range(311, 311 + seeds)
    with SlowProgress() as progress:
        words = looks.lengths(names, root.resolve(), drawn, (output / "cache").resolve(), progress)
    click.echo(words) if page_to is None else put(words, page_to, "lengths")


if __name__ == "__main__":
    main()

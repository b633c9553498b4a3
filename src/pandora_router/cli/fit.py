"""`pandora fit`: from a config file to an artifact."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from pandora_router import folders
from pandora_router.cli.console import SlowProgress
from pandora_router.cli.sources import Source, fees_of
from pandora_router.config import Config, read_config
from pandora_router.config.settings import JudgeSettings, TransformerSettings
from pandora_router.data import Limits, Table, resplit, storage
from pandora_router.errors import UsageError
from pandora_router.router import TransformerRecipe
from pandora_router.router.artifact import KIND
from pandora_router.router.readings import JOURNAL
from pandora_router.search import kernels

CHARACTERS_PER_TOKEN = 4.0
FORWARD, LEARNING = 6e-5, 1.8e-4  # seconds per token and layer of MiniLM: asked, and taught
USUAL_COST = 0.002
WORTH_SAYING = 1e-3  # differences of reward below this are no reason to change a policy


@click.command()
@click.argument("config", type=click.Path(path_type=Path), required=False)
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="Folder to write.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Instead of CONFIG: a routing table or folder, all else usual.",
)
@click.option("--inspection-cost", type=float, help="With --data: what one purchase costs [0.002].")
@click.option("--fee-column", help="With --data and a folder: column of numbers that is the fee.")
@click.option(
    "--fee-per-trillion-parameters", "per_trillion", type=float, help="The same: price x parameters."
)
@click.option("--free", is_flag=True, help="The same: answers cost nothing.")
@click.option("--replace", is_flag=True, help="Replace an artifact that is there already.")
@click.option("--json", "as_json", is_flag=True, help="Print the record of the fit as JSON.")
def fit(
    config: Path | None,
    output: Path,
    data: Path | None,
    inspection_cost: float | None,
    replace: bool,
    as_json: bool,
    **fees: Any,
) -> None:
    """Fit the router that CONFIG describes and write it to a folder.

    Estimators are fitted on the train split, signal model and policy on calibration, and everything is
    checked on test. Killed at any moment, it leaves the folder as it was and goes on where it stopped
    when started again (finished stages wait in a hidden folder beside the output). With --data no config
    is needed; a folder of Parquet files is given a split by seed 0, stratified by task.

    \b
    Examples:
      pandora fit pandora.yaml -o router
      pandora fit pandora.yaml -o router --replace --json
      pandora fit --data table -o router
      pandora fit --data ../data/openllm_pool --fee-per-trillion-parameters 1 -o router
    """
    if (config is None) == (data is None) or (config is not None and (inspection_cost or any(fees.values()))):
        raise UsageError(
            "pandora fit",
            expected="a config file, or --data (and its options) instead of one",
            came="both" if config is not None else "neither",
            do="See pandora fit --help; pandora init writes a config.",
        )
    given = data if data is not None else config
    assert given is not None
    folders.check_output(output, KIND, replace=replace, inputs=[given])
    if data is not None:
        settings, table = usual(data, inspection_cost, **fees)
    else:
        assert config is not None
        settings = read_config(config)
        given = config.parent / settings.data.table
        folders.check_output(output, KIND, replace=replace, inputs=[config, given])
        table = settings.table(config.parent)
    work = output.with_name(f".{output.name}.work")
    click.echo(forecast(settings, table, work), err=True)
    begun = time.monotonic()
    with SlowProgress(resumes=True) as bar:
        kernels.warm(lambda kernel, done, total: bar(f"compiling {kernel}", done, total))
        router = settings.fit(table, progress=lambda what, share: bar(what, int(100 * share), 100), work=work)
        bar("writing", 99, 100)
        router.save(output, replace=replace, inputs=[given])
    shutil.rmtree(work, ignore_errors=True)
    told = {"id": router.id, "output": str(output), "default": router.default, **router.record}
    if as_json:
        click.echo(json.dumps(told, indent=1, ensure_ascii=False, default=str))
        return
    show(Console(highlight=False, soft_wrap=True), told)
    click.echo(
        f"\nWritten to {output} in {time.monotonic() - begun:.0f} s. Next: pandora route -r {output} 'prompt'"
    )


def usual(data: Path, cost: float | None, **fees: Any) -> tuple[Config, Table]:
    """The usual settings for a routing table, or for a folder with prompts.parquet, and the table."""
    price = USUAL_COST if cost is None else cost
    settings = Config.model_validate({"data": {"table": str(data)}, "inspection_cost": price})
    told = {
        "fee": (),
        "fee_per_token": False,
        "tokens_out": None,
        "characters_out": None,
        "price_column": None,
    }
    rules = fees_of(fees.pop("fee_column"), told | fees)
    source = Source(data, None, {}, rules, None, None, (), Limits())
    with SlowProgress() as bar:
        table = source.read(bar)
    return settings, table if storage.is_stored(data) else resplit(table, seed=0)


def forecast(settings: Config, table: Table, work: Path) -> str:
    """What fitting will roughly take; the numbers behind it are in docs/estimators.md."""
    train, held = int((table.split == "train").sum()), int((table.split == "calibration").sum())
    specialists = len(table.specialists)
    size = f"{len(table):,} prompts x {specialists} specialists ({train:,} train, {held:,} calibration)"
    if isinstance(settings.costly, JudgeSettings):
        return f"Fitting on {size}: {judge_bill(settings.costly, held * specialists, work)}"
    seconds = 3 + 3e-3 * len(table) + 2.5e-4 * train * specialists
    if isinstance(settings.costly, TransformerSettings):
        seconds += tuning_seconds(settings.costly, table, train)
    elif table.contexts is not None and settings.costly.peek != 0:
        seconds += 1e-3 * len(table) * specialists
    return f"Fitting on {size}: roughly {seconds:,.0f} CPU-seconds on one core, no money"


def judge_bill(judge: JudgeSettings, calls: int, work: Path) -> str:
    """How many judgements are still to be bought and what they cost."""
    journal = work / JOURNAL
    before = max(0, journal.read_bytes().count(b"\n") - 1) if journal.exists() else 0
    left = max(0, calls - before)
    bill = "at your provider's price" if judge.price is None else f"{left * judge.price:.4g} in all"
    kept = f" ({before:,} of {calls:,} were bought before)" if before else ""
    return f"{left:,} calls to the judge{kept}, {bill}"


def tuning_seconds(tuned: TransformerSettings, table: Table, train: int) -> float:
    """What fine-tuning and asking a transformer take: tokens x layers x measured seconds of one core."""
    form, far = TransformerRecipe(tuned.form, tuned.peek).reads(table)
    typical = float(np.mean([len(prompt) for prompt in table.prompts[:500]])) + far
    tokens = min(tuned.tokens, 8 + typical / CHARACTERS_PER_TOKEN)
    if form == "named":
        tokens *= len(table.specialists)
    frozen = 6 - tuned.layers
    learning = tokens * train * (frozen * FORWARD + tuned.epochs * tuned.layers * LEARNING)
    return learning + tokens * (len(table) - train) * 6 * FORWARD


def show(console: Console, told: Mapping[str, Any]) -> None:
    """Print errors, coverage, evidence and what routing earns."""
    report, evidence = told["report"], told["evidence"]
    counts = told["prompts"]
    console.print(
        f"train {counts['train']:,}, calibration {counts['calibration']:,}, test {counts['test']:,}"
    )
    if "mse" in report:
        grid = Grid(title=f"Mean squared error against rewards, on {report['on']}", title_justify="left")
        for name in report["mse"]:
            grid.add_column(name, justify="right")
        grid.add_row(*("-" if e is None else f"{e:.4f}" for e in report["mse"].values()))
        console.print(grid)
        console.print(
            f"coverage of g: {report['coverage_1']:.1%} within one, {report['coverage_2']:.1%} within two "
            "standard deviations (normal: 68.3 %, 95.4 %); "
            f"residual correlation {report['residual_correlation'] or 0:.2f}"
        )
    if evidence.get("evidence"):
        _evidence(console, evidence)
    if report.get("parts"):
        _parts(console, report["parts"])
    if report.get("routing", {}).get("ways"):
        grid = Grid(title="Reward per prompt less inspection cost, on test", title_justify="left")
        for name in ("way", "net reward", "(se)", "spent", "inspections"):
            grid.add_column(name, justify="left" if name == "way" else "right")
        for name, way in report["routing"]["ways"].items():
            more = [f"{way[k]:.4f}" if k in way else "-" for k in ("spent", "inspections")]
            grid.add_row(escape(name), f"{way['net_reward']:.4f}", f"{way['standard_error']:.4f}", *more)
        console.print(grid)
    console.print(f"policy: {escape(evidence['policy'])}; default {escape(told['default'])}")


def _parts(console: Console, parts: Sequence[Mapping[str, Any]]) -> None:
    grid = Grid(
        title="What each part of the signal model is worth, cross-validated on calibration",
        title_justify="left",
    )
    for name in ("switched off", "loss", "worth", "(se)", "NLL", "in 1 sd", "in 2 sd", "in own 90 %"):
        grid.add_column(name, justify="left" if name == "switched off" else "right")
    for one in parts:
        earns = ("-", "-") if one["off"] is None else (f"{one['worth']:+.4f}", f"{one['standard_error']:.4f}")
        shares = (f"{one[key]:.1%}" for key in ("coverage_1", "coverage_2", "central_90"))
        grid.add_row(one["off"] or "nothing", f"{one['loss']:.4f}", *earns, f"{one['nll']:.3f}", *shares)
    console.print(grid)


def _evidence(console: Console, evidence: Mapping[str, Any]) -> None:
    grid = Grid(title="Regret + inspection cost, cross-validated on calibration", title_justify="left")
    for name in ("policy", "loss", "(se)", "behind the best", "(se)", "inspections"):
        grid.add_column(name, justify="left" if name == "policy" else "right")
    for one in evidence["evidence"]:
        numbers = ("loss", "standard_error", "behind", "behind_error", "inspections")
        grid.add_row(escape(one["name"]), *(f"{one[key]:.4f}" for key in numbers))
    console.print(grid)
    named = evidence["evidence"][-1]
    clearly = named["behind"] > max(2 * named["behind_error"], WORTH_SAYING)
    if evidence["chosen"] == "named" and clearly:
        console.print(
            f"[bold]{escape(evidence['best'])}[/bold] did better than the policy that was named, by more "
            "than two standard errors: consider policy: {kind: auto}"
        )

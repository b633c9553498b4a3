"""Options that describe the source of a routing table: format, columns, fees, split, limits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
import numpy as np

from pandora_router import folders
from pandora_router.cli.console import echo
from pandora_router.data import splits, storage
from pandora_router.data.fees import Fees, FirstOf, Free, FromColumn, PerParameter, PerSpecialist, PerToken
from pandora_router.data.storage import Limits
from pandora_router.data.table import Table
from pandora_router.errors import UsageError
from pandora_router.types import Progress

if TYPE_CHECKING:  # importers need the extra [fit]: `pandora data --help` does without
    from pandora_router.data.importers import LongColumns, WideColumns

FORMATS = ("table", "folder", "long", "wide", "embedllm", "routerbench", "routellm")


@dataclass(frozen=True)
class Source:
    """A path and how to read it."""

    path: Path
    format: str | None
    columns: dict[str, str]
    fees: Fees | None
    fee_weight: float | None
    repeats: Literal["refuse", "first", "max"] | None
    specialists: tuple[str, ...]
    limits: Limits
    delimiter: str | None = None
    encoding: str | None = None
    score_scale: float | None = None

    def read(self, progress: Progress) -> Table:
        """Read the table, with the split it came with.

        Raises `UsageError` if the source cannot be read, or if an option was given that its format ignores.
        """
        form = self._format()
        self._refuse_idle_options(form)
        table = self._table(form, progress)
        return self._scaled(table) if form in ("long", "wide") else table

    def _scaled(self, table: Table) -> Table:
        """The table with its scores divided by --score-scale; scores of 0 to 100 are detected."""
        scale = self.score_scale
        if scale is not None and not 0.0 < scale < math.inf:
            raise UsageError("--score-scale", expected="a number above 0", came=str(scale), do="Try 100.")
        if scale is None:
            highest, lowest = np.nanmax(table.score, initial=0.0), np.nanmin(table.score, initial=0.0)
            scale = 100.0 if lowest >= 0.0 and 10.0 < highest <= 100.0 else 1.0
            if scale != 1.0:
                echo(f"Scores reach {highest:g}: divided by 100. Another scale: --score-scale 1", err=True)
            elif highest > 1.0:
                echo(
                    f"Scores reach {highest:g}, and are used as they are: a right answer scores 1. "
                    f"To divide by the highest possible score: --score-scale {highest:g}",
                    err=True,
                )
        return table if scale == 1.0 else replace(table, score=table.score / scale)

    def _refuse_idle_options(self, form: str) -> None:
        """Raise `UsageError` for an option that this format would ignore."""
        columns = [f"--{name.replace('_', '-')}-column" for name in self.columns]
        idle = {
            ", ".join(columns): self.columns and form not in ("long", "wide"),
            "--specialist-column": "specialist" in self.columns and form == "wide",
            "--specialist": self.specialists and form != "wide",
            "--delimiter, --encoding, --score-scale": (self.delimiter or self.encoding or self.score_scale)
            and form not in ("long", "wide"),
            "--repeats": self.repeats and form in ("table", "folder"),
            "options about fees": self.fees is not None and form == "table",
        }
        for option, useless in idle.items():
            if useless:
                raise UsageError(
                    option,
                    expected=f"none for format {form!r}, which has its own",
                    came="an option that would be ignored",
                    do="Leave it out.",
                )

    def _format(self) -> str:
        if self.format:
            return self.format
        if storage.is_stored(self.path):
            return "table"
        if (self.path / "prompts.parquet").is_file():
            return "folder"
        came, do = "no such path", "Check the path."
        if (written := folders.format_of(self.path)) is not None:
            came, do = f"a folder of another kind ({written})", "Name the folder of the table."
        elif self.path.exists():
            came = "a folder of other files" if self.path.is_dir() else "a file"
            do = f"Say what it is: pandora data import {self.path} --format {'|'.join(FORMATS[2:])}"
        expected = "a routing table or a folder with prompts.parquet"
        raise UsageError(str(self.path), expected=expected, came=came, do=do)

    def _table(self, form: str, progress: Progress) -> Table:
        if form == "table":
            table = storage.load(self.path, limits=self.limits)
            return table if self.fee_weight is None else table.with_fee_weight(self.fee_weight)
        common: dict[str, Any] = {
            "fee_weight": 1.0 if self.fee_weight is None else self.fee_weight,
            "limits": self.limits,
            "progress": progress,
        }
        from pandora_router.data import importers

        again: dict[str, Any] = {"repeats": self.repeats} if self.repeats else {}
        if form == "routerbench":
            return importers.read_routerbench(self.path, fees=self.fees, **common, **again)
        common["fees"] = self._given_fees()
        if form == "folder":
            return importers.read_folder(self.path, **common)
        if form == "embedllm":
            return importers.read_embedllm(self.path, **common, **again)
        if form == "routellm":
            return importers.read_routellm(self.path, **common, **again)
        say = partial(echo, err=True)
        common["dialect"] = importers.Dialect(self.delimiter, self.encoding, say)
        if form == "wide":
            return importers.read_wide(self.path, columns=self._wide(), **common, **again)
        return importers.read_long(self.path, columns=self._long(), **common, **again)

    def _given_fees(self) -> Fees:
        if self.fees is None:
            raise UsageError(
                "fees",
                expected="a fee for every specialist",
                came="none",
                do="Give --fee NAME=FEE, --fee-column, --fee-per-trillion-parameters or --fee-per-token; "
                "if answers cost nothing, say --free.",
            )
        return self.fees

    def _long(self) -> LongColumns:
        from pandora_router.data.importers import LongColumns

        return LongColumns(**self.columns)

    def _wide(self) -> WideColumns:
        from pandora_router.data.importers import WideColumns

        named: dict[str, Any] = dict(self.columns)
        numbers = {"fee": named.pop("fee")} if "fee" in named else {}
        return WideColumns(specialists=self.specialists, numbers=numbers, **named)


@dataclass(frozen=True)
class Splitting:
    """The split that a table gets."""

    keep: bool
    seed: int
    fractions: splits.Fractions
    from_train: float | None

    def apply(self, table: Table) -> Table:
        """The table with that split."""
        if not self.keep:
            return splits.resplit(table, seed=self.seed, fractions=self.fractions)
        if not (table.split != "").any():
            raise UsageError(
                "--keep-split",
                expected="data with a split",
                came="none",
                do="Leave it out, or name --split-column.",
            )
        return (
            table
            if self.from_train is None
            else splits.carve(table, seed=self.seed, fraction=self.from_train)
        )


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.argument("path", metavar="SOURCE", type=click.Path(path_type=Path)),
    click.option("--format", "form", type=click.Choice(FORMATS), help="Detected for tables and folders."),
    click.option("--prompt-column", help="Column of the prompt [prompt]."),
    click.option("--prompt-id-column", help="Column of the prompt's id; without it the text is the id."),
    click.option(
        "--specialist", multiple=True, help="Wide files: name of a specialist; repeatable [all found]."
    ),
    click.option("--specialist-column", help="Long files: column of the specialist [model]."),
    click.option("--score-column", help="Column of the score [score]; wide files: a pattern [{}]."),
    click.option("--task-column", help="Column of the task."),
    click.option("--split-column", help="Column of the split: train, val, test, ood."),
    click.option(
        "--context-column", help="Column of the context; wide files: a pattern such as '{}_response'."
    ),
    click.option(
        "--repeats", type=click.Choice(["refuse", "first", "max"]), help="If a cell is stated twice."
    ),
    click.option("--fee", multiple=True, metavar="NAME=FEE", help="Fee of one specialist; repeatable."),
    click.option("--fee-column", help="Numeric column with the fee; wide files: a pattern."),
    click.option(
        "--fee-per-trillion-parameters", "per_trillion", type=float, help="Price x parameters (params_b)."
    ),
    click.option("--fee-per-token", is_flag=True, help="Tokens x price per million (usd_per_mtok_in/out)."),
    click.option("--tokens-out", help="With --fee-per-token: column or number of answer tokens."),
    click.option("--characters-out", help="With --fee-per-token: column of answer characters."),
    click.option("--price-column", help="With --fee-per-token: one column for in and out, say usd_per_mtok."),
    click.option("--free", is_flag=True, help="Answers cost nothing."),
    click.option("--fee-weight", type=float, help="net = score - weight x fee [1]."),
    click.option("--delimiter", help="CSV files: sign between columns [detected]; \\t for a tab."),
    click.option("--encoding", help="CSV files: encoding of the text, say latin-1 [detected]."),
    click.option(
        "--score-scale", type=float, help="Divide scores by this [1; 100 if the highest is from 10 to 100]."
    ),
    click.option("--max-file-bytes", type=int, help="Largest file to read."),
    click.option("--max-cells", type=int, help="Largest prompts x specialists."),
    click.option("--max-text-characters", type=int, help="Longest text."),
)


_SPLIT_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--keep-split", is_flag=True, help="Keep the split that the data came with."),
    click.option("--calibration-from-train", type=float, help="With --keep-split: fraction of train."),
    click.option("--seed", type=int, help="Seed of the split [0]."),
    click.option("--fractions", type=(float, float, float), help="Train, calibration, test [.6 .2 .2]."),
)


def source_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the SOURCE argument and its options to a command, passed as one `source`."""

    @wraps(command)
    def run(**given: Any) -> None:
        command(source=_source(given), **given)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run


def split_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the split to a command, passed as one `splitting`."""

    @wraps(command)
    def run(keep_split: bool, calibration_from_train: float | None, **given: Any) -> None:
        seed, shares = given.pop("seed"), given.pop("fractions")
        if keep_split and (shares or (seed is not None and calibration_from_train is None)):
            raise UsageError(
                "--keep-split", expected="no --seed or --fractions", came="both", do="Choose one."
            )
        if calibration_from_train is not None and not keep_split:
            raise UsageError("--calibration-from-train", expected="--keep-split", came="none", do="Add it.")
        fractions = splits.Fractions(*shares) if shares else splits.Fractions()
        command(splitting=Splitting(keep_split, seed or 0, fractions, calibration_from_train), **given)

    for option in reversed(_SPLIT_OPTIONS):
        run = option(run)
    return run


def _source(given: dict[str, Any]) -> Source:
    """The source; its options are removed from `given`."""
    kinds = ("prompt", "prompt_id", "specialist", "score", "task", "split", "context", "fee")
    columns = {kind: name for kind in kinds if (name := given.pop(f"{kind}_column"))}
    bounds = {bound: given.pop(f"max_{bound}") for bound in ("file_bytes", "cells", "text_characters")}
    form = given.pop("form")
    fee_column = columns.get("fee") if form == "wide" else columns.pop("fee", None)
    return Source(
        path=given.pop("path"),
        format=form,
        columns=columns,
        fees=fees_of("fee" if form == "wide" and fee_column else fee_column, given),
        fee_weight=given.pop("fee_weight"),
        repeats=given.pop("repeats"),
        specialists=given.pop("specialist"),
        delimiter=sign.replace("\\t", "\t") if (sign := given.pop("delimiter")) else None,
        encoding=given.pop("encoding"),
        score_scale=given.pop("score_scale"),
        limits=replace(Limits(), **{bound: most for bound, most in bounds.items() if most is not None}),
    )


def fees_of(column: str | None, given: dict[str, Any]) -> Fees | None:
    """The fee rules that were given; each specialist uses the first rule that prices it."""
    rules: list[Fees] = []
    if pairs := given.pop("fee"):
        rules.append(PerSpecialist(dict(_pair(text) for text in pairs)))
    if column:
        rules.append(FromColumn(column))
    if (price := given.pop("per_trillion")) is not None:
        rules.append(PerParameter(price))
    if per_token := _per_token(given):
        rules.append(per_token)
    if given.pop("free"):
        if rules:
            raise UsageError("--free", expected="no other fee option", came="both", do="Choose one.")
        return Free()
    if not rules:
        return None
    return rules[0] if len(rules) == 1 else FirstOf(tuple(rules))


def _per_token(given: dict[str, Any]) -> PerToken | None:
    wanted = given.pop("fee_per_token")
    tokens: str | float | None = given.pop("tokens_out")
    characters, price = given.pop("characters_out"), given.pop("price_column")
    if not wanted:
        if tokens or characters or price:
            raise UsageError("token options", expected="--fee-per-token", came="none", do="Add it.")
        return None
    if isinstance(tokens, str) and tokens.replace(".", "", 1).isdigit():
        tokens = float(tokens)
    prices = {"price_in": price, "price_out": price} if price else {}
    return PerToken(tokens_out=tokens, characters_out=characters, **prices)


def _pair(text: str) -> tuple[str, float]:
    name, _, fee = text.rpartition("=")
    try:
        number = float(fee)
    except ValueError:
        name = ""
    if not name:
        raise UsageError(
            "--fee", expected="NAME=FEE with a number", came=repr(text), do="Try --fee small=0.01."
        )
    return name, number

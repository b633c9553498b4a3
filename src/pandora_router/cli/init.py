"""`pandora init`: write a commented pandora.yaml."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pandora_router import folders
from pandora_router.cli.console import echo, echo_json
from pandora_router.cli.options import SHARE
from pandora_router.errors import UsageError
from pandora_router.text import did_you_mean

if TYPE_CHECKING:  # tables need numpy: `pandora init --help` does without
    from pandora_router.data import Table

TEMPLATE = """\
# One file for `pandora collect`, `fit`, `route` and `serve`. Lines that begin with "# " and a key show
# defaults: remove the mark to change one. A key that does not exist is an error. All amounts are money.

table: {table}          # `pandora fit` reads it, `data import` or `collect` writes it; relative to this file

{aim}
# Where models are served (any OpenAI-compatible API). Keys stay in the environment: key_from names it.
endpoints:
  local: {{base_url: "http://127.0.0.1:8000/v1", at_once: 4}}
  # cloud: {{base_url: "https://example.org/v1", key_from: CLOUD_KEY, at_once: 8, per_minute: 300}}

# Who can answer. Prices are money per million tokens in and out, or per `second`, or per `call`, or `free`.
specialists:
{specialists}
  # sums: {{kind: function, function: "my_module:calculate", prices: {{call: 0}}}}   # runs your code
  # (docs/collect.md has more kinds and keys)
  # middle:                                   # all keys of the gateway; `pandora doctor` proposes them
  #   kind: chat
  #   endpoint: local
  #   model: middle-model
  #   prices: {{in: 0.50, out: 2.00}}
  #   cancel: stops                             # a stream closed early is billed for what was written;
  #                                             #   bills_full: for all of it; unknown (default): assume all
  #   supports: [tools, json_schema, images]    # requests that need another ability go to others; left out:
  #                                             #   it is asked for everything until its provider refuses
  #   wires: [chat, responses, messages]        # APIs under which the model is served; left out: chat alone
  #   max_output_tokens: 4096                   # reserved under a budget for a request without a limit
  #   looks: true                               # false: never begin an answer to look at it

# For `pandora collect`: questions with known answers, how answers are graded, and the most it may cost.
{off}prompts: questions.jsonl            # columns prompt and answer; if there: prompt_id, task, split
{off}grading: contains                   # exact, normalised, numeric, symbolic, letter, {{judge: {last}}}
{off}collect: {{budget: 2.00}}           # at most 2.00 is spent, over all runs; --dry-run says what to expect

# For `pandora fit`. What a purchase of estimates costs is computed from the prices above, unless you say it:
# fit:
#   inspection: 0.0001              # money for one purchase; or in parts: {{shared: 0.0001, each: 0.00005}}
#   cheap: {{kind: neighbours, k: [25, 50, 200]}}   # from the k most similar prompts, averaged
#   costly: {{kind: opened}}          # the costly one; peek: characters of an answer that it may look at
#   signal: {{kind: calibrated}}      # how estimates become expectations
#   policy: {{kind: knowledge_gradient}}                    # or auto, never, always
#   default: {first}                  # who answers where the router declines
#   split: {{seed: 0, train: 0.6, calibration: 0.2, test: 0.2}}   # a fresh split instead of the table's

# For `pandora serve`.
serve:
{served}
  # host: 127.0.0.1
  # port: 8080
  # store: pandora.sqlite           # decisions, keys and budgets; docs/serve.md: what if it fails
  # keys: required                  # make one with `pandora keys add NAME`; none: only on this machine
  # deadline_ms: 200                # time for the estimates of one decision
"""

VALUE = """\
value:
  {worth}# what one right answer is worth to you; this is what a fit without a
                        # file assumes. Or remove it and write what you want (docs/goals.md), such as
                        # the line goal: {{budget: 500, per: month}} or goal: {{keep: 0.95, of: {last}}}
  second: 0.0001        # what one second of waiting costs you; or remove it and write the line
                        # that you want, such as goal: {{latency: {{p95: 2.0}}}}
  # cpu_second: 0.00002 # what one second of a processor costs you (0.07 per hour)
  # currency: $
"""
GOAL = """\
goal: {goal}   # what you want (docs/goals.md)
# Others are {other} and, alone or beside it, latency: {{p95: 2.0}}.

# value:
#   second: 0.0001      # what one second of waiting costs you
#   cpu_second: 0.00002 # what one second of a processor costs you (0.07 per hour)
#   currency: $
"""
FITTED = "  router: router                    # the folder that `pandora fit` writes"
UNFITTED = """\
  default: {first}    # who answers until there is a router; then write the next line instead
  # router: router                  # the folder that `pandora fit` writes"""
WORTH = 1.0
"""What a right answer is worth where neither a file nor a table says it: the fee weight of a table is 1."""
RESERVED = {"true", "false", "null"}  # words that YAML does not read as text
EXAMPLES = """\
  small: {{kind: chat, endpoint: local, model: small-model, prices: {{in: 0.10, out: 0.40}}}}
  {large}: {{kind: chat, endpoint: local, model: {model}, prices: {{in: 2.50, out: 10.00}}}}"""


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=Path("pandora.yaml"))
@click.option(
    "--data", type=click.Path(path_type=Path),
    help="A routing table: the file names it, and its specialists with their mean fees.",
)  # fmt: skip
@click.option(
    "--budget", type=click.FloatRange(0, min_open=True), help="What you want: spend at most this ..."
)
@click.option("--per", type=click.Choice(["day", "week", "month"]), help="... in each [month].")
@click.option("--keep", type=SHARE, help="What you want: this share, like 0.95, ...")
@click.option("--of", help="... of the right answers of this specialist.")
@click.option("--replace", is_flag=True, help="Replace an existing file.")
@click.option("--json", "as_json", is_flag=True, help="Print its path as JSON.")
def init(
    path: Path,
    data: Path | None,
    budget: float | None,
    per: str | None,
    keep: float | None,
    of: str | None,
    replace: bool,
    as_json: bool,
) -> None:
    """Write a commented config to PATH [pandora.yaml]; asks no questions.

    Without --data it describes two made-up specialists, small and large, for `pandora collect`. An existing
    file is not changed unless you pass --replace.

    \b
    Examples:
      pandora init --budget 500 --per month
      pandora init --keep 0.95 --of gpt-large
      pandora init --data table
      pandora init routers/math.yaml --data tables/math --replace
    """
    folders.check_file(path, replace=replace)
    goal = _goal(budget, per, keep, of)
    table = None if data is None else _loaded(data)
    if table is not None and of is not None and of not in table.specialists:
        raise UsageError(
            "--of",
            expected=f"one of {', '.join(table.specialists)}",
            came=repr(of),
            do=did_you_mean(of, table.specialists, "Name a specialist of the table."),
        )
    named = "table" if data is None else relative(data, path.parent)
    folders.replace_text(path, content(named, table, goal, of or "large"))
    if as_json:
        echo_json({"config": str(path)})
    elif table is None:
        echo(f"Written to {path}. Next: fill in your specialists and try them, pandora doctor {path};")
        echo(f"then serve them, pandora serve {path}, or see what collecting scores for a router will cost,")
        echo(f"pandora collect {path} --dry-run")
    else:
        echo(f"Written to {path}, with the {len(table.specialists)} specialists of {data}.")
        said = "" if goal else "say in it what a right answer is worth, or your goal; then "
        echo(f"Next: {said}pandora fit {path} -o router")
        echo("To serve them, write their addresses and models into it before the fit.")


def _loaded(data: Path) -> Table:
    from pandora_router.data import storage

    return storage.load(data)


def _goal(budget: float | None, per: str | None, keep: float | None, of: str | None) -> str:
    """The goal that the options state, as YAML; empty without one. Raises `UsageError` for half a goal."""
    if budget is not None and keep is None and of is None:
        return f"{{budget: {budget:g}, per: {per or 'month'}}}"
    if keep is not None and of is not None and budget is None and per is None:
        return f"{{keep: {keep:g}, of: {plain(of)}}}"
    if budget is None and per is None and keep is None and of is None:
        return ""
    raise UsageError(
        "pandora init",
        expected="--budget, with --per or without, or both --keep and --of",
        came="something else",
        do="For example: pandora init --budget 500, or pandora init --keep 0.95 --of NAME",
    )


def content(named: str, table: Table | None, goal: str = "", large: str = "large") -> str:
    """A pandora.yaml for the routing table at the path `named`; made-up specialists if `table` is None.

    `goal` is stated in place of what a right answer is worth; `large` names the last made-up specialist.
    """
    names = ("small", large) if table is None else table.specialists
    last = plain(names[-1])
    worth = _worth(1.0 / WORTH if table is None else table.fee_weight).ljust(22)
    other = f"{{keep: 0.95, of: {last}}}" if "budget" in goal else "{budget: 500, per: month}"
    model = json.dumps(large) if large != "large" else "large-model"
    return TEMPLATE.format(
        table=json.dumps(named),
        specialists=EXAMPLES.format(large=last, model=model) if table is None else specialists(table),
        aim=GOAL.format(goal=goal, other=other) if goal else VALUE.format(worth=worth, last=last),
        off="" if table is None else "# ",
        first=plain(names[0]),
        last=last,
        served=FITTED if table is not None else UNFITTED.format(first=plain(names[0]).ljust(21)),
    )


def _worth(fee_weight: float) -> str:
    """The line that states the worth at which `pandora fit --data` fits; marked as a default without fees."""
    return f"right_answer: {1.0 / fee_weight:.6g} " if fee_weight > 0.0 else "# right_answer: 1 "


def specialists(table: Table) -> str:
    """Lines that describe the specialists of `table`; the price of a call is the mean fee of the answers."""
    import numpy as np

    lines = []
    for name, fees in zip(table.specialists, table.fee.T, strict=True):
        fee = float(f"{np.nanmean(fees):.6g}") if not np.isnan(fees).all() else 0.0
        about = f"{{kind: chat, endpoint: local, model: {json.dumps(name)}, prices: {{call: {fee}}}}}"
        lines.append(f"  {plain(name)}: {about}")
    about = "  # `call` is the mean fee in the table. By tokens: write {in: ..., out: ...} instead."
    return "\n".join([about, *lines])


def plain(name: str) -> str:
    """A name as YAML: as it is if it is one word that begins with a letter, otherwise in quotes."""
    word = name.replace("-", "").replace("_", "")
    bare = word.isascii() and word.isalnum() and word[0].isalpha() and name[0].isalpha()
    return name if bare and name.lower() not in RESERVED else json.dumps(name)


def relative(path: Path, folder: Path) -> str:
    """`path` as the file in `folder` names it: relative to that folder."""
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()

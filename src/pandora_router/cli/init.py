"""`pandora init`: write a commented pandora.yaml."""

from __future__ import annotations

import json
from pathlib import Path

import click

from pandora_router import folders
from pandora_router.cli.console import echo, echo_json

TEMPLATE = """\
# One file for `pandora collect`, `fit`, `route` and `serve`. Lines that begin with "# " and a key show
# defaults: remove the mark to change one. A key that does not exist is an error. All amounts are money.

table: {table}          # `pandora collect` writes it, `pandora fit` reads it; relative to this file

value:
  right_answer: 0.05    # what one right answer is worth to you: fees are weighed against it
  second: 0.0001        # what one second of waiting costs you
  # cpu_second: 0.00002 # what one second of a processor costs you (0.07 per hour)
  # currency: $

# Where models are served (any OpenAI-compatible API). Keys stay in the environment: key_from names it.
endpoints:
  local: {{base_url: "http://127.0.0.1:8000/v1", at_once: 4}}
  # cloud: {{base_url: "https://example.org/v1", key_from: CLOUD_KEY, at_once: 8, per_minute: 300}}

# Who can answer. Prices are money per million tokens in and out, or per `second`, or per `call`, or `free`.
specialists:
  small: {{kind: chat, endpoint: local, model: small-model, prices: {{in: 0.10, out: 0.40}}}}
  large: {{kind: chat, endpoint: local, model: large-model, prices: {{in: 2.50, out: 10.00}}}}
  # sums: {{kind: function, function: "my_module:calculate", prices: {{call: 0}}}}   # runs your code
  # (docs/collect.md has more kinds and keys)

# For `pandora collect`: questions with known answers, how answers are graded, and the most it may cost.
prompts: questions.jsonl            # columns prompt and answer; if there: prompt_id, task, split
grading: contains                   # exact, normalised, contains, numeric, symbolic, letter, {{judge: large}}
collect: {{budget: 2.00}}             # at most 2.00 is spent, over all runs; --dry-run says what to expect

# For `pandora fit`. What a purchase of estimates costs is computed from the prices above, unless you say it:
# fit:
#   inspection: 0.0001              # money for one purchase; or in parts: {{shared: 0.0001, each: 0.00005}}
#   cheap: {{kind: neighbours, k: [25, 50, 200]}}   # mean reward of the k most similar prompts, averaged
#   costly: {{kind: opened}}          # the costly one; peek: characters of an answer that it may look at
#   signal: {{kind: calibrated}}      # how estimates become expectations
#   policy: {{kind: knowledge_gradient}}                    # or auto, never, always
#   default: small                  # who answers where the router declines
#   split: {{seed: 0, train: 0.6, calibration: 0.2, test: 0.2}}   # a fresh split instead of the table's

# For `pandora serve`.
serve:
  router: router                    # the folder that `pandora fit` writes
  # host: 127.0.0.1
  # port: 8080
  # store: pandora.sqlite           # decisions, keys and budgets
  # keys: required                  # make one with `pandora keys add NAME`; none: only on this machine
  # deadline_ms: 200                # time for the estimates of one decision
"""


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=Path("pandora.yaml"))
@click.option("--table", default="table", show_default=True, help="The routing table to name in it.")
@click.option("--replace", is_flag=True, help="Replace an existing file.")
@click.option("--json", "as_json", is_flag=True, help="Print its path as JSON.")
def init(path: Path, table: str, replace: bool, as_json: bool) -> None:
    """Write a commented config to PATH [pandora.yaml]; asks no questions.

    An existing file is not changed unless you pass --replace.

    \b
    Examples:
      pandora init
      pandora init routers/math.yaml --table ../tables/math
    """
    folders.check_file(path, replace=replace)
    folders.replace_text(path, TEMPLATE.format(table=json.dumps(table)))
    if as_json:
        echo_json({"config": str(path)})
        return
    echo(f"Written to {path}. Next: fill in your specialists, then pandora collect {path} --dry-run")

"""`pandora init`: write a commented config file."""

from __future__ import annotations

import json
from pathlib import Path

import click

from pandora_router.errors import UsageError

TEMPLATE = """\
# What `pandora fit` does. Lines that start with "# " show defaults: take the mark away to change one.
# A key that does not exist is an error.

data:
  table: {table}            # a folder written by `pandora data import`; relative to this file
  # fee_weight: 1.0         # reward = score - fee_weight x fee
  # specialists: [a, b]     # only these, in this order
  # split: {{seed: 0, train: 0.6, calibration: 0.2, test: 0.2}}   # a fresh split

# What one purchase of costly estimates is worth to you, in units of reward. One number is the price of one
# call: for all specialists together where the estimator shows them together (the stack without a peek), for
# each specialist otherwise. Or in parts: {{shared: 0.002, own: 0.001}} or {{own: {{a: 0.001, b: 0.1}}}}
inspection_cost: 0.002

# The cheap estimate f: mean reward of the k nearest training prompts. The paper has k = 3; both 3 and 50 are
# reported. embedder: fitted (word vectors and TF-IDF), words, minilm, or an OpenAI-compatible endpoint:
# {{kind: remote, base_url: "http://127.0.0.1:8000/v1", model: some-model, key_from: OPENAI_API_KEY}}
# cheap: {{kind: neighbours, k: 50, embedder: fitted}}

# The costly estimate g: a boosted stack. peek is how many characters of a specialist's context it reads
# (0: none; left out: 400 where most answers have one); agreement reads those of all specialists together.
# costly: {{kind: stack, agreement: false}}
# or the paper's transformer (extra [transformer]): form all (prompt, every specialist at once) or named (the
# specialist in the text, with peek characters of its context); the last `layers` of six learn
# costly: {{kind: transformer, form: named, peek: 400, tokens: 192, layers: 2, epochs: 2, rate: 0.0001}}
# or a judge (key_from: the variable that holds its key; price: money per judgement, only for what
# `pandora fit` says before it starts)
# costly: {{kind: judge, base_url: "http://127.0.0.1:8000/v1", model: some-model, price: 0.0002}}

# How estimates become boxes: calibrated, gaussian_joint, gaussian_independent, neighbours or draws.
# signal:
#   kind: calibrated
#   mean: ridge                  # or boosted, identity
#   scale: by_mean               # or constant
#   correlation: ledoit_wolf     # or none
#   slope: true
#   law: quantiles               # or normal

# How to search: knowledge_gradient, auto (chosen on the calibration split), never, always, rollout, relative,
# committing (the paper's), obligatory.
# policy: {{kind: knowledge_gradient}}

# Who answers when the router declines; left out: the specialist of highest mean reward in training.
# default: a

# Seconds to wait for a costly estimate from outside.
# timeout: 30
"""


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=Path("pandora.yaml"))
@click.option("--table", default="table", show_default=True, help="The routing table to name in it.")
@click.option("--json", "as_json", is_flag=True, help="Print where it is as JSON.")
def init(path: Path, table: str, as_json: bool) -> None:
    """Write a commented config to PATH [pandora.yaml]; a file that is there already is left alone.

    \b
    Examples:
      pandora init
      pandora init routers/math.yaml --table ../tables/math
    """
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(TEMPLATE.format(table=table))
    except FileExistsError:
        raise UsageError(
            str(path), expected="a new file", came="one that exists", do="Choose another name."
        ) from None
    if as_json:
        click.echo(json.dumps({"config": str(path)}))
        return
    click.echo(f"Written to {path}. Next: pandora fit {path} -o router")

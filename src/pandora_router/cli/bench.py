"""`pandora bench`: what a router decides on a public benchmark, in the format of its submissions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from pandora_router.cli.console import SlowProgress, echo
from pandora_router.cli.options import ROUTER
from pandora_router.errors import UsageError

if TYPE_CHECKING:
    from pandora_router.router import Router

PRICES = ("input_token_price_per_million", "output_token_price_per_million")
BLOCK = 500  # prompts that are decided together, between two lines of progress
FILE = click.Path(path_type=Path, dir_okay=False)


@click.group()
def bench() -> None:
    """Write a router's decisions on a public benchmark, ready to be submitted.

    \b
    Examples:
      pandora bench routerarena router_data.json -r router -o predictions.json
    """


@bench.command()
@click.argument("dataset", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@ROUTER
@click.option("-o", "--output", type=FILE, required=True, help="The submission to write.")
@click.option(
    "--model", "pairs", multiple=True, metavar="SPECIALIST=MODEL",
    help="RouterArena's name of a specialist, where it differs; repeatable.",
)  # fmt: skip
@click.option("--prices", type=FILE, help="RouterArena's model_cost.json, in place of the fees of the fit.")
def routerarena(
    dataset: Path, artifact: Path, output: Path, pairs: tuple[str, ...], prices: Path | None
) -> None:
    """Choose a specialist for each question of RouterArena's DATASET and write the choices.

    DATASET is router_data.json, router_data_10.json or the robustness file of RouterArena: a JSON list with
    "global index" and "prompt_formatted" or "prompt". What the answers say, cost and score is left empty:
    RouterArena's own scripts ask the models and fill it in. Beginnings of answers are not at hand, so
    a router that needs them decides without.

    With --prices a specialist costs what the price list says for the questions of DATASET and for answers of
    the length that was measured when the router was fitted (200 tokens, where none was).

    \b
    Examples:
      pandora bench routerarena router_data_10.json -r router -o predictions.json
      pandora bench routerarena router_data.json -o predictions.json --model small=gpt-4o-mini
      pandora bench routerarena router_data.json -o predictions.json --prices model_cost.json
    """
    from pandora_router.config import open_router
    from pandora_router.folders import replace_text

    router = open_router(artifact)
    names = _names(pairs, router.specialists)
    rows = _questions(dataset)
    if prices is not None:
        router = _repriced(router, prices, names, [prompt for _, prompt in rows])
    made: list[dict[str, Any]] = []
    with SlowProgress() as progress:
        for start in range(0, len(rows), BLOCK):
            progress("deciding", start, len(rows))
            block = rows[start : start + BLOCK]
            decisions = router.route_batch([prompt for _, prompt in block])
            for (index, prompt), decision in zip(block, decisions, strict=True):
                made.append(
                    {
                        "global index": index,
                        "prompt": prompt,
                        "prediction": names[decision.specialist],
                        "generated_result": None,
                        "cost": None,
                        "accuracy": None,
                        "for_optimality": False,
                    }
                )
    replace_text(output, json.dumps(made, ensure_ascii=False, indent=2) + "\n")
    counts = {name: sum(row["prediction"] == name for row in made) for name in names.values()}
    shares = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    echo(f"{len(made):,} choices written to {output}: {shares}.")


def _names(pairs: tuple[str, ...], specialists: tuple[str, ...]) -> dict[str, str]:
    """RouterArena's name of each specialist."""
    names = {name: name for name in specialists}
    for pair in pairs:
        ours, _, theirs = pair.partition("=")
        if ours not in names or not theirs:
            raise UsageError(
                "--model",
                expected=f"SPECIALIST=MODEL with one of {', '.join(specialists)}",
                came=repr(pair),
                do="For example: --model small=gpt-4o-mini",
            )
        names[ours] = theirs
    return names


def _repriced(router: Router, path: Path, names: Mapping[str, str], prompts: Sequence[str]) -> Router:
    """The router with the fees of this price list. Raises `UsageError` for a model that is not in it."""
    from pandora_router.prices import CHARACTERS_PER_TOKEN, USUAL_ANSWER, Lengths, Tariff
    from pandora_router.router.revalue import weighed

    read = sum(map(len, prompts)) / len(prompts) / CHARACTERS_PER_TOKEN
    measured, fees = router.record.lengths, []
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
        for ours, theirs in names.items():
            into, out = (float(listed[theirs][key]) for key in PRICES)
            written = Lengths.of(measured.get(ours, {})).output.given(USUAL_ANSWER)
            fees.append(Tariff(into, out).price(read, written))
    except (ValueError, TypeError, KeyError, OSError) as fault:
        raise UsageError(
            str(path),
            expected=f"a JSON object with {' and '.join(PRICES)} of {', '.join(names.values())}",
            came=f"{type(fault).__name__}: {fault}",
            do="Take RouterArena's model_cost.json, and say with --model what a specialist is called there.",
        ) from None
    moved = weighed(router, router.fee_weight, router.fee_weight * (router.fees - np.array(fees)))
    return replace(moved, fees=np.array(fees))


def _questions(path: Path) -> list[tuple[str, str]]:
    """Index and prompt of each question. Raises `UsageError` if the file is not a list of such questions."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        found = [
            (str(row["global index"]), str(row.get("prompt_formatted") or row["prompt"])) for row in rows
        ]
    except (ValueError, TypeError, KeyError, AttributeError) as fault:
        raise UsageError(
            str(path),
            expected='a JSON list of objects with "global index" and "prompt_formatted" or "prompt"',
            came=f"{type(fault).__name__}: {fault}",
            do="Take the file that RouterArena's prep_datasets.py writes.",
        ) from None
    if not found:
        raise UsageError(str(path), expected="one question or more", came="none", do="Name another file.")
    return found

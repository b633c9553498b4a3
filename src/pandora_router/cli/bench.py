"""`pandora bench`: what a router decides on a public benchmark, in the format of its submissions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from pandora_router.cli.console import SlowProgress, echo
from pandora_router.cli.options import ROUTER
from pandora_router.errors import UsageError

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
def routerarena(dataset: Path, artifact: Path, output: Path, pairs: tuple[str, ...]) -> None:
    """Choose a specialist for each question of RouterArena's DATASET and write the choices.

    DATASET is router_data.json, router_data_10.json or the robustness file of RouterArena: a JSON list with
    "global index" and "prompt_formatted" or "prompt". What the answers say, cost and score is left empty:
    RouterArena's own scripts ask the models and fill it in. Beginnings of answers are not at hand, so
    a router that needs them decides without.

    \b
    Examples:
      pandora bench routerarena router_data_10.json -r router -o predictions.json
      pandora bench routerarena router_data.json -o predictions.json --model small=gpt-4o-mini
    """
    from pandora_router.config import open_router
    from pandora_router.folders import replace_text

    router = open_router(artifact)
    names = _names(pairs, router.specialists)
    rows = _questions(dataset)
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

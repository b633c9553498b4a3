"""`pandora compare A B`: is B significantly worse than A? Its exit code is for continuous integration."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pandora_router.calibrate.ways import ROUTER
from pandora_router.cli.console import Screen, echo_json, table
from pandora_router.cli.options import FOLDER
from pandora_router.errors import UsageError

if TYPE_CHECKING:
    from pandora_router.evaluate.results import Key


@click.command()
@click.argument("a", type=FOLDER)
@click.argument("b", type=FOLDER)
@click.option("--arm", default=ROUTER, show_default=True, help="The way of routing to compare.")
@click.option("--arm-b", help="The way of routing of B, if another one.")
@click.option("--tolerance", type=click.FloatRange(0), default=0.0, help="Loss of reward that is accepted.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def compare(a: Path, b: Path, arm: str, arm_b: str | None, tolerance: float, as_json: bool) -> None:
    """Compare two result folders of one experiment (RESULTS/EXPERIMENT), prompt by prompt.

    Exit code 0: B is not significantly worse at any inspection cost; 1: at some inspection cost it is, by
    more than the tolerance; 2: the results cannot be compared. Significant means that the bootstrap over
    prompts and the replication over splits agree, so at least two common seeds are needed.

    \b
    Examples:
      pandora compare main/math_gpt branch/math_gpt
      pandora compare results/math_gpt results/math_gpt --arm "never inspect" --arm-b auto
    """
    from pandora_router.evaluate import results

    first, second = results.read(a), results.read(b)
    wanted: list[tuple[Key, Key]] = [
        ((k, c, arm_b or arm), (k, c, arm)) for k in second.neighbours[:1] for c in second.costs
    ]
    pairs = [(x, y) for x, y in wanted if x in second.keys and y in first.keys]
    if not pairs or len(set(first.seeds) & set(second.seeds)) < 2:
        raise UsageError(
            "results to compare",
            expected=f"two or more common seeds, with {arm!r} at common inspection costs",
            came=f"seeds {sorted(first.seeds)} and {sorted(second.seeds)}, {len(pairs)} common costs",
            do="Run both with the same YAML and --seeds.",
        )
    gaps = second.compare(pairs, first)
    worse = gaps.star & (gaps.mean > tolerance)
    rows = [
        {"cost": x[1], "difference": float(m), "error": float(e), "split_error": float(s), "worse": bool(w)}
        for (x, _), m, e, s, w in zip(pairs, gaps.mean, gaps.error, gaps.split_error, worse, strict=True)
    ]
    if as_json:
        echo_json({"worse": bool(worse.any()), "splits": gaps.splits, "rows": rows})
    else:
        _show(rows, gaps.splits)
    sys.exit(1 if worse.any() else 0)


def _show(rows: list[dict[str, float | bool]], splits: int) -> None:
    columns = ("inspection cost", "difference", "s.e. prompts", "s.e. splits", "significantly worse")
    numbers = ("difference", "error", "split_error")
    cells = [
        [f"{row['cost']:g}", *(f"{1e3 * row[name]:.2f}" for name in numbers), "yes" if row["worse"] else "no"]
        for row in rows
    ]
    title = f"regret + cost, B minus A, 1e-3 of reward, {splits} splits"
    Screen().show(table(title, columns, cells, words=0))

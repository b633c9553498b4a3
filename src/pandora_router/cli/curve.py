"""`pandora curve`: quality against cost of a fitted router, and the point that meets a goal."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pandora_router.cli.console import Screen, echo_json, table
from pandora_router.cli.options import SHARE
from pandora_router.errors import UsageError
from pandora_router.text import money

if TYPE_CHECKING:  # the router needs numpy: `pandora curve --help` does without
    from rich.table import Table as Grid

    from pandora_router.router.curve import Curve, Kept, Point
    from pandora_router.router.latency import InTime, Timings

PROMPTS = 1000
WIDE, HIGH = 64, 16
"""Columns and lines of the plot."""


@click.command()
@click.option(
    "-r", "--router", "folder", type=click.Path(path_type=Path), default=Path("router"), show_default=True,
    help="Folder that pandora fit wrote.",
)  # fmt: skip
@click.option("--keep", type=SHARE, help="Show the cheapest point that keeps this share, like 0.95, ...")
@click.option("--of", help="... of the score of this specialist.")
@click.option("--svg", type=click.Path(path_type=Path), help="Also write the curve as a drawing.")
@click.option("--html", type=click.Path(path_type=Path), help="Also write it as a page that works offline.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def curve(
    folder: Path, keep: float | None, of: str | None, svg: Path | None, html: Path | None, as_json: bool
) -> None:
    """Show what more money buys: right answers against cost, on prompts that were held out of the fit.

    Each point of the router is one worth of a right answer (value.right_answer in pandora.yaml). It is
    compared with every single specialist and with the best random mix of two specialists at the same cost.

    \b
    Examples:
      pandora curve -r router
      pandora curve -r router --keep 0.95 --of large
      pandora curve -r router --html curve.html
      pandora curve -r router --json
    """
    from pandora_router.config import open_router
    from pandora_router.config.file import curve_of
    from pandora_router.folders import replace_text
    from pandora_router.router.curve_picture import curve_html, curve_svg
    from pandora_router.router.latency import REPORTED, Timings

    if (keep is None) != (of is None):
        raise UsageError(
            "pandora curve",
            expected="--keep and --of together",
            came="one of them",
            do="--keep 0.95 --of NAME",
        )
    router = open_router(folder)
    traced, sign = curve_of(router), router.report.sign
    facts = router.record.report["routing"]
    timed = {name: Timings.from_dict(facts[name]) for name in REPORTED.values() if name in facts}
    kept = None if keep is None or of is None else traced.keep(keep, of)
    worth = 1.0 / router.fee_weight if kept is None else kept.point.worth
    if svg is not None:
        replace_text(svg, curve_svg(traced, sign, worth) + "\n")
    if html is not None:
        said = [] if kept is None else [promise(kept, sign), ""]
        words = "\n".join([*said, *map(" ".join, _lines(traced, sign))])
        replace_text(html, curve_html(traced, sign, worth, words))
    if as_json:
        goal = None if kept is None else {"worth": kept.point.worth, "sure": kept.sure}
        seconds = {"timings": None, **{name: asdict(each) for name, each in timed.items()}}
        echo_json({**traced.to_dict(), "fitted_worth": 1.0 / router.fee_weight, "goal": goal, **seconds})
        return
    screen = Screen()
    if kept is not None:
        screen.say(promise(kept, sign))
    screen.say(plot(traced, sign))
    screen.show(points(traced, 1.0 / router.fee_weight, sign))
    for each in timed.values():
        screen.show(times(each, 1.0 / router.fee_weight, sign))
    screen.say(
        f"On {traced.prompts:,} held-out prompts; money per {PROMPTS:,}, looks included. The whole curve "
        f"lies within {traced.band:.2f} standard errors (se) of these points with probability 0.95. over "
        "mix: right answers above the best random mix of two specialists at the same cost."
    )


def in_time(met: InTime, worth: float, sign: str) -> str:
    """Sentence on what a goal `latency` costs and whether the held-out prompts show that it is met."""
    quantile, share = met.timing.quantiles[met.level], met.level[1:]
    does, done = (
        ("Answers", "answers") if met.until == "last_byte" else ("Begins to answer", "begins to answer")
    )
    took = f"{share} of 100 requests within {quantile.seconds:.3g} s"
    if met.sure:
        verdict = f"{does} {took} (goal: {met.seconds:g} s; held-out prompts show it with 95 % confidence)"
    else:
        verdict = f"Nothing surely {done} {share} of 100 requests within {met.seconds:g} s; the best {done} "
        verdict += took.removeprefix(f"{share} of 100 requests ") + " on held-out prompts"
    cost = money(PROMPTS * met.timing.money, sign)
    price = money(met.timing.price * worth, sign)
    return (
        f"{verdict}: {met.timing.score:.3f} right at {cost} per {PROMPTS:,}. A second is then worth {price}."
    )


def times(timed: Timings, worth: float, sign: str) -> Grid:
    """How long requests take over the price of a second, as a table."""
    rows = []
    for point in timed.points:
        cells = [f"{quantile.seconds:.3g}" for quantile in point.quantiles.values()]
        most = point.quantiles["p95"].most
        cost = money(PROMPTS * point.money, sign)
        price = money(point.price * worth, sign)
        known = "" if most is None else f"{most:.3g}"
        rows.append((price, *cells, known, f"{point.score:.3f}", cost, f"{point.inspections:.2f}"))
    quantiles = [f"{name} (s)" for name in timed.points[0].quantiles]
    columns = ("price of a second", *quantiles, "p95 at most", "right", f"per {PROMPTS:,}", "looks")
    what = "how long requests take" if timed.until == "last_byte" else "when answers begin"
    return table(f"What a second is worth decides {what}", columns, rows)


def promise(kept: Kept, sign: str) -> str:
    """Sentence on what a goal `keep` costs and whether the held-out prompts show that it is met."""
    point, strong = kept.point, kept.strong
    reached = point.score / strong.score if strong.score else float("inf")
    if kept.sure:
        verdict = f"Keeps {reached:.1%} of the right answers of {kept.of} (goal: {kept.share:.0%}"
        verdict += "; held-out prompts show it with 95 % confidence)"
    else:
        alone = ", but asking it alone" if kept.share <= 1.0 else ""
        verdict = f"Nothing surely keeps {kept.share:.0%} of the right answers of {kept.of}{alone}"
        verdict += f"; the best router keeps {reached:.1%}"
    worth = money(point.worth or 0.0, sign)
    return (
        f"{verdict}: {_short(point, sign)}; always {kept.of}: {_short(strong, sign)}. "
        f"A right answer is then worth {worth}."
    )


def lasting(traced: Curve, budget: float, per: str, sign: str) -> str:
    """Sentence on how many requests a budget pays for: at most quality, at half its cost, at the least."""
    most = max(point.score for point in traced.points)
    dear = min((point for point in traced.points if point.score >= most), key=lambda point: point.money)
    cheap = traced.points[-1]
    half = min(traced.points, key=lambda point: abs(point.money - dear.money / 2.0))
    many = {}
    for point in (dear, half, cheap):
        if point.money > 0.0:
            requests = budget / point.money
            digits = max(math.floor(math.log10(requests)) - 1, 0)
            many[int(requests // 10**digits) * 10**digits] = f"{point.score:.3f} right"
    told = [f"{count:,} requests at {right}" for count, right in many.items()]
    return (
        f"{money(budget, sign)} per {per} pays for about {', or for '.join(told)}: the gateway serves the "
        "best that the traffic leaves money for."
    )


def _short(point: Point, sign: str) -> str:
    return f"{point.score:.3f} right at {money(PROMPTS * point.money, sign)} per {PROMPTS:,}"


def points(traced: Curve, fitted: float, sign: str) -> Grid:
    """The points of the router by falling worth, then the single specialists, as a table."""
    rows = []
    for point in traced.points:
        assert point.worth is not None
        here = " (fitted)" if abs(point.worth / fitted - 1.0) < 1e-6 else ""
        rows.append(
            (
                f"{money(point.worth, sign)}{here}",
                *_cells(point, sign),
                f"{point.over_mix:+.3f}",
                f"{point.over_mix_error:.3f}",
            )
        )
    rows += [(f"always {name}", *_cells(point, sign), "", "") for name, point in traced.singles.items()]
    columns = (
        "worth of a right answer",
        "right",
        "(se)",
        f"per {PROMPTS:,}",
        "(se)",
        "looks",
        "over mix",
        "(se)",
    )
    return table("What a right answer is worth decides how much is spent", columns, rows)


def _lines(traced: Curve, sign: str) -> list[tuple[str, ...]]:
    """The points as lines of a table of fixed width."""
    lines: list[tuple[str, ...]] = [
        ("worth of a right answer".ljust(30), "right ", "(se)  ", f"money per {PROMPTS:,}")
    ]
    named = [(money(point.worth or 0.0, sign), point) for point in traced.points]
    for name, point in [*named, *((f"always {name}", point) for name, point in traced.singles.items())]:
        right, error, cost, _, looks = _cells(point, sign)
        lines.append((name[:30].ljust(30), right.ljust(6), error.ljust(6), f"{cost}, {looks} looks"))
    return lines


def _cells(point: Point, sign: str) -> tuple[str, ...]:
    cost, error = (money(PROMPTS * amount, sign) for amount in (point.money, point.money_error))
    return f"{point.score:.3f}", f"{point.score_error:.3f}", cost, error, f"{point.inspections:.2f}"


def plot(traced: Curve, sign: str) -> str:
    """Right answers (upwards) against money per prompt (to the right), as text.

    `o` is the router, `.` the best mix of two specialists, `*` the best in hindsight, a capital letter a
    single specialist.
    """
    everyone = [*traced.points, *traced.singles.values()]
    most = max(point.money for point in everyone) or 1.0
    scores = [*(point.score for point in everyone), *(score for _, score in traced.oracle)]
    low, high = min(scores), max(scores)
    grid = [[" "] * WIDE for _ in range(HIGH)]

    def put(cost: float, score: float, mark: str) -> None:
        line = round((HIGH - 1) * (high - score) / ((high - low) or 1.0))
        grid[min(max(line, 0), HIGH - 1)][round((WIDE - 1) * cost / most)] = mark

    for column in range(WIDE):
        put(most * column / (WIDE - 1), traced.mix(most * column / (WIDE - 1)), ".")
    for cost, score in traced.oracle:
        put(cost, score, "*")
    letters = {name: chr(ord("A") + at) for at, name in enumerate(list(traced.singles)[:26])}
    for name, letter in letters.items():
        put(traced.singles[name].money, traced.singles[name].score, letter)
    for point in traced.points:
        put(point.money, point.score, "o")
    edge = [f"{high:.3f} |", *["      |"] * (HIGH - 2), f"{low:.3f} |"]
    lines = [left.rjust(8) + "".join(row).rstrip() for left, row in zip(edge, grid, strict=True)]
    right = f"{money(PROMPTS * most, sign)} per {PROMPTS:,}"
    lines.append(" " * 7 + "+" + "-" * WIDE)
    lines.append(" " * 8 + "0" + right.rjust(WIDE - 1))
    named = ", ".join(f"{letter} {name}" for name, letter in letters.items())
    marks = "o router at different worths, . best random mix of two, "
    marks += "* best in hindsight, " if traced.oracle else ""
    return "\n".join([*lines, marks + named])

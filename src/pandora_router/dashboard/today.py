"""First page: requests, spend, net saving, quality, errors and latency of a window, and over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pandora_router.dashboard.layout import (
    Entry,
    Page,
    PageTable,
    amount,
    chart,
    charts,
    count,
    money,
    note,
    seconds,
    share,
    tile,
    tiles,
    when,
)
from pandora_router.dashboard.markup import Html
from pandora_router.dashboard.page_request import PageRequest
from pandora_router.store import queries
from pandora_router.store.database import Transaction
from pandora_router.store.money import dollars
from pandora_router.store.queries import Sums, Window

LEVELS = (0.5, 0.95)


@dataclass(frozen=True)
class Figures:
    """What the page shows, read in one transaction."""

    now: Sums
    before: Sums
    step: int
    over_time: list[Sums]
    first: list[float]
    whole: list[float]
    judgements: int
    quality: float | None
    judged: list[Sums]


def read(open_: Transaction, window: Window, metric: str) -> Figures:
    """Read all figures of a window; `before` is the window of the same length before it."""
    earlier = Window(window.since - (window.until - window.since), window.since)
    step, over_time = queries.series(open_, window)
    sums = queries.judged(open_, window, metric)
    judgements = sum(row["judgements"] for row in sums)
    return Figures(
        queries.totals(open_, window),
        queries.totals(open_, earlier),
        step,
        over_time,
        queries.quantiles(open_, window, "first", LEVELS).get("", []),
        queries.quantiles(open_, window, "whole", LEVELS).get("", []),
        judgements,
        sum(row["total"] for row in sums) / judgements if judgements else None,
        queries.judged_over_time(open_, window, metric),
    )


def today(open_: Transaction, request: PageRequest) -> Page:
    """The page."""
    window = request.window
    figures = read(open_, window, request.metric)
    parts: list[Html | PageTable] = [
        _tiles(figures, request.metric),
        _charts(figures, window),
        explained(),
        _table(figures),
    ]
    return Page("Today", parts, live=True)


def whole_steps(over_time: list[Sums], step: int, window: Window) -> list[Sums]:
    """The steps of `step` seconds that lie inside the window; all steps if those have no requests.

    The first and the last step of a window are usually cut. In a chart they would look like a drop.
    """
    whole = [row for row in over_time if window.since <= row["at"] and row["at"] + step <= window.until]
    return whole if any(row["requests"] for row in whole) else over_time


def net_saving(sums: Sums) -> int:
    """What the best single specialist would have cost minus what was paid, looks included, in nanodollars."""
    return int(sums["baseline"] - sums["compared"])


def _tiles(figures: Figures, metric: str) -> Html:
    now, requests = figures.now, figures.now["requests"]
    saved, best = net_saving(now), int(now["baseline"])
    kind = None if not best else "good" if saved >= 0 else "bad"
    compared = _compared(saved, best) if best else "no request could be compared"
    looks = f"looks {money(now['inspection_cost']).shown} of it"
    quality = "–" if figures.quality is None else f"{figures.quality:.3f}"
    return tiles(
        tile("Requests", f"{requests:,}", _change(requests, figures.before["requests"])),
        tile("Spend", money(now["cost"]).shown, looks),
        tile("Net saving" if saved >= 0 else "Net loss", amount(dollars(abs(saved))), compared, kind=kind),
        tile(f"Quality ({metric})", quality, f"{figures.judgements:,} judged answers"),
        tile("Errors", share(now["errors"], requests).shown, f"{now['errors']:,} requests"),
        tile("First token", _level(figures.first, 0), f"95%: {_level(figures.first, 1)}"),
        tile("Whole answer", _level(figures.whole, 0), f"95%: {_level(figures.whole, 1)}"),
        tile("Deciding", seconds(now["overhead"] / requests if requests else None).shown, "mean per request"),
        tile("Looked before", share(now["inspected"], requests).shown, f"{now['looks']:,} looks"),
        tile("Declined", share(now["declined"], requests).shown, "went to the default"),
    )


def _compared(saved: int, best: int) -> str:
    """How a saving compares with the bill of the best single specialist."""
    times = abs(saved) / best
    part = f"{times:,.0f} times" if times > 10 else f"{share(saved, best).shown} of"
    return f"{part} {amount(dollars(best))} for always the best single; money only, quality is beside it"


def _level(levels: list[float], place: int) -> Any:
    return seconds(levels[place] if levels else None).shown


def _change(now: float, before: float) -> str:
    if not before:
        return "none in the window before"
    return f"{100 * (now / before - 1):+.0f}% against the window before".replace("-", "−")


def _charts(figures: Figures, window: Window) -> Html:
    rows = whole_steps(figures.over_time, figures.step, window)
    at = [row["at"] for row in rows]

    def summed(name: str) -> list[float | None]:
        return [row[name] for row in rows]

    def mean(name: str, by: str) -> list[float | None]:
        return [row[name] / row[by] if row[by] else None for row in rows]

    def paid(name: str) -> list[float | None]:
        return [dollars(int(row[name])) for row in rows]

    saved = [dollars(net_saving(row)) for row in rows]
    quality = [row["total"] / row["judgements"] if row["judgements"] else None for row in figures.judged]
    drawn = [
        chart("Requests", at, {"requests": summed("requests"), "errors": summed("errors")}),
        chart("Money", at, {"spend": paid("cost"), "net saving": saved, "looks": paid("inspection_cost")},
              "dollars"),
        chart("Latency", at, {"whole answer, mean": mean("seconds", "timed"),
                              "first token, mean": mean("first_token", "first_tokens")}, "seconds"),
        chart("Quality", [row["at"] for row in figures.judged], {"mean of feedback": quality}),
    ]  # fmt: skip
    return charts(*drawn)


def _table(figures: Figures) -> PageTable:
    rows = [
        [
            when(row["at"]),
            count(row["requests"]),
            count(row["errors"]),
            money(row["cost"]),
            money(row["inspection_cost"]),
            money(net_saving(row)) if row["baseline"] else Entry(None, "–"),
            seconds(row["first_token"] / row["first_tokens"] if row["first_tokens"] else None),
            seconds(row["seconds"] / row["timed"] if row["timed"] else None),
        ]
        for row in reversed(figures.over_time)
        if row["requests"]
    ]
    columns = ("from", "requests", "errors", "spend", "looks", "net saving", "first token", "whole answer")
    return PageTable("over-time", f"In steps of {_length(figures.step)}", columns, rows, folded=True)


def _length(step: int) -> str:
    minutes = step // 60
    if minutes < 60:
        return "a minute" if minutes == 1 else f"{minutes} minutes"
    return "an hour" if minutes == 60 else f"{minutes / 60:g} hours"


def explained() -> Html:
    """What the money on the page means."""
    return note(
        "Net saving: what the best single specialist would have cost for the same requests, minus what was "
        "paid for answers and looks."
    )

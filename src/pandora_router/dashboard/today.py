"""First page: net value, money, score, requests, errors and latency of a window, and over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from pandora_router.dashboard.keys import budgets_table
from pandora_router.dashboard.layout import (
    Entry,
    Page,
    PageTable,
    amount,
    amounts,
    chart,
    charts,
    count,
    money,
    note,
    per_1000,
    seconds,
    share,
    tile,
    tiles,
    when,
)
from pandora_router.dashboard.markup import Html, tag
from pandora_router.dashboard.net_value import CostAndScore, mix_of_two, predicted, ways_table
from pandora_router.dashboard.page_request import PageRequest
from pandora_router.router.curve import Curve
from pandora_router.router.curve_picture import LEGEND, curve_svg
from pandora_router.store import budgets, queries
from pandora_router.store.database import Transaction
from pandora_router.store.money import dollars
from pandora_router.store.promises import Watched
from pandora_router.store.queries import Sums, Window
from pandora_router.text import counted

LEVELS = (0.5, 0.95)
NEWEST = 600
"""Number of newest decisions from which other ways are predicted."""


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
    squares: float
    judged: list[Sums]
    expected: float | None
    singles: list[CostAndScore]

    def router(self) -> CostAndScore | None:
        """All requests as they were answered; with the predicted score if there is no feedback."""
        score = self.expected if self.quality is None else self.quality
        requests = self.now["requests"]
        if score is None or not requests:
            return None
        return CostAndScore(
            "as it was answered", score, dollars(self.now["cost"]) / requests, self.quality is None
        )


def read(open_: Transaction, window: Window, metric: str) -> Figures:
    """Read all figures of a window; `before` is the window of the same length before it."""
    earlier = Window(window.since - (window.until - window.since), window.since)
    step, over_time = queries.series(open_, window)
    sums = queries.judged(open_, window, metric)
    judgements = sum(row["judgements"] for row in sums)
    expected, singles = predicted(map(orjson.loads, queries.details(open_, NEWEST)))
    return Figures(
        queries.totals(open_, window),
        queries.totals(open_, earlier),
        step,
        over_time,
        queries.quantiles(open_, window, "first", LEVELS).get("", []),
        queries.quantiles(open_, window, "whole", LEVELS).get("", []),
        judgements,
        sum(row["total"] for row in sums) / judgements if judgements else None,
        sum(row["squares"] for row in sums),
        queries.judged_over_time(open_, window, metric),
        expected,
        singles,
    )


FIRST = (
    'No request in this window. Clients send them to this address, with the model "auto": POST '
    "/v1/chat/completions, /v1/responses or /v1/messages. Coding agents are set up by: pandora connect."
)


def today(
    open_: Transaction,
    request: PageRequest,
    right_answer: float | None,
    curve: Curve | None = None,
    profiles: Mapping[str, float] | None = None,
    *,
    promised: Sequence[Watched] = (),
) -> Page:
    """The page; `right_answer` is what a score of 1 is worth in dollars, None if that is not known.

    `curve` is quality against cost as the fit measured it; it is drawn with the present point and those of
    `profiles`, by what a score of 1 is worth to them. `promised` are the promises of goals as they hold in
    the window.
    """
    window, followed = request.window, budgets.status(open_, [], request.now)
    figures = read(open_, window, request.metric)
    router = figures.router()
    parts: list[Html | PageTable] = [
        _tiles(figures, request.scored("Score"), right_answer),
        *([] if figures.now["requests"] else [note(FIRST)]),
        *([] if router is None or right_answer is None else [_ways(router, figures, right_answer)]),
        *([_promises(promised)] if promised else []),
        *([budgets_table(followed, request.now)] if followed else []),
        *([] if curve is None else [_drawn(curve, right_answer, profiles)]),
        explained(),
        _charts(figures, window),
        _table(figures),
    ]
    return Page("Today", parts, live=True)


def _drawn(curve: Curve, right_answer: float | None, profiles: Mapping[str, float] | None) -> Html:
    """What more money buys, with the points that are served now."""
    drawn = Html(curve_svg(curve, "$", right_answer, profiles))
    return tag(
        "figure",
        tag("figcaption", "What more money buys, on prompts held out of the fit"),
        drawn,
        note(LEGEND),
    )


def _promises(promised: Sequence[Watched]) -> PageTable:
    """What goals promise, and whether it holds on the requests of the window."""
    rows = [
        [
            Entry(one.promise.text),
            Entry(one.verdict),
            Entry(one.reached, "–" if one.reached is None else f"{one.reached:.1%}"),
            Entry(one.low, "–" if one.low is None else f"{one.low:.1%} to {one.high:.1%}"),
            count(one.requests),
            Entry(one.basis),
        ]
        for one in promised
    ]
    columns = ("promise", "it", "reached", "95 % interval", "requests", "compared with")
    return PageTable("promises", "What the goal promises", columns, rows, words=2)


def whole_steps(over_time: list[Sums], step: int, window: Window) -> list[Sums]:
    """The steps of `step` seconds that lie inside the window; all steps if those have no requests.

    The first and the last step of a window are usually cut. In a chart they would look like a drop.
    """
    whole = [row for row in over_time if window.since <= row["at"] and row["at"] + step <= window.until]
    return whole if any(row["requests"] for row in whole) else over_time


def _ways(router: CostAndScore, figures: Figures, right_answer: float) -> PageTable:
    return ways_table(router, figures.singles, right_answer)


def _tiles(figures: Figures, title: str, right_answer: float | None) -> Html:
    now, requests = figures.now, figures.now["requests"]
    return tiles(
        *_value(figures, right_answer),
        _money(now),
        _score(figures, title),
        tile("Requests", f"{requests:,}", change(requests, figures.before["requests"])),
        tile("Errors", share(now["errors"], requests).shown, counted(now["errors"], "request")),
        tile("First token", _level(figures.first, 0), f"95%: {_level(figures.first, 1)}"),
        tile("Whole answer", _level(figures.whole, 0), f"95%: {_level(figures.whole, 1)}"),
        tile("Deciding", seconds(now["overhead"] / requests if requests else None).shown, "mean per request"),
        tile("Looked before", share(now["inspected"], requests).shown, counted(now["looks"], "look")),
        tile("Declined", share(now["declined"], requests).shown, "went to the default"),
    )


def _value(figures: Figures, right_answer: float | None) -> list[Html]:
    """Net value of the window, and how far it is ahead of the best specialist alone and of the mix of two."""
    router, requests = figures.router(), figures.now["requests"]
    if right_answer is None:
        return [tile("Net value", "–", "no fitted router says what a right answer is worth")]
    if router is None:
        why = "no score: send feedback, or let the router decide" if requests else "no requests"
        return [tile("Net value", "–", why)]
    net, doubt = router.net(right_answer), _doubt(figures)
    title = "Net value, predicted" if router.predicted else "Net value"
    made = f"score {router.score:.3f} × {amount(right_answer)} − money, for {counted(requests, 'request')}"
    shown = [tile(title, amount(requests * net), made, kind="good" if net >= 0.0 else "bad")]
    others = [("the best single", max(figures.singles, key=lambda way: way.net(right_answer), default=None))]
    others.append(("the mix of two", mix_of_two(figures.singles, router.cost)))
    for name, way in others:
        if way is not None:
            ahead = requests * (net - way.net(right_answer))
            error = requests * right_answer * math.hypot(doubt, way.error)
            kind = None if abs(ahead) <= 2.0 * error else "good" if ahead > 0.0 else "bad"
            known = 0.0 < error < math.inf
            gap, doubtful, whole = amounts([ahead, error if known else 0.0, requests * way.net(right_answer)])
            what = f"{f'± {doubtful}; ' if known else ''}{way.name}: {whole}, predicted"
            sign = "+" if ahead >= 0.0 else ""
            shown.append(tile(f"Against {name}", f"{sign}{gap}", what, kind=kind))
    return shown


def _doubt(figures: Figures) -> float:
    """The standard error of the mean of feedback; infinite if there are fewer than two scores."""
    n, mean = figures.judgements, figures.quality
    if n < 2 or mean is None:
        return math.inf
    return math.sqrt(max(0.0, figures.squares / n - mean * mean) / (n - 1))


def _money(now: Sums) -> Html:
    """What was spent, on looks too, and how that compares with always asking the best single specialist."""
    gap = int(now["baseline"] - now["compared"])
    paid = [dollars(int(nano)) for nano in (now["cost"], now["inspection_cost"], abs(gap))]
    cost, looks, apart = amounts(paid) if any(paid) else ["$0.00"] * 3
    told = f"; {apart} {'less' if gap >= 0 else 'more'} than the best single" if now["baseline"] else ""
    return tile("Money", cost, f"looks {looks} of it{told}")


def _score(figures: Figures, title: str) -> Html:
    """The mean of feedback; without any, what the router predicted, under that name."""
    if figures.quality is not None:
        return tile(title, f"{figures.quality:.3f}", counted(figures.judgements, "judged answer"))
    if figures.expected is not None:
        return tile("Score, predicted", f"{figures.expected:.3f}", "no feedback yet: POST /v1/feedback")
    return tile(title, "–", "no feedback yet: POST /v1/feedback")


def _level(levels: list[float], place: int) -> Any:
    return seconds(levels[place] if levels else None).shown


def change(now: float, before: float) -> str:
    """How a number compares with that of the window before, as the note of a tile.

    >>> change(30, 40), change(399_514, 315), change(5, 0)
    ('−25% against the window before', '1,268 times the window before', 'none in the window before')
    """
    if not before:
        return "none in the window before"
    if now >= 10 * before:
        return f"{now / before:,.0f} times the window before"
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

    judged = figures.judged
    quality = [row["total"] / row["judgements"] if row["judgements"] else None for row in judged]
    drawn = [
        chart("Score", [row["at"] for row in judged], {"mean of feedback": quality}, ends=window,
              means=True),
        chart("Money", at, {"all": paid("cost"), "looks": paid("inspection_cost")}, "dollars", window),
        chart("Requests", at, {"requests": summed("requests"), "errors": summed("errors")}, ends=window),
        chart("Latency", at, {"whole answer, mean": mean("seconds", "timed"),
                              "first token, mean": mean("first_token", "first_tokens")}, "seconds", window),
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
            per_1000(dollars(row["cost"]) / row["requests"]),
            seconds(row["first_token"] / row["first_tokens"] if row["first_tokens"] else None),
            seconds(row["seconds"] / row["timed"] if row["timed"] else None),
        ]
        for row in reversed(figures.over_time)
        if row["requests"]
    ]
    columns = (
        "from",
        "requests",
        "errors",
        "money",
        "looks",
        "money per 1,000",
        "first token",
        "whole answer",
    )
    return PageTable("over-time", f"In steps of {_length(figures.step)}", columns, rows, folded=True)


def _length(step: int) -> str:
    minutes = step // 60
    if minutes < 60:
        return "a minute" if minutes == 1 else f"{minutes} minutes"
    return "an hour" if minutes == 60 else f"{minutes / 60:g} hours"


def explained() -> Html:
    """What the numbers on the page mean."""
    return note(
        "Net value: score times what a right answer is worth (value or goal of pandora.yaml), "
        "minus all money, looks included. Score: mean of feedback, for all requests of the window. "
        "Predicted: what the router expected of each specialist for its newest "
        f"{NEWEST:,} decisions, before it looked, and at the fees of the fit. The mix of two asks one of two "
        "specialists at random, for the same money as the router. ±: the standard error of both scores."
    )

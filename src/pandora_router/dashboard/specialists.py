"""Specialists: traffic, score, net value, price, latency, failures, circuit, looks won and lost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pandora_router.dashboard.layout import (
    Entry,
    Page,
    PageTable,
    chart,
    charts,
    count,
    money_column,
    note,
    per_1000,
    seconds,
    share,
)
from pandora_router.dashboard.markup import Html, markup, tag
from pandora_router.dashboard.page_request import PageRequest
from pandora_router.store import queries
from pandora_router.store.database import Transaction
from pandora_router.store.money import dollars
from pandora_router.store.queries import Sums

LEVELS = (0.5, 0.95)
DRAWN = 6
"""Number of specialists in a chart."""
TRAFFIC = (
    "specialist", "requests", "share", "score", "net value per 1,000", "money", "money per 1,000",
    "first token, median", "first token, 95%", "whole, median", "whole, 95%",
)  # fmt: skip
CALLS = (
    "specialist",
    "circuit",
    "calls",
    "failed",
    "looks",
    "won",
    "lost",
    "share won",
    "spent on lost looks",
)
FAILED = ("error", "lost")


def specialists(
    open_: Transaction,
    request: PageRequest,
    circuits: Mapping[str, str],
    right_answer: float | None,
    outlooks: Sequence[str] = (),
) -> Page:
    """The page; `circuits` has the state of each specialist that is served now.

    `right_answer` is what a score of 1 is worth in dollars, None if that is not known. `outlooks` says for
    each specialist whether looks at it are made now, what they cost, or why none is made.
    """
    window = request.window
    sums = queries.totals_by(open_, window, "specialist")
    calls = queries.calls(open_, window)
    judged = queries.judged(open_, window, request.metric)
    first = queries.quantiles(open_, window, "first", LEVELS)
    whole = queries.quantiles(open_, window, "whole", LEVELS)
    looks = queries.looked(open_, window)
    requests = sum(total["requests"] for total in sums.values())
    named = sorted({*sums, *circuits, *looks, *(row["specialist"] for row in calls)})
    empty = dict.fromkeys(("requests", "cost"), 0)
    rows, made_by = [], []
    paid = money_column([sums.get(name, empty)["cost"] for name in named])
    lost = [
        sum(row["cost"] for row in calls if row["specialist"] == name and row["kind"] == "loser")
        for name in named
    ]
    for name, cost, spent in zip(named, paid, money_column(lost), strict=True):
        mine, traffic = [row for row in calls if row["specialist"] == name], sums.get(name, empty)
        made = sum(row["calls"] for row in mine)
        failed = sum(row["calls"] for row in mine if row["status"] in FAILED)
        bought, won = looks.get(name, (0, 0))
        state = circuits.get(name, "not served")
        rows.append(
            [
                Entry(name, tag("a", name, href=request.link("decisions", specialist=name))),
                count(traffic["requests"]),
                share(traffic["requests"], requests),
                score([row for row in judged if row["specialist"] == name]),
                per_1000(_net([row for row in judged if row["specialist"] == name], traffic, right_answer)),
                cost,
                per_1000(dollars(traffic["cost"]) / traffic["requests"] if traffic["requests"] else None),
                *(seconds(level) for level in first.get(name, [None, None])),
                *(seconds(level) for level in whole.get(name, [None, None])),
            ]
        )
        made_by.append(
            [
                Entry(name),
                Entry(state, tag("span", state, class_="bad" if state == "open" else None)),
                count(made),
                share(failed, made),
                count(bought),
                count(won),
                count(bought - won),
                share(won, bought),
                spent,
            ]
        )
    explained = note(
        "Score: mean of feedback ± standard error. Net value: score times what a right answer is worth, "
        "minus money. Each specialist gets the requests that suit it: the first page compares it with "
        "always asking one. Failed: calls that ended in an error. A look is won if the specialist "
        "that was looked at answers. Circuits: as the process that made this page sees them."
    )
    return Page(
        "Specialists",
        [
            _over_time(open_, request, right_answer),
            PageTable("specialists", "Traffic", TRAFFIC, rows),
            PageTable("calls", "Calls and looks", CALLS, made_by, words=2),
            outlook_list(outlooks),
            explained,
        ],
    )


def outlook_list(sentences: Sequence[str]) -> Html:
    """The sentences of a gateway on looks at each of its specialists, as a list; nothing without any."""
    if not sentences:
        return markup()
    listed = tag("ul", *(tag("li", sentence[:1].upper() + sentence[1:]) for sentence in sentences))
    return tag("section", tag("h2", "Are looks made now?"), listed, id="outlooks")


def _net(judged: list[Sums], traffic: Sums, right_answer: float | None) -> float | None:
    """Net value per request in dollars: mean of feedback times its worth, minus money; None if unknown."""
    n, requests = sum(row["judgements"] for row in judged), traffic["requests"]
    if not n or not requests or right_answer is None:
        return None
    return float(sum(row["total"] for row in judged) / n * right_answer - dollars(traffic["cost"]) / requests)


def _over_time(open_: Transaction, request: PageRequest, right_answer: float | None) -> Html:
    """Share of the traffic and net value of the busiest specialists, over time."""
    _, found = queries.specialists_over_time(open_, request.window, request.metric)
    busiest = sorted(found, key=lambda name: -sum(row["requests"] for row in found[name].values()))[:DRAWN]
    at = sorted({start for steps in found.values() for start in steps})
    whole = {
        start: sum(steps[start]["requests"] for steps in found.values() if start in steps) for start in at
    }
    shares: dict[str, list[float | None]] = {}
    values: dict[str, list[float | None]] = {}
    for name in busiest:
        steps = [found[name].get(start) for start in at]
        shares[name] = [
            (100 * row["requests"] / whole[start] if row else 0.0) if whole[start] else None
            for start, row in zip(at, steps, strict=True)
        ]
        nets = [None if row is None else _net([row], row, right_answer) for row in steps]
        values[name] = [None if net is None else 1000 * net for net in nets]
    return charts(
        chart("Share of the requests", at, shares, "percent", request.window),
        chart("Net value per 1,000 answers", at, values, "dollars", request.window, means=True),
    )


def score(rows: list[Sums]) -> Entry:
    """The mean of feedback with its standard error."""
    n = sum(row["judgements"] for row in rows)
    if not n:
        return Entry(None, "–")
    mean = sum(row["total"] for row in rows) / n
    spread = max(0.0, sum(row["squares"] for row in rows) / n - mean * mean)
    error = f" ± {math.sqrt(spread / (n - 1)):.3f}" if n > 1 else ""
    return Entry(mean, f"{mean:.3f}{error}")

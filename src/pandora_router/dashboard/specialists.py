"""Specialists: traffic, reward, price, latency, failures, circuit, looks won and lost."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pandora_router.dashboard.layout import Entry, Page, PageTable, count, money, note, seconds, share
from pandora_router.dashboard.markup import tag
from pandora_router.dashboard.page_request import PageRequest
from pandora_router.store import queries
from pandora_router.store.database import Transaction
from pandora_router.store.queries import Sums

LEVELS = (0.5, 0.95)
TRAFFIC = (
    "specialist", "requests", "share", "spend", "per request", "reward", "first token, median",
    "first token, 95%", "whole, median", "whole, 95%",
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


def specialists(open_: Transaction, request: PageRequest, circuits: Mapping[str, str]) -> Page:
    """The page; `circuits` has the state of each specialist that is served now."""
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
    for name in named:
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
                money(traffic["cost"]),
                money(traffic["cost"] / traffic["requests"] if traffic["requests"] else None),
                reward([row for row in judged if row["specialist"] == name]),
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
                money(sum(row["cost"] for row in mine if row["kind"] == "loser")),
            ]
        )
    explained = note(
        "Reward: mean of feedback ± standard error. Failed: calls that ended in an error. A look is won if "
        "the specialist that was looked at answers. Circuits: as the process that made this page sees them."
    )
    return Page(
        "Specialists",
        [
            PageTable("specialists", "Traffic", TRAFFIC, rows),
            PageTable("calls", "Calls and looks", CALLS, made_by, words=2),
            explained,
        ],
    )


def reward(rows: list[Sums]) -> Entry:
    """The mean of feedback with its standard error."""
    n = sum(row["judgements"] for row in rows)
    if not n:
        return Entry(None, "–")
    mean = sum(row["total"] for row in rows) / n
    spread = max(0.0, sum(row["squares"] for row in rows) / n - mean * mean)
    error = f" ± {math.sqrt(spread / (n - 1)):.3f}" if n > 1 else ""
    return Entry(mean, f"{mean:.3f}{error}")

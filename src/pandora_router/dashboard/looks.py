"""Looks page: money spent on estimates, and the choices they changed."""

from __future__ import annotations

from collections.abc import Sequence

from pandora_router.dashboard.layout import (
    Entry,
    Page,
    PageTable,
    amount,
    chart,
    charts,
    count,
    money,
    money_column,
    note,
    share,
    tile,
    tiles,
)
from pandora_router.dashboard.markup import Html, tag
from pandora_router.dashboard.page_request import PageRequest
from pandora_router.dashboard.specialists import outlook_list, score
from pandora_router.dashboard.today import whole_steps
from pandora_router.store import queries
from pandora_router.store.database import Transaction
from pandora_router.store.money import dollars

LOOKS = ("inspection", "loser")


def looks(
    open_: Transaction, request: PageRequest, right_answer: float | None = None, outlooks: Sequence[str] = ()
) -> Page:
    """The page; `right_answer` is what a score of 1 is worth in dollars, None if that is not known.

    `outlooks` says for each specialist whether looks at it are made now, or why none is made.
    """
    window = request.window
    now = queries.totals(open_, window)
    judged = queries.judged(open_, window, request.metric)
    looked, changed, paid = now["inspected"], now["changed"], now["inspection_cost"]
    listed = tag("a", f"{changed:,} decisions", href=request.link("decisions", changed="yes"))
    head = tiles(
        tile("Requests with looks", f"{looked:,}", f"{share(looked, now['requests']).shown} of all"),
        tile(
            "Looks", f"{now['looks']:,}", f"{now['looks'] / looked:.2f} per such request" if looked else None
        ),
        tile("Spent on looks", money(paid).shown, f"{share(paid, now['cost']).shown} of all spend"),
        tile("Choices they changed", share(changed, looked).shown, listed),
        _gain(now["gained"], right_answer),
        tile("Per changed choice", money(paid / changed if changed else None).shown, "spent on looks"),
    )
    step, steps = queries.series(open_, window)
    over_time = whole_steps(steps, step, window)
    at = [row["at"] for row in over_time]
    drawn = charts(
        chart("Requests", at, {"with looks": [row["inspected"] for row in over_time],
                               "choice changed": [row["changed"] for row in over_time]}, ends=window),
        chart("Spent on looks", at, {"looks": [dollars(int(row["inspection_cost"])) for row in over_time]},
              "dollars", window),
        chart("Expected gain", at, {"net value" if right_answer else "score":
                                    [(right_answer or 1.0) * row["gained"] for row in over_time]},
              "dollars" if right_answer else "", window),
    )  # fmt: skip
    quality = [
        [Entry(title), count(sum(row["judgements"] for row in rows)), score(rows)]
        for title, rows in (
            ("looks changed the choice", [row for row in judged if row["changed"]]),
            ("looks changed nothing, or there were none", [row for row in judged if not row["changed"]]),
        )
    ]
    lost = [row for row in queries.calls(open_, window) if row["kind"] in LOOKS]
    spent = [
        [
            *(Entry(row[name]) for name in ("specialist", "kind", "status")),
            count(row["calls"]),
            cost,
            count(row["fresh"] + row["cached"] + row["written"]),
            count(row["output"]),
        ]
        for row, cost in zip(lost, money_column([row["cost"] for row in lost]), strict=True)
    ]
    won = [
        [Entry(name), count(bought), count(mine), count(bought - mine), share(mine, bought)]
        for name, (bought, mine) in sorted(queries.looked(open_, window).items())
    ]
    explained = note(
        "A look changes a choice if another specialist had the highest mean before it. Expected gain: what "
        "the chosen one was worth at the end (score times the worth of a right answer, minus its fee) minus "
        "what that other one was worth then. If the specialist that was looked at answers, the look is part "
        "of the price of its answer. Money spent on looks is what all other looks and the verdicts of judges "
        "cost."
    )
    return Page(
        "Looks",
        [
            head,
            outlook_list(outlooks),
            drawn,
            PageTable("quality", request.scored("Feedback"), ("requests", "judged", "score"), quality),
            PageTable("won", "Looks by specialist", ("specialist", "looks", "won", "lost", "share won"), won),
            PageTable(
                "lost",
                "Calls that were only looks",
                ("specialist", "kind", "status", "calls", "cost", "input tokens", "output tokens"),
                spent,
                words=3,
            ),
            explained,
        ],
    )


def _gain(gained: float, right_answer: float | None) -> Html:
    """What the looks gained by their own estimates; in dollars if the worth of a right answer is known."""
    if right_answer is None:
        return tile("Expected gain", f"{gained:.3f}", "score minus weighted fee, summed")
    return tile("Expected gain", amount(right_answer * gained), "net value, before what the looks cost")

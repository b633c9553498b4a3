"""Page of one decision: picture, bill, calls, feedback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pandora_router.dashboard.decisions import keep_texts
from pandora_router.dashboard.layout import (
    Entry,
    Page,
    PageTable,
    amounts,
    count,
    cut,
    money_column,
    note,
    number,
    per_1000,
    seconds,
    when,
)
from pandora_router.dashboard.markup import Html, tag
from pandora_router.dashboard.net_value import score_of
from pandora_router.dashboard.page_request import ROOT, PageRequest
from pandora_router.router.conversation import sentence
from pandora_router.router.picture import REWARD, Unit, decision_svg
from pandora_router.store import accounts, log, queries
from pandora_router.store.database import Transaction
from pandora_router.store.money import dollars
from pandora_router.wires.json_text import mapping

SOLD = ("sealed", "opened", "lost", "too late")
LONGEST = 20_000
"""The most characters of a prompt or an answer that a page shows."""


def decision(open_: Transaction, request: PageRequest, id_: str, *, bodies: bool = False) -> Page | None:
    """The page; None if no decision has this id. `bodies`: whether prompts are stored at present."""
    row = log.decision(open_, id_)
    if row is None:
        return None
    key = accounts.key_of(open_, row["key"]) if row["key"] else None
    prompt, answer = queries.texts(open_, id_)
    made = row["detail"].get("decision") or {}
    parts: list[Html | PageTable] = [
        _facts(row, "" if key is None else key.name),
        *([_picture(row, made)] if made.get("specialists") else [_undecided(row)]),
        *([_beliefs(made, row["detail"])] if made.get("specialists") else []),
        _bill(row),
        _attempts(row),
        _excluded(row),
        _feedback(row),
        *_text("Prompt", prompt),
        *_text("Answer", answer),
        *([] if bodies or prompt is not None else [keep_texts()]),
    ]
    return Page("One decision", parts, ranged=False)


def _facts(row: Mapping[str, Any], key: str) -> Html:
    facts = {
        "Decision": row["id"],
        "Time": when(row["at"]).child,
        "Answered by": tag("strong", row["specialist"]),
        "Predicted score": _predicted(row),
        "Feedback": ", ".join(f"{given['metric']} {given['value']:g}" for given in row["feedback"]) or None,
        "Money": _lines(row)["paid"],
        "Proposed by the router": row["proposed"] if row["proposed"] != row["specialist"] else None,
        "Would have looked first at": ", ".join(row["detail"].get("would_look") or ()) or None,
        "Status": row["status"],
        "Policy": row["policy"],
        "Conversation": sentence(stay, row["specialist"]) if (stay := row["detail"].get("session")) else None,
        "Declined because": row["declined"],
        "Probability of this choice": f"{row['propensity']:.3g}" if row["propensity"] < 1 else None,
        "Key": key or None,
        "Wire, mode": f"{row['wire']}, {row['mode']}",
        "Artifact, generation": f"{row['artifact'] or 'none'}, {row['generation']}",
        "Deciding, first token, whole": ", ".join(
            str(seconds(row[name]).child) for name in ("overhead", "first_token", "seconds")
        ),
    }
    return tag(
        "dl", [(tag("dt", name), tag("dd", value)) for name, value in facts.items() if value], class_="facts"
    )


def _predicted(row: Mapping[str, Any]) -> str | None:
    """The score that was expected of the specialist that answered; for a score of 0 or 1, its chance."""
    score = _score(row["detail"], row["specialist"])
    return None if score is None else f"{score:.2f}"


def _score(detail: Mapping[str, Any], specialist: str) -> float | None:
    """The expected score within [0, 1]: the linear estimates behind it can pass the ends."""
    score = score_of(detail, specialist)
    return None if score is None else min(1.0, max(0.0, score))


def _undecided(row: Mapping[str, Any]) -> Html:
    if str(row["policy"]).startswith("market"):
        return note("An auction decided: ", tag("a", "see it", href=f"{ROOT}/market/{row['id']}"), ".")
    why = {"named": "the request named it", "session": "its conversation began there"}.get(row["policy"])
    return note(f"{row['specialist']} was asked without a search: {why or row['declined'] or row['policy']}.")


def _picture(row: Mapping[str, Any], made: Mapping[str, Any]) -> Html:
    worth = (row["detail"].get("value") or {}).get("right_answer")
    unit = REWARD if worth is None else Unit("¢", 100.0 * worth, 4)
    drawn = decision_svg(made, unit=unit, bill=_lines(row), styled=False)
    return tag("div", Html(drawn), class_="picture")


def _lines(row: Mapping[str, Any]) -> dict[str, str]:
    """The bill in dollars: what was paid, and what the best single specialist would have cost."""
    paid, looks = dollars(row["cost"]), dollars(row["inspection_cost"])
    lines = {"paid": paid, "of it for looks": looks}
    read = mapping(mapping(row["detail"].get("session")).get("costs"))
    if row["specialist"] in read:
        lines["expected of it for the conversation so far"] = read[row["specialist"]]
    if row["baseline"] is not None:
        best = dollars(row["baseline"])
        lines["always the best single"] = best
        lines["less money than that" if best >= paid else "more money than that"] = abs(best - paid)
    return dict(zip(lines, amounts([*lines.values()]), strict=True))


def _bill(row: Mapping[str, Any]) -> PageTable:
    rows = [[Entry(name), Entry(value)] for name, value in _lines(row).items()]
    return PageTable(
        "bill", "The bill, and what the best single specialist would have cost", ("item", "money"), rows
    )


def _beliefs(made: Mapping[str, Any], detail: Mapping[str, Any]) -> PageTable:
    value = detail.get("value") or {}
    fees, right = value.get("fee") or {}, value.get("right_answer")
    order: dict[str, tuple[int, float | None]] = {}
    for place, purchase in enumerate(made["purchases"], 1):
        for name, value in zip(purchase["specialists"], purchase["values"], strict=True):
            order[name] = place, value
    worth = made["worth"]
    rows = []
    for name, known in sorted(made["specialists"].items(), key=lambda item: -(item[1]["mean"] or 0.0)):
        opened, shown = order.get(name, (None, None))
        rows.append(
            [
                Entry(name, tag("strong", name) if name == made["specialist"] else name),
                Entry(known["status"]),
                number(_score(detail, name)),
                per_1000(fees.get(name)),
                Entry(opened, "" if opened is None else str(opened)),
                number(shown),
                *(number(known[kind]) for kind in ("cheap", "mean", "std", "reservation_price")),
                _price(known["inspection_cost"] if known["status"] in SOLD else None, right),
                number(worth.get(name)),
            ]
        )
    columns = (
        "specialist", "its estimate", "predicted score", "fee per 1,000", "opened", "showed",
        "cheap estimate", "mean", "std", "reservation price",
        "price of a look" if right is None else "look per 1,000", "worth at the end",
    )  # fmt: skip
    return PageTable(
        "beliefs",
        "What was believed, bought and shown (worths: score minus weighted fee)",
        columns,
        rows,
        words=2,
    )


def _price(cost: float | None, right_answer: float | None) -> Entry:
    """The price of a look: dollars for a thousand if the worth of a right answer is known, else score."""
    if cost is None or right_answer is None:
        return number(cost, 5)
    return per_1000(cost * right_answer)


def _attempts(row: Mapping[str, Any]) -> PageTable:
    costs = money_column([attempt["cost"] for attempt in row["attempts"]])
    rows = [
        [
            when(attempt["at"]),
            Entry(attempt["specialist"]),
            Entry(attempt["kind"]),
            Entry(attempt["status"]),
            Entry(attempt["reason"], cut(attempt["reason"], 60)),
            cost,
            *(count(attempt[name] or 0) for name in ("fresh", "cached", "written", "output", "reasoning")),
            Entry(attempt["usage_complete"], "yes" if attempt["usage_complete"] else "estimated"),
            seconds(attempt["first_token"]),
            seconds(attempt["seconds"]),
        ]
        for attempt, cost in zip(row["attempts"], costs, strict=True)
    ]
    columns = (
        "time", "specialist", "kind", "status", "reason", "cost", "input", "cached", "cache written",
        "output", "reasoning", "counted by provider", "first token", "whole",
    )  # fmt: skip
    return PageTable("attempts", "Calls", columns, rows, words=5, empty="Nobody was called.")


def _excluded(row: Mapping[str, Any]) -> PageTable:
    why = row["detail"].get("excluded") or {}
    rows = [[Entry(name), Entry(str(reason))] for name, reason in why.items()]
    columns = ("specialist", "why not")
    return PageTable("excluded", "Who could not answer", columns, rows, words=2, empty="Everybody could.")


def _feedback(row: Mapping[str, Any]) -> PageTable:
    rows = [
        [
            when(judgement["at"]),
            Entry(judgement["metric"]),
            Entry(judgement["source"]),
            *(Entry(judgement[name], cut(judgement[name] or "–", 400)) for name in ("comment", "correction")),
            number(judgement["value"]),
        ]
        for judgement in row["feedback"]
    ]
    columns = ("time", "metric", "source", "comment", "correction", "value")
    return PageTable("feedback", "Feedback", columns, rows, words=5, empty="None yet: POST /v1/feedback.")


def _text(title: str, text: str | None) -> list[Html]:
    if text is None:
        return []
    more = f" (the first {LONGEST:,} of {len(text):,} characters)" if len(text) > LONGEST else ""
    return [tag("h2", title, more), tag("pre", text[:LONGEST], tabindex="0")]

"""Decisions: a list with filters, page by page, newest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pandora_router.dashboard.layout import (
    Entry,
    Page,
    PageTable,
    count,
    cut,
    joined,
    note,
    per_1000,
    seconds,
    when,
)
from pandora_router.dashboard.markup import Html, tag
from pandora_router.dashboard.page_request import ROOT, PageRequest
from pandora_router.store import accounts, queries
from pandora_router.store.database import Transaction
from pandora_router.store.money import dollars
from pandora_router.store.queries import Filter, Sums

ROWS = 50
IN_A_FILE = 10_000
STATUSES = ("ok", "error", "cancelled", "lost", "open")
COLUMNS = (
    "time", "decision", "prompt", "specialist", "policy", "key", "status", "looks", "changed",
    "money per 1,000", "best single per 1,000", "first token", "whole answer",
)  # fmt: skip


def decisions(open_: Transaction, request: PageRequest, *, bodies: bool = False) -> Page:
    """The page; `bodies`: whether prompts are stored at present."""
    most = IN_A_FILE if request.query.get("csv") else ROWS + 1
    window, reach = request.window, None
    if request.filter != Filter() and not request.query.get("csv"):
        reach = queries.reach(open_, window, request.before)
        window = window if reach is None else replace(window, since=reach)
    rows_ = queries.listed(open_, window, request.filter, most=most, before=request.before)
    named = {key.id: key.name for key in accounts.keys(open_)}
    shown = rows_ if request.query.get("csv") else rows_[:ROWS]
    prompts = queries.prompts(open_, [row["id"] for row in shown])
    one_policy = len({row["policy"] for row in shown}) < 2 and not request.query.get("csv")
    without = {*(() if prompts else ("prompt",)), *(("policy",) if one_policy else ())}
    columns = [column for column in COLUMNS if column not in without]
    cells = [_row(row, named, request, prompts.get(row["id"], "")) for row in shown]
    rows = [[row[column] for column in columns] for row in cells]
    table = PageTable(
        "decisions",
        "Newest first",
        columns,
        rows,
        words=columns.index("looks"),
        empty="No decision in this window."
        if request.filter == Filter()
        else "No decision fits the filters.",
    )
    parts: list[Html | PageTable] = [_filters(open_, request, named)]
    if shown and not prompts and not bodies:
        parts.append(keep_texts())
    if request.filter.text:
        parts.append(
            note(f"Searched: the newest {queries.SEARCHED:,} kept prompts that fit the other filters.")
        )
    if reach is not None and len(rows_) <= ROWS:
        further = tag(
            "a", "search older ones", href=request.link(before=f"{reach!r}_!"), rel="next", id="older"
        )
        parts.append(note(f"Searched: the newest {queries.SCANNED:,} decisions of this page; ", further, "."))
    return Page("Decisions", [*parts, table, _pager(request, rows_)])


def keep_texts() -> Html:
    """How to store prompts and answers, for pages that would show them."""
    return note(
        "Prompts and answers are not stored. To keep them, write ",
        tag("code", "serve: {bodies: true}"),
        " into pandora.yaml.",
    )


def short(policy: str) -> str:
    """The name of a policy without its settings, as people know it.

    >>> short("KnowledgeGradient(depth=2)"), short("named")
    ('KnowledgeGradient', 'named')
    """
    return policy.partition("(")[0]


def _row(row: Sums, named: Mapping[str, str], request: PageRequest, prompt: str) -> dict[str, Entry]:
    """A decision by column."""
    key = row["key"] or ""
    link = tag("a", f"…{row['id'][-6:]}", href=request.link(f"decisions/{row['id']}"), title=row["id"])
    return {
        "time": when(row["at"]),
        "decision": Entry(row["id"], link),
        "prompt": Entry(prompt, cut(prompt, 28)),
        "specialist": _narrowing(request, "specialist", row["specialist"], row["specialist"]),
        "policy": _narrowing(request, "policy", row["policy"], short(row["policy"])),
        "key": _narrowing(request, "key", key, named.get(key, key)),
        "status": _status(row),
        "looks": count(row["inspected"]),
        "changed": Entry(int(row["changed"]), "yes" if row["changed"] else ""),
        "money per 1,000": per_1000(dollars(row["cost"])),
        "best single per 1,000": per_1000(None if row["baseline"] is None else dollars(row["baseline"])),
        "first token": seconds(row["first_token"]),
        "whole answer": seconds(row["seconds"]),
    }


def _status(row: Sums) -> Entry:
    """How the request ended; a decision that was declined says so, with its reason."""
    shown = f"{row['status']}, declined" if row["declined"] else row["status"]
    kind = None if row["status"] == "ok" else "bad"
    return Entry(shown, tag("span", shown, class_=kind, title=row["declined"]))


def _narrowing(request: PageRequest, member: str, value: str, shown: str) -> Entry:
    """A cell that shows only what has the same value when it is clicked."""
    return Entry(shown, tag("a", cut(shown, 30), href=request.link(**{member: value})) if value else "")


def _filters(open_: Transaction, request: PageRequest, named: Mapping[str, str]) -> Html:
    query, wanted = request.query, request.filter
    specialists = [name for name in queries.names(open_, request.window) if name != wanted.specialist]
    policies = [name for name in queries.policies(open_) if name != wanted.policy]
    yes_no = {"yes": "yes", "no": "no"}
    kept = [
        tag("input", type="hidden", name=name, value=query[name])
        for name in ("range", "since", "until", "metric")
        if name in query
    ]
    inside = [
        _choice("specialist", "Specialist", wanted.specialist, {name: name for name in specialists}),
        _choice("policy", "Policy", wanted.policy, {name: short(name) for name in policies}),
        _choice("key", "Key", wanted.key, named),
        _choice("status", "Status", wanted.status, {name: name for name in STATUSES}),
        _choice("declined", "Declined", query.get("declined", ""), yes_no),
        _choice("inspected", "Looked before", query.get("inspected", ""), yes_no),
        _choice("changed", "Looks changed it", query.get("changed", ""), yes_no),
        _field("least", "Cost from, $", query.get("least", ""), type="number", min="0", step="any"),
        _field("most", "Cost to, $", query.get("most", ""), type="number", min="0", step="any"),
        _field("text", "Text in the prompt", wanted.text, type="search", maxlength="200"),
    ]
    buttons = [
        tag("button", "Filter"),
        tag("a", "Clear", href=PageRequest(request.path, _times(request), request.now).link()),
    ]
    return tag(
        "form", kept, inside, buttons, class_="filters", method="get", action=f"{ROOT}/decisions",
        hx_get=f"{ROOT}/decisions", hx_trigger="submit, change", hx_select="#live", hx_target="#live",
        hx_swap="outerHTML", hx_push_url="true", role="search", aria_label="Filters",
    )  # fmt: skip


def _times(request: PageRequest) -> dict[str, str]:
    return {name: request.query[name] for name in ("range", "since", "until") if name in request.query}


def _choice(name: str, title: str, now: str, choices: Mapping[str, str]) -> Html:
    """A list to choose from; a value that is chosen is always in it."""
    shown = {"": "all", **({now: choices.get(now, short(now))} if now else {}), **choices}
    options = [tag("option", text, value=value, selected=value == now) for value, text in shown.items()]
    return tag("label", title, tag("select", options, name=name))


def _field(name: str, title: str, now: str, **more: str) -> Html:
    return tag("label", title, tag("input", name=name, value=now, **more))


def _pager(request: PageRequest, rows: Sequence[Sums]) -> Html:
    newest = tag("a", "Newest", href=request.link()) if request.before else None
    older = None
    if len(rows) > ROWS:
        last = rows[ROWS - 1]
        older = tag(
            "a", "Older", href=request.link(before=f"{last['at']!r}_{last['id']}"), rel="next", id="older"
        )
    return tag("div", joined(newest, older), class_="pager")

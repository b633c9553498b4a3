"""Decisions: a list with filters, page by page, newest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pandora_router.dashboard.asked import ROOT, PageRequest
from pandora_router.dashboard.layout import (
    Entry,
    Page,
    PageTable,
    count,
    cut,
    joined,
    money,
    note,
    seconds,
    when,
)
from pandora_router.dashboard.markup import Html, tag
from pandora_router.store import accounts, queries
from pandora_router.store.database import Transaction
from pandora_router.store.queries import Filter, Sums

ROWS = 50
IN_A_FILE = 10_000
STATUSES = ("ok", "error", "cancelled", "lost", "open")
COLUMNS = (
    "time", "decision", "specialist", "policy", "key", "status", "declined", "looks", "changed", "cost",
    "best single", "first token", "whole answer",
)  # fmt: skip


def decisions(open_: Transaction, asked: PageRequest) -> Page:
    """The page."""
    most = IN_A_FILE if asked.said.get("csv") else ROWS + 1
    window, reach = asked.window, None
    if asked.filter != Filter() and not asked.said.get("csv"):
        reach = queries.reach(open_, window, asked.before)
        window = window if reach is None else replace(window, since=reach)
    rows_ = queries.listed(open_, window, asked.filter, most=most, before=asked.before)
    named = {key.id: key.name for key in accounts.keys(open_)}
    shown = rows_ if asked.said.get("csv") else rows_[:ROWS]
    table = PageTable(
        "decisions",
        "Newest first",
        COLUMNS,
        [_row(row, named, asked) for row in shown],
        words=7,
        empty="No decision in this window fits the filters.",
    )
    parts: list[Html | PageTable] = [_filters(open_, asked, named)]
    if asked.filter.text:
        parts.append(
            note(f"Searched: the newest {queries.SEARCHED:,} kept prompts that fit the other filters.")
        )
    if reach is not None and len(rows_) <= ROWS:
        further = tag(
            "a", "search older ones", href=asked.link(before=f"{reach!r}_!"), rel="next", id="older"
        )
        parts.append(note(f"Searched: the newest {queries.SCANNED:,} decisions of this page; ", further, "."))
    return Page("Decisions", [*parts, table, _pager(asked, rows_)])


def _row(row: Sums, named: Mapping[str, str], asked: PageRequest) -> list[Entry]:
    key = row["key"] or ""
    link = tag("a", f"…{row['id'][-8:]}", href=asked.link(f"decisions/{row['id']}"), title=row["id"])
    return [
        when(row["at"]),
        Entry(row["id"], link),
        _narrowing(asked, "specialist", row["specialist"], row["specialist"]),
        _narrowing(asked, "policy", row["policy"], row["policy"]),
        _narrowing(asked, "key", key, named.get(key, key)),
        Entry(row["status"], tag("span", row["status"], class_=None if row["status"] == "ok" else "bad")),
        Entry(row["declined"], cut(row["declined"] or "", 20)),
        count(row["inspected"]),
        Entry(int(row["changed"]), "yes" if row["changed"] else ""),
        money(row["cost"]),
        money(row["baseline"]),
        seconds(row["first_token"]),
        seconds(row["seconds"]),
    ]


def _narrowing(asked: PageRequest, member: str, value: str, shown: str) -> Entry:
    """A cell that shows only what has the same value when it is clicked."""
    return Entry(shown, tag("a", cut(shown, 30), href=asked.link(**{member: value})) if value else "")


def _filters(open_: Transaction, asked: PageRequest, named: Mapping[str, str]) -> Html:
    said, wanted = asked.said, asked.filter
    specialists = [name for name in queries.names(open_, asked.window) if name != wanted.specialist]
    policies = [name for name in queries.policies(open_) if name != wanted.policy]
    yes_no = {"yes": "yes", "no": "no"}
    kept = [
        tag("input", type="hidden", name=name, value=said[name])
        for name in ("range", "since", "until", "metric")
        if name in said
    ]
    inside = [
        _choice("specialist", "Specialist", wanted.specialist, {name: name for name in specialists}),
        _choice("policy", "Policy", wanted.policy, {name: name for name in policies}),
        _choice("key", "Key", wanted.key, named),
        _choice("status", "Status", wanted.status, {name: name for name in STATUSES}),
        _choice("declined", "Declined", said.get("declined", ""), yes_no),
        _choice("inspected", "Looked before", said.get("inspected", ""), yes_no),
        _choice("changed", "Looks changed it", said.get("changed", ""), yes_no),
        _field("least", "Cost from, $", said.get("least", ""), type="number", min="0", step="any"),
        _field("most", "Cost to, $", said.get("most", ""), type="number", min="0", step="any"),
        _field("text", "Text in the prompt", wanted.text, type="search", maxlength="200"),
    ]
    buttons = [
        tag("button", "Filter"),
        tag("a", "Clear", href=PageRequest(asked.path, _times(asked), asked.now).link()),
    ]
    return tag(
        "form", kept, inside, buttons, class_="filters", method="get", action=f"{ROOT}/decisions",
        hx_get=f"{ROOT}/decisions", hx_trigger="submit, change", hx_select="#live", hx_target="#live",
        hx_swap="outerHTML", hx_push_url="true", role="search", aria_label="Filters",
    )  # fmt: skip


def _times(asked: PageRequest) -> dict[str, str]:
    return {name: asked.said[name] for name in ("range", "since", "until") if name in asked.said}


def _choice(name: str, title: str, now: str, choices: Mapping[str, str]) -> Html:
    """A list to choose from; a value that is chosen is always in it."""
    shown = {"": "all", **({now: choices.get(now, now)} if now else {}), **choices}
    options = [tag("option", text, value=value, selected=value == now) for value, text in shown.items()]
    return tag("label", title, tag("select", options, name=name))


def _field(name: str, title: str, now: str, **more: str) -> Html:
    return tag("label", title, tag("input", name=name, value=now, **more))


def _pager(asked: PageRequest, rows: Sequence[Sums]) -> Html:
    newest = tag("a", "Newest", href=asked.link()) if asked.before else None
    older = None
    if len(rows) > ROWS:
        last = rows[ROWS - 1]
        older = tag(
            "a", "Older", href=asked.link(before=f"{last['at']!r}_{last['id']}"), rel="next", id="older"
        )
    return tag("div", joined(newest, older), class_="pager")

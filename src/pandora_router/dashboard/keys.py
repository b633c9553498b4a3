"""Keys and budgets: what each key may spend, has spent and has reserved."""

from __future__ import annotations

from collections.abc import Sequence

from pandora_router.dashboard.layout import Entry, Page, PageTable, count, cut, money, note, share, when
from pandora_router.dashboard.markup import tag
from pandora_router.dashboard.page_request import PageRequest
from pandora_router.store import accounts, budgets, queries
from pandora_router.store.budgets import BudgetStatus
from pandora_router.store.database import Transaction
from pandora_router.store.money import nanodollars, period_of
from pandora_router.store.rows import Key

BUDGETS = (
    "budget of", "budget", "per", "spent", "reserved", "left", "ends in", "will end at",
    "a right answer is worth",
)  # fmt: skip
COLUMNS = (
    "key", "state", "since", "period", "budget", "spent", "reserved", "used", "per minute", "requests",
    "errors", "spend in window",
)  # fmt: skip


def keys(open_: Transaction, request: PageRequest) -> Page:
    """The page. Secrets are not in the store, so none can be shown."""
    sums = queries.totals_by(open_, request.window, "key")
    nothing = dict.fromkeys(("requests", "errors", "cost"), 0)
    rows = []
    for key in accounts.keys(open_):
        spent, reserved = budgets.account(open_, key, request.now)
        mine = sums.get(key.id, nothing)
        rows.append(
            [
                Entry(key.name, tag("a", cut(key.name), href=request.link("decisions", key=key.id))),
                Entry(_state(key), tag("span", _state(key), class_="bad" if key.revoked_at else None)),
                when(key.created_at),
                Entry(period_of(key.period, request.now)),
                Entry(None, "unlimited") if key.budget is None else money(key.budget),
                money(spent),
                money(reserved),
                _used(key, spent + reserved),
                Entry(None, "unlimited") if key.per_minute is None else count(key.per_minute),
                count(mine["requests"]),
                share(mine["errors"], mine["requests"]),
                money(mine["cost"]),
            ]
        )
    tree = budgets.status(open_, accounts.limited(open_), request.now)
    explained = note(
        "Make keys with ",
        tag("code", "pandora keys add NAME --budget DOLLARS"),
        "; a key made with ",
        tag("code", "--admin"),
        " opens this dashboard.",
    )
    empty = "There are no keys."
    shown = PageTable("keys", "Keys and budgets", COLUMNS, rows, words=4, empty=empty)
    return Page("Keys", [shown, *([budgets_table(tree, request.now)] if tree else []), explained])


def budgets_table(tree: Sequence[BudgetStatus], now: float) -> PageTable:
    """All budgets that bind requests, with the worth that those of goals and profiles have come to."""
    rows = [
        [
            Entry(level.name),
            money(level.budget),
            Entry(level.period),
            money(level.spent),
            money(level.reserved),
            Entry(level.left, f"{level.left:.1%}"),
            Entry(None, "–") if level.until is None else Entry(level.until - now, _days(level.until - now)),
            Entry(None, "–") if level.expected is None else money(nanodollars(level.expected)),
            Entry(None, "–") if level.worth is None else money(nanodollars(level.worth)),
        ]
        for level in tree
    ]
    return PageTable("budgets", "Budgets", BUDGETS, rows, words=1)


def _days(seconds: float) -> str:
    return f"{seconds / 86_400.0:.1f} days"


def _state(key: Key) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "active, admin" if key.admin else "active"


def _used(key: Key, used: int) -> Entry:
    if not key.budget:
        return Entry(None, "–")
    part = used / key.budget
    bar = tag("progress", max="1", value=f"{min(part, 1):.4f}", aria_label=f"{part:.0%} of the budget")
    return Entry(part, [bar, f" {part:.1%}"])

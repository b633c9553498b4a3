"""Reconcile page: recorded costs next to a provider's bill, pasted or from a CSV file. Nothing is stored.

The bill needs a header. A column whose name contains cost, amount, charge, total or price has dollars; one
with model, specialist, sku, name or description has the model; one with date, day or time has the day (UTC).
Rows are summed by day and model; by model alone if the bill has no days.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation

from pandora_router.dashboard.layout import (
    Entry,
    Page,
    PageTable,
    amount,
    count,
    money,
    money_column,
    note,
    share,
    tile,
    tiles,
)
from pandora_router.dashboard.markup import Html, tag
from pandora_router.dashboard.page_request import PageRequest, moment
from pandora_router.errors import UsageError
from pandora_router.store import queries
from pandora_router.store.database import Transaction
from pandora_router.store.money import UNIT, dollars

LARGEST = 2 * 2**20
"""Most bytes of a bill."""
ROWS = 50_000
WORDS = {
    "cost": ("cost", "amount", "charge", "total", "price", "usd", "dollar"),
    "name": ("model", "specialist", "sku", "line item", "name", "description"),
    "day": ("date", "day", "time", "period", "start"),
}
DAY = 86_400


@dataclass(frozen=True)
class ProviderBill:
    """A provider's bill: nanodollars by day (Unix day, None without one) and name; rows that were skipped."""

    sums: Mapping[tuple[int | None, str], int]
    skipped: int

    @property
    def dated(self) -> bool:
        """Whether every row states a day."""
        return all(day is not None for day, _ in self.sums)


def read_bill(text: str) -> ProviderBill:
    """Read a CSV file; raises `UsageError` if it has no header with a cost and a name."""
    try:
        dialect: type[csv.Dialect] | str = csv.Sniffer().sniff(text[:4096], delimiters=",;\t|")
    except csv.Error:
        dialect = "excel"
    rows = csv.reader(io.StringIO(text.lstrip("\ufeff")), dialect)
    try:
        header = [title.strip().lower() for title in next(rows, [])]
        places = {kind: _column(header, words) for kind, words in WORDS.items()}
        cost, name = places["cost"], places["name"]
        if cost is None or name is None:
            raise UsageError(
                "the bill",
                expected="a CSV file whose first line names a column for the cost and one for the model",
                came=", ".join(header)[:200] or "nothing",
                do="Add a line such as: date,model,cost",
            )
        return _summed(rows, cost, name, places["day"])
    except csv.Error as error:
        raise UsageError("the bill", expected="a CSV file", came=str(error), do="Save it as CSV.") from error


def _column(header: Sequence[str], words: Sequence[str]) -> int | None:
    """The first column whose title holds one of the words, in the order of the words."""
    return next((i for word in words for i, title in enumerate(header) if word in title), None)


def _summed(rows: object, cost: int, name: int, day: int | None) -> ProviderBill:
    sums: dict[tuple[int | None, str], int] = {}
    skipped = 0
    for number, row in enumerate(rows):  # type: ignore[arg-type, var-annotated]
        if number >= ROWS:
            skipped += 1
            continue
        if not any(row):
            continue
        paid = _money(row[cost]) if cost < len(row) else None
        at = moment(row[day].strip().replace("Z", "+00:00")) if day is not None and day < len(row) else None
        if paid is None or name >= len(row) or (day is not None and at is None):
            skipped += 1
            continue
        place = (None if at is None else int(at // DAY), row[name].strip()[:200])
        sums[place] = sums.get(place, 0) + paid
    return ProviderBill(sums, skipped)


def _money(text: str) -> int | None:
    """Nanodollars; None if it is no amount.

    >>> _money("$1,234.5"), _money("0.000001"), _money("-2"), _money("free"), _money("1e99")
    (1234500000000, 1000, -2000000000, None, None)
    """
    try:
        value = Decimal(text.strip().lstrip("$€ ").replace(",", "").replace("$", ""))
        return int(value * UNIT) if value.is_finite() and abs(value) < 10**9 else None
    except InvalidOperation:
        return None


def reconcile(
    open_: Transaction,
    request: PageRequest,
    models: Mapping[str, str],
    bill: ProviderBill | None,
    wrong: str = "",
) -> Page:
    """The page. `models` says which model of its provider each specialist is; `bill` is None at first."""
    ours = queries.spending(open_, request.window)
    parts: list[Html | PageTable] = [_form(request, wrong)]
    if bill is not None:
        parts += _compared(ours, models, bill)
    explained = note(
        "Estimated calls: the provider sent no token counts, so tokens and cost are our estimates."
    )
    return Page("Reconcile", [*parts, _ours(ours, models), explained])


def _form(request: PageRequest, wrong: str) -> Html:
    inside = [
        note("A provider's bill as CSV with a first line such as date,model,cost. Nothing is stored."),
        tag("p", wrong, class_="bad", role="alert") if wrong else None,
        tag("label", "File ", tag("input", type="file", id="bill-file", accept=".csv,text/csv")),
        tag("p", tag("label", "or paste it here", tag("textarea", name="bill", id="bill", rows=6,
                                                     maxlength=LARGEST))),
        tag("button", "Compare"),
    ]  # fmt: skip
    return tag("form", inside, method="post", action=request.link(), class_="bill")


def _compared(
    ours: list[queries.Sums], models: Mapping[str, str], bill: ProviderBill
) -> list[Html | PageTable]:
    named = {model: name for name, model in models.items()}
    theirs: dict[tuple[int | None, str], int] = {}
    for (day, model), paid in bill.sums.items():
        place = (day if bill.dated else None, named.get(model, model))
        theirs[place] = theirs.get(place, 0) + paid
    mine: dict[tuple[int | None, str], int] = {}
    for row in ours:
        place = (row["day"] if bill.dated else None, row["specialist"])
        mine[place] = mine.get(place, 0) + row["cost"]
    rows = []
    for place in sorted({*mine, *theirs}, key=lambda place_: (-(place_[0] or 0), place_[1])):
        a, b = mine.get(place), theirs.get(place)
        gap = None if a is None or b is None else a - b
        verdict = "only here" if b is None else "only on the bill" if a is None else _verdict(a, b)
        rows.append(
            [
                Entry(_day(place[0])),
                Entry(place[1]),
                Entry(verdict, tag("span", verdict, class_=None if verdict == "agrees" else "bad")),
                money(a),
                money(b),
                money(gap),
                share(gap or 0, b) if gap is not None and b else Entry(None, "–"),
            ]
        )
    both = [place for place in mine if place in theirs]
    a, b = sum(mine[place] for place in both), sum(theirs[place] for place in both)
    columns = ("day (UTC)", "specialist", "verdict", "our sum", "their bill", "difference", "of the bill")
    return [
        tiles(
            tile("Our sum", amount(dollars(a)), "where both have an entry"),
            tile("Their bill", amount(dollars(b)), f"{bill.skipped:,} rows could not be read"),
            tile("Difference", amount(dollars(a - b)), f"{share(a - b, b).shown} of the bill"),
        ),
        PageTable("compared", "Side by side", columns, rows, words=3),
    ]


def _verdict(ours: int, theirs: int) -> str:
    """They agree to one percent, or to a cent."""
    return "agrees" if abs(ours - theirs) <= max(abs(theirs) // 100, UNIT // 100) else "differs"


def _day(day: int | None) -> str:
    return "" if day is None else datetime.fromtimestamp(day * DAY, UTC).strftime("%Y-%m-%d")


def _ours(ours: list[queries.Sums], models: Mapping[str, str]) -> PageTable:
    ordered = sorted(ours, key=lambda spent: (-spent["day"], spent["specialist"]))
    rows = [
        [
            Entry(_day(row["day"])),
            Entry(row["specialist"]),
            Entry(models.get(row["specialist"], "")),
            count(row["calls"]),
            cost,
            *(count(row[name]) for name in ("fresh", "cached", "written", "output", "reasoning")),
            count(row["estimated"]),
        ]
        for row, cost in zip(ordered, money_column([row["cost"] for row in ordered]), strict=True)
    ]
    columns = (
        "day (UTC)", "specialist", "model", "calls", "cost", "input tokens", "cached", "cache written",
        "output", "reasoning", "estimated calls",
    )  # fmt: skip
    return PageTable("ours", "Our sums", columns, rows, words=3)

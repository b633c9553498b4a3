"""Queries of the dashboard: sums over time, quantiles, filtered lists of decisions.

Filter values are always parameters of a statement; only fixed names of this module become SQL. Times are Unix
seconds, windows are half open: [since, until).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from pandora_router.store.database import Transaction
from pandora_router.store.rollups import CALLS, DAY, HOUR, MINUTE, SUMS, middle

BY_MINUTE = 25 * HOUR
"""Windows up to this many seconds are summed over minutes, longer ones over hours."""
SEARCHED = 20_000
"""Number of newest prompts of a window that a text search reads."""
SCANNED = 300_000
"""Number of newest decisions of a window that a filtered page searches at once."""
LISTED = (
    "id, at, key, wire, mode, policy, specialist, proposed, declined, inspected, inspection_cost, baseline, "
    "overhead, status, cost, first_token, seconds, changed, gained"
)
HANDY = (1, 2, 3, 5, 6, 10, 12, 15, 24, 30, 48, 60, 168, 720)
By = Literal["specialist", "key"]
Sums = dict[str, Any]


@dataclass(frozen=True)
class Window:
    """A time window, extended to whole minutes, or to whole hours if it is long."""

    since: float
    until: float

    @property
    def span(self) -> int:
        """The length of the roll-ups that are summed: a minute or an hour, in seconds."""
        return MINUTE if self.until - self.since <= BY_MINUTE else HOUR

    @property
    def ends(self) -> tuple[int, int]:
        """The first roll-up of the window and the one after its last."""
        return int(self.since // self.span), int(-(-self.until // self.span))

    @property
    def hours(self) -> tuple[int, int]:
        """The first hour of the window and the one after its last."""
        return int(self.since // HOUR), int(-(-self.until // HOUR))

    @property
    def source(self) -> tuple[str, str]:
        """The table of sums and the name of its time column."""
        return ("minutes", "minute") if self.span == MINUTE else ("hours", "hour")


@dataclass(frozen=True)
class Filter:
    """Conditions on the decisions to list; a field that is None or "" is no condition.

    least, most: bounds of the cost in nanodollars.
    text: must occur in the stored prompt; case is ignored (in SQLite only for ASCII letters).
    """

    specialist: str = ""
    policy: str = ""
    key: str = ""
    status: str = ""
    declined: bool | None = None
    inspected: bool | None = None
    changed: bool | None = None
    least: int | None = None
    most: int | None = None
    text: str = ""

    def where(self) -> tuple[str, list[Any]]:
        """SQL conditions on `decisions`, each after " AND ", and their parameters; `text` is not included."""
        parts: list[str] = []
        values: list[Any] = []
        for name, wanted in (("specialist", self.specialist), ("policy", self.policy), ("key", self.key)):
            if wanted:
                parts.append(f"{name} = ?")
                values.append(wanted)
        if self.status:
            parts.append("status = ?")
            values.append(self.status)
        if self.declined is not None:
            parts.append("declined IS NOT NULL" if self.declined else "declined IS NULL")
        if self.inspected is not None:
            parts.append("inspected > 0" if self.inspected else "inspected = 0")
        if self.changed is not None:
            parts.append("changed = 1" if self.changed else "changed = 0")
        for sign, bound in ((">=", self.least), ("<=", self.most)):
            if bound is not None:
                parts.append(f"cost {sign} ?")
                values.append(bound)
        return "".join(f" AND {part}" for part in parts), values


def totals(open_: Transaction, window: Window, key: str = "") -> Sums:
    """The sums of a window, over all keys or for the key id `key`."""
    return next(iter(_sums(open_, window, "", key)), dict.fromkeys(SUMS.split(", "), 0))


def totals_by(open_: Transaction, window: Window, by: By) -> dict[str, Sums]:
    """The sums of a window by specialist or by the id of the key, "" for requests without one."""
    return {str(row[by]): row for row in _sums(open_, window, by)}


def series(open_: Transaction, window: Window, points: int = 150) -> tuple[int, list[Sums]]:
    """Return the length of a time step in seconds, and the sums of each step; at most `points` + 1 steps.

    Each row has `at`, the Unix time at which its step begins. Sums of a step without requests are 0.
    """
    first, last = window.ends
    units = _units(last - first, points)
    table, unit = window.source
    columns = ", ".join(f"sum({name})" for name in SUMS.split(", "))
    rows = open_.rows(
        f"SELECT {unit} / ?, {columns} FROM {table} WHERE {unit} >= ? AND {unit} < ? GROUP BY 1 ORDER BY 1",
        *(units, first, last),
    )
    step = units * window.span
    sums = {int(row[0]): _named(SUMS, row[1:]) for row in rows}
    nothing = dict.fromkeys(SUMS.split(", "), 0)
    slots = range(first // units, (last - 1) // units + 1)
    return step, [{"at": slot * step, **sums.get(slot, nothing)} for slot in slots]


def _units(length: int, points: int) -> int:
    """The smallest round number of roll-ups per step that gives at most `points` steps."""
    return next((units for units in HANDY if length <= points * units), HANDY[-1])


def quantiles(
    open_: Transaction, window: Window, measure: Literal["first", "whole"], levels: Sequence[float]
) -> dict[str, list[float]]:
    """Quantiles of a latency in seconds by specialist, and under "" over all of them; to within 8%.

    The window is widened to whole hours, or to whole days (UTC) if it is longer than eight of them.
    """
    span = HOUR if window.until - window.since <= 8 * DAY else DAY
    ends = int(window.since // span), int(-(-window.until // span))
    rows = open_.rows(
        "SELECT specialist, bucket, sum(requests) FROM spreads WHERE span = ? AND start >= ? AND start < ? "
        "AND measure = ? GROUP BY specialist, bucket ORDER BY bucket",
        *(span, *ends, measure),
    )
    counts: dict[str, dict[int, int]] = {}
    for specialist, number, requests in rows:
        for name in ("", str(specialist)):
            of_one = counts.setdefault(name, {})
            of_one[int(number)] = of_one.get(int(number), 0) + int(requests)
    return {name: [_quantile(of_one, level) for level in levels] for name, of_one in counts.items()}


def _quantile(counts: Mapping[int, int], level: float) -> float:
    wanted, met = level * sum(counts.values()), 0
    for number in sorted(counts):
        met += counts[number]
        if met >= wanted:
            return middle(number)
    raise AssertionError("the counts of a histogram add up to their sum")


def calls(open_: Transaction, window: Window) -> list[Sums]:
    """Sums over attempts by specialist, kind and status, in all hours that overlap the window."""
    return _summed_calls(open_, window, {"specialist": "specialist", "kind": "kind", "status": "status"})


def looked(open_: Transaction, window: Window) -> dict[str, tuple[int, int]]:
    """By specialist: the number of looks in the hours of a window, and after how many it was chosen."""
    rows = open_.rows(
        "SELECT specialist, sum(looks), sum(won) FROM looked WHERE hour >= ? AND hour < ? "
        "GROUP BY specialist",
        *window.hours,
    )
    return {str(name): (int(looks), int(won)) for name, looks, won in rows}


def spending(open_: Transaction, window: Window) -> list[Sums]:
    """Calls, tokens and money by specialist and UTC day, for all kinds of calls."""
    return _summed_calls(open_, window, {"day": "hour / 24", "specialist": "specialist"})


def _summed_calls(open_: Transaction, window: Window, by: Mapping[str, str]) -> list[Sums]:
    """Sums over attempts in the hours of a window, grouped and ordered by the SQL expressions of `by`."""
    columns = ", ".join(f"sum({name})" for name in CALLS.split(", "))
    groups = ", ".join(by.values())
    places = ", ".join(str(place) for place in range(1, len(by) + 1))
    rows = open_.rows(
        f"SELECT {groups}, {columns} FROM calls WHERE hour >= ? AND hour < ? "
        f"GROUP BY {places} ORDER BY {places}",
        *window.hours,
    )
    return [_named(f"{', '.join(by)}, {CALLS}", row) for row in rows]


def judged(open_: Transaction, window: Window, metric: str) -> list[Sums]:
    """Sums of feedback by specialist and by whether looks had changed the choice."""
    rows = open_.rows(
        "SELECT specialist, changed, sum(judgements), sum(total), sum(squares) FROM judged "
        "WHERE metric = ? AND hour >= ? AND hour < ? GROUP BY specialist, changed ORDER BY specialist",
        *(metric, *window.hours),
    )
    return [_named("specialist, changed, judgements, total, squares", row) for row in rows]


def judged_over_time(open_: Transaction, window: Window, metric: str, points: int = 150) -> list[Sums]:
    """Sums of feedback in at most `points` + 1 time steps; steps without feedback are left out."""
    first, last = window.hours
    units = _units(last - first, points)
    rows = open_.rows(
        "SELECT hour / ?, sum(judgements), sum(total), sum(squares) FROM judged "
        "WHERE metric = ? AND hour >= ? AND hour < ? GROUP BY 1 ORDER BY 1",
        *(units, metric, first, last),
    )
    return [_named("at, judgements, total, squares", (int(row[0]) * units * HOUR, *row[1:])) for row in rows]


def specialists_over_time(
    open_: Transaction, window: Window, metric: str, points: int = 72
) -> tuple[int, dict[str, dict[int, Sums]]]:
    """Return the length of a time step in seconds, and sums by specialist and by the start of each step.

    Sums are `requests`, `cost`, `judgements` and `total` (of feedback); steps are whole hours.
    """
    first, last = window.hours
    units = _units(last - first, points)
    found: dict[str, dict[int, Sums]] = {}
    for table, columns, where, more in (
        ("hours", "requests, cost", "", ()),
        ("judged", "judgements, total", "metric = ? AND ", (metric,)),
    ):
        sums = ", ".join(f"sum({name})" for name in columns.split(", "))
        rows = open_.rows(
            f"SELECT specialist, hour / ?, {sums} FROM {table} WHERE {where}hour >= ? AND hour < ? "
            "GROUP BY 1, 2 ORDER BY 1, 2",
            *(units, *more, first, last),
        )
        for specialist, step, *values in rows:
            steps = found.setdefault(str(specialist), {})
            nothing = {"requests": 0, "cost": 0, "judgements": 0, "total": 0.0}
            steps.setdefault(int(step) * units * HOUR, nothing).update(_named(columns, values))
    return units * HOUR, found


def prompts(open_: Transaction, ids: Sequence[str], most: int = 200) -> dict[str, str]:
    """The beginnings of stored prompts by decision id, at most `most` characters of each."""
    if not ids:
        return {}
    marks = ", ".join("?" * len(ids))
    rows = open_.rows(
        f"SELECT decision, substr(prompt, 1, ?) FROM bodies WHERE decision IN ({marks})", most, *ids
    )
    return {str(id_): str(prompt) for id_, prompt in rows if prompt is not None}


def metrics(open_: Transaction) -> list[str]:
    """The names of all metrics of feedback."""
    return [str(row[0]) for row in open_.rows("SELECT DISTINCT metric FROM judged ORDER BY metric LIMIT 50")]


def names(open_: Transaction, window: Window) -> list[str]:
    """The specialists that answered in a window."""
    rows = open_.rows(
        "SELECT DISTINCT specialist FROM hours WHERE hour >= ? AND hour < ? ORDER BY specialist",
        *window.hours,
    )
    return [str(row[0]) for row in rows]


def policies(open_: Transaction) -> list[str]:
    """The policies of the newest thousand decisions."""
    rows = open_.rows(
        "SELECT DISTINCT policy FROM (SELECT policy FROM decisions ORDER BY at DESC LIMIT 1000) newest "
        "ORDER BY policy"
    )
    return [str(row[0]) for row in rows]


def listed(
    open_: Transaction,
    window: Window,
    wanted: Filter,
    *,
    most: int = 50,
    before: tuple[float, str] | None = None,
) -> list[Sums]:
    """Return at most `most` decisions of a window that match a filter, newest first, without details.

    before: (at, id) of the last decision of the previous page; only older decisions are returned.

    A text search reads the prompts of the newest `SEARCHED` decisions that match the rest of the filter. An
    index contains every filtered column, so rare decisions are found without reading all rows.
    """
    where, values = wanted.where()
    where = f"at >= ? AND at < ?{where}"
    values = [window.since, window.until, *values]
    if before is not None:
        where += " AND at <= ? AND (at < ? OR id < ?)"
        values += [before[0], before[0], before[1]]
    if wanted.text:
        inner = (
            f"SELECT n.id FROM (SELECT id, at FROM decisions WHERE {where} "
            "ORDER BY at DESC, id DESC LIMIT ?) n "
            "JOIN bodies b ON b.decision = n.id WHERE lower(b.prompt) LIKE lower(?) ESCAPE '!' "
            "ORDER BY n.at DESC, n.id DESC LIMIT ?"
        )
        values += [SEARCHED, _pattern(wanted.text), most]
    else:
        inner = f"SELECT id FROM decisions WHERE {where} ORDER BY at DESC, id DESC LIMIT ?"
        values += [most]
    rows = open_.rows(
        f"SELECT {LISTED} FROM decisions WHERE id IN (SELECT id FROM ({inner}) AS page) "
        "ORDER BY at DESC, id DESC",
        *values,
    )
    return [_named(LISTED, row) for row in rows]


def _pattern(text: str) -> str:
    return "%" + text.replace("!", "!!").replace("%", "!%").replace("_", "!_") + "%"


def reach(open_: Transaction, window: Window, before: tuple[float, str] | None) -> float | None:
    """Return the time of the `SCANNED`-th newest decision of a window that is older than `before`.

    A filtered page searches no further back, because a filter that matches almost nothing would read every
    decision of the window. None if there are fewer decisions.
    """
    until = window.until if before is None else min(before[0], window.until)
    rows = open_.rows(
        "SELECT at FROM decisions WHERE at >= ? AND at <= ? ORDER BY at DESC LIMIT 1 OFFSET ?",
        *(window.since, until, SCANNED),
    )
    return float(rows[0][0]) if rows else None


def texts(open_: Transaction, id_: str) -> tuple[str | None, str | None]:
    """The prompt and the answer of a decision; None for a text that was not stored."""
    rows = open_.rows("SELECT prompt, response FROM bodies WHERE decision = ?", id_)
    return (rows[0][0], rows[0][1]) if rows else (None, None)


def judged_details(open_: Transaction, metric: str, most: int) -> list[tuple[str, str, float]]:
    """The newest `most` judgements: stored details (JSON), who answered, the value; newest first."""
    rows = open_.rows(
        "SELECT d.detail, d.specialist, f.value FROM (SELECT decision, value FROM feedback WHERE metric = ? "
        "ORDER BY at DESC LIMIT ?) f JOIN decisions d ON d.id = f.decision",
        *(metric, most),
    )
    return [(str(detail), str(specialist), float(value)) for detail, specialist, value in rows]


def details(open_: Transaction, most: int, *, inspected: bool = False) -> list[str]:
    """Stored details (JSON) of the newest `most` decisions (`inspected`: with looks), oldest first."""
    where = "WHERE inspected > 0 " if inspected else ""
    rows = open_.rows(f"SELECT detail FROM decisions {where}ORDER BY at DESC LIMIT ?", most)
    return [str(row[0]) for row in reversed(rows)]


def _sums(open_: Transaction, window: Window, by: str, key: str = "") -> list[Sums]:
    table, unit = window.source
    columns = ", ".join(f"sum({name})" for name in SUMS.split(", "))
    first = f"{by}, " if by else ""
    rows = open_.rows(
        f"SELECT {first}{columns} FROM {table} WHERE {unit} >= ? AND {unit} < ?"
        + (" AND key = ?" if key else "")
        + (f" GROUP BY {by} ORDER BY {by}" if by else ""),
        *(*window.ends, *([key] if key else [])),
    )
    return [_named(first + SUMS, [0 if value is None else value for value in row]) for row in rows]


def _named(columns: str, row: Sequence[Any]) -> Sums:
    """Return the row as a mapping by column. PostgreSQL sums integers as decimals: these become integers."""
    plain = [int(value) if isinstance(value, Decimal) else value for value in row]
    return dict(zip(columns.split(", "), plain, strict=True))

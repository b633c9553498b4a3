"""Budgets: reserve the worst case before a call, then settle its cost once.

Budgets form a tree: a request counts against that of its key, of the key's group, of its profile and of all
requests. Each has one row per period, with the amounts spent and reserved. `reserve` is one conditional
UPDATE per level, which succeeds only if spent + reserved + worst case <= budget, so concurrent workers and
hosts cannot exceed a budget together; if one level refuses, nothing is reserved at the others. A reservation
is a lease with an expiry: if the process that holds it dies, `log.recover` settles it. A settlement counts in
the period of its reservation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pandora_router.store.database import Row, Transaction
from pandora_router.store.money import in_dollars, period_bounds, period_of
from pandora_router.store.rows import Key, Refusal, SharedBudget

DAY, HOUR = 86_400.0, 3_600.0
BURST = 720.0
"""Part of a period over which the first requests are spread, if they came faster: an hour of a month."""
NOBODY = "-"
"""Account of requests without a key, which has no limit of its own."""
GROW = (
    "INSERT INTO budgets (key, period, spent, reserved, requests) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (key, period) DO UPDATE SET spent = budgets.spent + excluded.spent, "
    "reserved = budgets.reserved + excluded.reserved, requests = budgets.requests + excluded.requests"
)
_NEW = "INSERT INTO budgets (key, period) VALUES (?, ?) ON CONFLICT (key, period) DO NOTHING"


@dataclass(frozen=True)
class Lease:
    """The reservation of a decision: what is left of it, and when it was released.

    also: the rows of shared budgets that it counts against besides that of its key, as `id period` each.
    """

    decision: str
    key: str
    period: str
    also: str
    remaining: int
    closed_at: float | None

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Account and period of every row that this reservation counts against."""
        words = self.also.split()
        return [(self.key, self.period), *zip(words[::2], words[1::2], strict=True)]


def left(open_: Transaction, levels: Sequence[SharedBudget], now: float) -> int | None:
    """The least that is left of any of these budgets, in nanodollars; None if none is limited."""
    least = None
    for level in levels:
        if level.budget is not None:
            rest = level.budget - sum(spending(open_, level.id, period_of(level.period, now))[:2])
            least = rest if least is None else min(least, rest)
    return least


def above(key: Key | None) -> list[SharedBudget]:
    """The group of a key, if it is in one."""
    return [] if key is None or key.group is None else [key.group]


def taking(key: Key | None, now: float, shared: Sequence[SharedBudget] = ()) -> tuple[tuple[str, str], ...]:
    """The `budgets` of a short operation that admits, reserves or extends for a request at `now`.

    All rows that the request counts against, so that they are locked first and in one order.
    """
    levels = [*above(key), *shared]
    free = key is None or (key.budget is None and key.per_minute is None)
    return () if free and not levels else tuple(_rows(key, levels, now))


def _rows(key: Key | None, levels: Sequence[SharedBudget], now: float) -> list[tuple[str, str]]:
    """Account and period of each row: that of the key first, then those of the levels above it."""
    rows = [(NOBODY, "ever") if key is None else (key.id, period_of(key.period, now))]
    for level in levels:
        rows.append((level.id, period_of(level.period, now)))
        if level.paced:
            rows.append((level.id, hour_of(now)))
    return rows


def hour_of(now: float) -> str:
    """The name of the row that counts the requests of one hour; such names sort by time."""
    return f"hour-{int(now // HOUR):08}"


def reserve(
    open_: Transaction,
    key: Key | None,
    decision: str,
    worst: int,
    now: float,
    seconds: float,
    shared: Sequence[SharedBudget] = (),
) -> Refusal | None:
    """Reserve the worst-case cost of a decision for `seconds`; returns None, or why it was refused.

    `shared` are the budgets of the profile and of all requests. Reserving again for the same decision changes
    nothing. Keys without a budget are counted too. In a commit of short operations on PostgreSQL what others
    of the same commit release is not there yet.
    """
    levels = [*above(key), *shared]
    rows = _rows(key, levels, now)
    limits = _limits(key, levels, now)
    also = " ".join(word for row in rows[1:] for word in row)
    lease = (
        "INSERT INTO leases (decision, key, period, also, reserved, remaining, limited, expires_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (decision) DO NOTHING",
        *(decision, *rows[0], also, worst, worst, int(bool(limits)), now + seconds),
    )
    if not limits:
        for row in rows if open_.insert(*lease) else ():
            open_.grow(GROW, row, (0, worst, 1))
        return None
    open_.flush(GROW)
    (made, _), *results = open_.together(lease, *(_take(*limit, worst, 1) for limit in limits))
    taken = {row for (row, _), (changed, _) in zip(limits, results, strict=True) if changed}
    missing = [limit for limit in limits if made and limit[0] not in taken]
    if missing:
        for row, _ in missing:  # the first request of a period makes its row
            open_.put(_NEW, *row)
        results = open_.together(*(_take(*limit, worst, 1) for limit in missing))
        taken |= {row for (row, _), (changed, _) in zip(missing, results, strict=True) if changed}
    refused = next((place for place, (row, _) in enumerate(limits) if row not in taken), None)
    if made and refused is None:
        for row in rows:
            if row not in taken:
                open_.grow(GROW, row, (0, worst, 1))
        return None
    refusal = None
    if made and refused is not None:
        open_.put("DELETE FROM leases WHERE decision = ?", decision)
        refusal = _refusal(open_, key, levels, *limits[refused], worst)
    for row in sorted(taken):
        open_.grow(GROW, row, (0, -worst, -1))
    return refusal


def _refusal(
    open_: Transaction,
    key: Key | None,
    levels: Sequence[SharedBudget],
    row: tuple[str, str],
    most: int,
    worst: int,
) -> Refusal:
    """Why a level, named in the message, does not allow `worst`."""
    spent, reserved, _ = spending(open_, *row)
    told = {level.id: (str(level), level.period) for level in levels}
    name, length = told.get(row[0]) or (_named(key), "" if key is None else key.period)
    message = (
        f"The budget of {name} is {in_dollars(most)} per {length}: {in_dollars(spent)} "
        f"spent, {in_dollars(reserved)} reserved; this request may cost {in_dollars(worst)}."
    )
    return Refusal("budget", message)


def _named(key: Key | None) -> str:
    return "nobody" if key is None else f"the key {key.name}"


def _limits(key: Key | None, levels: Sequence[SharedBudget], now: float) -> list[tuple[tuple[str, str], int]]:
    """The rows that have a budget, with it; that of the key first."""
    own = [] if key is None or key.budget is None else [((key.id, period_of(key.period, now)), key.budget)]
    above = [
        ((level.id, period_of(level.period, now)), level.budget)
        for level in levels
        if level.budget is not None
    ]
    return own + above


def _take(row: tuple[str, str], most: int, amount: int, requests: int = 0) -> tuple[Any, ...]:
    """The statement that reserves `amount` if spent + reserved stays within the budget `most` of a row."""
    return (
        "UPDATE budgets SET reserved = reserved + ?, requests = requests + ? "
        "WHERE key = ? AND period = ? AND spent + reserved + ? <= ?",
        *(amount, requests, *row, amount, most),
    )


def extend(
    open_: Transaction, key: Key | None, decision: str, worst: int, shared: Sequence[SharedBudget] = ()
) -> Refusal | None:
    """Increase a decision's reservation until `worst` of it is left; returns None, or why it was refused.

    A failed call may have been charged, so another call needs its own worst case. Nothing is reserved for a
    decision that was given up for lost while its process was alive: it has ended, and nobody would release
    the rest. What its calls cost is charged all the same.
    """
    lease = _locked_lease(open_, decision)
    if lease is None or lease.remaining >= worst or lease.closed_at is not None:
        return None
    need = worst - lease.remaining
    levels = [*above(key), *shared]
    most = {level.id: level.budget for level in levels} | ({} if key is None else {key.id: key.budget})
    limits = [
        (row, limit)
        for row in lease.rows
        if (limit := most.get(row[0])) is not None and not row[1].startswith("hour-")
    ]
    open_.flush(GROW)
    results = open_.together(*(_take(*limit, need) for limit in limits)) if limits else []
    taken = [row for (row, _), (changed, _) in zip(limits, results, strict=True) if changed]
    if len(taken) == len(limits):
        for row in lease.rows:
            if row not in taken:
                open_.grow(GROW, row, (0, need, 0))
        open_.put(
            "UPDATE leases SET reserved = reserved + ?, remaining = remaining + ? WHERE decision = ?",
            *(need, need, decision),
        )
        return None
    for row in taken:
        open_.grow(GROW, row, (0, -need, 0))
    spent = next(row[0] for row, _ in limits if row not in taken)
    name = next((str(level) for level in levels if level.id == spent), _named(key))
    message = f"The budget of {name} does not allow another call, which may cost {in_dollars(worst)}."
    return Refusal("budget", message)


def charge(open_: Transaction, decision: str, cost: int) -> None:
    """Move `cost` from the reservation of a decision to what its key has spent.

    A cost above the reservation is counted in full, since it was charged. A negative cost corrects an
    estimate that was too high; it is not reserved again. A decision without a lease (no key) has no limit.
    """
    lease = _locked_lease(open_, decision)
    if lease is None:
        return
    used = min(max(cost, 0), lease.remaining)
    open_.put("UPDATE leases SET remaining = remaining - ? WHERE decision = ?", used, decision)
    _move(open_, lease, cost, used)


def release(open_: Transaction, lease: Lease, now: float, cost: int = 0) -> None:
    """Release the rest of a reservation, whose row is locked; releasing it again has no effect.

    `cost` is charged first, as by `charge`, whether the reservation was released before or not.
    """
    if lease.closed_at is None:
        open_.put("UPDATE leases SET remaining = 0, closed_at = ? WHERE decision = ?", now, lease.decision)
    if lease.closed_at is None or cost:
        _move(open_, lease, cost, lease.remaining)


def _move(open_: Transaction, lease: Lease, cost: int, used: int) -> None:
    """Add `cost` to what a key has spent and take `used` from what it has reserved.

    Written before the commit, or before something is reserved: operations that only release or charge add up
    what they do to a budget, and lock its row last.
    """
    for row in lease.rows:
        open_.grow(GROW, row, (cost, -used, 0))


def account(open_: Transaction, key: Key | SharedBudget, now: float) -> tuple[int, int]:
    """What a key, or a shared budget, has spent and reserved in the current period, in nanodollars."""
    return spending(open_, key.id, period_of(key.period, now))[:2]


def spending(open_: Transaction, account_: str, period: str) -> tuple[int, int, int]:
    """What was spent and is reserved in a period, in nanodollars, and the number of requests."""
    open_.flush(GROW)
    rows = open_.changed(
        "SELECT spent, reserved, requests FROM budgets WHERE key = ? AND period = ?", account_, period
    )
    return (int(rows[0][0]), int(rows[0][1]), int(rows[0][2])) if rows else (0, 0, 0)


def lock_lease(decision: str) -> tuple[str, str]:
    """The statement that locks the row of a lease until the commit and gives it to `lease_of`."""
    columns = "decision, key, period, also, remaining, closed_at"
    return f"UPDATE leases SET remaining = remaining WHERE decision = ? RETURNING {columns}", decision


def lease_of(rows: Sequence[Row]) -> Lease | None:
    """The lease that `lock_lease` has read; None if there was none."""
    return Lease(*rows[0]) if rows else None


def _locked_lease(open_: Transaction, decision: str) -> Lease | None:
    return lease_of(open_.changed(*lock_lease(decision)))


def traffic(open_: Transaction, budget: SharedBudget, now: float) -> tuple[int, int, int, float]:
    """Cost in nanodollars and number of requests that a paced budget counts in this period; those of a day.

    The last number is over how many seconds the requests of the last day came: less than a day if the first
    that this budget counted is younger, and at least the part `1 / BURST` of the period, so that a few
    requests in the first seconds are not taken for the traffic of a month.
    """
    cost, _, requests = spending(open_, budget.id, period_of(budget.period, now))
    ((recent, oldest),) = open_.rows(
        "SELECT coalesce(sum(CASE WHEN period > ? THEN requests ELSE 0 END), 0), min(period) FROM budgets "
        "WHERE key = ? AND period >= ? AND period <= ?",
        *(hour_of(now - DAY), budget.id, hour_of(0.0), hour_of(now)),
    )
    since = now - now % HOUR - (DAY - HOUR)
    young = 0.0 if oldest is None else HOUR * int(str(oldest).removeprefix("hour-"))
    if young > since:
        ((first,),) = open_.rows("SELECT min(minute) FROM minutes WHERE minute >= ?", int(young // 60.0))
        since = young if first is None else 60.0 * float(first)
    begin, end = period_bounds(budget.period, now)
    return cost, requests, int(recent), max(now - since, (end - begin) / BURST)


@dataclass(frozen=True)
class BudgetStatus:
    """One level of the tree of budgets in its present period; amounts in nanodollars.

    until: Unix time at which the period ends, None for one that never does. worth: what a right answer is
    worth now, in dollars; expected: dollars that the period will end at; both None for a level that does not
    steer.
    """

    name: str
    budget: int
    period: str
    spent: int
    reserved: int
    until: float | None
    worth: float | None = None
    expected: float | None = None

    @property
    def left(self) -> float:
        """The share of the budget that is neither spent nor reserved."""
        return max(self.budget - self.spent - self.reserved, 0) / self.budget if self.budget else 0.0


def note_pace(
    open_: Transaction, budget: SharedBudget, worth: float | None, expected: float, now: float
) -> None:
    """Write down the worth that a paced budget has come to and the money that its period will end at.

    worth: None where nothing follows the budget, which is kept as 0.
    """
    open_.run(
        "INSERT INTO paces (id, kind, name, budget, period, worth, expected, at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET budget = excluded.budget, "
        "period = excluded.period, worth = excluded.worth, expected = excluded.expected, at = excluded.at",
        *(budget.id, budget.kind, budget.name, budget.budget, budget.period, worth or 0.0, expected, now),
    )


def status(open_: Transaction, levels: Sequence[Key | SharedBudget], now: float) -> list[BudgetStatus]:
    """Every budget, once: those that a gateway has followed in the last hour, then those of `levels`."""
    found = []
    for kind, name, most, period, worth, expected in open_.rows(
        "SELECT kind, name, budget, period, worth, expected FROM paces WHERE at > ? ORDER BY kind, name",
        now - HOUR,
    ):
        shared = SharedBudget.named(kind, name, int(most), period)
        found.append(_status(open_, str(shared), shared, now, float(worth) or None, float(expected)))
    followed = {level.name for level in found}
    for level in levels:
        name = f"the key {level.name}" if isinstance(level, Key) else str(level)
        if name not in followed:
            found.append(_status(open_, name, level, now))
    return found


def _status(
    open_: Transaction,
    name: str,
    level: Key | SharedBudget,
    now: float,
    worth: float | None = None,
    expected: float | None = None,
) -> BudgetStatus:
    spent, reserved = account(open_, level, now)
    until = None if level.period == "ever" else period_bounds(level.period, now)[1]
    return BudgetStatus(name, level.budget or 0, level.period, spent, reserved, until, worth, expected)

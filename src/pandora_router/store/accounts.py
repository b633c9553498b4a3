"""API keys, rate limits and budgets: reserve the worst case before a call, then settle its cost once.

A budget has one row per key and period, with the amounts spent and reserved. `reserve` is one conditional
UPDATE, which succeeds only if spent + reserved + worst case <= budget, so concurrent workers and hosts cannot
exceed a budget together. A reservation is a lease with an expiry: if the process that holds it dies,
`log.recover` settles it. A settlement counts in the period of its reservation.
"""

from __future__ import annotations

import functools
import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pandora_router.errors import UsageError
from pandora_router.store.database import Row, Transaction
from pandora_router.store.money import PERIODS, in_dollars, period_of
from pandora_router.store.rows import Key, Refusal
from pandora_router.text import unfit_for_name

PREFIX = "pk-"
DAY = 86_400.0
AHEAD = 300.0
"""Most seconds that requests of a key are counted out of order: bodies arrive late, clocks differ."""
COLUMNS = "id, name, created_at, budget, period, per_minute, revoked_at, admin"


_BUDGETS = (
    "INSERT INTO budgets (key, period, spent, reserved) VALUES (?, ?, ?, ?) ON CONFLICT (key, period) "
    "DO UPDATE SET spent = budgets.spent + excluded.spent, reserved = budgets.reserved + excluded.reserved"
)


_IDENTIFY = (
    f"SELECT {', '.join(f'k.{name}' for name in COLUMNS.split(', '))}, coalesce(b.spent + b.reserved, 0) "
    "FROM keys k LEFT JOIN budgets b ON b.key = k.id AND b.period = CASE k.period "
    + " ".join(f"WHEN '{length}' THEN ?" for length in PERIODS)
    + " END WHERE k.hash = ?"
)


@dataclass(frozen=True)
class Lease:
    """The reservation of a decision: what is left of it, and when it was released."""

    decision: str
    key: str
    period: str
    remaining: int
    closed_at: float | None


def hashed(secret: str) -> str:
    """Hash the secret of a key. A secret has 192 random bits, so one round of SHA-256 is enough."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def add_key(
    open_: Transaction,
    name: str,
    now: float,
    *,
    budget: int | None = None,
    period: str = "month",
    per_minute: int | None = None,
    admin: bool = False,
) -> tuple[Key, str]:
    """Create a key and return it with its secret, which is shown once and not stored.

    `budget` is in nanodollars per `period`; `admin` opens the dashboard. Raises `UsageError` if a key of that
    name exists and is not revoked, or if the name is empty or not visible.
    """
    period_of(period, now)
    if fault := unfit_for_name(name) if name else "none":
        expected = "visible characters, without white space at the ends"
        raise UsageError("the name of a key", expected=expected, came=fault, do="Name it otherwise.")
    _check_limits(budget, per_minute)
    secret = PREFIX + secrets.token_urlsafe(24)
    key = Key(secrets.token_hex(8), name, now, budget, period, per_minute, admin=admin)
    added = open_.run(
        "INSERT INTO keys (id, name, hash, created_at, budget, period, per_minute, admin) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (name) WHERE revoked_at IS NULL DO NOTHING",
        *(key.id, name, hashed(secret), now, budget, period, per_minute, int(admin)),
    )
    if not added:
        raise UsageError("a new key", expected="a name not in use", came=repr(name), do="Choose another.")
    return key, secret


def limit_key(open_: Transaction, name: str, *, budget: int | None, per_minute: int | None) -> None:
    """Change the limits of a key that is not revoked, from its next request on; None is unlimited.

    What was spent in the period counts against the new budget. Raises `UsageError` for an unknown name.
    """
    _check_limits(budget, per_minute)
    if not open_.run(
        "UPDATE keys SET budget = ?, per_minute = ? WHERE name = ? AND revoked_at IS NULL",
        *(budget, per_minute, name),
    ):
        raise _unknown(name)


def _check_limits(budget: int | None, per_minute: int | None) -> None:
    for what, bound in (("budget", budget), ("requests per minute", per_minute)):
        if bound is not None and bound < 0:
            raise UsageError(f"the {what} of a key", expected="zero or more", came=str(bound), do="Raise it.")


def _unknown(name: str) -> UsageError:
    return UsageError("a key", expected="the name of a key", came=repr(name), do="See: pandora keys list")


def revoke_key(open_: Transaction, name: str, now: float) -> None:
    """Revoke a key by name, which another key may then have; revoking it again has no effect.

    Raises `UsageError` for an unknown name.
    """
    if not open_.rows("SELECT 1 FROM keys WHERE name = ?", name):
        raise _unknown(name)
    open_.run("UPDATE keys SET revoked_at = ? WHERE name = ? AND revoked_at IS NULL", now, name)


def keys(open_: Transaction) -> list[Key]:
    """All keys, oldest first."""
    return [_key(row) for row in open_.rows(f"SELECT {COLUMNS} FROM keys ORDER BY created_at, id")]


def identify(open_: Transaction, secret: str) -> Key | Refusal:
    """Find the key that a secret belongs to."""
    return identify_with_budget(open_, secret, 0.0)[0]


def identify_with_budget(open_: Transaction, secret: str, now: float) -> tuple[Key | Refusal, int | None]:
    """Find the key that a secret belongs to, and what is left of its budget, None if it is unlimited."""
    open_.flush(_BUDGETS)
    rows = open_.changed(_IDENTIFY, *_periods(int(now // DAY)), hashed(secret))
    if not rows:
        return Refusal("unknown key", "This API key is not known here."), None
    key = _key(rows[0][:-1])
    if key.revoked_at is not None:
        return Refusal("revoked key", f"The key {key.name} was revoked."), None
    return key, None if key.budget is None else key.budget - int(rows[0][-1])


@functools.lru_cache(maxsize=2)
def _periods(day: int) -> list[str]:
    """The names of the periods that contain a day, counted from 1970: all begin at midnight UTC."""
    return [period_of(length, day * DAY) for length in PERIODS]


def taking(key: Key | None, now: float) -> tuple[str, str] | None:
    """The `budget` of a short operation that admits, reserves or extends for a request at `now`."""
    free = key is None or (key.budget is None and key.per_minute is None)
    return None if key is None or free else (key.id, period_of(key.period, now))


def key_of(open_: Transaction, id_: str) -> Key | None:
    """The key with this id, revoked or not; None if there is none."""
    rows = open_.rows(f"SELECT {COLUMNS} FROM keys WHERE id = ?", id_)
    return _key(rows[0]) if rows else None


def shared_secret(open_: Transaction, name: str) -> str:
    """A random text of 256 bits that all processes of this store share; created on first use."""
    made = secrets.token_hex(32)
    open_.run("INSERT INTO secrets (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING", name, made)
    return str(open_.rows("SELECT value FROM secrets WHERE name = ?", name)[0][0])


def admit(open_: Transaction, key: Key, now: float) -> Refusal | None:
    """Count one request against the rate limit of a key; if it is exceeded, return a refusal with the wait.

    Requests may come in bursts of up to one minute's allowance and are then spaced evenly (the generic cell
    rate algorithm). One conditional UPDATE, so the limit holds over all workers. A time that is further ahead
    than any request can have written was written before the clock was set back, and is not kept.
    """
    if key.per_minute is None:
        return None
    if key.per_minute == 0:
        return Refusal("rate", f"The key {key.name} allows no requests.")
    step = 60.0 / key.per_minute
    latest, ahead = now + 60.0 - step + 1e-9, now + 60.0 + AHEAD
    if open_.run(
        "UPDATE keys SET next_at = (CASE WHEN next_at > ? AND next_at <= ? THEN next_at ELSE ? END) + ? "
        "WHERE id = ? AND (next_at <= ? OR next_at > ?)",
        *(now, ahead, now, step, key.id, latest, ahead),
    ):
        return None
    next_at = float(open_.rows("SELECT next_at FROM keys WHERE id = ?", key.id)[0][0])
    message = f"The key {key.name} allows {key.per_minute} requests per minute."
    return Refusal("rate", message, max(next_at - latest, 0.001))


def reserve(
    open_: Transaction, key: Key, decision: str, worst: int, now: float, seconds: float
) -> Refusal | None:
    """Reserve the worst-case cost of a decision for `seconds`; returns None, or why it was refused.

    Reserving again for the same decision changes nothing. Keys without a budget are counted too. In a commit
    of short operations on PostgreSQL what others of the same commit release is not there yet.
    """
    period = period_of(key.period, now)
    lease = (
        "INSERT INTO leases (decision, key, period, reserved, remaining, limited, expires_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (decision) DO NOTHING",
        *(decision, key.id, period, worst, worst, int(key.budget is not None), now + seconds),
    )
    if key.budget is None:
        if open_.together(lease)[0][0]:
            open_.grow(_BUDGETS, (key.id, period), (0, worst))
        return None
    open_.flush(_BUDGETS)
    (made, _), (taken, _) = open_.together(lease, _take(key, period, worst))
    if not made and taken:
        open_.grow(_BUDGETS, (key.id, period), (0, -worst))
    if not made or taken:
        return None
    open_.put(  # the first request of a period makes its row
        "INSERT INTO budgets (key, period) VALUES (?, ?) ON CONFLICT (key, period) DO NOTHING", key.id, period
    )
    if open_.together(_take(key, period, worst))[0][0]:
        return None
    open_.put("DELETE FROM leases WHERE decision = ?", decision)
    spent, reserved = account(open_, key, now)
    message = (
        f"The budget of the key {key.name} is {in_dollars(key.budget)} per {key.period}: {in_dollars(spent)} "
        f"spent, {in_dollars(reserved)} reserved; this request may cost {in_dollars(worst)}."
    )
    return Refusal("budget", message)


def _take(key: Key, period: str, amount: int) -> tuple[Any, ...]:
    """The statement that reserves `amount` if spent + reserved stays within the budget of a period."""
    return (
        "UPDATE budgets SET reserved = reserved + ? "
        "WHERE key = ? AND period = ? AND spent + reserved + ? <= ?",
        *(amount, key.id, period, amount, key.budget),
    )


def extend(open_: Transaction, key: Key, decision: str, worst: int) -> Refusal | None:
    """Increase a decision's reservation until `worst` of it is left; returns None, or why it was refused.

    A failed call may have been charged, so another call needs its own worst case. Nothing is reserved for a
    decision that was given up for lost while its process was alive: it has ended, and nobody would release
    the rest. What its calls cost is charged all the same.
    """
    lease = _locked_lease(open_, decision)
    if lease is None or lease.remaining >= worst or lease.closed_at is not None:
        return None
    need = worst - lease.remaining
    open_.flush(_BUDGETS)
    if key.budget is None:
        _move(open_, lease, 0, -need)
    if key.budget is None or open_.together(_take(key, lease.period, need))[0][0]:
        open_.put(
            "UPDATE leases SET reserved = reserved + ?, remaining = remaining + ? WHERE decision = ?",
            *(need, need, decision),
        )
        return None
    message = (
        f"The budget of the key {key.name} does not allow another call, which may cost {in_dollars(worst)}."
    )
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
    open_.grow(_BUDGETS, (lease.key, lease.period), (cost, -used))


def account(open_: Transaction, key: Key, now: float) -> tuple[int, int]:
    """What a key has spent and reserved in the current period, in nanodollars."""
    open_.flush(_BUDGETS)
    rows = open_.changed(
        "SELECT spent, reserved FROM budgets WHERE key = ? AND period = ?",
        *(key.id, period_of(key.period, now)),
    )
    return (int(rows[0][0]), int(rows[0][1])) if rows else (0, 0)


def lock_lease(decision: str) -> tuple[str, str]:
    """The statement that locks the row of a lease until the commit and gives it to `lease_of`."""
    columns = "decision, key, period, remaining, closed_at"
    return f"UPDATE leases SET remaining = remaining WHERE decision = ? RETURNING {columns}", decision


def lease_of(rows: Sequence[Row]) -> Lease | None:
    """The lease that `lock_lease` has read; None if there was none."""
    return Lease(*rows[0]) if rows else None


def _locked_lease(open_: Transaction, decision: str) -> Lease | None:
    return lease_of(open_.changed(*lock_lease(decision)))


def _key(row: Row) -> Key:
    id_, name, created_at, budget, period, per_minute, revoked_at, admin = row
    return Key(id_, name, created_at, budget, period, per_minute, revoked_at, bool(admin))

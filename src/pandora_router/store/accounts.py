"""API keys and groups of keys: who asks, how often, and whose budget it counts against (`budgets`)."""

from __future__ import annotations

import functools
import hashlib
import secrets
from collections.abc import Sequence

from pandora_router.errors import UsageError
from pandora_router.store import budgets
from pandora_router.store.database import Row, Transaction
from pandora_router.store.money import PERIODS, period_of
from pandora_router.store.rows import Key, Refusal, SharedBudget
from pandora_router.text import unfit_for_name

PREFIX = "pk-"
DAY = 86_400.0
AHEAD = 300.0
"""Most seconds that requests of a key are counted out of order: bodies arrive late, clocks differ."""
COLUMNS = "id, name, created_at, budget, period, per_minute, revoked_at, admin"
_KEYS = (
    f"{', '.join(f'k.{name}' for name in COLUMNS.split(', '))}, g.id, g.name, g.budget, g.period "
    "FROM keys k LEFT JOIN key_groups g ON g.id = k.grouped"
)
_IDENTIFY = (
    f"SELECT coalesce(b.spent + b.reserved, 0), {_KEYS} "
    "LEFT JOIN budgets b ON b.key = k.id AND b.period = CASE k.period "
    + " ".join(f"WHEN '{length}' THEN ?" for length in PERIODS)
    + " END WHERE k.hash = ?"
)


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
    group: str | None = None,
) -> tuple[Key, str]:
    """Create a key and return it with its secret, which is shown once and not stored.

    `budget` is in nanodollars per `period`; `admin` opens the dashboard; `group` names a group whose budget
    the key shares. Raises `UsageError` if a key of that name exists and is not revoked, if the name is empty
    or not visible, or if there is no such group.
    """
    period_of(period, now)
    if fault := unfit_for_name(name) if name else "none":
        expected = "visible characters, without white space at the ends"
        raise UsageError("the name of a key", expected=expected, came=fault, do="Name it otherwise.")
    _check_limits(budget, per_minute)
    secret = PREFIX + secrets.token_urlsafe(24)
    shared = None if group is None else _group(open_, group)
    key = Key(secrets.token_hex(8), name, now, budget, period, per_minute, admin=admin, group=shared)
    added = open_.run(
        "INSERT INTO keys (id, name, hash, created_at, budget, period, per_minute, admin, grouped) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (name) WHERE revoked_at IS NULL DO NOTHING",
        *(key.id, name, hashed(secret), now, budget, period, per_minute, int(admin)),
        None if shared is None else shared.id,
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


def set_group(open_: Transaction, name: str, *, budget: int | None, period: str) -> None:
    """Make a group of keys, or change the budget that its keys share, in nanodollars; None is unlimited."""
    _check_limits(budget, None)
    shared = SharedBudget.named("group", name, budget, period)
    open_.run(
        "INSERT INTO key_groups (id, name, budget, period) VALUES (?, ?, ?, ?) ON CONFLICT (id) "
        "DO UPDATE SET budget = excluded.budget, period = excluded.period",
        *(shared.id, name, budget, period),
    )


def join_group(open_: Transaction, name: str, group: str | None) -> None:
    """Put a key that is not revoked into a group, or into none, from its next request on."""
    shared = None if group is None else _group(open_, group).id
    if not open_.run("UPDATE keys SET grouped = ? WHERE name = ? AND revoked_at IS NULL", shared, name):
        raise _unknown(name)


def groups(open_: Transaction) -> list[SharedBudget]:
    """All groups of keys, by name."""
    rows = open_.rows("SELECT name, budget, period FROM key_groups ORDER BY name")
    return [SharedBudget.named("group", *row) for row in rows]


def limited(open_: Transaction) -> list[Key | SharedBudget]:
    """The groups and the keys in use that have a budget, groups first."""
    shared = [group for group in groups(open_) if group.budget is not None]
    own = [key for key in keys(open_) if key.budget is not None and key.revoked_at is None]
    return [*shared, *own]


def _group(open_: Transaction, name: str) -> SharedBudget:
    """The group of this name; raises `UsageError` if there is none."""
    there = {group.name: group for group in groups(open_)}
    if name not in there:
        names = ", ".join(there) or "a group that exists (there is none yet)"
        do = "Make it first: pandora keys group NAME --budget 500 --period month"
        raise UsageError("a group of keys", expected=names, came=repr(name), do=do)
    return there[name]


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
    return [_key(row) for row in open_.rows(f"SELECT {_KEYS} ORDER BY k.created_at, k.id")]


def identify(open_: Transaction, secret: str) -> Key | Refusal:
    """Find the key that a secret belongs to."""
    return identify_with_budget(open_, secret, 0.0)[0]


def identify_with_budget(
    open_: Transaction, secret: str, now: float, shared: Sequence[SharedBudget] = ()
) -> tuple[Key | Refusal, int | None]:
    """Find the key that a secret belongs to, and what is left of its budget, None if it is unlimited.

    `shared` are budgets that also bind the request: what is left is the least of all levels.
    """
    open_.flush(budgets.GROW)
    rows = open_.changed(_IDENTIFY, *_periods(int(now // DAY)), hashed(secret))
    if not rows:
        return Refusal("unknown key", "This API key is not known here."), None
    key = _key(rows[0][1:])
    if key.revoked_at is not None:
        return Refusal("revoked key", f"The key {key.name} was revoked."), None
    above = budgets.left(open_, [*budgets.above(key), *shared], now)
    own = None if key.budget is None else key.budget - int(rows[0][0])
    return key, min((part for part in (own, above) if part is not None), default=None)


@functools.lru_cache(maxsize=2)
def _periods(day: int) -> list[str]:
    """The names of the periods that contain a day, counted from 1970: all begin at midnight UTC."""
    return [period_of(length, day * DAY) for length in PERIODS]


def key_of(open_: Transaction, id_: str) -> Key | None:
    """The key with this id, revoked or not; None if there is none."""
    rows = open_.rows(f"SELECT {_KEYS} WHERE k.id = ?", id_)
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


def _key(row: Row) -> Key:
    id_, name, created_at, budget, period, per_minute, revoked_at, admin, group, *shared = row
    above = None if group is None else SharedBudget.named("group", *shared)
    return Key(id_, name, created_at, budget, period, per_minute, revoked_at, bool(admin), above)

"""The ledger of a market: calls, bids, awards, prices and payments.

Amounts are integers of one billionth of a unit of reward (`money.UNIT`). Every entry moves money from one
account to another, so balances always sum to zero. An entry is identified by its auction and its purpose and
written once: repeating it (a settlement, a recovery after a crash) has no effect.

    world             outside the market: source of stakes and rewards
    platform          earnings of the platform
    bidder NAME       earnings of a bidder: rewards minus prices
    deposit NAME      deposit of a bidder; partly forfeited if it wins and does not deliver
    proxy NAME        rewards minus prices of a plain endpoint, for which the platform bids

An award moves the price from the winner to the platform. If the winner does not deliver (a stall), the price
is moved back and part of the deposit goes to the platform. A settlement moves the realised reward, from 0 to
1, to the winner; only the platform's judge or another holder of an admin key may ask for it (`may_settle`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from pandora_router.errors import UsageError
from pandora_router.store import log
from pandora_router.store.database import Row, Transaction
from pandora_router.store.money import UNIT, dollars
from pandora_router.store.rows import Key

WORLD, PLATFORM = "world", "platform"
MOST_KINDS = 200
"""Most kinds of prompts with a score of their own; all further ones share one."""
BLOCK = log.BLOCK
"""At most this many auctions are deleted at once."""
_PURPOSES = ("price", "back", "forfeit", "reward")
"""Purposes of the entries of one turn in the order in which they are made."""
_AUCTIONS = "SELECT id, at, mechanism, kind, status, turn, bidder, price, claim, reward FROM market_auctions"


def units(amount: float) -> int:
    """An amount of reward in billionths; raises `UsageError` unless it is finite and below a million."""
    if not math.isfinite(amount) or abs(amount) > 1e6:
        raise UsageError("an amount", expected="a number below a million", came=repr(amount), do="Check it.")
    return round(amount * UNIT)


@dataclass(frozen=True)
class Membership:
    """A bidder of the market: address of its service, version of its key, times of joining and leaving."""

    name: str
    url: str
    version: int
    joined_at: float
    left_at: float | None = None


@dataclass(frozen=True)
class AskedRow:
    """One call to a bidder: the price shown, the reply with its amount, and the looks it reported."""

    bidder: str
    turn: int
    price: float | None
    said: str
    amount: float | None
    looks: int
    spent: float
    seconds: float
    fault: str | None


@dataclass(frozen=True)
class AuctionRow:
    """One auction. `bidder` is the last winner (None: none).

    `status`: awarded, delivered, stalled, abandoned.
    """

    id: str
    at: float
    mechanism: str
    kind: str
    status: str
    turn: int
    bidder: str | None
    price: float
    claim: float | None
    reward: float | None


@dataclass(frozen=True)
class Score:
    """Sums of claim - realised reward of a bidder for one kind of prompt."""

    bidder: str
    kind: str
    graded: int
    total: float
    squares: float


def join(open_: Transaction, name: str, url: str, now: float, *, stake: float = 0.0) -> Membership:
    """Register a bidder, or change its address; `stake` is added to its deposit."""
    open_.run(
        "INSERT INTO market_bidders (name, url, version, joined_at) VALUES (?, ?, 1, ?) "
        "ON CONFLICT (name) DO UPDATE SET url = excluded.url, left_at = NULL",
        *(name, url, now),
    )
    if stake:
        move(open_, f"stake {name} {now!r}", "stake", WORLD, f"deposit {name}", units(stake), now)
    return next(member for member in bidders(open_, everybody=True) if member.name == name)


def renew_key(open_: Transaction, name: str) -> int:
    """Make the present key of a bidder invalid; returns the version of the new one."""
    if not open_.run("UPDATE market_bidders SET version = version + 1 WHERE name = ?", name):
        do = "See: pandora market accounts"
        raise UsageError("a bidder", expected="one that has joined", came=repr(name), do=do)
    return int(open_.rows("SELECT version FROM market_bidders WHERE name = ?", name)[0][0])


def leave(open_: Transaction, name: str, now: float) -> bool:
    """Remove a bidder and return its deposit, less what it owes; False if no such bidder takes part."""
    if not open_.run("UPDATE market_bidders SET left_at = ? WHERE name = ? AND left_at IS NULL", now, name):
        return False
    left = max(0, min(funds(open_, name), balance(open_, f"deposit {name}")))
    owed = balance(open_, f"deposit {name}") - left
    if owed:
        move(open_, f"leave {name} {now!r}", "debt", f"deposit {name}", f"bidder {name}", owed, now)
    return move(open_, f"leave {name} {now!r}", "leave", f"deposit {name}", WORLD, left, now)


def bidders(open_: Transaction, *, everybody: bool = False) -> list[Membership]:
    """The bidders, oldest first; with `everybody` also those that left."""
    columns = "name, url, version, joined_at, left_at"
    rows = open_.rows(f"SELECT {columns} FROM market_bidders ORDER BY joined_at, name")
    return [Membership(*row) for row in rows if everybody or row[4] is None]


def move(
    open_: Transaction, auction: str, what: str, debit: str, credit: str, amount: int, now: float
) -> bool:
    """Move an amount between accounts, once per auction and purpose; returns whether it was new."""
    if not open_.run(
        "INSERT INTO market_entries (auction, what, debit, credit, amount, at) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (auction, what) DO NOTHING",
        *(auction, what, debit, credit, amount, now),
    ):
        return False
    for account, change in sorted(((debit, -amount), (credit, amount))):  # so that no two writers deadlock
        open_.run(
            "INSERT INTO market_balances (account, amount) VALUES (?, ?) ON CONFLICT (account) "
            "DO UPDATE SET amount = market_balances.amount + excluded.amount",
            *(account, change),
        )
    return True


def balance(open_: Transaction, account: str) -> int:
    """The balance of an account."""
    rows = open_.rows("SELECT amount FROM market_balances WHERE account = ?", account)
    return int(rows[0][0]) if rows else 0


def balances(open_: Transaction) -> dict[str, float]:
    """All accounts; they sum to zero."""
    rows = open_.rows("SELECT account, amount FROM market_balances ORDER BY account")
    return {str(account): dollars(int(amount)) for account, amount in rows}


def funds(open_: Transaction, bidder: str) -> int:
    """Deposit plus earnings of a bidder; both stay as they are until the transaction ends.

    PostgreSQL locks the rows; SQLite has one writer at a time. The deposit comes first: the first award makes
    the row of the earnings, and writers without a row to lock would deadlock with the others.
    """
    accounts = f"deposit {bidder}", f"bidder {bidder}"
    for account in accounts:
        open_.run("UPDATE market_balances SET amount = amount WHERE account = ?", account)
    return sum(balance(open_, account) for account in accounts)


def award(
    open_: Transaction,
    row: AuctionRow,
    asked: Iterable[AskedRow],
    now: float,
    *,
    funded: bool = False,
    proxy: bool = False,
) -> bool:
    """Record an award with all calls before it; the price moves from the winner to the platform.

    With `funded` the winner pays from its deposit and its earnings: if they do not cover the price, nothing
    is recorded and the result is False. With `proxy` the winner is a plain endpoint, whose account is never
    that of a bidder of the same name. The award of a later turn replaces that of a winner that stalled.
    Raises `UsageError` if an answer to this auction was delivered already: nothing is awarded twice.
    """
    if funded and row.bidder is not None and 0 < units(row.price) > funds(open_, row.bidder):
        return False
    fields = (row.id, row.at, row.mechanism, row.kind, row.turn, row.bidder, units(row.price), row.claim)
    changed = open_.run(
        "INSERT INTO market_auctions (id, at, mechanism, kind, turn, bidder, price, claim, status) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'awarded') ON CONFLICT (id) DO UPDATE SET turn = excluded.turn, "
        "bidder = excluded.bidder, price = excluded.price, claim = excluded.claim, status = 'awarded' "
        "WHERE market_auctions.status = 'stalled' AND market_auctions.turn < excluded.turn",
        *fields,
    )
    if not changed:
        do = "Use a new auction for each prompt."
        raise UsageError(
            f"the auction {row.id}", expected="one that is not awarded", came="a second award", do=do
        )
    for place, call in enumerate(asked):
        open_.run(
            "INSERT INTO market_calls "
            "(auction, place, bidder, turn, price, said, amount, looks, spent, seconds, fault) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (auction, place) DO NOTHING",
            *(row.id, place, call.bidder, call.turn, call.price, call.said, call.amount),
            *(call.looks, units(call.spent), call.seconds, call.fault),
        )
    if row.bidder is not None:
        payer = f"{'proxy' if proxy else 'bidder'} {row.bidder}"
        move(open_, row.id, f"price {row.turn}", payer, PLATFORM, units(row.price), now)
    return True


def deliver(open_: Transaction, auction: str, turn: int) -> bool:
    """Record that the winner of this turn delivered; false if the auction is not in that state."""
    won = "WHERE id = ? AND turn = ? AND status = 'awarded'"
    return bool(open_.run(f"UPDATE market_auctions SET status = 'delivered' {won}", auction, turn))


def stall(open_: Transaction, auction: str, turn: int, now: float, *, forfeit: float = 0.0) -> bool:
    """Record that the winner did not deliver: it gets the price back and loses `forfeit` of its deposit.

    A winner that never stated a limit (a choice of the platform) forfeits nothing.
    """
    return _undo(open_, auction, turn, "stalled", now, forfeit)


def _undo(open_: Transaction, auction: str, turn: int, status: str, now: float, forfeit: float) -> bool:
    if not open_.run(
        "UPDATE market_auctions SET status = ? WHERE id = ? AND turn = ? AND status = 'awarded'",
        *(status, auction, turn),
    ):
        return False
    awarded = "SELECT bidder, price, claim FROM market_auctions WHERE id = ?"
    bidder, price, claim = open_.rows(awarded, auction)[0]
    if bidder is not None:
        funds(open_, str(bidder))  # lock its accounts before that of the platform, as `award` does
        payer = _payer(open_, auction, turn)
        move(open_, auction, f"back {turn}", PLATFORM, payer, int(price), now)
        lost = min(units(forfeit), balance(open_, f"deposit {bidder}"))
        if claim is not None and lost > 0 and payer == f"bidder {bidder}":
            move(open_, auction, f"forfeit {turn}", f"deposit {bidder}", PLATFORM, lost, now)
    return True


def _payer(open_: Transaction, auction: str, turn: int) -> str:
    """The account that paid the price of this turn."""
    paid = "SELECT debit FROM market_entries WHERE auction = ? AND what = ?"
    return str(open_.rows(paid, auction, f"price {turn}")[0][0])


def abandon(open_: Transaction, auction: str, turn: int, now: float) -> bool:
    """Take back an award that nobody waits for any more: the price goes back, nothing is forfeited.

    False if the auction does not stand at the award of this turn, for instance because it was delivered.
    """
    return _undo(open_, auction, turn, "abandoned", now, 0.0)


def grade(open_: Transaction, auction: str, reward: float, now: float) -> bool:
    """`settle`, if there is an auction of this id whose answer was delivered; False if there is none."""
    delivered = "SELECT 1 FROM market_auctions WHERE id = ? AND status = 'delivered'"
    return bool(open_.rows(delivered, auction)) and settle(open_, auction, reward, now)


def may_settle(open_: Transaction, key: Key) -> bool:
    """Whether rewards that come with this key are paid: an admin key, and not one of a bidder's name."""
    return key.admin and not open_.rows("SELECT 1 FROM market_bidders WHERE name = ?", key.name)


def settle(open_: Transaction, auction: str, reward: float, now: float) -> bool:
    """Pay the realised reward of a delivered answer to its bidder and score its claim, once.

    The claim of a plain endpoint is the platform's own estimate: it scores nobody.
    Returns False if nothing changed: already settled, or won by nobody. Raises `UsageError` for an auction
    that is not known or not delivered, and for a reward outside of [0, 1].
    """
    if not 0.0 <= reward <= 1.0:
        raise UsageError("a reward", expected="a number from 0 to 1", came=repr(reward), do="Check it.")
    rows = open_.rows("SELECT status, bidder, kind, claim, turn FROM market_auctions WHERE id = ?", auction)
    if not rows or rows[0][0] != "delivered":
        raise UsageError(
            f"the auction {auction[:64]!r}",
            expected="one whose answer was delivered",
            came="no such auction" if not rows else f"one that is {rows[0][0]}",
            do="Send the id that came with the answer.",
        )
    _, bidder, kind, claim, turn = rows[0]
    changed = open_.run(
        "UPDATE market_auctions SET reward = ?, settled_at = ? WHERE id = ? AND settled_at IS NULL",
        *(reward, now, auction),
    )
    if bidder is None or not changed:
        return False
    payer = _payer(open_, auction, int(turn))
    move(open_, auction, "reward", WORLD, payer, units(reward), now)
    if claim is not None and payer == f"bidder {bidder}":
        miss, kind = float(claim) - reward, _counted_kind(open_, str(bidder), str(kind))
        open_.run(
            "INSERT INTO market_scores (bidder, kind, graded, total, squares) VALUES (?, ?, 1, ?, ?) "
            "ON CONFLICT (bidder, kind) DO UPDATE SET graded = market_scores.graded + 1, "
            "total = market_scores.total + excluded.total, "
            "squares = market_scores.squares + excluded.squares",
            *(bidder, kind, miss, miss * miss),
        )
    return True


def recover(open_: Transaction, before: float, now: float) -> int:
    """Abandon auctions that a dead process awarded before this time and did not end; prices are returned."""
    left = "SELECT id, turn FROM market_auctions WHERE status = 'awarded' AND at < ? ORDER BY id"
    return sum(
        _undo(open_, str(id_), int(turn), "abandoned", now, 0.0) for id_, turn in open_.rows(left, before)
    )


def prune(open_: Transaction, before: float) -> int:
    """Delete auctions older than `before` with their calls and entries; balances and scores stay.

    At most `BLOCK` auctions, the oldest first, because all other operations wait meanwhile. Returns their
    number.
    """
    old = "SELECT id FROM market_auctions WHERE at < ? AND status <> 'awarded' ORDER BY at LIMIT ?"
    ids = [row[0] for row in open_.rows(old, before, BLOCK)]
    if not ids:
        return 0
    places = ", ".join("?" * len(ids))
    open_.run(f"DELETE FROM market_calls WHERE auction IN ({places})", *ids)
    open_.run(f"DELETE FROM market_entries WHERE auction IN ({places})", *ids)
    return open_.run(f"DELETE FROM market_auctions WHERE id IN ({places})", *ids)


def _counted_kind(open_: Transaction, bidder: str, kind: str) -> str:
    """The kind under which a claim is scored: clients name kinds, so only `MOST_KINDS` are kept apart."""
    known = {str(row[0]) for row in open_.rows("SELECT kind FROM market_scores WHERE bidder = ?", bidder)}
    return kind if kind in known or len(known) < MOST_KINDS else ""


def scores(open_: Transaction) -> list[Score]:
    """The scores of all bidders: claims compared with realised rewards."""
    columns = "bidder, kind, graded, total, squares"
    return [Score(*row) for row in open_.rows(f"SELECT {columns} FROM market_scores ORDER BY bidder, kind")]


def newest(
    open_: Transaction, since: float, until: float, most: int, before: tuple[float, str] | None = None
) -> list[AuctionRow]:
    """Auctions between two times, newest first; `before` is (at, id) of the last one of the page before."""
    at, id_ = (until, "") if before is None else before
    rows = open_.rows(
        f"{_AUCTIONS} WHERE at >= ? AND at <= ? AND (at < ? OR id < ?) ORDER BY at DESC, id DESC LIMIT ?",
        *(since, at, at, id_, most),
    )
    return [AuctionRow(*_with_amount(row, 7)) for row in rows]


def entries(open_: Transaction, auction: str) -> list[tuple[str, str, str, float]]:
    """The money of an auction in order: purpose, from which account, to which account, amount."""
    rows = open_.rows("SELECT what, debit, credit, amount FROM market_entries WHERE auction = ?", auction)
    moved = [(str(what), str(debit), str(credit), dollars(int(n))) for what, debit, credit, n in rows]
    return sorted(moved, key=_in_order)


def _in_order(entry: tuple[str, str, str, float]) -> tuple[int, int]:
    purpose, _, turn = entry[0].partition(" ")
    return int(turn or 10**6), _PURPOSES.index(purpose)


def auction(open_: Transaction, id_: str) -> tuple[AuctionRow, list[AskedRow]] | None:
    """One auction with its calls in order; None if there is none of this id."""
    rows = open_.rows(f"{_AUCTIONS} WHERE id = ?", id_)
    if not rows:
        return None
    calls = open_.rows(
        "SELECT bidder, turn, price, said, amount, looks, spent, seconds, fault FROM market_calls "
        "WHERE auction = ? ORDER BY place",
        id_,
    )
    asked = [AskedRow(*_with_amount(call, 6)) for call in calls]
    return AuctionRow(*_with_amount(rows[0], 7)), asked


def _with_amount(row: Row, place: int) -> Row:
    """A row whose integer at `place` is an amount, as a number."""
    return (*row[:place], dollars(int(row[place])), *row[place + 1 :])

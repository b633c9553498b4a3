"""Laws of the market's ledger, on both databases: no money is made or lost, and nothing counts twice."""

from __future__ import annotations

import multiprocessing
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from pandora_router.errors import UsageError
from pandora_router.store import auctions, money
from pandora_router.store.database import connect

ASKED = auctions.AskedRow("small", 0, 0.4, "bid", 0.5, 1, 0.02, 0.01, None)


def row(id_="a", turn=0, bidder="small", price=0.4, claim=0.5):
    return auctions.AuctionRow(id_, 10.0, "sequential", "math", "awarded", turn, bidder, price, claim, None)


def totals(open_):
    """Balances from the entries alone."""
    found = {}
    for debit, credit, amount in open_.rows("SELECT debit, credit, amount FROM market_entries"):
        found[debit] = found.get(debit, 0) - amount
        found[credit] = found.get(credit, 0) + amount
    return {account: amount / money.UNIT for account, amount in found.items()}


def test_an_auction_from_award_to_reward(database):
    with database.transaction() as open_:
        auctions.join(open_, "small", "http://127.0.0.1:1", 1.0, stake=2.0)
        auctions.award(open_, row(), [ASKED], 11.0)
        assert auctions.deliver(open_, "a", 0)
        assert auctions.settle(open_, "a", 0.9, 12.0)
        assert not auctions.settle(open_, "a", 0.1, 13.0)
        assert auctions.balances(open_) == {
            "bidder small": pytest.approx(0.5),
            "deposit small": 2.0,
            "platform": 0.4,
            "world": -2.9,
        }
        found, asked = auctions.auction(open_, "a")
        assert (found.status, found.reward, found.bidder) == ("delivered", 0.9, "small")
        assert asked == [ASKED]
        (score,) = auctions.scores(open_)
        assert (score.bidder, score.kind, score.graded) == ("small", "math", 1)
        assert score.total == pytest.approx(-0.4)


def test_a_stalled_winner_loses_its_deposit_and_the_runner_up_pays(database):
    with database.transaction() as open_:
        auctions.join(open_, "small", "http://127.0.0.1:1", 1.0, stake=0.15)
        auctions.award(open_, row(), [ASKED], 11.0)
        assert auctions.stall(open_, "a", 0, 12.0, forfeit=0.1)
        assert not auctions.stall(open_, "a", 0, 12.0, forfeit=0.1)
        auctions.award(open_, row(turn=1, bidder="large", price=0.3), [ASKED], 13.0)
        assert not auctions.deliver(open_, "a", 0)
        assert auctions.deliver(open_, "a", 1)
        found = auctions.balances(open_)
        assert found["deposit small"] == pytest.approx(0.05)
        assert found["bidder small"] == 0.0
        assert found["platform"] == pytest.approx(0.4)
        auctions.award(open_, row("b"), [], 14.0)
        auctions.stall(open_, "b", 0, 15.0, forfeit=0.1)
        assert auctions.balances(open_)["deposit small"] == 0.0


def test_a_price_beyond_deposit_and_earnings_is_not_awarded(database):
    with database.transaction() as open_:
        auctions.join(open_, "small", "http://127.0.0.1:1", 1.0, stake=1.0)
        assert auctions.award(open_, row(), [ASKED], 11.0, funded=True)  # 0.4
        assert auctions.award(open_, row("b"), [ASKED], 11.0, funded=True)
        before = auctions.balances(open_)
        assert not auctions.award(open_, row("c"), [ASKED], 11.0, funded=True)
        assert auctions.auction(open_, "c") is None
        assert auctions.balances(open_) == before
        assert auctions.award(open_, row("c", price=0.2), [ASKED], 11.0, funded=True)
        assert not auctions.award(open_, row("d", price=1e-9), [ASKED], 11.0, funded=True)
        assert auctions.award(open_, row("e", price=-0.1), [ASKED], 11.0, funded=True)
        auctions.deliver(open_, "a", 0)
        auctions.settle(open_, "a", 0.5, 12.0)
        assert auctions.award(open_, row("f", price=0.6), [ASKED], 13.0, funded=True)
        assert auctions.award(open_, row("g", bidder="proxy"), [ASKED], 13.0)


def test_auctions_at_the_same_time_spend_no_more_than_there_is(database, url):
    """Twelve writers with connections of their own award to one bidder, and take awards back."""
    with database.transaction() as open_:
        auctions.join(open_, "small", "http://127.0.0.1:1", 1.0, stake=1.0)
        assert auctions.award(open_, row("first", price=0.2), [], 11.0, funded=True)
    together = threading.Barrier(12)

    def work(number):
        own = connect(url)
        try:
            together.wait()
            if number == 0:
                with own.transaction() as open_:
                    return auctions.stall(open_, "first", 0, 12.0, forfeit=0.1)
            with own.transaction() as open_:
                return auctions.award(open_, row(f"a{number}"), [ASKED], 12.0, funded=True)
        finally:
            own.close()

    with ThreadPoolExecutor(12) as pool:
        stalled, *awarded = pool.map(work, range(12))
    assert stalled
    assert sum(awarded) == 2  # of 0.4 each; 0.9 remain after the forfeit
    with database.transaction() as open_:
        found = auctions.balances(open_)
    assert found["bidder small"] + found["deposit small"] == pytest.approx(0.1)


def test_who_leaves_pays_what_it_owes(database):
    with database.transaction() as open_:
        auctions.join(open_, "small", "http://127.0.0.1:1", 1.0, stake=1.0)
        auctions.award(open_, row(), [ASKED], 11.0, funded=True)
        auctions.deliver(open_, "a", 0)
        auctions.settle(open_, "a", 0.1, 12.0)
        auctions.leave(open_, "small", 13.0)
        assert auctions.balances(open_) == {
            "bidder small": 0.0,
            "deposit small": 0.0,
            "platform": 0.4,
            "world": pytest.approx(-0.4),
        }


def test_who_was_chosen_without_a_bid_forfeits_nothing(database):
    with database.transaction() as open_:
        auctions.join(open_, "small", "http://127.0.0.1:1", 1.0, stake=1.0)
        auctions.award(open_, row(claim=None), [], 11.0)
        auctions.stall(open_, "a", 0, 12.0, forfeit=0.1)
        assert auctions.balances(open_)["deposit small"] == 1.0


def test_nothing_is_awarded_twice(database):
    with database.transaction() as open_:
        auctions.award(open_, row(), [], 11.0)
        with pytest.raises(UsageError, match="second award"):
            auctions.award(open_, row(turn=1, bidder="large"), [], 11.0)
    with database.transaction() as open_:
        auctions.deliver(open_, "a", 0)
        with pytest.raises(UsageError, match="second award"):
            auctions.award(open_, row(turn=1, bidder="large"), [], 11.0)
        with pytest.raises(UsageError, match="no such auction"):
            auctions.settle(open_, "z", 1.0, 1.0)


def test_what_a_dead_process_left_is_abandoned(database):
    with database.transaction() as open_:
        auctions.award(open_, row(), [], 11.0)
        auctions.award(open_, replace(row("b"), at=100.0), [], 100.0)
        assert auctions.recover(open_, 50.0, 60.0) == 1
        assert auctions.recover(open_, 50.0, 60.0) == 0
        assert auctions.balances(open_)["platform"] == 0.4
        assert auctions.auction(open_, "a")[0].status == "abandoned"


def test_a_bidder_joins_moves_renews_its_key_and_leaves(database):
    with database.transaction() as open_:
        auctions.join(open_, "small", "http://127.0.0.1:1", 1.0, stake=1.0)
        assert auctions.renew_key(open_, "small") == 2
        moved = auctions.join(open_, "small", "http://127.0.0.1:2", 2.0)
        assert (moved.url, moved.version, moved.joined_at) == ("http://127.0.0.1:2", 2, 1.0)
        auctions.leave(open_, "small", 3.0)
        auctions.leave(open_, "small", 4.0)
        assert auctions.bidders(open_) == []
        assert auctions.balances(open_) == {"deposit small": 0.0, "world": 0.0}
        with pytest.raises(UsageError, match="one that has joined"):
            auctions.renew_key(open_, "nobody")


@pytest.mark.parametrize("seed", range(3))
def test_any_sequence_of_steps_sums_to_zero(database, seed):
    """Random steps in any order, repeated at will, against balances computed from the entries alone."""
    rng = random.Random(seed)
    with database.transaction() as open_:
        for name in ("small", "large"):
            auctions.join(open_, name, "http://127.0.0.1:1", 1.0, stake=rng.random())
        for step in range(150):
            id_, turn, now = f"a{rng.randrange(12)}", rng.randrange(3), float(step)
            act = rng.randrange(5)
            try:
                with database.part(open_):
                    if act == 0:
                        name = rng.choice(["small", "large", None])
                        price, claim = rng.uniform(-1, 1), rng.choice([None, rng.random()])
                        auctions.award(open_, row(id_, turn, name, price, claim), [ASKED], now)
                    elif act == 1:
                        auctions.deliver(open_, id_, turn)
                    elif act == 2:
                        auctions.stall(open_, id_, turn, now, forfeit=0.1)
                    elif act == 3:
                        auctions.settle(open_, id_, rng.random(), now)
                    else:
                        auctions.recover(open_, now - 100.0, now)
            except UsageError:
                pass
        found = auctions.balances(open_)
        assert sum(round(amount * money.UNIT) for amount in found.values()) == 0
        assert found == pytest.approx(totals(open_))
        assert all(amount >= 0 for account, amount in found.items() if account.startswith("deposit"))
        delivered = open_.rows("SELECT count(*) FROM market_auctions WHERE status = 'delivered'")[0][0]
        assert delivered > 0


@pytest.mark.parametrize("amount", [float("nan"), float("inf"), 2e6])
def test_amounts_that_are_none_are_refused(amount):
    with pytest.raises(UsageError, match="below a million"):
        auctions.units(amount)


def test_old_auctions_go_and_balances_stay(database):
    with database.transaction() as open_:
        for id_, at in (("old", 10.0), ("open", 10.0), ("new", 100.0)):
            auctions.award(open_, replace(row(id_), at=at), [ASKED], at)
            if id_ != "open":
                auctions.deliver(open_, id_, 0)
                auctions.settle(open_, id_, 0.9, at)
        before = auctions.balances(open_), auctions.scores(open_)
        assert auctions.prune(open_, 50.0) == 1
        assert (auctions.balances(open_), auctions.scores(open_)) == before
        assert [found.id for found in auctions.newest(open_, 0.0, 200.0, 10)] == ["new", "open"]
        assert auctions.entries(open_, "old") == []
        assert [entry[0] for entry in auctions.entries(open_, "new")] == ["price 0", "reward"]


def test_clients_cannot_make_ever_more_kinds_of_reputation(database, monkeypatch):
    monkeypatch.setattr(auctions, "MOST_KINDS", 3)
    with database.transaction() as open_:
        for i in range(6):
            auctions.award(open_, replace(row(f"a{i}"), kind=f"kind {i}"), [ASKED], 11.0)
            auctions.deliver(open_, f"a{i}", 0)
            auctions.settle(open_, f"a{i}", 0.5, 12.0)
        found = {score.kind: score.graded for score in auctions.scores(open_)}
        assert found == {"kind 0": 1, "kind 1": 1, "kind 2": 1, "": 3}


def _win(url, worker, begin):
    """One platform process that awards auctions to the same bidder as the others, as fast as it can."""
    open_database = connect(url)
    begin.wait()
    for i in range(20):
        with open_database.transaction() as open_:
            auctions.award(open_, row(id_=f"{worker}-{i}", price=0.3), [ASKED], 11.0, funded=True)
    open_database.close()


def test_racing_platforms_award_a_bidder_no_more_than_it_can_pay(url, database):
    """A deposit of 5 pays for 16 auctions at 0.3, in whichever order four processes award 80 of them."""
    with database.transaction() as open_:
        auctions.join(open_, "small", "http://127.0.0.1:1", 1.0, stake=5.0)
    spawn = multiprocessing.get_context("spawn")
    begin = spawn.Barrier(4)
    platforms = [spawn.Process(target=_win, args=(url, worker, begin)) for worker in range(4)]
    for platform in platforms:
        platform.start()
    for platform in platforms:
        platform.join(120)
        assert platform.exitcode == 0
    with database.transaction() as open_:
        assert open_.rows("SELECT count(*) FROM market_auctions") == [(16,)]
        assert auctions.balances(open_)["bidder small"] == pytest.approx(-4.8)
        assert auctions.funds(open_, "small") == auctions.units(0.2)

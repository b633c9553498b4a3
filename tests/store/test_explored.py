"""What learning costs: requests that were asked for what they teach, and labels."""

from __future__ import annotations

from dataclasses import replace

from pandora_router.store import budgets, log
from pandora_router.store.database import Database, connect
from pandora_router.store.explored import Explored, charge_labels, explored, labels_cost, ratings, set_aside
from pandora_router.store.migrations import migrate
from pandora_router.store.rows import Attempt, Feedback, Outcome, Settlement
from tests.store.test_laws import EVERYBODY, NOW, opened


def test_what_may_be_spent_follows_the_store(url: str) -> None:
    """Calls under way count with their estimate, those of last month not at all; ratings of a week."""
    database = connect(url)
    migrate(database)
    now = 1_750_000_000.0
    with database.transaction() as open_:
        for i, (at, mode) in enumerate(
            [(now, "explore"), (now, "explore"), (now, "route"), (0.0, "explore")]
        ):
            log.begin(
                open_,
                replace(opened(f"d{i}", at=at), mode=mode),
                [Attempt(f"a{i}", f"d{i}", "answer", "small", at, 7)],
            )
        log.settle(open_, Settlement("a0", Outcome("ok", 5), now))
        log.close(open_, "d0", now, status="ok")
        for n, i in enumerate((0, 0, 2)):  # one decision is rated twice
            log.give_feedback(open_, Feedback(f"f{n}", f"d{i}", now, "reward", 1.0), None)
        assert explored(open_, "reward", now - 100.0) == Explored(2, 5 + 7, 1)
        assert ratings(open_, "reward", now - 100.0) == (2, 1)  # requests count when they end
    database.close()


def test_labels_count_against_the_budget_of_all_once_however_their_command_ends(database: Database) -> None:
    """EVERYBODY may spend 2,000. What a killed command bought is charged by the next one for its journal."""
    with database.transaction() as open_:
        assert budgets.reserve(open_, None, "d1", 600, NOW, 60.0, (EVERYBODY,)) is None
        assert set_aside(open_, EVERYBODY, "a.journal", 1000, 0, NOW) == 1000
        assert budgets.account(open_, EVERYBODY, NOW) == (0, 1600)
        refused = budgets.reserve(open_, None, "d2", 401, NOW, 60.0, (EVERYBODY,))
        assert refused is not None
        assert "all requests" in refused.message
    with database.transaction() as open_:  # killed after 250 were bought: nobody has charged them
        assert set_aside(open_, EVERYBODY, "a.journal", 5000, 250, NOW + 9.0) == 2000 - 600 - 250
        assert budgets.account(open_, EVERYBODY, NOW) == (250, 1750)
        charge_labels(open_, EVERYBODY, "a.journal", 900, NOW + 20.0)
        charge_labels(open_, EVERYBODY, "a.journal", 900, NOW + 30.0)
        assert budgets.account(open_, EVERYBODY, NOW) == (900, 600)
        assert labels_cost(open_, EVERYBODY, NOW) == 900
        assert set_aside(open_, EVERYBODY, "b.journal", 700, 0, NOW) == 500  # another journal, what is left
        assert set_aside(open_, EVERYBODY, "c.journal", 700, 0, NOW) == 0
        cost, _, recent, _ = budgets.traffic(open_, EVERYBODY, NOW + 40.0)
        assert (cost, recent) == (900, 1)  # labels are money, but no traffic to expect more of
        assert labels_cost(open_, EVERYBODY, NOW + 40 * 86_400.0) == 0  # the next month
        assert open_.rows("SELECT count(*) FROM leases WHERE closed_at IS NULL") == [(2,)]

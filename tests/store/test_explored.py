"""What requests cost that were asked for what they teach."""

from __future__ import annotations

from dataclasses import replace

from pandora_router.store import log
from pandora_router.store.database import connect
from pandora_router.store.explored import Explored, explored, ratings
from pandora_router.store.migrations import migrate
from pandora_router.store.rows import Attempt, Feedback, Outcome, Settlement
from tests.store.test_laws import opened


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

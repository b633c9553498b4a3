"""A specialist without any score: how it begins, what a lesson is worth, what ratings make of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pandora_router import Never, Router
from pandora_router.data import Table
from pandora_router.errors import UsageError
from pandora_router.learn.exploration import Exploration
from pandora_router.learn.refit import refit
from tests.learn.test_refit import only
from tests.support.command import pandora
from tests.support.routers import QUICK
from tests.support.tables import generate

WHOLE = generate(n=160, m=4, seed=1)
"""The last specialist is the newcomer."""


def without_the_last(table: Table) -> Table:
    """The table without its last specialist."""
    kept = {name: getattr(table, name)[:, :-1] for name in ("score", "fee")}
    contexts = None if table.contexts is None else table.contexts[:, :-1]
    return replace(table, specialists=table.specialists[:-1], contexts=contexts, **kept)


@pytest.fixture(scope="module")
def before() -> Router:
    return Router.fit(without_the_last(WHOLE), costly=QUICK, policy=Never())


@pytest.fixture(scope="module")
def grown(before: Router) -> Router:
    return before.add_unscored(WHOLE.specialists[-1], float(WHOLE.fee[:, -1].mean()))


def test_others_stay_as_they_are_and_the_newcomer_is_an_average_colleague(
    before: Router, grown: Router
) -> None:
    fresh = generate(n=80, m=4, seed=2)
    estimates, old = grown.cheap.predict(fresh.prompts), before.cheap.predict(fresh.prompts)
    assert estimates[:, :-1] == pytest.approx(old, abs=1e-12)
    scores = estimates + grown.fee_weight * grown.fees
    assert scores[:, -1] == pytest.approx(scores[:, :-1].mean(axis=1), abs=0.2)
    assert scores[:, -1].mean() == pytest.approx(scores[:, :-1].mean(), abs=0.03)
    decisions = grown.route_batch(fresh.prompts)
    for new, known in zip(decisions, before.route_batch(fresh.prompts), strict=True):
        assert [new.worth[name] for name in before.specialists] == pytest.approx(list(known.worth.values()))
    dear = before.add_unscored("dear", float(grown.fees.mean()) + 10.0 / max(grown.fee_weight, 1e-9))
    assert all(decision.specialist != "dear" for decision in dear.route_batch(fresh.prompts))


def test_a_lesson_about_a_newcomer_is_worth_more_than_one_about_a_colleague(grown: Router) -> None:
    known = Exploration.of(grown.cheap)
    phi, worth = known.features[0], np.array([0.5, 0.48, 0.48, 0.48])
    lesson = known.lesson(phi, worth, ratings=2000.0)
    assert lesson is not None
    assert lesson.column == 3
    again = known
    for _ in range(400):  # its lesson is learnt
        again = again.expecting(phi, 3, 1.0)
    later = again.lesson(phi, worth, ratings=2000.0)
    assert later is None or later.worth < lesson.worth


def test_ratings_teach_what_a_newcomer_is_good_at(grown: Router) -> None:
    def counter(table: Table) -> Table:
        """The table with a newcomer that counts well and tells nothing."""
        score = table.score.copy()
        score[:, 3] = np.array(table.tasks) == "count"
        return replace(table, score=score)

    traffic, held = (counter(generate(n=n, m=4, seed=seed)) for n, seed in ((600, 4), (200, 5)))
    column = np.where(np.arange(600) % 3 == 0, 3, np.arange(600) % 4)
    learnt = refit(grown, only(traffic, column)).router
    assert learnt.specialists == grown.specialists
    counts = np.array(held.tasks) == "count"
    before, after = (router.cheap.predict(held.prompts)[:, 3] for router in (grown, learnt))
    assert before[counts].mean() == pytest.approx(before[~counts].mean(), abs=0.1)
    assert after[counts].mean() > after[~counts].mean() + 0.6
    poets = [decision.specialist == "poet" for decision in learnt.route_batch(held.prompts)]
    assert (np.array(poets) == counts).mean() > 0.9
    again = refit(learnt, only(traffic, column)).router  # from the same log: nothing counts twice
    assert again.cheap.predict(held.prompts) == pytest.approx(learnt.cheap.predict(held.prompts), abs=1e-9)


def test_prompts_that_only_the_newcomer_answered_teach_nothing_about_neighbours(grown: Router) -> None:
    traffic = generate(n=50, m=4, seed=6)
    learnt = refit(grown, only(traffic, np.full(50, 3))).router
    assert len(learnt.cheap.base.after.reward) == len(learnt.cheap.base.before.reward)  # type: ignore[attr-defined]


def test_the_command_adds_it_and_a_second_one_and_the_folder_is_read_again(
    before: Router, tmp_path: Path
) -> None:
    before.save(tmp_path / "router")
    words = ("add", "poet", "--fee", "0.01", "-r", tmp_path / "router", "-o", tmp_path / "grown")
    done = pandora(*words)
    assert done.exit_code == 0, done.output
    assert "average colleague" in done.output
    loaded = Router.load(tmp_path / "grown")
    assert loaded.specialists == (*before.specialists, "poet")
    prompts = WHOLE.prompts[:20]
    twice = loaded.add_unscored("painter", 0.02)
    twice.save(tmp_path / "twice")
    expected = twice.cheap.predict(prompts)
    assert Router.load(tmp_path / "twice").cheap.predict(prompts) == pytest.approx(expected, abs=1e-12)
    assert expected.shape == (20, 5)
    with pytest.raises(UsageError, match="a new name"):
        twice.add_unscored("poet", 0.01)
    with pytest.raises(UsageError, match="zero or more"):
        twice.add_unscored("other", -1.0)
    refused = pandora("add", "x", "--fee-column", "usd", "-r", tmp_path / "router", "-o", tmp_path / "no")
    assert refused.exit_code == 2
    assert "--fee" in refused.stderr

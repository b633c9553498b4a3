"""Traffic that was logged comes out as the files and tables it would have been written as."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pandora_router.errors import UsageError
from pandora_router.gateway.generation import LearningRules
from pandora_router.gateway.http.learner import usual_delay
from pandora_router.router.decision import BoxStatus, Decision, Estimates, Prices, Purchase, PurchaseStatus
from pandora_router.search import Select, Trace
from pandora_router.store import explored, export, log
from pandora_router.store.database import connect
from pandora_router.store.migrations import migrate
from pandora_router.store.rows import Attempt, Feedback, Outcome, Settlement
from tests.store.test_laws import NOW, opened


def test_the_log_becomes_parquet_and_a_routing_table(url: str, tmp_path: Path) -> None:
    database = connect(url)
    migrate(database)
    looks = [{"specialists": ["small"], "cost": 0.1}]
    with database.transaction() as open_:
        for i, (prompt, name) in enumerate([("one", "small"), ("two", "large"), ("one", "large")]):
            row = replace(
                opened(f"d{i}", at=NOW + i), specialist=name, randomised=True, propensity=0.25, worth=0.5,
                detail={"decision": {"purchases": looks}} if i == 0 else {},
            )  # fmt: skip
            log.begin(open_, row, [Attempt(f"a{i}", row.id, "answer", name, NOW, 1)], prompt=prompt)
            log.attempt(open_, Attempt(f"l{i}", row.id, "loser", "other", NOW, 1))
            log.settle(open_, Settlement(f"a{i}", Outcome("ok", 2_000_000_000), NOW))
            log.settle(open_, Settlement(f"l{i}", Outcome("cancelled", 500_000_000), NOW))
            log.close(open_, row.id, NOW, status="ok", specialist="spare" if i == 1 else None)
        for k, (i, value) in enumerate([(0, 0.0), (0, 1.0), (2, 0.5)]):
            log.give_feedback(open_, Feedback(f"f{k}", f"d{i}", NOW + k, "reward", value), None)
        log.give_feedback(
            open_, Feedback("x", "d1", NOW, "another metric", 9.0, comment="so", correction="2"), None
        )
        table = export.routing_table(open_, "reward", NOW, NOW + 10)
        assert table.prompts == ("one",)
        assert table.specialists == ("large", "small")
        np.testing.assert_array_equal(table.score, [[0.5, 1.0]])
        np.testing.assert_array_equal(table.fee, [[2.0, 2.0]])
        few = export.routing_table(open_, "reward", NOW, NOW + 10, lambda given: given[None] - 1)
        assert np.isfinite(few.score).sum() == 1  # one of the two rated decisions of the only key
        with pytest.raises(UsageError, match="feedback"):
            export.routing_table(open_, "nothing", NOW, NOW + 10)
        assert export.write_parquet(open_, tmp_path / "log.parquet", NOW, NOW + 2) == 2
        with pytest.raises(UsageError, match="exists"):
            export.write_parquet(open_, tmp_path / "log.parquet", NOW, NOW + 2)
        assert export.write_parquet(open_, tmp_path / "empty.parquet", 0.0, 1.0) == 0
    rows = pq.read_table(tmp_path / "log.parquet").to_pylist()
    assert [row["id"] for row in rows] == ["d0", "d1"]
    assert rows[0]["cost"] == 2.5
    named = [(row["asked"], row["specialist"], row["propensity"], row["randomised"]) for row in rows]
    assert named == [("small", "small", 0.25, 1), ("large", "spare", 0.25, 0)]
    assert [(row["worth"], row["generation"]) for row in rows] == [(0.5, 1)] * 2
    assert [row["fixed"] for row in rows] == ["", "failed over"]
    assert [json.loads(row["feedback"]) for row in rows] == [{"reward": 1.0}, {"another metric": 9.0}]
    assert [json.loads(row["remarks"]) for row in rows] == [[], [{"comment": "so", "correction": "2"}]]
    assert [json.loads(row["looks"]) for row in rows] == [[{"specialists": ["small"], "cost": 0.1}], []]
    assert sorted(path.name for path in tmp_path.glob("*log*")) == ["log.parquet"]
    database.close()


def bought(shown: dict[str, float | None], means: tuple[float, ...] = ()) -> dict[str, object]:
    """A decision between a, b and c, each worth 0.5 at first, after a look at those in `shown`."""
    sealed = np.full(3, 0.5)
    status = (BoxStatus.OPENED,) * 3
    purchase = Purchase(
        *(tuple(shown), tuple(shown.values()), tuple(shown.values()), 0.1, 0.01, 0.2),
        PurchaseStatus.ARRIVED, means=means,
    )  # fmt: skip
    decision = Decision(
        *("id", datetime.fromtimestamp(NOW, UTC), "a", Trace((Select(0),), (), 0.01), (purchase,)),
        Estimates(("a", "b", "c"), sealed, sealed, sealed, status),
        Prices(sealed, sealed, sealed, sealed), "policy", "artifact", 0.1, worth=dict.fromkeys("abc", 0.5),
    )  # fmt: skip
    return decision.to_dict()


def test_the_news_of_looks_is_what_they_changed_in_the_last_decision_that_had_some(url: str) -> None:
    database = connect(url)
    migrate(database)
    alone = bought({"a": 0.75, "c": None})
    together = bought({"b": 0.0}, means=(0.1, 0.9, 0.3))
    with database.transaction() as open_:
        for i, (prompt, decision) in enumerate([("p", together), ("p", alone), ("p", None), ("q", together)]):
            looks, detail = (0, {}) if decision is None else (1, {"decision": decision})
            row = replace(opened(f"d{i}", at=NOW + i), inspected=looks, detail=detail)
            log.begin(open_, row, [], prompt=prompt)
        found = export.news_of_looks(open_, ("q", "p", "x"), ("b", "a", "new"), NOW, NOW + 10)
    database.close()
    expected = [[0.4, np.nan, np.nan], [np.nan, 0.25, np.nan], [np.nan] * 3]
    np.testing.assert_allclose(found, expected)


def test_a_surprise_is_the_last_rating_of_the_specialist_that_was_asked(url: str) -> None:
    database = connect(url)
    migrate(database)
    with database.transaction() as open_:
        for i, answered in enumerate(["small", "spare"]):  # the second answer is that of another specialist
            row = replace(opened(f"d{i}", at=NOW + i), specialist="small", asked="small", worth=0.5)
            log.begin(open_, row, [Attempt(f"a{i}", row.id, "answer", answered, NOW, 1)], prompt="p")
            log.settle(open_, Settlement(f"a{i}", Outcome("ok", 0), NOW))
            log.close(open_, row.id, NOW, status="ok", specialist=answered)
            for k, value in enumerate([0.0, 1.0]):
                log.give_feedback(open_, Feedback(f"f{i}{k}", row.id, NOW + k, "reward", value), None)
        assert export.surprises(open_, "reward", NOW, NOW + 10) == {"small": [0.5]}
    database.close()


def test_how_late_ratings_come_is_measured_from_the_first_rating_of_each_decision(url: str) -> None:
    database = connect(url)
    migrate(database)
    rng, late = np.random.default_rng(0), []
    with database.transaction() as open_:
        assert explored.delay(open_, "reward") == explored.Delay(0)
        for i in range(40):
            log.begin(open_, opened(f"d{i}", at=NOW + i))
            late.append(float(rng.exponential(100.0)))
            for k, after in enumerate((late[-1], late[-1] + 500.0)):  # rated again: the first one counts
                log.give_feedback(open_, Feedback(f"f{i} {k}", f"d{i}", NOW + i + after, "reward", 1.0), None)
        found = explored.delay(open_, "reward")
        rules = LearningRules()
        assert usual_delay(open_, rules) == found.most > 60.0
        assert usual_delay(open_, replace(rules, metric="other")) == 60.0
        assert usual_delay(open_, replace(rules, delay=5.0)) == 5.0
    database.close()
    assert found.ratings == 40
    expected = np.quantile(late, [0.5, 0.95], method="inverted_cdf")
    assert (found.half, found.most) == pytest.approx(tuple(expected), abs=1e-3)

"""Promises of goals on live requests: intervals that cover; the same in the terminal and on the page."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import binomtest

from pandora_router.cli.main import main
from pandora_router.config import read_config
from pandora_router.config.worth import promises
from pandora_router.dashboard.page_request import ROOT
from pandora_router.store.database import Transaction
from pandora_router.store.log import give_feedback
from pandora_router.store.promises import Promise, Watched, _kept, watched
from pandora_router.store.rows import Feedback
from pandora_router.store.worker import Store
from pandora_router.types import Until
from tests.dashboard.conftest import Running
from tests.support.traffic import NAMES, fill

UNTIL: tuple[Until, ...] = ("first_token", "last_byte")
KEEP, FAST = Promise("", 0.9, "large"), Promise("", 0.95, seconds=6.0)
FILE = (
    "goal: {keep: 0.9, of: large, latency: {p95: 6.0}}\n"
    'endpoints: {here: {base_url: "http://127.0.0.1:9/v1"}}\nspecialists:\n'
    + "".join(f"  {n}: {{kind: chat, endpoint: here, model: m, prices: {{call: 0.01}}}}\n" for n in NAMES)
    + "serve: {store: log.sqlite, profiles: {quick: {latency: {p50: 0.5}}, "
    "early: {latency: {p90: 2.0, until: first_token}}}}\n"
)


EARLY = "90% within 2 s to the first token (auto@early)"


@pytest.fixture
def log(tmp_path: Path) -> Store:
    """400 requests of the last hour, all rated; half of them asked for auto@quick."""
    store, now = Store(str(tmp_path / "log.sqlite")), time.time()

    def write(open_: Transaction) -> None:
        fill(open_, 400, now - 3600.0, now, feedback=1.0)
        open_.run("UPDATE decisions SET worth = 0.5 WHERE declined IS NULL")
        for at, (id_, detail) in enumerate(open_.rows("SELECT id, detail FROM decisions ORDER BY id")):
            model = {"model": "auto@quick" if at % 2 else "gpt-4"}
            changed = json.dumps(json.loads(str(detail)) | model)
            open_.run("UPDATE decisions SET detail = ? WHERE id = ?", changed, id_)

    store.submit(write).result()
    return store


def detail(expected: float) -> dict[str, Any]:
    """A decision that expected this score of `large`."""
    known = {"specialists": {"large": {"mean": expected - 0.1}}}
    return {"decision": known, "value": {"deducted": {"large": 0.1}}}


def level(log: Store) -> float:
    """Mean score that was expected of `large` on rated requests for auto."""
    rows = log.submit(
        lambda open_: open_.rows(
            "SELECT detail FROM decisions WHERE status = 'ok' AND declined IS NULL "
            "AND id IN (SELECT decision FROM feedback)"
        )
    ).result()
    made = [json.loads(str(row[0])) for row in rows]
    plain = [one for one in made if one["model"] == "gpt-4"]
    return float(
        np.mean(
            [
                one["decision"]["specialists"]["large"]["mean"] + one["value"]["deducted"]["large"]
                for one in plain
            ]
        )
    )


def test_the_interval_of_what_is_kept_covers_the_truth() -> None:
    """Ratings of 0 and 1 with 0.8 of the chance that is expected of the specialist, in 600 simulated logs."""
    rng, covered = np.random.default_rng(3), 0
    for _ in range(600):
        expected = rng.uniform(0.3, 1.0, 150)
        rating = rng.random(150) < 0.8 * expected
        rows = [
            ("small", None, detail(e), float(r))
            for e, r in zip(expected.tolist(), rating.tolist(), strict=True)
        ]
        one = _kept(KEEP, rows)
        assert one.low is not None
        assert one.high is not None
        covered += one.low <= 0.8 <= one.high
    assert covered / 600 == pytest.approx(0.95, abs=0.03)


def test_promises_are_held_against_the_rows_of_the_log(log: Store) -> None:
    kept, fast, quick = log.submit(
        lambda open_: watched(open_, (KEEP, FAST, Promise("quick", 0.5, seconds=0.5)), "reward", 0.0)
    ).result()
    rows = log.submit(
        lambda open_: open_.rows(
            "SELECT d.specialist, d.seconds, d.detail, f.value FROM decisions d LEFT JOIN feedback f "
            "ON f.decision = d.id AND f.metric = 'reward' WHERE d.status = 'ok' AND d.declined IS NULL"
        )
    ).result()
    plain = [row for row in rows if json.loads(row[2])["model"] == "gpt-4"]
    assert (fast.requests, quick.requests) == (len(plain), len(rows) - len(plain))
    assert fast.reached == pytest.approx(np.mean([row[1] <= 6.0 for row in plain]))
    wilson = binomtest(sum(row[1] <= 6.0 for row in plain), len(plain)).proportion_ci(method="wilson")
    assert (fast.low, fast.high) == pytest.approx((wilson.low, wilson.high), abs=1e-4)
    assert quick.verdict == "broken"  # nobody answers half of the requests within half a second
    rated = [(row[0], json.loads(row[2]), row[3]) for row in plain if row[3] is not None]
    large = [
        made["decision"]["specialists"]["large"]["mean"] + made["value"]["deducted"]["large"]
        for _, made, _ in rated
    ]
    assert kept.requests == len(rated)
    assert kept.reached == pytest.approx(np.mean([value for *_, value in rated]) / np.mean(large))
    assert kept.own_requests == sum(name == "large" for name, *_ in rated)
    assert "rated answers" in kept.basis


def test_a_promise_about_the_first_token_is_held_against_its_seconds(log: Store) -> None:
    begun, whole = (Promise("quick", 0.5, seconds=0.5, until=what) for what in UNTIL)
    found = log.submit(lambda open_: watched(open_, (begun, whole), "reward", 0.0)).result()
    rows = log.submit(
        lambda open_: open_.rows(
            "SELECT first_token, seconds, detail FROM decisions WHERE status = 'ok' AND declined IS NULL"
        )
    ).result()
    times = np.array([row[:2] for row in rows if json.loads(row[2])["model"] == "auto@quick"], dtype=float)
    assert [one.reached for one in found] == pytest.approx((times <= 0.5).mean(axis=0).tolist())
    assert found[0].reached > 0.3 > found[1].reached  # type: ignore[operator]
    assert begun.text == "50% within 0.5 s to the first token (auto@quick)"


def test_equal_ratings_are_not_taken_for_certainty() -> None:
    """47 right answers of 47: the exact lower bound of their share is 0.925, above 0.95 x 0.96 = 0.91."""
    rows = [("small", None, detail(0.96), 1.0)] * 47
    one = _kept(KEEP, rows)
    exact = binomtest(47, 47).proportion_ci().low / 0.96
    assert one.low == pytest.approx(exact, abs=0.03)
    assert one.reached == pytest.approx(1.0 / 0.96)


def test_right_and_wrong_answers_have_mirrored_intervals() -> None:
    """Beside a specialist that is always right the share is the rate of right answers: neither side gains."""
    for right in (40, 24):
        made = [1.0] * right + [0.0] * (47 - right)
        one, other = (
            _kept(KEEP, [("small", None, detail(1.0), value) for value in ratings])
            for ratings in (made, [1.0 - value for value in made])
        )
        assert (one.low, one.high) == pytest.approx((1.0 - (other.high or 0.0), 1.0 - (other.low or 0.0)))


@pytest.mark.parametrize(
    ("reached", "low", "high", "said"),
    [
        (0.93, 0.91, 0.95, "holds"),
        (0.93, 0.89, 0.95, "not sure yet"),
        (0.88, 0.85, 0.92, "below, not sure yet"),
        (0.85, 0.82, 0.89, "broken"),
    ],
)
def test_a_promise_holds_or_is_broken_where_the_whole_interval_says_so(
    reached: float, low: float, high: float, said: str
) -> None:
    assert Watched(KEEP, 100, reached, low, high).verdict == said


def test_the_last_rating_of_a_request_counts(log: Store) -> None:
    """Everybody changes their mind: the second ratings are the opposite of the first ones."""

    def reconsider(open_: Transaction) -> None:
        for id_, decision, at, value in open_.rows("SELECT id, decision, at, value FROM feedback"):
            changed = Feedback(f"{id_}-again", str(decision), at + 1.0, "reward", 1.0 - value)
            give_feedback(open_, changed, None)

    (first,) = log.submit(lambda open_: watched(open_, (KEEP,), "reward", 0.0)).result()
    log.submit(reconsider).result()
    (second,) = log.submit(lambda open_: watched(open_, (KEEP,), "reward", 0.0)).result()
    assert first.requests == second.requests
    right = first.reached * level(log)  # type: ignore[operator]
    assert second.reached == pytest.approx((1.0 - right) / level(log))
    assert second.reached != pytest.approx(first.reached, abs=0.01)


def test_few_requests_say_nothing(log: Store) -> None:
    (one,) = log.submit(lambda open_: watched(open_, (KEEP,), "another metric", 0.0)).result()
    assert (one.requests, one.verdict) == (0, "not known: 0 of 20 rated requests")


def test_the_terminal_and_the_page_show_them(
    log: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pandora.yaml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(main, ["log", "status"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    for words in ("keep 90% of large", "95% within 6 s", "50% within 0.5 s (auto@quick)", "broken", EARLY):
        assert words in shown.stdout
    facts = CliRunner().invoke(main, ["log", "status", "--json"]).stdout.splitlines()
    assert [json.loads(line)["verdict"] for line in facts][-2] == "broken"
    promised = promises(read_config(tmp_path / "pandora.yaml"))
    assert [one.text for one in promised][-2:] == ["50% within 0.5 s (auto@quick)", EARLY]
    running = Running(tmp_path / "log.sqlite", promises=promised)
    text = running.ask(f"{ROOT}?csv=promises").text
    running.close()
    assert "keep 90% of large" in text
    assert "broken" in text

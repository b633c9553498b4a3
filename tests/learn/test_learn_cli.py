"""`pandora learn` on a log that holds what a gateway writes."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from pandora_router import Never, Router
from pandora_router.cli.learn import standing_lines
from pandora_router.cli.main import main
from pandora_router.learn.evidence import Evidence
from pandora_router.store import log, versions
from pandora_router.store.database import connect
from pandora_router.store.migrations import migrate
from pandora_router.store.rows import Attempt, Feedback, LiveTrial, Outcome, Settlement
from tests.store.test_laws import opened
from tests.support.disputes import router
from tests.support.routers import QUICK
from tests.support.tables import generate

WORTH = 0.5
"""Dollars of a right answer in the log."""


def pandora(*words: str | Path) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a router and the log of 900 rated requests; `small` gets worse after 500 of its own."""
    folder = tmp_path_factory.mktemp("learn")
    table, now = generate(n=900, seed=2), time.time() - 3600.0
    Router.fit(generate(n=120, seed=1), costly=QUICK, policy=Never()).save(folder / "router")
    rng = np.random.default_rng(0)
    database = connect(str(folder / "pandora.sqlite"))
    migrate(database)
    with database.transaction() as open_:
        for i, prompt in enumerate(table.prompts):
            name = "small" if i % 9 else "large"
            chance = 0.7 if i < 560 or name == "large" else 0.3
            score = float(rng.random() < chance)
            shown = {"small": 0.6, "large": 0.6, name: 0.6 + 0.3 * (score - chance)}
            look = {"specialists": list(shown), "values": list(shown.values())}
            means = {one: {"mean": 0.6} for one in shown}
            seen = {"specialists": means, "purchases": [look] if i % 2 else []}
            row = replace(
                opened(f"d{i}", at=now + i), specialist=name, asked=name, worth=0.6,
                detail={"value": {"right_answer": WORTH}, "decision": seen},
            )  # fmt: skip
            log.begin(open_, row, [Attempt(f"a{i}", row.id, "answer", name, now, 1)], prompt=prompt)
            log.settle(open_, Settlement(f"a{i}", Outcome("ok", 50_000_000), now))
            log.close(open_, row.id, now, status="ok")
            log.give_feedback(open_, Feedback(f"f{i}", row.id, now, "reward", score), None)
    database.close()
    return folder


def test_status_names_the_specialist_that_changed(place: Path) -> None:
    asked = ("learn", "status", "--store", place / "pandora.sqlite")
    found = json.loads(pandora(*asked, "--json").stdout)
    assert found["small"]["answers"] == 800
    assert 500 < found["small"]["alarm"] < 800
    assert found["small"]["recent"] == pytest.approx(-0.4, abs=0.1)
    assert found["large"]["alarm"] is None
    assert found["large"]["level"] == pytest.approx(0.7 - 0.05 / WORTH - 0.6, abs=0.15)
    shown = pandora(*asked).stdout
    assert "changed, noticed after" in shown
    assert "300 ratings are needed" in shown
    large = next(line.split("│") for line in shown.splitlines() if "large" in line)
    expected = np.mean(rewards(place)["large"]) - 0.05 / WORTH - 0.6  # what was expected is 0.6
    assert float(large[4]) == pytest.approx(expected, abs=0.001)
    assert "Of the newest 900 ratings half came within" in shown
    assert "No answer" in pandora(*asked, "--metric", "nothing").stdout


def rewards(place: Path) -> dict[str, list[float]]:
    """The ratings in the log, by who was asked."""
    database = connect(str(place / "pandora.sqlite"))
    with database.transaction() as open_:
        rows = open_.rows(
            "SELECT d.specialist, f.value FROM feedback f JOIN decisions d ON d.id = f.decision"
        )
    database.close()
    return {name: [value for who, value in rows if who == name] for name in ("small", "large")}


def test_refit_writes_a_router_that_knows_the_requests(place: Path) -> None:
    made = pandora(
        "learn", "refit", "-r", place / "router", "-o", place / "b", "--store", place / "pandora.sqlite"
    )
    assert made.exit_code == 0, made.output
    assert "900 ratings of 900 requests learnt" in made.stdout
    lines = [line.split("│") for line in made.stdout.splitlines() if "│" in line]
    shown = {line[1].strip(): [float(cell) for cell in line[2:5]] for line in lines}
    before, after = Router.load(place / "router"), Router.load(place / "b")
    facts = after.record.learnt
    assert (facts["parent"], facts["metric"], facts["ratings"]) == (before.id, "reward", 900)
    assert facts["looks"]["requests"] == 450  # both were looked at for every second request
    assert facts["looks"]["slope"] > 1.0  # these looks say 0.3 of what they know
    assert facts["since"] < facts["until"] <= time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    rated = rewards(place)
    for name, given in rated.items():
        many, mean, expected = shown[name]
        assert (many, mean) == (len(given), pytest.approx(np.mean(given), abs=0.001))
        assert facts["specialists"][name] == [
            many,
            pytest.approx(mean, abs=0.001),
            pytest.approx(expected, abs=0.001),
        ]
    prompts = generate(n=900, seed=2).prompts[::7]
    apart = np.mean([before.route(one).specialist != after.route(one).specialist for one in prompts])
    assert facts["disputed"] == pytest.approx(apart, abs=0.15)  # of others among the same requests
    assert 0.0 < facts["disputed"] < 1.0
    assert f"another specialist for {facts['disputed']:.0%}" in made.stdout
    assert len(after.cheap.after.reward) == len(before.cheap.reward) + 900  # type: ignore[attr-defined]
    again = pandora(
        "learn", "refit", "-r", place / "router", "-o", place / "b", "--store", place / "pandora.sqlite"
    )
    assert again.exit_code == 2
    assert "--replace" in again.output


def test_a_candidate_is_promoted_and_taken_back_by_hand(tmp_path: Path) -> None:
    router("large").save(tmp_path / "router")
    router("small").save(tmp_path / "b")
    store = ("--store", tmp_path / "store.sqlite")
    database = connect(str(tmp_path / "store.sqlite"))
    migrate(database)
    serving = ("-r", tmp_path / "router")
    assert "another router than" in pandora("learn", "trial", tmp_path / "router", *serving, *store).output
    assert "No trial is running" in pandora("learn", "trial", "--stop", *store).stdout
    assert "a running trial" in pandora("learn", "promote", *store).output
    assert pandora("learn", "trial", tmp_path / "b", *serving, *store).exit_code == 0
    assert "no other is running" in pandora("learn", "trial", tmp_path / "b", *serving, *store).output
    assert "The candidate" in pandora("learn", "status", *store).stdout
    assert pandora("learn", "promote", *store).exit_code == 0
    with database.transaction() as open_:
        lineup = versions.lineup(open_)
    assert lineup.version is not None
    assert lineup.trial is not None
    assert (lineup.version.artifact, lineup.trial.artifact) == (router("small").id, router("large").id)
    assert pandora("learn", "rollback", *store).exit_code == 0
    with database.transaction() as open_:
        lineup = versions.lineup(open_)
    assert lineup.version is not None
    assert (lineup.version.artifact, lineup.trial) == (router("large").id, None)
    assert pandora("learn", "rollback", *store).exit_code == 2
    database.close()


@pytest.mark.parametrize(("worth", "said"), [(0.002, "each, +$0.25 per 1,000"), (None, "each. Evidence")])
def test_what_a_trial_shows_is_said_in_money_where_money_counts(worth: float | None, said: str) -> None:
    trial = LiveTrial("t", "/b", "B", "/a", "A", "A", "veto", 0.5, False, 0.0)
    state = Evidence.start().after(0.5).after(-0.25).to_dict()
    assert said in " ".join(standing_lines([], [(trial, None, None, state)], worth))
    worse = Evidence.start().after(-0.25).after(0.0).to_dict()
    assert "each, -$0.25" in " ".join(standing_lines([], [(trial, None, None, worse)], 0.002))

"""`pandora add`: a specialist from a file of scored prompts, as a user types it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from pandora_router.router import Router
from tests.support import routers
from tests.support.command import pandora
from tests.support.tables import generate

WHOLE = generate(m=4)  # the fourth specialist is the newcomer
HELD = WHOLE.in_split("test")


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    path = tmp_path / "scores.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["prompt", "score", "usd"])
        for i, prompt in enumerate(HELD.prompts):
            writer.writerow([prompt, "" if i == 3 else HELD.score[i, 3], HELD.fee[i, 3]])
    return path


def test_a_specialist_is_added_as_in_python(scores: Path, tmp_path: Path) -> None:
    base = routers.fitted()
    base.save(tmp_path / "router")
    words = ("add", "poet", scores, "-r", tmp_path / "router")
    done = pandora(*words, "--fee-column", "usd", "-o", tmp_path / "grown", "--json")
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert (facts["specialist"], facts["prompts"]) == ("poet", len(HELD) - 1)
    grown = Router.load(tmp_path / "grown")
    score = [float("nan") if i == 3 else float(x) for i, x in enumerate(HELD.score[:, 3])]
    wanted = base.add_specialist("poet", HELD.prompts, score, fee=HELD.fee[:, 3])
    assert grown.specialists == (*base.specialists, "poet")
    found = grown.route_batch(WHOLE.prompts[:100])
    assert [d.specialist for d in found] == [d.specialist for d in wanted.route_batch(WHOLE.prompts[:100])]
    shown = pandora(*words, "--fee", "0.03", "-o", tmp_path / "grown", "--replace")
    assert "4 specialists" in shown.stdout, shown.output
    assert pandora("route", "-r", tmp_path / "grown", WHOLE.prompts[0]).exit_code == 0


def test_a_router_is_not_written_over_itself(scores: Path, tmp_path: Path) -> None:
    routers.fitted().save(tmp_path / "router")
    before = Router.load(tmp_path / "router").id
    words = ("add", "poet", scores, "--fee", "1", "-r", tmp_path / "router", "-o", tmp_path / "router")
    done = pandora(*words, "--replace")
    assert done.exit_code == 2, done.output
    assert Router.load(tmp_path / "router").id == before


def test_unclear_orders_are_refused(scores: Path, saved_router: Path, tmp_path: Path) -> None:
    def refused(*more: object, name: str = "poet") -> str:
        done = pandora("add", name, scores, "-r", saved_router, "-o", tmp_path / "grown", *more)
        assert done.exit_code == 2, done.output
        assert not (tmp_path / "grown").exists()
        return done.stderr

    assert "--fee 0" in refused()
    assert "both" in refused("--fee", "1", "--fee-column", "usd")
    assert "'marks'" in refused("--fee", "1", "--score-column", "marks")
    assert "a new name" in refused("--fee", "1", name="large")
    for name in ("", " poet", "po\u200bet"):
        assert "visible characters" in refused("--fee", "1", name=name)
    assert "zero or more" in refused("--fee", "-1")
    assert "x>=0" in refused("--fee", "1", "--seed", "-1")
    scores.write_text("prompt,score\na,good\n")
    assert "row 1" in refused("--fee", "1")
    scores.write_text("prompt,score\na,1\n")
    assert "16 or more" in refused("--fee", "1")
    scores = scores.with_suffix(".jsonl")
    scores.write_text('{"prompt": "a \\ud800", "score": 1}\n')
    assert "surrogate" in refused("--fee", "1")

"""Net value on the pages, against sums over the stored rows and a brute-force search for mixes."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest

from pandora_router.dashboard.layout import amount
from pandora_router.dashboard.net_value import CostAndScore, mix_of_two
from pandora_router.dashboard.page_request import ROOT
from tests.dashboard.conftest import NOW, Running
from tests.support.traffic import NAMES, PRICES, RIGHT, fill


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Running:
    """A dashboard over 600 decisions, all of them judged with the chance that the router predicted."""
    running = Running(tmp_path_factory.mktemp("judged") / "store.sqlite")
    running.store.submit(lambda open_: fill(open_, 600, NOW - 80_000, NOW - 60, feedback=1.0)).result()
    return running


def table(running: Running, address: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(running.ask(address).text)))


def test_net_value_is_score_times_worth_minus_all_money(judged: Running) -> None:
    ((paid, count),) = judged.store.submit(
        lambda open_: open_.rows("SELECT sum(cost), count(*) FROM decisions")
    ).result()
    ((mean,),) = judged.store.submit(
        lambda open_: open_.rows("SELECT avg(value) FROM feedback WHERE metric = 'reward'")
    ).result()
    net = count * mean * RIGHT - paid / 1e9
    text = judged.ask(ROOT).text
    first = re.search(r"<dt>([^<]*)</dt><dd><span class=\"value\">([^<]*)<", text)
    assert first is not None
    assert first.groups() == ("Net value", amount(net))
    ways = {row["way to answer"]: row for row in table(judged, f"{ROOT}?csv=ways")}
    ours = ways.pop("as it was answered")
    assert ours["its score is"] == "from feedback"
    assert float(ours["net value"]) == pytest.approx(1000 * net / count)
    details = [
        json.loads(row[0])
        for row in judged.store.submit(lambda open_: open_.rows("SELECT detail FROM decisions")).result()
    ]
    for name, price in zip(NAMES, PRICES, strict=True):
        row = ways.pop(f"always {name}")
        lines = [detail["decision"]["specialists"][name] for detail in details if detail["decision"]]
        scores = [line["mean"] + price / 1e9 / RIGHT for line in lines]
        assert float(row["score"]) == pytest.approx(np.mean(scores))
        assert float(row["net value"]) == pytest.approx(1000 * (np.mean(scores) * RIGHT - price / 1e9))
        ahead = float(ours["net value"]) - float(row["net value"])
        assert float(row["the router is ahead by"]) == pytest.approx(ahead)
    assert [name.partition(":")[0] for name in ways] == ["mix of two"]


def test_the_lead_is_as_uncertain_as_both_its_scores(judged: Running) -> None:
    """What the best single specialist would have scored is a mean over some decisions, no exact number."""
    text = judged.ask(ROOT).text
    shown = re.search(r"Against the best single</dt>.*?± ([^;]*); always ([a-z]+):", text, re.DOTALL)
    assert shown is not None
    ratings, details = (
        [row[0] for row in judged.store.submit(lambda open_, sql=sql: open_.rows(sql)).result()]
        for sql in ("SELECT value FROM feedback", "SELECT detail FROM decisions")
    )
    lines = [made["specialists"][shown[2]] for row in details if (made := json.loads(row)["decision"])]
    spreads = (
        np.std(values, ddof=1) / len(values) ** 0.5 for values in (ratings, [x["mean"] for x in lines])
    )
    assert shown[1] == amount(len(details) * RIGHT * float(np.hypot(*spreads)))


def test_without_feedback_the_score_is_called_predicted(tmp_path: Path) -> None:
    running = Running(tmp_path / "store.sqlite")
    try:
        assert "no requests" in running.ask(ROOT).text
        running.store.submit(lambda open_: fill(open_, 20, NOW - 900, NOW - 60, feedback=0.0)).result()
        text = running.ask(ROOT).text
        assert "<dt>Net value, predicted</dt>" in text
        assert "<dt>Score, predicted</dt>" in text
        assert "from feedback" not in text
    finally:
        running.close()


def test_a_calibrated_router_has_no_bias(judged: Running) -> None:
    """Feedback was drawn with the predicted chance; fees, which are up to .1 of reward, are no bias."""
    bins = table(judged, f"{ROOT}/calibration?csv=reliability")
    n = sum(int(row["judged"]) for row in bins)
    bias = sum(int(row["judged"]) * (float(row["feedback"]) - float(row["predicted"])) for row in bins) / n
    assert n > 500
    assert abs(bias) < 3 * 0.4 / n**0.5


def test_the_mix_of_two_is_the_best_of_all_pairs_and_proportions() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        singles = [CostAndScore(f"always {i}", *rng.random(2)) for i in range(int(rng.integers(1, 6)))]
        cost = float(rng.uniform(0.0, 1.2))
        parts = np.linspace(0.0, 1.0, 2001)
        best = -1.0
        for a in singles:
            for b in singles:
                spent = a.cost + parts * (b.cost - a.cost)
                scores = a.score + parts * (b.score - a.score)
                best = max([best, *scores[spent <= cost + 1e-12]])
        found = mix_of_two(singles, cost)
        assert found is not None
        if best < 0.0:  # everybody costs more
            assert found.cost == min(way.cost for way in singles)
        else:
            assert found.cost <= cost + 1e-12
            assert found.score == pytest.approx(best, abs=2e-3)
            assert found.score >= best - 1e-9
    assert mix_of_two([], 1.0) is None

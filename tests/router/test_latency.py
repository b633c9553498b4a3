"""`goal: {latency: ...}`: times from recorded seconds, and a price of a second that keeps a promise."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from pandora_router.calibrate.ways import Routed
from pandora_router.cli.main import main
from pandora_router.config import read_config
from pandora_router.config.gateway import ServePlan
from pandora_router.data import Table, save
from pandora_router.errors import UsageError
from pandora_router.router import Router
from pandora_router.router.latency import Quantile, Timing, Timings, elapsed
from tests.support.tables import generate

MEANS = {"small": 0.4, "large": 2.0, "lawyer": 1.0}
FILE = "".join(
    f"  {name}: {{kind: chat, endpoint: here, model: m, prices: {{call: {fee}}}}}\n"
    for name, fee in (("small", 0.01), ("large", 0.05), ("lawyer", 0.02))
)
FILE = (
    'endpoints: {here: {base_url: "http://127.0.0.1:9/v1"}}\nspecialists:\n' + FILE
    + "fit: {costly: {rounds: 20, folds: 2}}\nserve: {router: router, store: log.sqlite%s}\n"
)  # fmt: skip


def pandora(*words: str | Path) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def timed_table() -> Table:
    """Three specialists whose answers take about `MEANS` seconds."""
    table = generate(n=700)
    rng = np.random.default_rng(4)
    means = np.array([MEANS[name] for name in table.specialists])
    seconds = means * rng.uniform(0.7, 1.3, table.shape)
    return replace(table, seconds=seconds, lengths={name: {"seconds": s} for name, s in MEANS.items()})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("latency")
    save(timed_table(), folder / "table")
    (folder / "pandora.yaml").write_text("goal: {latency: {p95: 1.4}}\n" + FILE % "")
    result = pandora("fit", folder / "pandora.yaml", "-o", folder / "router")
    assert result.exit_code == 0, result.output
    assert "Answers 95 of 100 requests within" in result.stdout
    assert "(goal: 1.4 s; held-out prompts show it with 95 % confidence)" in result.stdout
    return folder


@pytest.mark.parametrize(("count", "share"), [(80, 0.95), (150, 0.9), (40, 0.5)])
def test_the_bound_of_a_quantile_holds_in_nineteen_of_twenty_samples(count: int, share: float) -> None:
    rng = np.random.default_rng(count)
    truth = -np.log(1.0 - share)  # of the exponential law
    bounds = [Quantile.of(rng.exponential(size=count), share).most for _ in range(2000)]
    below = np.mean([bound is not None and bound < truth for bound in bounds])
    assert below <= 0.05 + 3.0 * np.sqrt(0.05 * 0.95 / 2000)
    assert below > 0.005  # or the bound would be needlessly high


def test_the_times_of_requests_are_those_of_a_clock() -> None:
    """Brute force: looks begin with their stage, answers go on from their begin, and the last byte counts."""
    rng = np.random.default_rng(0)
    look = rng.uniform(0.1, 1.0, 4)
    stages = np.array([[0, 1, 1, -1], [0, -1, 1, 2], [-1, -1, -1, -1], [1, 0, 0, 2]])
    answer, choice = rng.uniform(0.5, 3.0, (4, 4)), np.array([0, 1, 3, 2])
    routed = Routed(choice, np.zeros(4), np.zeros(4), stage=stages)
    for i, stage in enumerate(stages):
        clock, begun = 0.0, {}
        for number in range(stage.max() + 1):
            members = np.flatnonzero(stage == number)
            begun |= dict.fromkeys(members.tolist(), clock)
            clock += max(min(look[j], answer[i, j]) for j in members)
        taken = int(choice[i])
        last = max(clock, begun[taken] + answer[i, taken]) if taken in begun else clock + answer[i, taken]
        assert elapsed(routed, look, answer)[i] == pytest.approx(last)


def timing(price: float, most: float) -> Timing:
    return Timing(price, 0.5, 0.1, 0.0, {"p95": Quantile(most - 0.1, most)})


def test_prices_are_tested_from_the_highest_down_until_one_fails() -> None:
    """The fourth price would do by chance: it is not reached."""
    rising = Timings((timing(3.0, 1.0), timing(2.0, 1.5), timing(1.0, 2.5), timing(0.0, 1.2)), 100)
    met = rising.within("p95", 2.0)
    assert (met.timing.price, met.sure) == (2.0, True)
    failed = rising.within("p95", 0.5)
    assert (failed.timing.price, failed.sure) == (3.0, False)
    flat = Timings((timing(3.0, 1.0), timing(2.0, 1.005), timing(1.0, 2.5)), 100)
    assert flat.within("p95", 0.5).timing.price == 2.0  # as fast as can be, and no dearer than that


def test_the_fit_meets_the_goal_and_fresh_prompts_take_as_long(place: Path) -> None:
    router = Router.load(place / "router")
    goal = router.record.goal["latency"]
    assert goal["sure"]
    assert goal["timing"]["price"] > 0.0
    plain = Router.load(place / "router").record.report["routing"]["timings"]["points"][-1]
    assert plain["price"] == 0.0
    assert plain["quantiles"]["p95"]["seconds"] > 1.4  # without a price of a second the goal would be missed
    assert goal["timing"]["quantiles"]["p95"]["most"] <= 1.4


def test_the_price_of_the_fit_is_served_at_the_worth_that_is_served(place: Path) -> None:
    fitted = Router.load(place / "router").record.goal["latency"]["timing"]["price"]
    site = ServePlan(place / "pandora.yaml").site()
    assert site.router is not None
    assert site.second == pytest.approx(fitted / site.router.fee_weight)
    (place / "worth.yaml").write_text("value: {right_answer: 2.0}\ngoal: {latency: {p95: 1.4}}\n" + FILE % "")
    assert ServePlan(place / "worth.yaml").site().second == pytest.approx(2.0 * fitted)
    (place / "paced.yaml").write_text(
        "goal: {budget: 50, per: month, latency: {p95: 1.4}}\n"
        + FILE % ", profiles: {slow: {second: 0}, fast: {latency: {p95: 0.6}}}"
    )
    paced = ServePlan(place / "paced.yaml").site()
    assert paced.paced is not None
    assert paced.profiles["slow"].second == 0.0
    assert paced.profiles["fast"].second > paced.second
    moved = replace(paced.paced, pace=replace(paced.paced.pace, worth=7.0))
    assert paced.at_pace("", moved).second == pytest.approx(7.0 * fitted)


def test_a_goal_that_nobody_can_meet_is_served_as_well_as_can_be(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (place / "early.yaml").write_text("goal: {latency: {p95: 0.1}}\n" + FILE % "")
    site = ServePlan(place / "early.yaml").site()
    assert site.second > 0.0
    assert "no price of a second surely answers 95 of 100 requests within 0.1 s" in caplog.text


def test_the_curve_has_a_table_of_times(place: Path) -> None:
    shown = pandora("curve", "-r", place / "router")
    assert "What a second is worth decides how long requests take" in shown.stdout
    facts = json.loads(pandora("curve", "-r", place / "router", "--json").stdout)
    prices = [point["price"] for point in facts["timings"]["points"]]
    assert prices == sorted(prices, reverse=True)


def test_keep_and_latency_together(place: Path) -> None:
    (place / "both.yaml").write_text("goal: {keep: 0.7, of: large, latency: {p95: 2.2}}\n" + FILE % "")
    result = pandora("fit", place / "both.yaml", "-o", place / "both")
    assert result.exit_code == 0, result.output
    assert "of the right answers of large (goal: 70%" in result.stdout
    assert "Answers 95 of 100 requests within" in result.stdout


@pytest.mark.parametrize(
    ("goal", "said"),
    [
        ("value: {second: 0.1}\ngoal: {latency: {p95: 1}}\n", "value.second"),
        ("goal: {latency: {p95: 1, p50: 1}}\n", "one of p50, p90, p95 and p99"),
        ("goal: {latency: {p97: 1}}\n", "p97"),
        (
            "goal: {keep: 0.9, of: large, budget: 5, per: day, latency: {p95: 1}}\n",
            "beside one of the others",
        ),
    ],
)
def test_half_a_goal_and_two_prices_are_refused(tmp_path: Path, goal: str, said: str) -> None:
    (tmp_path / "pandora.yaml").write_text(goal + FILE % "")
    with pytest.raises(UsageError, match=said):
        read_config(tmp_path / "pandora.yaml")


def test_a_table_without_seconds_is_refused_before_the_fit(tmp_path: Path) -> None:
    save(generate(n=80), tmp_path / "table")
    (tmp_path / "pandora.yaml").write_text("goal: {latency: {p95: 1}}\n" + FILE % "")
    result = pandora("fit", tmp_path / "pandora.yaml", "-o", tmp_path / "router")
    assert result.exit_code == 2
    assert "pandora collect" in result.output

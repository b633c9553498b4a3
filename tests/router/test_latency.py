"""`goal: {latency: ...}`: times from recorded seconds, and a price of a second that keeps a promise."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from pandora_router.boxes import Costs
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.ways import Routed
from pandora_router.cli.main import main
from pandora_router.config import read_config
from pandora_router.config.gateway import ServePlan
from pandora_router.data import Table, save
from pandora_router.errors import UsageError
from pandora_router.router import Router
from pandora_router.router.inspection import Waiting, purchase
from pandora_router.router.latency import REPORTED, Quantile, Timing, Timings, elapsed, timings, timings_of
from pandora_router.types import Until, Vector
from tests.support.tables import generate

MEANS = {"small": 0.4, "large": 2.0, "lawyer": 1.0}
FIRST = {"small": 0.3, "large": 0.1, "lawyer": 0.8}
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


@pytest.fixture(scope="module")
def early(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a goal for the first token; `large`, which takes longest, begins first."""
    folder = tmp_path_factory.mktemp("first")
    table, rng = timed_table(), np.random.default_rng(5)
    means = np.array([FIRST[name] for name in table.specialists])
    lengths = {name: {"seconds": MEANS[name], "first_token": FIRST[name]} for name in MEANS}
    begun = means * rng.uniform(0.7, 1.3, table.shape)
    save(replace(table, first_seconds=begun, lengths=lengths), folder / "table")
    (folder / "pandora.yaml").write_text("goal: {latency: {p95: 0.45, until: first_token}}\n" + FILE % "")
    result = pandora("fit", folder / "pandora.yaml", "-o", folder / "router")
    assert result.exit_code == 0, result.output
    assert "Begins to answer 95 of 100 requests within" in result.stdout
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
        begins = begun.get(taken, clock)
        first = max(clock, begins + 0.2 * answer[i, taken])
        assert elapsed(routed, look, answer, 0.2 * answer)[i] == pytest.approx(first)


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


def test_a_promise_about_the_first_token_is_kept_and_is_another_one() -> None:
    """400 goals on 150 prompts each; the truth is that of 100,000. Who begins early writes long."""
    rng, whole, begins = np.random.default_rng(8), np.array([3.0, 1.0]), np.array([0.2, 0.6])
    waiting = Waiting(0.0, np.zeros(2), whole, np.zeros(2), first=begins, until="first_token")

    def measured(n: int, until: Until = "first_token") -> Timings:
        worth, names = rng.normal(0.5, 0.2, (n, 2)), tuple(map(str, range(n)))

        def route(by: Vector, _: Costs) -> Routed:
            return Routed.unseen((worth + by).argmax(axis=1))

        begun = rng.exponential(begins, (n, 2))
        table = Table(names, names, names, np.full(n, ""), ("long", "late"), worth, 0.0 * worth)
        table = replace(table, seconds=begun + rng.exponential(whole, (n, 2)), first_seconds=begun)
        part, costs = Readings(worth, worth, worth), purchase(0.0, 2, together=False)
        found = timings(route, part, costs, waiting, table, 1.0, until)
        assert found is not None
        return found

    truth = measured(100_000)
    assert truth.points[-1].quantiles["p95"].seconds > 1.1  # without a price of a second it is broken
    met = [measured(150).within("p95", 1.0) for _ in range(400)]
    sure = [one.timing.price for one in met if one.sure]
    taken = [truth.at(price, "p95", 1.0).timing.quantiles["p95"].seconds for price in sure]
    assert len(sure) > 350
    assert np.mean(np.array(taken) > 1.0) <= 0.05
    assert np.median(sure) < truth.points[0].price / 3.0  # and not because everybody goes to the fastest
    dearest = [measured(20_000, until).points[0].quantiles["p95"].seconds for until in REPORTED]
    late = rng.exponential(0.6, 20_000) + rng.exponential(1.0, 20_000)  # who ends early, and who begins early
    assert dearest == pytest.approx([np.quantile(late, 0.95), -0.2 * np.log(0.05)], rel=0.05)


def test_the_first_token_has_a_price_of_its_own(early: Path, tmp_path: Path) -> None:
    router = Router.load(early / "router")
    goal, report = router.record.goal["latency"], router.record.report["routing"]
    assert (goal["until"], goal["sure"]) == ("first_token", True)
    assert goal["timing"]["quantiles"]["p95"]["most"] <= 0.45
    free = report["timings_first_token"]["points"][-1]
    assert free["price"] == 0.0
    assert free["quantiles"]["p95"]["seconds"] > 0.45  # the lawyer begins too late
    same = Timings.from_dict(report["timings"]).within("p95", 0.45).timing
    assert same.score < goal["timing"]["score"]  # who writes long may begin early, but not end early
    shown = pandora("curve", "-r", early / "router")
    assert "decides when answers begin" in shown.stdout
    assert "decides how long requests take" in shown.stdout
    (early / "two.yaml").write_text(
        "goal: {latency: {p95: 0.45, until: first_token}}\n"
        + FILE % ", profiles: {whole: {latency: {p95: 1.4}}, same: {right_answer: 1.0}, money: {second: 0.1}}"
    )
    site = ServePlan(early / "two.yaml").site()
    assert site.router is not None
    assert site.second * site.router.fee_weight == pytest.approx(goal["timing"]["price"])
    assert (site.until, site.profile("auto").until) == ("first_token", "first_token")  # type: ignore[union-attr]
    until = {name: profile.until for name, profile in site.profiles.items()}
    assert until == {"whole": "last_byte", "same": "first_token", "money": "last_byte"}


def test_a_goal_for_the_first_token_needs_its_seconds(place: Path, tmp_path: Path) -> None:
    save(timed_table(), tmp_path / "table")
    (tmp_path / "pandora.yaml").write_text("goal: {latency: {p95: 1, until: first_token}}\n" + FILE % "")
    result = pandora("fit", tmp_path / "pandora.yaml", "-o", tmp_path / "router")
    assert result.exit_code == 2
    for words in ("the seconds of the first tokens of its answers", "one without", "stream: true"):
        assert words in " ".join(result.output.split())
    with pytest.raises(UsageError, match="first tokens of its answers"):
        timings_of(Router.load(place / "router").record.report, "first_token")


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
        ("goal: {latency: {p95: 1, until: the_end}}\n", "first_token"),
        ("goal: {latency: {until: first_token}}\n", "one of p50, p90, p95 and p99"),
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

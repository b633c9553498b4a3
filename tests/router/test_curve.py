"""Quality against cost: each point is what the re-priced router serves, and goals keep their promise."""

from __future__ import annotations

import itertools
import json
from xml.etree import ElementTree

import numpy as np
import pytest

from pandora_router.cli.curve import lasting, promise
from pandora_router.errors import UsageError
from pandora_router.router import Router
from pandora_router.router.curve import SURE, Curve, Point, covariance, hull, measured
from pandora_router.router.curve_picture import curve_html, curve_svg
from pandora_router.router.revalue import weighed
from tests.support.routers import CHEAP_TO_INSPECT, QUICK
from tests.support.tables import generate


@pytest.fixture(scope="module")
def fresh() -> tuple[Router, Curve]:
    """A router that did not remember its test prompts, and the curve that its fit measured on them."""
    table = generate(m=3)
    router = Router.fit(table, costly=QUICK, inspection_cost=CHEAP_TO_INSPECT, remember_test=False)
    return router, Curve.from_dict(router.record.report["routing"]["curve"])


def test_each_point_is_what_the_router_serves_at_that_worth(fresh: tuple[Router, Curve]) -> None:
    router, curve = fresh
    test = generate(m=3).in_split("test")
    assert curve.prompts == len(test)
    for point in curve.points[:: len(curve.points) // 4]:
        assert point.worth is not None
        served = weighed(router, 1.0 / point.worth)
        decisions = served.route_batch(test.prompts)
        chosen = [router.specialists.index(decision.specialist) for decision in decisions]
        rows = np.arange(len(test))
        spent = np.array([decision.trace.spent for decision in decisions]) * point.worth
        assert point.score == pytest.approx(test.score[rows, chosen].mean(), abs=1e-9)
        assert point.money == pytest.approx((test.fee[rows, chosen] + spent).mean(), rel=1e-6, abs=1e-12)
        bought = [len(decision.trace.inspected) for decision in decisions]
        assert point.inspections == pytest.approx(np.mean(bought))


def test_the_fitted_worth_is_a_point_and_more_worth_never_buys_a_cheaper_end(
    fresh: tuple[Router, Curve],
) -> None:
    router, curve = fresh
    worths = [point.worth for point in curve.points]
    assert worths == sorted(worths, reverse=True)  # type: ignore[type-var]
    assert any(worth == pytest.approx(1.0 / router.fee_weight) for worth in worths)
    assert curve.points[0].money >= curve.points[-1].money


def test_nobody_is_above_the_best_in_hindsight(fresh: tuple[Router, Curve]) -> None:
    """Its net value is the highest of all at each worth; with few prompts, compared with every choice."""
    _, curve = fresh
    for point, (money, score) in zip(curve.points, curve.oracle, strict=True):
        assert point.worth is not None
        best = point.worth * score - money
        for way in (point, *curve.singles.values()):
            assert best >= point.worth * way.score - way.money - 1e-12
    scores, fees = np.array([[0.0, 1.0], [1.0, 1.0]]), np.array([[1.0, 3.0], [1.0, 3.0]])
    small = measured([10.0, 0.5], scores, fees, 0 * fees, scores, fees, ["a", "b"], np.arange(2))
    assert small.oracle == ((2.0, 1.0), (1.0, 0.5))
    assert Curve.from_dict(json.loads(json.dumps(small.to_dict()))) == small


def test_a_budget_is_said_in_requests() -> None:
    """The cheapest way to the highest score counts, not the dearest; numbers have two digits."""
    worths = (9.0, 3.0, 1.0, 0.3)
    figures = zip(worths, (0.9, 0.9, 0.8, 0.5), (0.004, 0.003, 0.0015, 0.0002), strict=True)
    points = tuple(Point(worth, score, 0.0, money, 0.0) for worth, score, money in figures)
    said = lasting(Curve(points, {}, 100, 2.0), 100.0, "month", "$")
    assert said.startswith(
        "$100.00 per month pays for about 33,000 requests at 0.900 right, or for 66,000 requests at 0.800 "
        "right, or for 500,000 requests at 0.500 right"
    )


def test_the_hull_is_the_best_mix_of_any_two_specialists() -> None:
    rng = np.random.default_rng(3)
    for _ in range(40):
        points = [tuple(pair) for pair in rng.random((rng.integers(1, 7), 2)).tolist()]
        costs, scores = zip(*hull(points), strict=True)
        for budget in np.linspace(min(cost for cost, _ in points), 1.0, 23):
            best = max(score for cost, score in points if cost <= budget)
            for (one, low), (two, high) in itertools.permutations(points, 2):
                if one <= budget < two:  # a share of the dearer one that just uses the budget up
                    share = (budget - one) / (two - one)
                    best = max(best, (1 - share) * low + share * high)
            assert np.interp(budget, costs, scores) == pytest.approx(best)


def test_errors_of_copies_that_belong_together_are_those_of_their_originals() -> None:
    rng = np.random.default_rng(0)
    values = rng.random((50, 3))
    copies, cluster = np.repeat(values, 4, axis=0), np.repeat(np.arange(50), 4)
    plain = np.cov(values.T, ddof=0) / 50
    assert covariance(copies, cluster) == pytest.approx(plain)
    assert covariance(values, np.arange(50)) == pytest.approx(plain)


def simulated(
    rng: np.random.Generator, prompts: int, right: np.ndarray, strong: float
) -> tuple[np.ndarray, ...]:
    """Scores of a router at several worths and of two specialists; a prompt has one difficulty for all."""
    luck = rng.random((prompts, 1))
    return (luck < right[None, :]).astype(float), (luck < np.array([[0.3, strong]])).astype(float)


def traced(score: np.ndarray, single: np.ndarray) -> Curve:
    money = np.broadcast_to(np.linspace(3.0, 1.0, score.shape[1]), score.shape)
    fees = np.broadcast_to(np.array([1.0, 3.0]), single.shape)
    worths = np.geomspace(10.0, 0.1, score.shape[1]).tolist()
    nothing = np.zeros(score.shape)
    names = ("small", "large")
    return measured(worths, score, money, nothing, single, fees, names, np.arange(len(score)))


def test_the_band_covers_the_whole_curve_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    right = np.linspace(0.9, 0.4, 9)
    covered = 0
    for _ in range(400):
        score = rng.binomial(1, right, (300, 9)).astype(
            float
        )  # prompts of unrelated difficulty: the hard case
        curve = traced(score, simulated(rng, 300, right, 0.9)[1])
        gaps = [
            abs(point.score - p) / point.score_error for point, p in zip(curve.points, right, strict=True)
        ]
        covered += max(gaps) <= curve.band
    assert covered / 400 > 0.92  # 0.95, less three standard errors of this simulation
    assert curve.band > SURE


def test_a_promise_to_keep_a_share_is_rarely_broken_and_the_cheapest_such_point_is_found() -> None:
    rng = np.random.default_rng(6)
    right = np.array([0.90, 0.88, 0.86, 0.85, 0.83, 0.80, 0.75, 0.6, 0.4])
    strong, share = 0.9, 0.95  # 0.855 keeps it: the first three worths do
    broken, found = 0, []
    for _ in range(600):
        score = np.column_stack([rng.binomial(1, p, 400) for p in right]).astype(float)
        single = np.column_stack([rng.binomial(1, p, 400) for p in (0.3, strong)]).astype(float)
        kept = traced(score, single).keep(share, "large")
        at = int(np.argmin(np.abs(np.geomspace(10.0, 0.1, 9) - (kept.point.worth or 0.0))))
        broken += kept.sure and right[at] < share * strong
        found.append(kept.sure)
    assert broken / 600 < 0.08
    assert np.mean(found) > 0.1


def test_a_goal_that_nobody_meets_is_answered_by_the_best_and_says_so() -> None:
    rng = np.random.default_rng(7)
    score, single = simulated(rng, 300, np.array([0.6, 0.5]), 0.9)
    kept = traced(score, single).keep(0.99, "large")
    assert not kept.sure
    assert kept.point.worth == pytest.approx(10.0)
    with pytest.raises(UsageError, match="huge"):
        traced(score, single).keep(0.9, "huge")


@pytest.mark.parametrize(("share", "alone"), [(0.95, True), (1.0, True), (1.05, False)])
def test_what_no_router_surely_keeps_asking_the_strong_model_alone_keeps(share: float, alone: bool) -> None:
    strong = Point(None, 0.6, 0.03, 0.2, 0.0)
    curve = Curve((Point(1.0, 0.6, 0.03, 0.1, 0.0, beside={"large": 0.0}),), {"large": strong}, 100, 2.0)
    kept = curve.keep(share, "large")
    assert not kept.sure
    assert ("of large, but asking it alone; the best router keeps 100.0%" in promise(kept, "$")) is alone


def test_scores_that_go_together_make_a_promise_surer() -> None:
    """The router sends all but one prompt in ten to the strong specialist: their difference hardly varies."""
    rng = np.random.default_rng(4)
    strong = rng.integers(0, 2, 400).astype(float)
    score = np.where(np.arange(400) % 10 == 0, 1.0, strong)[:, None]
    curve = traced(score, np.stack([np.zeros(400), strong], axis=1))
    share = 0.99
    name = list(curve.singles)[1]
    gap = score[:, 0] - share * strong
    error = gap.std() / 20.0
    assert gap.mean() - SURE * error > 0.0  # clear for the difference itself ...
    apart = np.hypot(score.std(), share * strong.std()) / 20.0
    assert gap.mean() - SURE * apart < 0.0  # ... and not, if both scores were of different prompts
    assert curve.keep(share, name).sure


def test_the_drawing_has_every_point_where_it_is_and_the_present_one(fresh: tuple[Router, Curve]) -> None:
    """Places are read back from the drawing: proportional to money, and in the order of scores."""
    router, curve = fresh
    worth = curve.points[3].worth
    frugal = curve.points[-2].worth
    drawn = ElementTree.fromstring(curve_svg(curve, "$", worth, {"auto@frugal": frugal}))
    marks = [mark for mark in drawn.iter() if mark.tag.endswith(("circle", "rect"))]
    profile, *rings = [mark for mark in marks if mark.get("fill") == "none"]
    dots = [mark for mark in marks if mark.tag.endswith("circle") and mark.get("fill") != "none"]
    squares = [mark for mark in marks if mark.tag.endswith("rect")]
    assert (len(dots), len(rings), len(squares)) == (len(curve.points), 1, len(router.specialists))
    places = [(float(dot.get("cx", "")), float(dot.get("cy", ""))) for dot in dots]
    slopes = np.polyfit([point.money for point in curve.points], [x for x, _ in places], 1)
    assert np.polyval(slopes, [point.money for point in curve.points]) == pytest.approx(
        [x for x, _ in places], abs=0.2
    )
    order = np.argsort([point.score for point in curve.points], kind="stable")
    assert np.all(np.diff([-places[place][1] for place in order]) >= -0.1)
    assert (float(rings[0].get("cx", "")), float(rings[0].get("cy", ""))) == places[3]
    assert (float(profile.get("cx", "")), float(profile.get("cy", ""))) == places[-2]
    assert "auto@frugal" in [mark.text for mark in drawn.iter() if mark.tag.endswith("text")]
    page = curve_html(curve, "$", worth, "<script>")
    assert "<script>" not in page
    assert "default-src 'none'" in page


def test_names_of_specialists_that_are_alike_do_not_cover_each_other() -> None:
    """With letters 6 wide and 10 high, as a browser draws them; every name has its square as a title."""
    near = {
        "examples": (3.0, 0.14),
        "majority": (5.5, 0.142),
        "closed book": (6.0, 0.1),
        "large": (43.0, 0.6),
    }
    near |= {f"copy {number}": (20.0, 0.3) for number in range(6)}
    singles = {name: Point(None, score, 0.01, cost, 0.01) for name, (cost, score) in near.items()}
    curve = Curve((Point(1.0, 0.7, 0.01, 20.0, 0.1),), singles, 100, 2.0)
    drawn = list(ElementTree.fromstring(curve_svg(curve, "$")).iter())
    titles = {str(mark.text).partition(":")[0] for mark in drawn if mark.tag.endswith("title")}
    assert titles >= near.keys()
    texts = [mark for mark in drawn if mark.tag.endswith("text") and mark.text in near]
    assert {"examples", "majority", "closed book", "large", "copy 0", "copy 1"} <= {
        mark.text for mark in texts
    }
    boxes = [
        (float(mark.get("x", "")), float(mark.get("y", "")), 6.0 * len(mark.text or "")) for mark in texts
    ]
    for one, (left, base, wide) in enumerate(boxes):
        for other_left, other_base, other_wide in boxes[:one]:
            beside = left + wide <= other_left or other_left + other_wide <= left
            assert beside or abs(base - other_base) >= 10.0

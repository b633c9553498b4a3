"""A budget lasts: whatever the shape of traffic, about all of it is spent, and where it counts."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from pandora_router.learn.pace import Pace, Traffic, affordable, cost_at
from pandora_router.router.curve import Curve, Point
from pandora_router.store.money import period_bounds

WORTHS = np.geomspace(100.0, 0.1, 12)
POINTS = tuple(
    Point(float(worth), 1.0 - 0.5 / (1.0 + worth), 0.01, float(4.0 * worth / (1.0 + worth)), 0.01)
    for worth in WORTHS
)
CURVE = Curve(POINTS, {"small": Point(None, 0.4, 0.0, 0.3, 0.0), "large": POINTS[0]}, 500, 2.5)


def score_at(worth: float) -> float:
    points = sorted((point.worth or 0.0, point.score) for point in POINTS)
    worths, scores = np.array(points).T
    return float(np.interp(math.log(worth), np.log(worths), scores))


def test_what_is_affordable_costs_what_is_allowed() -> None:
    for cost in np.linspace(0.4, 3.9, 30):
        assert cost_at(CURVE, affordable(CURVE, cost)) == pytest.approx(cost)
    assert affordable(CURVE, 0.0) == pytest.approx(0.1)
    assert affordable(CURVE, 1e9) == pytest.approx(100.0)


def month(shape: str) -> np.ndarray:
    """Requests of each hour of 30 days."""
    hours = np.arange(720)
    daily = 1.0 + 0.8 * np.sin(2 * np.pi * hours / 24)
    rate = {
        "constant": np.ones(720),
        "growing": np.linspace(0.5, 1.5, 720),
        "falling": np.linspace(1.5, 0.5, 720),
        "spike": np.where((hours > 300) & (hours < 320), 10.0, 1.0),
    }[shape]
    return np.round(40 * daily * rate).astype(int)


@pytest.mark.parametrize("shape", ["constant", "growing", "falling", "spike"])
@pytest.mark.parametrize("dearer", [1.0, 1.3])
def test_a_month_ends_within_its_budget(shape: str, dearer: float) -> None:
    """Real costs may differ from those of the curve; compared with the best fixed worth in hindsight."""
    rng = np.random.default_rng(1)
    counts = month(shape)
    budget = 1.5 * dearer * counts.sum()
    pace = Pace(CURVE, budget, 10.0)
    spent, scored = 0.0, 0.0
    for hour, requests in enumerate(counts):
        for part in np.array_split(np.arange(requests), 6):
            day = counts[max(hour - 24, 0) : hour]
            asked = int(counts[:hour].sum()) + int(part[0] if len(part) else 0)
            traffic = Traffic(spent, asked, int(day.sum()), 3600.0 * len(day))
            pace = pace.after(traffic, 3600.0 * (720 - hour))
            cost = dearer * cost_at(CURVE, pace.worth)
            spent += float(rng.exponential(cost, len(part)).sum())
            scored += len(part) * score_at(pace.worth)
    best = score_at(affordable(CURVE, 1.5)) * counts.sum()
    assert spent <= 1.01 * budget
    assert spent > 0.9 * budget
    assert scored / best > 0.98


def test_the_last_hours_leave_money_for_requests_that_nobody_expected() -> None:
    """Three requests a day, budgets drawn at random: few months are short of money before their end."""
    rng, short = np.random.default_rng(5), 0
    for _ in range(200):
        at = np.sort(rng.uniform(0.0, 720.0, rng.poisson(90)))
        pace, spent = Pace(CURVE, 1.5 * 90, 10.0), 0.0
        for seen, hour in enumerate(at):
            recent, over = int(((at < hour) & (at >= hour - 24.0)).sum()), 3600.0 * min(max(hour, 1.0), 24.0)
            pace = pace.after(Traffic(spent, seen, recent, over), 3600.0 * (720.0 - hour))
            cost = cost_at(CURVE, pace.worth)
            short += spent + cost > pace.budget
            spent += cost
    assert short < 0.01 * 200 * 90


def test_nothing_is_changed_before_anything_is_known_and_no_money_means_the_cheapest() -> None:
    pace = Pace(CURVE, 100.0, 10.0)
    assert pace.after(Traffic(0.0, 0, 0, 0.0), 1000.0).worth == 10.0
    assert pace.after(Traffic(200.0, 50, 50, 100.0), 1000.0).worth == pytest.approx(0.1)


@pytest.mark.parametrize("length", ["day", "week", "month"])
def test_a_period_contains_its_time_and_ends_where_the_next_begins(length: str) -> None:
    for now in np.linspace(1.7e9, 1.8e9, 97):
        begin, end = period_bounds(length, float(now))
        assert begin <= now < end
        assert period_bounds(length, end)[0] == end
        assert period_bounds(length, begin) == (begin, end)


def test_what_costs_more_than_expected_is_asked_for_less() -> None:
    """After 1,000 requests at twice the expected cost, a request may cost half of what is left for it."""
    usual = cost_at(CURVE, 1.0)
    first = Pace(CURVE, 5000.0, 1.0).after(Traffic(0.0, 0, 0, 0.0), 100.0)
    later = first.after(Traffic(2000 * usual, 1000, 1000, 100.0), 50.0)
    ratio = (2000 + 50) / (1000 + 50)  # 50 requests count as if they had cost what the curve expects
    planned = 500 + math.sqrt(500)
    assert cost_at(CURVE, later.worth) == pytest.approx((5000.0 - 2000 * usual) / planned / ratio, rel=1e-6)


def test_labels_take_money_and_do_not_make_requests_look_dear() -> None:
    """A budget that is larger by what labels cost serves the same worth: they say nothing of a request."""
    usual = cost_at(CURVE, 1.0)
    plain, dearer = (
        Pace(CURVE, 3000.0 + labels, 1.0).after(Traffic(0.0, 0, 0, 0.0), 100.0) for labels in (0, 90)
    )
    without = plain.after(Traffic(1000 * usual, 1000, 1000, 100.0), 50.0)
    paid = dearer.after(Traffic(1000 * usual + 90.0, 1000, 1000, 100.0, labels=90.0), 50.0)
    assert paid.worth == pytest.approx(without.worth)
    assert paid.ratio == pytest.approx(without.ratio) == pytest.approx(1.0)
    unspent = plain.after(Traffic(1000 * usual + 90.0, 1000, 1000, 100.0, labels=90.0), 50.0)
    assert unspent.worth < without.worth  # the same budget lasts less far


def test_the_end_of_a_period_is_foretold_at_what_requests_really_cost() -> None:
    """Traffic that goes on as it is ends where the forecast said, on a curve that is 30 % too cheap."""
    rng = np.random.default_rng(2)
    usual = cost_at(CURVE, 1.0)
    pace = Pace(CURVE, 1e9, 1.0)
    spent = asked = 0.0
    for hour in range(100):
        traffic = Traffic(spent, int(asked), min(hour, 24) * 100, 3600.0 * min(hour, 24))
        pace = replace(pace.after(traffic, 3600.0 * (720 - hour)), worth=1.0)
        spent += float(rng.exponential(1.3 * usual, 100).sum())
        asked += 100
    traffic = Traffic(spent, int(asked), 2400, 86400.0)
    foretold = pace.after(traffic, 3600.0 * 620)
    assert replace(foretold, worth=1.0).expected_end(traffic, 3600.0 * 620) == pytest.approx(
        1.3 * usual * 100 * 720, rel=0.05
    )

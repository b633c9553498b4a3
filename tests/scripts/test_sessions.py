"""The arithmetic of `benchmarks.sessions` on one short conversation, against sums written out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.sessions import THRESHOLDS, Conversation, held_conversation, ways

from pandora_router.prices import Tariff
from pandora_router.router.revalue import weighed
from pandora_router.search import Never
from tests.support.routers import fitted
from tests.support.tables import generate

TALK = Conversation((3, 0, 2, 1), (0.0, 60.0, 120.0, 1000.0), before=2000, brings=500, answer=100)
PRICES = ({"in": 1.0, "cached": 0.1}, {"in": 2.0, "cached": 0.2, "write": 2.5}, {"in": 0.5})
"""Dollars per million tokens; each provider caches for 300 seconds, the last one not at all."""
WEIGHTS = (0.5, 2.0, 8.0, 32.0)
"""Scores that a dollar is worth; prices decide nothing at the lowest and everything at the highest."""


def tariffs() -> dict[str, Tariff]:
    table = generate(m=3)
    made = [Tariff(p["in"], 0.0, cached_in=p.get("cached"), cached_write=p.get("write")) for p in PRICES]
    return dict(zip(table.specialists, made, strict=True))


def reading(name: str, tokens: int, cached: int) -> float:
    """Dollars for `tokens` of input, `cached` of which lie in the cache."""
    price = PRICES[generate(m=3).specialists.index(name)]
    return (cached * price.get("cached", 0.0) + (tokens - cached) * price.get("write", price["in"])) / 1e6


def test_a_conversation_costs_what_its_tokens_cost() -> None:
    table = generate(m=3)
    a, b, c = table.specialists
    turns = iter([a, b, a, a])
    score, dollars, changes = held_conversation(TALK, table, tariffs(), lambda *_: next(turns))
    # 2,500 tokens anew by a; 3,100 anew by b; a kept 2,500 of 3,700; its cache of 3,700 is cold at 1,000 s
    costs = [2500 * 1.0, 3100 * 2.5, 2500 * 0.1 + 1200 * 1.0, 4300 * 1.0]
    fees = [table.fee[p, table.specialists.index(s)] for p, s in zip(TALK.prompts, (a, b, a, a), strict=True)]
    scores = [
        table.score[p, table.specialists.index(s)] for p, s in zip(TALK.prompts, (a, b, a, a), strict=True)
    ]
    assert dollars == pytest.approx((sum(costs) / 1e6 + sum(fees)) / 4)
    assert score == pytest.approx(np.mean(scores))
    assert changes == 2
    cheap = held_conversation(TALK, table, tariffs(), lambda *_: c)
    fees = [table.fee[p, 2] for p in TALK.prompts]
    assert cheap[1:] == (pytest.approx(((2500 + 3100 + 3700 + 4300) * 0.5 / 1e6 + sum(fees)) / 4), 0)


def test_each_way_chooses_as_its_rule_says() -> None:
    moved = [_chosen_as_expected(weight) for weight in WEIGHTS]
    assert any(moved), "prices changed nothing: other weights are needed"


def _chosen_as_expected(weight: float) -> bool:
    """Hold every way to its rule; whether priced switching chose otherwise than switching at no price."""
    table = generate(m=3)
    router = weighed(fitted().with_policy(Never()), weight)
    worth = [dict(router.route(table.prompts[p]).worth) for p in TALK.prompts]
    best = [max(one, key=one.__getitem__) for one in worth]

    def chosen_by(rule: str, threshold: float = 0.0) -> list[str]:
        tokens, at, held, now_with = TALK.before, -np.inf, 0, ""
        made = []
        for turn, now in enumerate(TALK.at):
            if rule == "priced" and now_with:
                net = {}
                for name, value in worth[turn].items():
                    warm = held if name == now_with and now - at < 300.0 else 0
                    net[name] = value - weight * reading(name, tokens, warm)
                name = max(net, key=net.__getitem__)
            elif rule == "leave above" and now_with:
                gain = worth[turn][best[turn]] - worth[turn][now_with]
                name = now_with if gain <= threshold else best[turn]
            else:
                name = best[turn]
            made.append(name)
            held = tokens + TALK.brings if name != table.specialists[2] else 0
            tokens, at, now_with = tokens + TALK.brings + TALK.answer, now, name
        return made

    expected = [chosen_by("priced"), [best[0]] * 4, best]
    expected += [chosen_by("leave above", threshold) for threshold in THRESHOLDS]
    for choose, wanted in zip(ways(router, table, tariffs(), (0.0,)), expected, strict=True):
        seen: list[str] = []

        def noted(*turn: object, choose=choose, seen=seen) -> str:  # type: ignore[no-untyped-def]
            seen.append(choose(*turn))
            return seen[-1]

        held_conversation(TALK, table, tariffs(), noted)
        assert seen == wanted
    return expected[0] != expected[2]

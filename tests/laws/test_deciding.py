"""One path from prompt to decision: whoever drives it, the same actions, the same bill, the same record."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pandora_router.boxes import Costs
from pandora_router.errors import UpstreamError, UsageError
from pandora_router.estimators.estimator import Fitted, Query, Scorer
from pandora_router.router import (
    BoxStatus,
    Cheap,
    Decision,
    Estimates,
    NeighbourRecipe,
    Paid,
    Prices,
    Purchase,
    PurchaseStatus,
    Router,
    StackRecipe,
    deciding,
)
from pandora_router.router.decision import stamp
from pandora_router.router.driver import judged
from pandora_router.search import (
    Always,
    Committing,
    Inspect,
    KnowledgeGradient,
    Never,
    Obligatory,
    Rollout,
    Select,
    Trace,
)
from tests.support.tables import generate, row_contexts

POLICIES = (
    KnowledgeGradient(),
    Rollout(),
    Committing(samples=10),
    Committing("mean", payoff="exact"),
    Obligatory(),
    Never(),
    Always(),
)
COSTS = {
    "own": Costs([0.002, 0.001, 0.003]),
    "shared": Costs([0.0, 0.0, 0.0], [0.004], [0, 0, 0]),
    "mixed": Costs([0.001, 0.0005, 0.002], [0.002], [-1, 0, 0]),
    "refunded": Costs([0.002, 0.001, 0.003], refund=[0.002, 0.0005, 0.0]),
}


def score(query: Query, name: str) -> float:
    """Any function of what may be seen."""
    return 0.2 + (len(query.prompt) * 7 + len(name) * 3 + len(query.contexts.get(name, ""))) % 10 / 20


async def slowly(query: Query, name: str) -> float:
    await asyncio.sleep(0.002 * (len(name) % 3))
    return score(query, name)


async def sometimes(query: Query, name: str) -> float:
    if (len(query.prompt) + len(name)) % 3 == 0:
        raise UpstreamError("busy")
    return score(query, name)


class Together:
    """An estimator that fails as a whole."""

    needs: frozenset[str] = frozenset({"large"})
    together = True

    async def estimate(self, query: Query, specialists: Any) -> np.ndarray:
        if len(query.prompt) % 4 == 0:
            raise OSError("no route to host")
        return np.array([score(query, name) for name in specialists])


ESTIMATORS: dict[str, Any] = {
    "plain callable": Scorer(score),
    "slow": Scorer(slowly, at_once=2),
    "failing": Scorer(sometimes, retries=0),
    "failing as a whole": Together(),
}
KINDS = ("predictor", "looking", "predictor behind an estimator", *ESTIMATORS)


@cache
def base(contexts: bool) -> Router:
    table = generate(contexts=contexts)
    costly = StackRecipe(rounds=10, folds=2)
    return Router.fit(table, cheap=NeighbourRecipe(10), costly=costly, inspection_cost=0.002, timeout=600.0)


def router_of(kind: str, costs: str, policy: Any) -> Router:
    found = dataclasses.replace(base(kind == "looking"), costs=COSTS[costs], policy=policy)
    if kind == "predictor behind an estimator":
        return dataclasses.replace(found, costly=Fitted(found.costly))  # type: ignore[arg-type]
    return dataclasses.replace(found, costly=ESTIMATORS[kind]) if kind in ESTIMATORS else found


def asked() -> list[tuple[str, dict[str, str] | None]]:
    table = generate(contexts=True).in_split("test")
    told = [row_contexts(table, i) for i in range(6)]
    told[2].pop("large")
    pairs: list[tuple[str, dict[str, str] | None]] = list(zip(table.prompts[:6], told, strict=True))
    return [*pairs, (table.prompts[6], None), ("", None), ("half a pair \ud83d", None)]


def essence(decision: Decision) -> Any:
    """Everything but names, times and the last digits."""
    told = decision.to_dict()
    for key in ("id", "at", "seconds"):
        del told[key]
    for purchase in told["purchases"]:
        del purchase["seconds"]
    return json.loads(json.dumps(told), parse_float=lambda digits: round(float(digits), 10))


async def by_hand(router: Router, prompt: str, contexts: dict[str, str] | None) -> Decision:
    """A driver as somebody else would write it."""
    costly: Any = router.costly
    estimator = costly if hasattr(costly, "estimate") else Fitted(costly)
    asking = deciding(router, prompt, judged(router.cheap, [prompt])[0], contexts)
    try:
        ask = next(asking)
        while True:
            try:
                found = await estimator.estimate(Query(ask.prompt, ask.contexts), ask.specialists)
                ask = asking.send(Paid(found))
            except OSError as error:
                ask = asking.send(Paid.nothing(ask, f"{type(error).__name__}: {error}"))
    except StopIteration as end:
        decision: Decision = end.value
        return decision


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
@pytest.mark.parametrize("costs", COSTS)
@pytest.mark.parametrize("kind", KINDS)
def test_all_drivers_decide_alike(kind: str, costs: str, policy: Any) -> None:
    router, prompts = router_of(kind, costs, policy), asked()
    alone = [essence(router.route(*pair)) for pair in prompts]
    many = router.route_batch([prompt for prompt, _ in prompts], [told for _, told in prompts])
    assert [essence(decision) for decision in many] == alone

    async def beside_each_other() -> tuple[list[Decision], list[Decision]]:
        routed = await asyncio.gather(*(router.aroute(*pair) for pair in prompts))
        return list(routed), [await by_hand(router, *pair) for pair in prompts]

    awaited, driven = asyncio.run(beside_each_other())
    assert [essence(decision) for decision in awaited] == alone
    assert [essence(decision) for decision in driven] == alone


def test_the_kinds_buy_hold_lose_and_decline() -> None:
    seen = {
        (kind, status)
        for kind in KINDS
        for pair in asked()
        for status in router_of(kind, "own", Always()).route(*pair).estimates.status
    }
    assert ("failing", BoxStatus.LOST) in seen
    assert ("failing as a whole", BoxStatus.UNAVAILABLE) in seen
    assert ("looking", BoxStatus.UNAVAILABLE) in seen
    assert all((kind, BoxStatus.OPENED) in seen for kind in KINDS)


def test_a_number_of_estimates_that_does_not_fit_is_refused() -> None:
    router = router_of("predictor", "own", Always())
    asking = deciding(router, "count the king", judged(router.cheap, ["count the king"])[0])
    next(asking)
    with pytest.raises(UsageError, match="one per specialist"):
        asking.send(Paid([0.5]))


def asks_again(router: Router, prompt: str) -> bool:
    """Whether the router goes on to buy when its first purchase brings nothing."""
    asking = deciding(router, prompt, judged(router.cheap, [prompt])[0])
    try:
        asking.send(Paid.nothing(next(asking), "lost"))
    except StopIteration:
        return False
    return True


def test_a_decision_that_is_out_of_time_buys_nothing_more_and_pays_nothing_more() -> None:
    router = router_of("predictor", "own", KnowledgeGradient())
    prompt = next(p for p in generate().prompts if asks_again(router, p))
    asking = deciding(router, prompt, judged(router.cheap, [prompt])[0])
    first = next(asking)
    with pytest.raises(StopIteration) as end:
        asking.send(Paid.too_late())
    decision = end.value.value
    assert decision.trace.actions == (Select(int(decision.estimates.mean.argmax())),)
    assert decision.trace.spent == 0.0
    assert set(decision.estimates.status) == {BoxStatus.LATE}
    asking = deciding(router, prompt, judged(router.cheap, [prompt])[0])
    next(asking)
    with pytest.raises(StopIteration) as end:
        asking.send(Paid.nothing(first, "no time left", late=True))
    decision = end.value.value
    assert [one.status for one in decision.purchases] == [PurchaseStatus.LATE]
    assert decision.trace.spent == pytest.approx(decision.purchases[0].cost)
    assert decision.purchases[0].cost > 0
    assert {BoxStatus.LOST, BoxStatus.LATE} == set(decision.estimates.status)


def test_a_purchase_records_what_the_policy_thought_it_worth() -> None:
    """With one shared group the knowledge gradient buys exactly where the group's worth exceeds its cost."""
    router = router_of("predictor", "shared", KnowledgeGradient(depth=1))
    for prompt in generate().in_split("test").prompts[:30]:
        for purchase in router.route(prompt).purchases:
            assert len(purchase.specialists) == 3
            assert purchase.worth > purchase.cost == pytest.approx(0.004)


NAMES = st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=4, unique=True)
FINITE = st.floats(allow_nan=False, allow_infinity=False, width=64)
MAYBE = st.none() | FINITE


@st.composite
def shared_parts(draw: st.DrawFn, boxes: int) -> tuple[np.ndarray, np.ndarray]:
    """Shared costs of some groups and the group of each box; empty where no cost is shared."""
    shared = draw(st.lists(st.floats(0.0, 9.0), max_size=2))
    group = [draw(st.integers(-1, len(shared) - 1)) for _ in range(boxes)] if shared else []
    return np.array(shared, dtype=np.float64), np.array(group, dtype=np.intp)


@st.composite
def decisions(draw: st.DrawFn) -> Decision:
    names = tuple(draw(NAMES))
    because = draw(st.none() | st.text())
    left, purchases, actions = list(range(len(names))), [], []
    while because is None and left and draw(st.booleans()):
        boxes = tuple(draw(st.lists(st.sampled_from(left), min_size=1, unique=True)))
        left = [box for box in left if box not in boxes]
        values = [tuple(draw(MAYBE) for _ in boxes) for _ in range(2)]
        status = draw(st.sampled_from(PurchaseStatus))
        bought = tuple(names[box] for box in boxes)
        money, note = draw(MAYBE), draw(st.none() | st.text())
        worth, cost, seconds = (draw(FINITE) for _ in range(3))
        purchases.append(Purchase(bought, values[0], values[1], worth, cost, seconds, status, money, note))
        actions.append(Inspect(boxes))
    taken = draw(st.integers(0, len(names) - 1))
    trace = Trace((*actions, Select(taken)), tuple(one.values for one in purchases), draw(FINITE))

    def column(*others: float) -> np.ndarray:
        numbers = st.just(math.nan) if because is not None else st.sampled_from(others) | FINITE
        return np.array([draw(numbers) for _ in names])

    name, at = stamp()
    status_of = tuple(draw(st.sampled_from(BoxStatus)) for _ in names)
    known = Estimates(names, column(0.0), column(0.0), column(0.0), status_of)
    prices = Prices(
        column(math.inf), column(-math.inf), column(0.0), column(0.0), *draw(shared_parts(len(names)))
    )
    seconds = abs(draw(FINITE))
    return Decision(
        name, at, names[taken], trace, tuple(purchases), known, prices, "P()", "id", seconds, because
    )


@given(decisions())
@settings(max_examples=200)
def test_a_decision_survives_json(decision: Decision) -> None:
    row = decision.to_dict()
    again = Decision.from_dict(json.loads(json.dumps(row, allow_nan=False)))
    assert again.to_dict() == row
    assert (again.at, again.trace, again.purchases) == (decision.at, decision.trace, decision.purchases)
    for part, names in (
        ("estimates", ("cheap", "mean", "std")),
        ("prices", ("reservation", "backup", "inspection_cost", "refund", "shared", "group")),
    ):
        one, two = vars(getattr(decision, part)), vars(getattr(again, part))
        assert all(np.array_equal(one[name], two[name], equal_nan=True) for name in names)
    assert again.estimates.status == decision.estimates.status


def test_rows_of_another_schema_or_broken_ones_are_refused() -> None:
    row = base(False).route("count the king").to_dict()
    with pytest.raises(UsageError, match="schema 1"):
        Decision.from_dict({**row, "schema": 2})
    for broken in ({**row, "at": "yesterday"}, {**row, "specialist": "nobody"}, {**row, "specialists": 3}):
        with pytest.raises(UsageError, match=r"Decision\.to_dict"):
            Decision.from_dict(broken)


def test_ids_sort_by_time_and_differ() -> None:
    made = [stamp() for _ in range(5000)]
    assert len({name for name, _ in made}) == len(made)
    assert [at for _, at in made] == sorted(at for _, at in made)
    coarse = [name[:18] for name, _ in made]
    assert coarse == sorted(coarse)
    assert all(name[14] == "7" and name[19] in "89ab" for name, _ in made)


def test_cheap_estimates_that_are_missing_are_a_reason_not_an_error() -> None:
    asking = deciding(base(False), "x", Cheap(None, "nobody knows"))
    with pytest.raises(StopIteration) as end:
        next(asking)
    assert end.value.value.declined_because == "nobody knows"

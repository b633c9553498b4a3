"""Decisions under pressure: odd prompts, deadlines, limits over many prompts, an event loop that goes on."""

from __future__ import annotations

import asyncio
import dataclasses
import multiprocessing
import pickle
import threading
import time
from typing import Any

import numpy as np
import pytest

from pandora_router.boxes import Costs
from pandora_router.errors import UpstreamError, UsageError
from pandora_router.estimators.estimator import Query, Scorer
from pandora_router.router import (
    BoxStatus,
    Decision,
    NeighbourRecipe,
    PurchaseStatus,
    Router,
    StackRecipe,
    explain,
)
from pandora_router.router import driver as limits
from pandora_router.router.prompt_batch import UNDER_WAY
from pandora_router.search import Always, Inspect, KnowledgeGradient, Select, State
from pandora_router.search.state import Action, Memoryless
from pandora_router.specialists.threads import Worker
from tests.support.embedders import CallableEmbedder
from tests.support.routers import fitted
from tests.support.tables import generate, row_contexts

COSTLY = StackRecipe(rounds=10, folds=2)
HALF = "half a pair \ud83d"


def asking(score: Any, **options: Any) -> Router:
    """The router, buying everything from a callable."""
    costs = fitted(contexts=True).costs  # one price each
    return dataclasses.replace(
        fitted(), costly=Scorer(score, **options), costs=costs, policy=Always(), timeout=None
    )


def test_what_comes_back_of_a_look_is_no_part_of_what_an_answer_is_worth() -> None:
    """Worth is score minus fee: of an opened specialist what the purchase showed, whatever is refunded."""
    shown = {"small": 0.31, "medium": 0.47, "large": 0.44}
    given = asking(lambda prompt, name: shown.get(name, 0.4))
    own = np.full(len(given.specialists), 0.1)
    router = dataclasses.replace(given, costs=Costs(own, refund=own))
    decision = router.route("count the king")
    values = {
        name: value
        for bought in decision.purchases
        for name, value in zip(bought.specialists, bought.values, strict=True)
    }
    assert set(values) == set(router.specialists)
    assert dict(decision.worth) == pytest.approx(values)
    story = explain(router, decision)
    for choice in (story.chosen, *story.alternatives):
        assert choice is not None
        assert choice.worth == pytest.approx(values[choice.specialist])
        at = router.specialists.index(choice.specialist)
        assert choice.score == pytest.approx(choice.worth + router.deducted[at])


def test_a_prompt_that_is_no_valid_text_is_declined_alone() -> None:
    router, good = fitted(), "count the king"
    decision = router.route(HALF)
    assert decision.declined_because == (
        "the prompt is not valid text: half of a surrogate pair at character 12"
    )
    assert decision.specialist == router.default
    batch = router.route_batch([good, HALF, "\ud800", good])
    assert [one.declined_because is None for one in batch] == [True, False, False, True]
    awaited = asyncio.run(router.aroute(HALF))
    assert awaited.declined_because == decision.declined_because
    assert Decision.from_dict(decision.to_dict()).to_dict() == decision.to_dict()


def test_a_prompt_beyond_the_size_limit_is_declined_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LONGEST_PROMPT", 100)
    batch = fitted().route_batch(["count the king", "x" * 101, "x" * 100])
    assert [one.declined_because for one in batch] == [
        None,
        "the prompt has 101 characters, more than 100",
        None,
    ]


@pytest.mark.parametrize(
    "prompt", ["nul \0 inside", "\x1b[31mred", "\u202eback", "a\r\n\tb", "\U0001f600", "ﷺ" * 50, "\ufeff?"]
)
def test_odd_but_valid_text_is_judged(prompt: str) -> None:
    assert fitted().route(prompt).declined_because is None


def test_a_context_that_is_no_valid_text_is_read_as_far_as_it_is() -> None:
    router, table = fitted(contexts=True).with_policy(Always()), generate(contexts=True)
    told = row_contexts(table, 0) | {"small": f"clearly {HALF}"}
    assert router.route(table.prompts[0], told).inspected == router.specialists


def test_what_is_not_a_text_is_an_error_before_anything_is_bought() -> None:
    with pytest.raises(UsageError, match="a prompt"):
        fitted().route_batch(["count", None])  # type: ignore[list-item]


def test_an_embedder_that_fails_on_one_prompt_costs_only_that_one() -> None:
    poison = threading.Event()

    def embed(texts: list[str]) -> np.ndarray:
        if poison.is_set() and any("poison" in text for text in texts):
            raise UpstreamError("cannot read this")
        return np.array([[len(text), text.count("count") + 1.0, 1.0] for text in texts])

    embedder = CallableEmbedder("mine", embed)
    router = Router.fit(
        generate(),
        cheap=NeighbourRecipe(10, embedder),
        costly=StackRecipe(rounds=10, folds=2, embedder=embedder),
        inspection_cost=0.002,
        policy=Always(),
    )
    poison.set()
    said = router.route_batch(["count the king", "poison", "tell about the gene"])
    assert [one.declined_because for one in said] == [
        None,
        "the cheap estimate could not be had: cannot read this",
        None,
    ]
    # the same where only the costly estimate embeds
    late = dataclasses.replace(router, cheap=fitted().cheap)
    said = late.route_batch(["count the king", "poison", "tell about the gene"])
    assert [[p.status for p in one.purchases] for one in said] == [
        [PurchaseStatus.ARRIVED],
        [PurchaseStatus.FAILED],
        [PurchaseStatus.ARRIVED],
    ]
    assert said[1].purchases[0].note == "UpstreamError: cannot read this"


def test_after_its_deadline_a_decision_is_made_with_what_is_known() -> None:
    async def never(query: Query, name: str) -> float:
        await asyncio.Event().wait()
        return 0.5

    router = dataclasses.replace(asking(never), policy=Always(), timeout=0.05)

    async def inside() -> Decision:
        return await asyncio.wait_for(router.aroute("count the king"), 60)

    for decision in (asyncio.run(inside()), router.route("count the king")):
        assert decision.purchases[0].status is PurchaseStatus.LATE
        assert set(decision.estimates.status) <= {BoxStatus.LATE, BoxStatus.LOST}
        assert decision.specialist == router.specialists[int(decision.estimates.mean.argmax())]
        assert decision.trace.spent == pytest.approx(sum(one.cost for one in decision.purchases))
        assert explain(router, decision).steps[-1].why
    batch = router.route_batch(["count the king", "tell about the gene"])
    assert [one.purchases[0].status for one in batch] == [PurchaseStatus.LATE] * 2
    unhurried = router.route("count the king", timeout=0.0)
    assert unhurried.purchases == ()
    assert set(unhurried.estimates.status) == {BoxStatus.LATE}
    assert "deadline" in explain(router, unhurried).steps[-1].why


def test_a_local_estimate_is_not_begun_after_the_deadline() -> None:
    decision = fitted().with_policy(Always()).route("count the king", timeout=0.0)
    assert decision.trace.spent == 0.0
    assert set(decision.estimates.status) == {BoxStatus.LATE}


class Counting:
    """How many calls run at the same time, and the most there ever were."""

    def __init__(self) -> None:
        self.lock, self.running, self.most = threading.Lock(), 0, 0

    def __enter__(self) -> None:
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.running -= 1


@pytest.mark.parametrize("plain", [True, False])
def test_a_limit_holds_over_all_prompts(plain: bool) -> None:
    count = Counting()

    async def awaited(query: Query, name: str) -> float:
        with count:
            await asyncio.sleep(0.002)
            return 0.5

    def blocking(query: Query, name: str) -> float:
        with count:
            time.sleep(0.002)
            return 0.5

    router = asking(blocking if plain else awaited, at_once=2)

    async def many() -> list[Decision]:
        return list(await asyncio.gather(*(router.aroute(f"count {i} kings") for i in range(20))))

    assert all(len(one.costly) == 3 for one in asyncio.run(many()))
    assert count.most == 2
    router.route_batch([f"count {i} kings" for i in range(20)])
    assert count.most == 2


@dataclasses.dataclass(frozen=True)
class OneByOne(Memoryless):
    """Opens all boxes, the last one first, and takes the first."""

    def next(self, state: State) -> Action:
        """Open the sealed box of the highest number."""
        sealed = np.flatnonzero(state.boxes.sealed)
        return Inspect((int(sealed[-1]),)) if len(sealed) else Select(0)


def test_an_estimator_reads_the_contexts_of_what_was_paid_for_and_no_others() -> None:
    read: list[tuple[str, ...]] = []

    def score(query: Query, name: str) -> float:
        read.append(tuple(sorted(query.contexts)))
        return 0.5

    router = dataclasses.replace(asking(score), policy=OneByOne())
    names = router.specialists
    decision = router.route("count the king", {name: f"{name} begins" for name in names})
    assert len(decision.purchases) == len(names)
    assert read == [tuple(sorted(names[-n:])) for n in range(1, len(names) + 1)]


def test_a_plain_callable_that_outlives_its_timeout_still_holds_its_place() -> None:
    count, go_on = Counting(), threading.Event()

    def stuck(query: Query, name: str) -> float:
        with count:
            go_on.wait(20)
            return 0.5

    scorer = Scorer(stuck, timeout=0.02, retries=0, at_once=2)

    async def twice() -> list[float]:
        first = list(await scorer.estimate(Query("p"), ["a", "b"]))
        later = asyncio.ensure_future(scorer.estimate(Query("p"), ["a", "b", "c"]))
        await asyncio.sleep(0.1)
        assert count.running == 2
        go_on.set()
        return [*first, *await later]

    found = asyncio.run(twice())
    assert np.isnan(found[:2]).all()
    assert count.most == 2


def test_a_batch_has_a_bounded_number_of_calls_under_way() -> None:
    count = Counting()

    class Unlimited:
        needs: frozenset[str] = frozenset()
        together = True

        async def estimate(self, query: Query, specialists: Any) -> np.ndarray:
            with count:
                await asyncio.sleep(0.001)
                return np.full(len(specialists), 0.5)

    router = dataclasses.replace(fitted(), costly=Unlimited(), policy=Always())
    router.route_batch([f"count {i} kings" for i in range(3 * UNDER_WAY)])
    assert 1 < count.most <= UNDER_WAY


def test_nothing_is_computed_on_the_thread_of_the_event_loop() -> None:
    computing: set[int] = set()

    def embed(texts: list[str]) -> np.ndarray:
        computing.add(threading.get_ident())
        return np.array([[len(text), text.count("count") + 1.0, 1.0] for text in texts])

    @dataclasses.dataclass(frozen=True)
    class Watched(KnowledgeGradient):
        def next(self, state: Any) -> Any:
            computing.add(threading.get_ident())
            return super().next(state)

    recipe = NeighbourRecipe(10, CallableEmbedder("mine", embed))
    router = Router.fit(generate(), cheap=recipe, costly=COSTLY, inspection_cost=0.002)
    routers = [router, dataclasses.replace(router, costly=Scorer(lambda query, name: 0.5))]

    async def many(watched: Router) -> int:
        await asyncio.gather(*(watched.aroute(f"count {i} kings") for i in range(10)))
        return threading.get_ident()

    for one in routers:
        computing.clear()
        loop = asyncio.run(many(one.with_policy(Watched())))
        assert computing
        assert loop not in computing
        assert len(computing) <= one.worker.threads


def _in_child(worker: Worker, answers: Any) -> None:
    answers.put(asyncio.run(worker(lambda: 7)))


def test_a_forked_process_and_a_pickled_worker_start_threads_of_their_own() -> None:
    worker = Worker()
    assert asyncio.run(worker(lambda: 6)) == 6
    context = multiprocessing.get_context("fork")
    answers: Any = context.Queue()
    child = context.Process(target=_in_child, args=(worker, answers), daemon=True)
    child.start()
    assert answers.get(timeout=60) == 7
    child.join(60)
    assert asyncio.run(pickle.loads(pickle.dumps(worker))(lambda: 8)) == 8  # noqa: S301

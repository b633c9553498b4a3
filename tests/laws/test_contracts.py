"""The public contract suites: our own implementations pass, deliberately broken ones are caught."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from pandora_router.boxes import Draws, Independent, Joint, LowRank
from pandora_router.estimators.estimator import Fitted, Query, Scorer
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.estimators.stack.boosted import Boosted, Trees
from pandora_router.estimators.stack.peek import Peek
from pandora_router.prices import FREE, Tariff
from pandora_router.search import (
    Committing,
    Inspect,
    KnowledgeGradient,
    Obligatory,
    Optimal,
    Policy,
    Rollout,
    Select,
    State,
)
from pandora_router.search.state import Action, Memoryless
from pandora_router.specialists.chat import ChatEndpoint
from pandora_router.specialists.chat_settings import Asking
from pandora_router.specialists.function import Function
from pandora_router.specialists.retrieval import Passage, Passages, Retrieval
from pandora_router.specialists.sampling import Sampling
from pandora_router.specialists.specialist import Answer, Beginning, Request
from pandora_router.testing import (
    BrokenContract,
    check_boxes,
    check_estimator,
    check_policy,
    check_predictor,
    check_specialist,
)
from pandora_router.transport.endpoint import Endpoint
from tests.support.upstream import PRICE_IN, PRICE_OUT, Upstream

MEAN, STD = [0.5, 0.4, 0.6], [0.2, 0.3, 0.1]
SPREAD = [[0.04, 0.01, 0.0], [0.01, 0.09, 0.01], [0.0, 0.01, 0.02]]
NORMAL = (
    Independent(MEAN, STD, 0.01),
    Joint(MEAN, SPREAD, [0.01, 0.02, 0.03]),
    LowRank(MEAN, [[0.1], [0.2], [0.1]], [0.01, 0.01, 0.02], 0.02),
)
DRAWN = Draws([[0.1, 0.5, 0.9], [0.3, 0.4, 0.8], [0.2, 0.6, 0.7]], 0.03)
PROMPTS = ["add 2 and 3", "add 4 and 4", "name a river", "name a town", "add 9 and 1", "name a hill"]


@pytest.mark.parametrize("boxes", [*NORMAL, DRAWN], ids=lambda one: type(one).__name__)
def test_our_boxes_keep_the_contract(boxes: Any) -> None:
    check_boxes(boxes)


class Wishful(Independent):
    """Opened boxes are worth a little more than they showed."""

    def given(self, box: int, value: float) -> Wishful:
        return super().given(box, value + 0.1)


class Forgetful(Independent):
    """Conditioning on one box unseals nothing."""

    def given(self, box: int, value: float) -> Forgetful:
        after = super().given(box, value)
        return after._changed(sealed=self.sealed)


class Optimist(Independent):
    """Claims more to gain than its samples hold."""

    def gain(self, outside: Any) -> Any:
        return super().gain(outside) + 0.05


class Biased(Independent):
    """Samples lie above the mean."""

    def sample(self, n: int, rng: np.random.Generator) -> Any:
        return super().sample(n, rng) + 0.1


@pytest.mark.parametrize(
    ("kind", "law"),
    [
        (Wishful, "worth its value"),
        (Forgetful, "unseals"),
        (Optimist, "gain is the cost"),
        (Biased, "samples have the mean"),
    ],
)
def test_broken_boxes_are_caught(kind: Any, law: str) -> None:
    with pytest.raises(BrokenContract, match=law):
        check_boxes(kind(MEAN, STD, 0.01))


OURS: tuple[Policy, ...] = (
    Obligatory(),
    Committing(samples=8),
    Committing("mean", payoff="exact"),
    Rollout(),
    KnowledgeGradient(),
)


@pytest.mark.parametrize("policy", OURS, ids=repr)
def test_our_policies_keep_the_contract(policy: Policy) -> None:
    check_policy(policy)


def test_the_optimum_keeps_the_contract_on_what_it_can_solve() -> None:
    check_policy(Optimal(), [State(Independent([0.5, 0.4], [0.2, 0.3], 0.02))])


@dataclass(frozen=True)
class Greedy(Memoryless):
    """Opens box 0 for ever."""

    def next(self, state: State) -> Action:
        return Inspect((0,)) if len(state.opened) < 40 else Select(0)


@dataclass(frozen=True)
class Beyond(Memoryless):
    """Takes a box that is not there."""

    def next(self, state: State) -> Action:
        return Select(len(state.boxes.mean))


@dataclass
class Moody(Memoryless):
    """Changes its mind from one search to the next."""

    calls: int = 0

    def next(self, state: State) -> Action:
        self.calls += 1
        return Select(self.calls % len(state.boxes.mean))


@pytest.mark.parametrize(
    ("policy", "law"),
    [(Greedy(), "sealed|bought twice"), (Beyond(), "exists|goes through"), (Moody(), "the same")],
    ids=["greedy", "beyond", "moody"],
)
def test_broken_policies_are_caught(policy: Any, law: str) -> None:
    with pytest.raises(BrokenContract, match=law):
        check_policy(policy)


def fitted(contexts: bool) -> Any:
    reward = np.array([[1.0, 0.0], [1.0, 0.2], [0.0, 0.8], [0.1, 0.9], [0.9, 0.1], [0.0, 1.0]])
    if not contexts:
        return Neighbours.fit(PROMPTS, reward, ["sum", "town"], k=2)
    seen = np.full(reward.shape, "log-probabilities: -0.1\nfive", dtype=object)
    return Boosted.fit(
        PROMPTS * 10,
        np.tile(reward, (10, 1)),
        ["sum", "town"],
        contexts=np.tile(seen, (10, 1)),
        peek=Peek(400),
        trees=Trees(rounds=5, folds=2),
    )


@pytest.mark.parametrize("contexts", [False, True])
def test_our_estimators_keep_the_contract(contexts: bool) -> None:
    queries = [Query("add 5 and 5"), Query("name a lake", {"town": "log-probabilities: -0.3 -1\nComo"})]
    check_estimator(Fitted(fitted(contexts)), queries, ["sum", "town"])
    told = np.array([["log-probabilities: -1\n5", None], [None, "Como"]], dtype=object)
    check_predictor(fitted(contexts), [query.prompt for query in queries], told)
    check_estimator(Scorer(lambda query, name: len(query.prompt) / len(name)), queries, ["sum", "town"])
    check_estimator(Scorer(lambda query, name: float("inf")), queries, ["sum", "town"])


@dataclass(frozen=True)
class Broken:
    """An estimator that is wrong in one way."""

    how: str
    together: bool = False

    @property
    def needs(self) -> Any:
        return {"unknown": frozenset({"nobody"}), "a list": ["sum"]}.get(self.how, frozenset())

    async def estimate(self, query: Query, specialists: Sequence[Any]) -> Any:
        values = {"sum": 0.2, "town": 0.7}
        match self.how:
            case "sorted":
                return [values[name] for name in sorted(specialists)]
            case "relative":
                return [values[name] / sum(values[one] for one in specialists) for name in specialists]
            case "short":
                return [0.5]
            case "infinite":
                return [float("inf") for _ in specialists]
        raise ValueError("nothing to say")


@pytest.mark.parametrize(
    ("how", "law"),
    [
        ("sorted", "order asked"),
        ("relative", "who else"),
        ("short", "one number per"),
        ("infinite", "finite"),
        ("raises", "NaN, not ValueError"),
        ("unknown", "specialists that are known"),
        ("a list", "needs is a frozenset"),
    ],
)
def test_broken_estimators_are_caught(how: str, law: str) -> None:
    with pytest.raises(BrokenContract, match=law):
        check_estimator(Broken(how), [Query("x")], ["sum", "town"])


@pytest.mark.slow
def test_our_specialists_keep_the_contract() -> None:
    echo = Function("echo", lambda prompt: prompt[:20] or None, Tariff(0, 0, per_second=1.0, per_call=0.1))
    failing = Function("failing", lambda prompt: str(1 / 0), Tariff(0, 0, per_call=0.1))
    books = Passages((Passage("Nile", "flows through Cairo"),))
    for one in (echo, failing, Retrieval("open", echo, books), Sampling("three", echo, n=3)):
        check_specialist(one, ["What flows through Cairo?", ""])
    with Upstream(lambda m, p, attempt: "hang" if "7" in p else None) as upstream:
        endpoint = Endpoint(upstream.url, None, timeout=0.4, retries=1, pause=0.01)
        chat = ChatEndpoint("chat", endpoint, "good", Tariff(PRICE_IN, PRICE_OUT))
        stops = dataclasses.replace(chat, asking=Asking(context_tokens=2, stream=True), cancel="stops")
        for one in (chat, stops, Sampling("three", stops, n=3), Retrieval("open", chat, books)):
            check_specialist(one, ["2 + 3", "7 + 1"])


@dataclass(frozen=True)
class Rogue:
    """A specialist that is wrong in one way."""

    how: str
    name: str = "rogue"
    at_once: int = 1
    calls: list[int] = dataclasses.field(default_factory=list)

    @property
    def identity(self) -> str:
        return f"rogue {len(self.calls) if self.how == 'fickle' else ''}"

    def most(self, request: Request) -> float:
        return 0.1

    async def begin(self, request: Request) -> Beginning:
        answer = await self.answer(request)
        match self.how:
            case "dear look":
                answer = dataclasses.replace(answer, fee=0.2)
            case "other look":
                answer = dataclasses.replace(answer, context="no")
            case "other answer":
                answer = dataclasses.replace(answer, text="no")
        return Beginning.whole(self.name, request, answer)

    async def answer(self, request: Request, begun: Beginning | None = None) -> Answer:
        if begun is not None and self.how not in {"paid twice", "goes on"}:
            answer = await begun.finish(self.name, request)
            return dataclasses.replace(answer, context="yes") if self.how == "other look" else answer
        if begun is not None and self.how == "goes on" and begun.held:
            return await begun.finish(self.name, request)
        self.calls.append(1)
        fine = Answer("yes", None, None, 0.1, 0.05)
        match self.how:
            case "dear":
                return dataclasses.replace(fine, fee=0.2)
            case "silent":
                return dataclasses.replace(fine, text=" ")
            case "slow look":
                return dataclasses.replace(fine, context_seconds=5.0)
            case "guessed":
                return dataclasses.replace(fine, tokens_in=-1)
            case "raises":
                raise ValueError("no")
        return fine


@pytest.mark.parametrize(
    ("how", "law"),
    [
        ("dear", "below the bound"),
        ("silent", "without words"),
        ("slow look", "no longer than"),
        ("guessed", "token counts"),
        ("raises", "Unanswered"),
        ("fickle", "identity"),
        ("dear look", "at most the bound"),
        ("other look", "what its beginning showed"),
        ("other answer", "the same answer"),
        ("paid twice", "not owed again"),
        ("goes on", "used once"),
    ],
)
def test_broken_specialists_are_caught(how: str, law: str) -> None:
    with pytest.raises(BrokenContract, match=law):
        check_specialist(Rogue(how), ["x"])
    check_specialist(Function("fine", lambda prompt: "yes", FREE), ["x"])

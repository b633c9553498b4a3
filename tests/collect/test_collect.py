"""Collecting from a real HTTP server on this machine that fails on purpose."""

from __future__ import annotations

import asyncio
import base64
import math
import resource
import time
import zlib
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pandora_router.collect.assemble import CollectPlan, Question
from pandora_router.collect.collection import Collected, Status, collect
from pandora_router.collect.graders import ReferenceGrader, numeric
from pandora_router.collect.journal import Journal, line
from pandora_router.data import storage
from pandora_router.errors import UsageError
from pandora_router.estimators.judge import Judge
from pandora_router.prices import FREE, Tariff
from pandora_router.specialists.chat import ChatEndpoint
from pandora_router.specialists.chat_settings import Asking
from pandora_router.specialists.function import Function
from pandora_router.specialists.specialist import Answer, Request
from pandora_router.transport.endpoint import Endpoint
from pandora_router.transport.failures import RateLimit
from tests.support.provider import Provider
from tests.support.provider_models import Model
from tests.support.provider_replies import Said
from tests.support.upstream import ODD, PRICE_IN, PRICE_OUT, SECRET, Upstream

PRICES = Tariff(PRICE_IN, PRICE_OUT)
QUESTIONS = tuple(
    Question(f"q{i}", f"What is {i} + {7 * i % 11}?", (str(i + 7 * i % 11),), "sums", "train")
    for i in range(20)
)
FAULTS = ("429", "500", "hang", "cut", "html", "broken", "503")


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", SECRET)


def chat(upstream: Upstream, model: str, gate: RateLimit | None = None, **settings: Any) -> ChatEndpoint:
    usual = {"key_from": "TEST_KEY", "timeout": 0.4, "retries": 4, "pause": 0.01}
    asking = Asking(tokens=16, stream=settings.pop("stream", False))
    endpoint = Endpoint(upstream.url, **{**usual, **settings})
    return ChatEndpoint(model, endpoint, model, PRICES, asking, gate or RateLimit(at_once=8))


def plan(*specialists: Any, **settings: Any) -> CollectPlan:
    usual = {"questions": QUESTIONS, "graders": {"": ReferenceGrader(numeric)}, "budget": 1000.0}
    return CollectPlan(specialists=specialists, **{**usual, **settings})


def run(wanted: CollectPlan, path: Path, tell: Any = None) -> Collected:
    with Journal(path) as journal:
        return asyncio.run(collect(wanted, journal, tell))


def burst(model: str, prompt: str, attempt: int) -> str | None:
    """Up to three faults in a row for every question, chosen by its text, then a good answer."""
    dice = zlib.crc32(f"{model} {prompt}".encode())
    return FAULTS[(dice + attempt) % len(FAULTS)] if attempt < dice % 4 else None


def test_streams_cut_anywhere_change_neither_the_table_nor_the_bill(tmp_path: Path) -> None:
    """Undivided and streamed answers make the same table; cut streams are bought again, once."""
    cuts = ("cut", "cut early", "hang", "500")

    def cutting(model: str, prompt: str, attempt: int) -> str | None:
        dice = zlib.crc32(f"{model} {prompt}".encode())
        return cuts[(dice + attempt) % len(cuts)] if attempt < dice % 4 else None

    found = {}
    for name, faults, streamed in (
        ("whole", lambda *_: None, False),
        ("calm", lambda *_: None, True),
        ("storm", cutting, True),
    ):
        with Upstream(faults) as upstream:
            patience = {} if name == "storm" else {"timeout": 30.0}  # a busy machine is no fault
            people = [chat(upstream, model, stream=streamed, **patience) for model in ("good", "poor")]
            found[name] = run(plan(*people), tmp_path / name)
            served = sum(upstream.answered.values())
        assert served == 2 * len(QUESTIONS) or name == "storm"  # what hung was served to nobody
    assert found["storm"].complete
    assert len({one.table.fingerprint() for one in found.values()}) == 1
    assert found["storm"].spent == pytest.approx(found["whole"].spent, rel=1e-12)
    assert found["calm"].lost == 0
    assert found["storm"].lost > 0


def test_a_table_has_the_seconds_to_the_first_token_of_streams(tmp_path: Path) -> None:
    """The server is silent for 0.3 s and then writes 150 words, one every 10 ms."""
    words = Said(("word ",) * 150)
    found, model = {}, Model(lambda _: words, first=0.3, each=0.01)
    for streamed in (True, False):
        with closing(Provider({"good": model})) as provider:
            one = ChatEndpoint("good", Endpoint(provider.url), "good", PRICES, Asking(stream=streamed))
            wanted = plan(one, questions=QUESTIONS[:4])
            found[streamed] = run(wanted, tmp_path / str(streamed)).table
    assert found[False].first_seconds is None
    first, whole = found[True].first_seconds, found[True].seconds
    assert first is not None
    assert whole is not None
    assert (whole > 1.5).all()
    assert first.ravel() == pytest.approx(np.full(4, 0.3), abs=0.15)
    assert found[True].fingerprint() == found[False].fingerprint()


def test_log_probabilities_stand_in_the_context_where_they_are_wanted_and_given(tmp_path: Path) -> None:
    with Upstream() as upstream:
        one = chat(upstream, "good")
        one = replace(one, asking=replace(one.asking, context_tokens=2))
        plain = run(plan(one), tmp_path / "j").table.contexts
        wanted = run(plan(one, log_probabilities=True), tmp_path / "j").table.contexts
        without = run(plan(chat(upstream, "poor"), log_probabilities=True), tmp_path / "k").table.contexts
    assert plain is not None
    assert wanted is not None
    assert without is not None
    assert plain[1, 0] == "The answer "
    assert wanted[1, 0] == "log-probabilities: -0.500 -0.500\nThe answer "
    assert without[1, 0].startswith("The answer is")


def test_a_stream_that_is_always_cut_is_recorded_as_cut(tmp_path: Path) -> None:
    with Upstream(lambda m, p, a: "cut early" if p == QUESTIONS[0].text else None) as upstream:
        found = run(plan(chat(upstream, "good", stream=True, retries=1)), tmp_path / "j")
    assert found.finishes == {"good": {"cut": 1, "stop": 19}}
    assert int(found.table.missing.sum()) == 1
    assert found.stopped == {}


@pytest.mark.parametrize("samples", [1, 3])
def test_faults_change_neither_the_table_nor_the_bill(tmp_path: Path, samples: int) -> None:
    found = {}
    for name, faults in {"calm": lambda *_: None, "storm": burst}.items():
        with Upstream(faults) as upstream:
            gate = RateLimit(at_once=12)
            people = [chat(upstream, "good", gate), chat(upstream, "poor", gate)]
            found[name] = run(plan(*people, samples=samples), tmp_path / name)
            assert upstream.most_open <= 12 + 12  # a hung call leaves its place before the server notices
    calm, storm = found["calm"], found["storm"]
    assert calm.complete
    assert storm.complete
    assert storm.table.fingerprint() == calm.table.fingerprint()
    assert storm.spent == pytest.approx(calm.spent, rel=1e-12)
    assert calm.lost == 0
    assert storm.lost > 0
    right = np.array([int(q.references[0]) % 3 != 0 for q in QUESTIONS], dtype=float)
    np.testing.assert_array_equal(calm.table.score, np.column_stack([np.ones(20), right]))
    assert calm.spent == pytest.approx(float(calm.table.fee.sum()) * samples)
    assert calm.table.contexts is not None
    assert calm.table.contexts[1, 0] == "The answer is 8"


def test_the_servers_books_agree_with_ours(tmp_path: Path) -> None:
    with Upstream() as upstream:
        found = run(plan(chat(upstream, "good")), tmp_path / "j")
        assert found.spent == pytest.approx(upstream.charged, rel=1e-9)
        again = run(plan(chat(upstream, "good")), tmp_path / "j")
        assert again.bought == 0
        assert sum(upstream.asked.values()) == len(QUESTIONS)
    assert again.table.fingerprint() == found.table.fingerprint()
    assert again.spent == found.spent


@pytest.mark.parametrize("budget", [0.0, 0.05, 0.5, 0.75])
@pytest.mark.parametrize("stormy", [False, True])
def test_a_budget_is_never_exceeded_whatever_is_in_flight(
    tmp_path: Path, budget: float, stormy: bool
) -> None:
    worst: list[float] = []

    def tell(now: Status) -> None:
        worst.append(now.spent + now.lost)

    with Upstream(burst if stormy else lambda *_: None, slow=0.002) as upstream:
        one = chat(upstream, "good", retries=1, timeout=0.4)
        found = run(plan(one, chat(upstream, "poor", retries=1), budget=budget), tmp_path / "j", tell)
        assert upstream.charged <= budget + 1e-12
        assert max(worst, default=0.0) <= budget
        assert not found.complete
        assert found.unaffordable > 0
        left = budget - found.spent - found.lost
        assert left < max(2 * one.most(Request.of(q.text)) for q in QUESTIONS)
        if not stormy:
            np.testing.assert_array_equal(found.table.missing[:, 0], found.table.missing[:, 1])
        spent = run(plan(one, chat(upstream, "poor", retries=1), budget=budget), tmp_path / "j")
        assert spent.spent + spent.lost <= budget
        assert upstream.charged <= budget + 1e-12


def test_who_dies_stops_only_its_own_column(tmp_path: Path) -> None:
    def dying(model: str, prompt: str, attempt: int) -> str | None:
        dead = model == "poor" and int(prompt.split()[2]) >= 5
        return "500" if dead else None

    with Upstream(dying) as upstream:
        people = chat(upstream, "good"), chat(upstream, "poor", retries=1)
        found = run(plan(*people, at_once=1, give_up=3), tmp_path / "j")
        assert len([prompt for model, prompt in upstream.asked if model == "poor"]) == 8
        upstream.faults = lambda *_: None
        mended = run(plan(*people), tmp_path / "j")
    assert not found.table.missing[:, 0].any()
    assert found.table.missing[:, 1].tolist() == [False] * 5 + [True] * 15
    assert "status 500" in found.stopped["poor"]
    assert set(found.stopped) == {"poor"}
    assert mended.complete
    assert mended.bought == 15


def test_failures_now_and_then_stop_nobody(tmp_path: Path) -> None:
    with Upstream(lambda model, prompt, _: "400" if int(prompt.split()[2]) % 3 == 0 else None) as upstream:
        found = run(plan(chat(upstream, "good"), at_once=1, give_up=2), tmp_path / "j")
    assert not found.stopped
    assert found.table.missing[:, 0].tolist() == [i % 3 == 0 for i in range(20)]


@pytest.mark.parametrize("status", ["401", "404"])
def test_a_refused_key_or_model_is_asked_once(tmp_path: Path, status: str) -> None:
    with Upstream(lambda *_: status) as upstream:
        found = run(plan(chat(upstream, "good"), at_once=1), tmp_path / "j")
        assert sum(upstream.asked.values()) == 1
    assert f"status {status} (some_code)" in found.stopped["good"]
    assert found.lost == 0


def test_bad_answers_are_recorded_as_what_they_are(tmp_path: Path) -> None:
    kinds = ["empty", "refusal", "truncated", "html", "broken", "cut", "400", ""]

    def faults(model: str, prompt: str, attempt: int) -> str | None:
        return kinds[int(prompt.split()[2])] or None

    with Upstream(faults) as upstream:
        questions = QUESTIONS[: len(kinds)]
        found = run(plan(chat(upstream, "good", retries=1), questions=questions, give_up=9), tmp_path / "j")
    ends = {"empty": 1, "refusal": 1, "truncated": 1, "stop": 1}
    failures = {"content type": 1, "broken json": 1, "cut": 1, "status": 1}
    assert found.finishes["good"] == {**ends, **failures}
    np.testing.assert_array_equal(found.table.score[:, 0], [0, 0, 0, *[np.nan] * 4, 1])
    assert np.isfinite(found.table.fee[[0, 1, 2, 7], 0]).all()


def test_no_token_counts_no_fee_no_answer(tmp_path: Path) -> None:
    with Upstream(lambda *_: "uncounted") as upstream:
        found = run(plan(chat(upstream, "good"), at_once=1), tmp_path / "j")
    assert "no token counts" in found.stopped["good"]
    assert found.table.missing.all()
    assert found.lost > 0


def test_an_endpoints_limits_hold_over_all_its_specialists(tmp_path: Path) -> None:
    with Upstream(slow=0.01) as upstream:
        gate = RateLimit(at_once=3, per_minute=60 * 80)
        people = [chat(upstream, model, gate, timeout=5.0) for model in ("good", "poor")]
        assert run(plan(*people), tmp_path / "j").complete
        assert upstream.most_open <= 3
        assert upstream.starts[-1] - upstream.starts[0] >= 0.9 * 39 / 80


def test_a_long_burst_of_429_without_a_word_is_waited_out_together(tmp_path: Path) -> None:
    begun: list[float] = []

    def faults(*_: object) -> str | None:
        begun.append(time.monotonic())
        return "busy" if begun[-1] - begun[0] < 0.5 else None

    with Upstream(faults) as upstream:
        found = run(plan(chat(upstream, "good", retries=6, pause=0.05)), tmp_path / "j")
        assert found.complete
        assert found.lost == 0
        assert sum(upstream.asked.values()) < 20 + 8 * 6


def test_half_a_character_does_not_keep_a_table_from_being_written(tmp_path: Path) -> None:
    with Upstream(lambda *_: "half") as upstream:
        found = run(plan(chat(upstream, "good")), tmp_path / "j")
    assert found.table.score.all()
    storage.save(found.table, tmp_path / "table")


def test_a_run_broken_off_keeps_what_was_bought(tmp_path: Path) -> None:
    with Upstream(slow=0.02) as upstream:
        wanted = plan(chat(upstream, "good", RateLimit(at_once=2)))

        async def impatient() -> None:
            enough = asyncio.Event()
            with Journal(tmp_path / "j") as journal:
                work = asyncio.create_task(
                    collect(wanted, journal, lambda _: enough.set() if len(journal.answers) >= 3 else None)
                )
                await asyncio.wait_for(enough.wait(), 30.0)
                work.cancel()
                await work

        with pytest.raises(asyncio.CancelledError):
            asyncio.run(impatient())
        with Journal(tmp_path / "j") as journal:
            kept = len(journal.answers)
            assert journal.lost <= 2 * max(wanted.specialists[0].most(Request.of(q.text)) for q in QUESTIONS)
        found = run(wanted, tmp_path / "j")
    assert 0 < kept < 20
    assert found.bought == 20 - kept
    assert found.complete


def test_a_judge_is_paid_once_and_kept(tmp_path: Path) -> None:
    def faults(model: str, prompt: str, attempt: int) -> str | None:
        return "500" if model == "judge" and attempt == 0 else None

    with Upstream(faults) as upstream:
        judge = Judge(chat(upstream, "judge"))
        wanted = plan(chat(upstream, "poor"), graders={"sums": judge})
        judged = run(wanted, tmp_path / "j")
        assert judged.complete
        assert judged.spent == pytest.approx(upstream.charged)
        again = run(wanted, tmp_path / "j")
        assert again.spent == judged.spent
        assert again.table.fingerprint() == judged.table.fingerprint()
        compared = run(plan(chat(upstream, "poor")), tmp_path / "j")
        assert compared.bought == 0
    np.testing.assert_array_equal(judged.table.score, compared.table.score)
    assert judged.spent > float(judged.table.fee.sum())


def test_a_specialist_named_judge_has_counts_of_its_own(tmp_path: Path) -> None:
    def talks(prompt: str) -> str:
        return "Well, it depends."

    wanted = plan(
        Function("judge", talks, Tariff(0.0, 0.0, per_call=0.01)),
        graders={"": Judge(Function("talker", talks, FREE, at_once=1))},
        at_once=1,
        give_up=3,
    )
    found = run(wanted, tmp_path / "j")
    assert found.finishes == {"judge": {"stop": 20}}
    assert found.stopped == {}
    assert found.verdicts == {"invalid reply": 3}
    assert found.judge_stopped == "the judge gave no verdict"


def test_keys_are_in_no_file_and_no_message(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Upstream(lambda model, *_: "401" if model == "poor" else None) as upstream:
        people = chat(upstream, "good"), chat(upstream, "poor")
        found = run(plan(*people), tmp_path / "j")
        assert upstream.keys == {f"Bearer {SECRET}"}
    seen = (
        (tmp_path / "j").read_text()
        + str(found)
        + repr(people)
        + people[0].identity
        + str(capfd.readouterr())
    )
    assert SECRET not in seen


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", [*ODD, "year", "status line"])
def test_an_odd_reply_costs_its_own_cell_only(
    tmp_path: Path,
    fault: str,
    stream: bool,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Whatever one reply holds, the other cells are bought, and the key is in no file, message or log."""
    caplog.set_level("DEBUG")
    odd = QUESTIONS[3].text
    with Upstream(lambda m, p, a: fault if p == odd else None) as upstream:
        one = chat(upstream, "good", retries=1, timeout=5.0, stream=stream)
        one = replace(one, asking=replace(one.asking, context_tokens=2))
        found = run(plan(one, at_once=1), tmp_path / "j")
        if fault == "liar":
            assert set(found.stopped) == {"good"}
            assert found.bought == 3
        else:
            assert found.stopped == {}
            assert found.table.missing.sum() <= 1
            assert found.bought >= 19
        assert math.isfinite(found.spent + found.lost)
        upstream.faults = lambda *_: None
        again = run(plan(one), tmp_path / "j")
        assert again.complete
        assert again.bought == 20 - found.bought
    seen = (tmp_path / "j").read_text() + str(found) + caplog.text + str(capfd.readouterr())
    seen += repr(found.table.contexts)
    assert not any(form in seen for form in (SECRET, base64.b64encode(SECRET.encode()).decode()[:16]))


@pytest.mark.parametrize(
    "options", [{"max_tokens": 4000}, {"n": 3}, {"max_completion_tokens": 900}, {"best_of": 2}]
)
def test_the_worst_case_follows_what_is_sent(options: dict[str, int]) -> None:
    usual = ChatEndpoint("one", Endpoint("http://127.0.0.1:9/v1"), "good", PRICES, Asking(tokens=100))
    changed = replace(usual, asking=replace(usual.asking, options=options))
    factor = {"max_tokens": 40.0, "n": 3.0, "max_completion_tokens": 9.0, "best_of": 2.0}[next(iter(options))]
    ask = Request.of("What is 2 + 3?")
    extra = 3 * 100 * (factor - 1) * PRICE_OUT / 1e6
    assert changed.most(ask) - usual.most(ask) == pytest.approx(extra, rel=0.1)
    for bad in (
        {"max_tokens": None},
        {"n": 0},
        {"n_predict": -1},
        {"max_tokens": True},
        {"stream": True},
        {"messages": []},
    ):
        with pytest.raises(UsageError, match="options"):
            Asking(options=bad)


def test_a_provider_that_lies_is_stopped_and_counted_once(tmp_path: Path) -> None:
    """Only calls in flight when the first lie arrives can go over; nothing is asked after it."""
    with Upstream(lambda *_: "liar", slow=0.01) as upstream:
        one = chat(upstream, "good", RateLimit(at_once=2), timeout=5.0)
        found = run(plan(one, budget=5.0), tmp_path / "j")
        assert sum(upstream.asked.values()) <= 2
        assert "was agreed" in found.stopped["good"]
        assert found.spent + found.lost <= 5.0
        run(plan(one, budget=5.0), tmp_path / "j")


def test_a_bug_in_a_specialist_is_raised_plainly(tmp_path: Path) -> None:
    class Broken:
        name = identity = "broken"
        at_once = 1

        def most(self, request: Request) -> float:
            return 0.0

        async def answer(self, request: Request, begun: object = None) -> Answer:
            raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        run(plan(Broken()), tmp_path / "j")


def test_who_charges_more_than_agreed_is_asked_no_more(tmp_path: Path) -> None:
    class Greedy:
        name = identity = "greedy"
        at_once = 1

        def most(self, request: Request) -> float:
            return 0.1

        async def answer(self, request: Request, begun: object = None) -> Answer:
            return Answer("1", None, None, 0.0, 0.5)

    found = run(plan(Greedy(), at_once=1), tmp_path / "j")
    assert (found.bought, found.answers, found.lost) == (0, 0, 0.1)
    assert "at most 0.1 was agreed" in found.stopped["greedy"]


class Odd:
    """A specialist whose first answers are `odd`, and then 1; every call costs at most 1."""

    name = identity = "odd"
    at_once = 1

    def __init__(self, *odd: Answer | Exception) -> None:
        self.odd = list(odd)

    def most(self, request: Request) -> float:
        return 1.0

    async def answer(self, request: Request, begun: object = None) -> Answer:
        reply = self.odd.pop(0) if self.odd else Answer("1", 1, 1, 0.1, 0.5)
        if isinstance(reply, Exception):
            raise reply
        return reply


@pytest.mark.parametrize(
    "odd",
    [
        Answer("1", 10**400, 1, 0.1, 0.5),
        Answer("1", 1, 1, float("inf"), 0.5),
        Answer("1", 1, 1, 0.1, 0.5, logprobs=(float("-inf"),)),
        OverflowError("int too large to convert to float"),
        RecursionError("maximum recursion depth exceeded"),
        ValueError("Exceeds the limit (4300 digits)"),
    ],
)
def test_one_odd_reply_costs_only_its_own_cell(tmp_path: Path, odd: Answer | Exception) -> None:
    found = run(plan(Odd(odd)), tmp_path / "j")
    assert found.table.missing[:, 0].tolist() == [True] + [False] * 19
    assert (found.spent, found.lost) == (9.5, 1.0)
    again = run(plan(Odd()), tmp_path / "j")
    assert again.complete
    assert (again.bought, again.damaged, again.spent, again.lost) == (1, 0, 10.0, 1.0)


@pytest.mark.parametrize("fee", [float("inf"), float("nan"), 1e300, 1.1, -0.1])
def test_a_fee_that_cannot_be_true_is_never_written(tmp_path: Path, fee: float) -> None:
    found = run(plan(Odd(Answer("1", 1, 1, 0.1, fee)), budget=40.0), tmp_path / "j")
    assert (found.bought, found.spent, found.lost) == (0, 0.0, 1.0)
    assert "at most 1 was agreed" in found.stopped["odd"]
    again = run(plan(Odd(), budget=40.0), tmp_path / "j")
    assert again.complete
    assert (again.spent, again.lost) == (10.0, 1.0)


def test_two_calls_in_flight_at_a_lying_provider_keep_the_books_within_the_budget(tmp_path: Path) -> None:
    class Liar(Odd):
        at_once = 2

        async def answer(self, request: Request, begun: object = None) -> Answer:
            await asyncio.sleep(0.01)
            return Answer("1", 1, 10**12, 0.1, 1e6)

    found = run(plan(Liar(), budget=5.0), tmp_path / "j")
    assert found.spent + found.lost <= 2.0
    assert "odd" in found.stopped


def test_a_tight_budget_buys_whole_rows_and_a_dead_column_gives_its_money_back(tmp_path: Path) -> None:
    class Slow(Odd):
        name = identity = "slow"

        async def answer(self, request: Request, begun: object = None) -> Answer:
            await asyncio.sleep(0.002)
            return await super().answer(request)

    found = run(plan(Odd(), Slow(), budget=7.3), tmp_path / "j")
    assert found.table.missing.all(axis=1).tolist() == found.table.missing.any(axis=1).tolist()
    assert found.table.missing[:, 0].sum() == 20 - 6  # six rows at 1 each; the seventh may cost 2
    dead = Slow(Answer("1", 1, 1, 0.1, 99.0))
    half = run(plan(Odd(), dead, budget=12.0), tmp_path / "k")
    assert not half.table.missing[:, 0].any()
    assert (half.spent, half.lost) == (10.0, 1.0)


def test_a_damaged_line_is_set_aside_and_the_rest_is_kept(tmp_path: Path) -> None:
    wanted = plan(Odd(), at_once=1, questions=QUESTIONS[:3])
    whole = run(wanted, tmp_path / "j")
    rows = (tmp_path / "j").read_bytes().split(b"\n")
    second = next(i for i, row in enumerate(rows) if b'"kind":"answer"' in row) + 2
    body = rows[second].split(b" ", 1)[1].replace(b'"fee":0.5', b'"fee":Infinity')
    rows[second] = b"%08x %s" % (zlib.crc32(body), body)  # as earlier versions wrote it
    rows.insert(1, b"deadbeef {}")
    nested = b"[" * 100_000
    rows.insert(3, b"%08x %s" % (zlib.crc32(nested), nested))
    (tmp_path / "j").write_bytes(b"\n".join(rows))
    with Journal(tmp_path / "j") as journal:
        assert (journal.damaged, len(journal.answers), float(journal.lost)) == (3, 2, 1.0)
        with pytest.raises(UsageError, match="in use"):
            Journal(tmp_path / "j")
    aside = journal.damaged_path.read_bytes().split(b"\n")
    assert aside == [b"deadbeef {}", rows[3], rows[second + 2], b""]
    again = run(wanted, tmp_path / "j")
    assert (again.damaged, again.bought, again.complete) == (0, 1, True)
    assert again.table.fingerprint() == whole.table.fingerprint()


def test_torn_tails_are_cut_off_at_any_byte_and_other_files_are_refused(tmp_path: Path) -> None:
    adder = Function("adder", lambda prompt: str(sum(int(n) for n in prompt.split() if n.isdigit())), FREE)
    wanted = plan(adder, at_once=1, questions=QUESTIONS[:3])
    whole = run(wanted, tmp_path / "whole")
    data = (tmp_path / "whole").read_bytes()
    for end in [*range(0, len(data), 23), *range(len(data) - 40, len(data))]:
        path = tmp_path / "torn"
        path.write_bytes(data[:end])
        with Journal(path) as journal:
            assert journal.torn == (0 if not end else end - (data.rfind(b"\n", 0, end) + 1))
            kept = len(journal.answers)
        if end % 92 == 0:
            found = run(wanted, path)
            assert found.bought == 3 - kept
            assert found.table.fingerprint() == whole.table.fingerprint()
            assert run(wanted, path).torn == 0
    (tmp_path / "zeros").write_bytes(data + b"\0" * 100)
    with Journal(tmp_path / "zeros") as journal:
        assert journal.torn == 100
    (tmp_path / "other").write_text("dear diary\n")
    with pytest.raises(UsageError, match="another kind"):
        Journal(tmp_path / "other")
    assert (tmp_path / "other").read_text() == "dear diary\n"


def test_a_call_begun_and_never_ended_is_lost_money(tmp_path: Path) -> None:
    with Journal(tmp_path / "j"):
        pass
    with (tmp_path / "j").open("ab") as file:
        for _ in range(2):
            file.write(line({"kind": "begin", "key": "k", "most": 0.25}))
    with Journal(tmp_path / "j") as journal:
        assert float(journal.lost) == 0.5


def test_a_full_disk_ends_the_run_and_the_next_one_continues(tmp_path: Path) -> None:
    wanted = plan(Function("echo", lambda prompt: prompt, Tariff(0.0, 0.0, per_call=0.01)))
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)

    async def bounded(journal: Journal) -> None:
        async with asyncio.timeout(30.0):
            await collect(wanted, journal)

    def on_a_full_disk(journal: Journal) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, unlimited[1]))
        try:
            asyncio.run(bounded(journal))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)

    with Journal(tmp_path / "j") as journal:
        with pytest.raises(OSError, match="too large"):
            on_a_full_disk(journal)
        kept = len(journal.answers)
    assert 0 < kept < 20
    found = run(wanted, tmp_path / "j")
    assert found.complete
    assert found.bought <= 20 - kept  # of the last lines some may have come through whole


def test_two_collects_cannot_share_a_journal(tmp_path: Path) -> None:
    with Journal(tmp_path / "j"), pytest.raises(UsageError, match="in use"):
        Journal(tmp_path / "j")

"""What a request costs that its bytes do not show: input that lies at the provider, output that is not sent.

The law in every case: a key is charged what the provider's own books say, and never beyond its budget.
"""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("uvicorn", reason="pip install 'pandora-router[serve]'")

from pandora_router.prices import Tariff
from pandora_router.store import accounts
from pandora_router.store.money import nanodollars
from pandora_router.wires.demand import PER_SECOND, demand_of, sound_tokens
from tests.gateway.conftest import Running, Serve, backend
from tests.gateway.test_attacks import key
from tests.gateway.test_parts import recorded
from tests.gateway.test_wires import PATHS, post, request
from tests.support.provider import Provider
from tests.support.provider_models import Asked, Bill, Fault, Model, Stream
from tests.support.provider_replies import Said, Tokens

KEPT = 50_000
"""Tokens of input that lies at the provider."""
CONTEXT = 60_000
AWAY: dict[str, dict[str, Any]] = {
    "an item": {"input": [{"type": "item_reference", "id": "msg_1"}, {"role": "user", "content": "hi"}]},
    "an earlier response": {"previous_response_id": "resp_1"},
    "a conversation": {"conversation": "conv_1"},
    "a stored prompt": {"prompt": {"id": "pmpt_1"}},
    "a file": {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file_1"}]}]},
    "a file by address": {
        "input": [
            {"role": "user", "content": [{"type": "input_file", "file_url": "https://example.com/a.pdf"}]}
        ]
    },
}


class Keeping(Provider):
    """Bills `KEPT` tokens of input beside those of the request."""

    def count(self, asked: Asked, model: Model, said: Said, copies: int = 1) -> Tokens:
        return Tokens(KEPT + 5, 0, 0, said.tokens)


@pytest.fixture
def keeping() -> Iterator[Keeping]:
    with closing(Keeping({"small": Model(first=0.1)})) as running:
        yield running


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("what", AWAY)
def test_input_that_lies_at_the_provider_is_charged_as_billed(
    serve: Serve, keeping: Keeping, what: str, stream: bool
) -> None:
    gateway = serve(backend(keeping, "small"))
    body = {**request("responses", "small", stream=stream, max_output_tokens=50), **AWAY[what]}
    status, headers, _ = post(gateway, "responses", body)
    assert status == 200
    assert gateway.settled(headers["x-pandora-decision-id"])[1] == keeping.log[-1].nanodollars


def at_once(gateway: Running, path: str, body: dict[str, Any], secret: str, many: int = 30) -> set[int]:
    statuses: list[int] = []

    def client() -> None:
        statuses.append(post(gateway, path, body, Authorization=f"Bearer {secret}")[0])

    threads = [threading.Thread(target=client) for _ in range(many)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return set(statuses)


@pytest.mark.parametrize("what", AWAY)
def test_input_that_lies_at_the_provider_is_reserved(serve: Serve, keeping: Keeping, what: str) -> None:
    """Thirty requests at once, each of which is billed 5 cents, with a budget of 30 cents."""
    gateway = serve(backend(keeping, "small", context=CONTEXT), keys=True)
    secret = key(gateway, "team", budget=nanodollars(0.3))
    body = {**request("responses", "small", max_output_tokens=50), **AWAY[what]}
    statuses = at_once(gateway, "responses", body, secret)
    billed = sum(bill.nanodollars for bill in keeping.log)
    assert billed <= nanodollars(0.3)
    assert {200, 429} == statuses
    assert billed == gateway.rows("SELECT sum(cost) FROM attempts")[0][0]


def test_a_budget_needs_to_know_how_long_unseen_input_may_be(serve: Serve, keeping: Keeping) -> None:
    gateway = serve(backend(keeping, "small"), keys=True)
    limited, free = key(gateway, "limited", budget=nanodollars(1.0)), key(gateway, "free")
    for what in AWAY.values():
        body = {**request("responses", "small", max_output_tokens=50), **what}
        for path in ("responses", "responses/compact"):
            status, _, answer = post(gateway, path, body, Authorization=f"Bearer {limited}")
            assert (status, b"add window: ..." in answer, keeping.log) == (400, True, [])
    assert post(gateway, "responses", body, Authorization=f"Bearer {free}")[0] == 200


LONG = 4000  # tokens of an answer


@pytest.mark.parametrize(
    "more",
    [
        {"thinking": {"type": "enabled", "budget_tokens": LONG}},
        {"thinking": {"type": "enabled", "budget_tokens": LONG}, "max_tokens": 50},
        {"reasoning": {"max_tokens": LONG}, "max_tokens": 50},
        {"options": {"num_predict": LONG}, "max_tokens": 50},
        {"extra_body": {"max_tokens": LONG}, "max_tokens": 50},
        {"min_tokens": LONG, "max_tokens": 50},
    ],
    ids=json.dumps,
)
@pytest.mark.parametrize("wire", ["chat", "messages"])
def test_a_limit_under_another_name_is_reserved(serve: Serve, wire: str, more: dict[str, Any]) -> None:
    """Thirty requests at once, each of which is billed 4 cents, with a budget of 15 cents."""
    with closing(Provider({"small": Model(lambda _: Said(("x",), output=LONG), first=0.1)})) as books:
        gateway = serve(backend(books, "small"), keys=True)
        secret = key(gateway, "team", budget=nanodollars(0.15))
        assert at_once(gateway, PATHS[wire], {**request(wire, "small"), **more}, secret) == {200, 429}
        billed = sum(bill.nanodollars for bill in books.log)
        assert nanodollars(0.04) <= billed <= nanodollars(0.15)
        assert billed == gateway.rows("SELECT sum(cost) FROM attempts")[0][0]


def test_limits_of_reasoning_that_are_none_are_refused(serve: Serve, keeping: Keeping) -> None:
    gateway = serve(backend(keeping, "small"))
    for limit in ("4000", 4000.0, -1, True, 10**8):
        status, _, answer = post(
            gateway, PATHS["chat"], request("chat", "small", thinking={"budget_tokens": limit})
        )
        assert (status, b"thinking.budget_tokens" in answer) == (400, True)
    off = request("chat", "small", thinking={"type": "disabled", "budget_tokens": 0}, reasoning=None)
    assert post(gateway, PATHS["chat"], off)[0] == 200


@pytest.mark.parametrize("path", ["embeddings", "responses/compact"])
def test_the_budget_of_a_group_binds_calls_that_are_passed_on(
    serve: Serve, keeping: Keeping, path: str
) -> None:
    """A key without a budget of its own, in a group with one, asks at prices that are not known."""
    gateway = serve(backend(keeping, "small"), keys=True)

    def make(open_: Any) -> str:
        accounts.set_group(open_, "research", budget=nanodollars(1.0), period="week")
        return accounts.add_key(open_, "alice", time.time(), group="research")[1]

    alice = gateway.gateway.store.submit(make).result(30)
    body = {"model": "small", "input": "hi"}
    for more, said in (
        ({"service_tier": "priority"}, b"service_tier"),
        ({"background": True}, b"background"),
    ):
        status, _, answer = post(gateway, path, {**body, **more}, Authorization=f"Bearer {alice}")
        assert (status, said in answer) == (400, True)
    assert post(gateway, path, body, Authorization=f"Bearer {alice}")[0] == 200


def test_servers_of_tools_are_calls_without_a_limit(serve: Serve, keeping: Keeping) -> None:
    gateway = serve(backend(keeping, "small", prices=Tariff(1.0, 10.0, tools=(("mcp", 0.01),))), keys=True)
    limited = key(gateway, "limited", budget=nanodollars(1.0))
    body = request("messages", "small", mcp_servers=[{"type": "url", "url": "https://example.com"}])
    status, _, answer = post(gateway, "messages", body, Authorization=f"Bearer {limited}")
    assert (status, b"may call mcp any number of times" in answer) == (400, True)


def leave(gateway: Running, secret: str, *, events: int = 0, seconds: float = 0.0, stream: bool) -> int:
    """Ask, and leave after so many events or seconds; what that was charged."""
    before = len(gateway.rows("SELECT id FROM attempts"))
    asked = request("chat", "small", stream=stream, max_tokens=4000, messages=[SAYS])
    body, where = json.dumps(asked).encode(), urlsplit(gateway.url)
    headers = f"authorization: Bearer {secret}\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.create_connection((where.hostname, where.port), timeout=30) as client:
        client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n" + headers.encode() + body)
        time.sleep(seconds)
        received = b""
        while received.count(b"data:") < events:
            received += client.recv(65536)
    until = time.monotonic() + 30
    settled = "SELECT cost FROM attempts WHERE status != 'open'"
    while len(gateway.rows(settled)) <= before:
        assert time.monotonic() < until
        time.sleep(0.02)
    return int(gateway.rows("SELECT cost FROM attempts WHERE status = 'cancelled'")[-1][0])


SAYS = {"role": "user", "content": "tell me about rivers " * 10}


def bill_of_cancelled(books: Provider) -> Bill:
    until = time.monotonic() + 30
    while not (bills := [bill for bill in books.log if bill.ended == "cancelled"]):
        assert time.monotonic() < until
        time.sleep(0.02)
    return bills[-1]


def every_tenth(stream: Stream) -> Stream:
    """A provider that sends ten tokens in one event."""
    words = [at for at, (frame, _) in enumerate(stream) if b'"content": " w' in frame]
    left_out = {at for i, at in enumerate(words) if i % 10 != 9}
    return tuple(event for at, event in enumerate(stream) if at not in left_out)


WORDS = tuple(f" w{i}" for i in range(300))


@pytest.mark.parametrize(
    ("model", "events"),
    [
        (Model(lambda _: Said(WORDS, hidden=600), each=0.001), 100),
        (
            Model(
                lambda _: Said(WORDS),
                each=0.003,
                fault=lambda _: Fault(rewrite=lambda s: every_tenth(tuple(s))),
            ),
            25,
        ),
    ],
    ids=["hidden reasoning", "ten in one event"],
)
def test_a_client_that_leaves_pays_for_what_was_written_and_not_shown(
    serve: Serve, model: Model, events: int
) -> None:
    """Another key has had whole answers; this one leaves each before its token counts come."""
    with closing(Provider({"small": model})) as books:
        gateway = serve(backend(books, "small", cancel="stops"), keys=True)
        one, other = key(gateway, "one"), key(gateway, "other")
        whole = request("chat", "small", stream=True, max_tokens=4000, messages=[SAYS])
        for _ in range(3):
            assert post(gateway, PATHS["chat"], whole, Authorization=f"Bearer {one}")[0] == 200
        cost = leave(gateway, other, events=events, stream=True)
        bill = bill_of_cancelled(books).nanodollars
        assert 0.7 * bill <= cost <= 1.5 * bill


@pytest.mark.parametrize("known", ["nothing", "whole answers", "streams"])
def test_a_client_that_leaves_before_a_whole_answer_pays_for_what_was_written(
    serve: Serve, known: str
) -> None:
    with closing(Provider({"small": Model(lambda _: Said(WORDS), each=0.008)})) as books:
        gateway = serve(backend(books, "small", cancel="stops"), keys=True)
        one, other = key(gateway, "one"), key(gateway, "other")
        if known != "nothing":
            asked = request("chat", "small", stream=known == "streams", messages=[SAYS])
            assert post(gateway, PATHS["chat"], asked, Authorization=f"Bearer {one}")[0] == 200
        cost = leave(gateway, other, seconds=1.2, stream=False)
        bill = bill_of_cancelled(books).nanodollars
        assert 0.7 * bill <= cost <= 1.5 * bill


SEEN = 4000
"""Tokens of one image."""
URL = "https://example.com/a.png"
PICTURE = {"type": "image", "source": {"type": "url", "url": URL}}
SCREEN = {"type": "computer_screenshot", "image_url": URL}
SHOWN: dict[str, tuple[str, dict[str, Any]]] = {
    "Messages": ("messages", {"type": "tool_result", "tool_use_id": "t", "content": [PICTURE]}),
    "Responses": (
        "responses",
        {
            "type": "function_call_output",
            "call_id": "t",
            "output": [{"type": "input_image", "image_url": URL}],
        },
    ),
    "Responses, a screen": ("responses", {"type": "computer_call_output", "call_id": "t", "output": SCREEN}),
}
"""Images in the results of tools, by address: a few bytes for many tokens."""


class Seeing(Provider):
    """Bills `SEEN` tokens of input for the image beside those of the request."""

    def count(self, asked: Asked, model: Model, said: Said, copies: int = 1) -> Tokens:
        return Tokens(SEEN + 5, 0, 0, said.tokens)


@pytest.mark.parametrize("what", SHOWN)
def test_images_in_the_results_of_tools_are_reserved_and_charged(serve: Serve, what: str) -> None:
    """Thirty requests at once, each of which is billed 0.4 cents, with a budget of 10 cents."""
    wire, result = SHOWN[what]
    item = {"role": "user", "content": [result]} if wire == "messages" else result
    member = "messages" if wire == "messages" else "input"
    body = {**request(wire, "small"), member: [{"role": "user", "content": "hi"}, item]}
    with closing(Seeing({"small": Model(first=0.1)})) as seeing:
        prices = Tariff(1.0, 10.0, image_in=1.0)
        backends = (("small", frozenset({"images"})), ("blind", frozenset[str]()))
        served = (backend(seeing, name, prices=prices, abilities=able) for name, able in backends)
        gateway = serve(*served, keys=True)
        secret = key(gateway, "team", budget=nanodollars(0.1))
        body |= {"max_output_tokens" if wire == "responses" else "max_tokens": 50}
        assert at_once(gateway, PATHS[wire], body, secret) == {200, 429}
        assert sum(bill.nanodollars for bill in seeing.log) <= nanodollars(0.1)
        charged = gateway.rows("SELECT cost FROM attempts")
        assert [cost for (cost,) in charged] == [bill.nanodollars for bill in seeing.log]
        free = key(gateway, "free")
        status, _, said = post(
            gateway, PATHS[wire], {**body, "model": "blind"}, Authorization=f"Bearer {free}"
        )
        assert (status, b"cannot: images" in said) == (400, True)


IMAGE = {"type": "image_url", "image_url": {"url": URL}}
SOME = 250_000
"""The window of the model below, in tokens."""


class Billing(Provider):
    """Bills `read` tokens of input and `wrote` tokens of output, whatever it was asked."""

    read, wrote = 20, 4

    def count(self, asked: Asked, model: Model, said: Said, copies: int = 1) -> Tokens:
        return Tokens(self.read, 0, 0, self.wrote)


@pytest.fixture
def billing() -> Iterator[Billing]:
    with closing(Billing({"small": Model(first=0.1)})) as running:
        yield running


def spoken(wire: str, *parts: Any) -> dict[str, Any]:
    text = {"type": "input_text" if wire == "responses" else "text", "text": "what is this"}
    limit = "max_output_tokens" if wire == "responses" else "max_tokens"
    member = "input" if wire == "responses" else "messages"
    return {member: [{"role": "user", "content": [*parts, text]}], limit: 50}


def sound(data: str) -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}


FLAC = base64.b64encode(b"fLaC" + bytes(60)).decode()
EARLIER = {"role": "assistant", "audio": {"id": "audio_1"}}
THERE = {
    "a video": ("chat", spoken("chat", {"type": "video_url", "video_url": {"url": "https://a.b/c.mp4"}})),
    "a sound by address": ("chat", spoken("chat", {"type": "audio_url", "audio_url": {"url": URL}})),
    "a sound of a length that only its decoder knows": ("chat", spoken("chat", sound(FLAC))),
    "an earlier answer in sound": ("chat", {"messages": [EARLIER, SAYS], "max_tokens": 50}),
    "a file of a container": (
        "messages",
        spoken("messages", {"type": "container_upload", "file_id": "file_1"}),
    ),
    "a part that is new": ("responses", spoken("responses", {"type": "input_hologram", "url": URL})),
    "an image made before": (
        "responses",
        {"input": [{"type": "image_generation_call", "id": "ig_1"}, SAYS], "max_output_tokens": 50},
    ),
    "reasoning kept there": (
        "responses",
        {"input": [{"type": "reasoning", "id": "rs_1", "summary": []}, SAYS], "max_output_tokens": 50},
    ),
}
"""A few bytes for many tokens, beside what `AWAY` has."""


@pytest.mark.parametrize("what", THERE)
def test_what_the_bytes_do_not_limit_is_charged_as_billed_and_reserved(
    serve: Serve, billing: Billing, what: str
) -> None:
    wire, more = THERE[what]
    billing.read = 30_000
    windows = (("small", SOME), ("unknown", None))
    prices = Tariff(1.0, 10.0, audio_in=1.0)
    served = (backend(billing, name, context=window, prices=prices) for name, window in windows)
    gateway = serve(*served, keys=True)
    free, limited = key(gateway, "free"), key(gateway, "limited", budget=nanodollars(0.85))
    body = {**request(wire, "small"), **more}
    status, headers, _ = post(gateway, PATHS[wire], body, Authorization=f"Bearer {free}")
    assert status == 200
    assert gateway.settled(headers["x-pandora-decision-id"])[1] == billing.log[-1].nanodollars
    billing.log.clear()
    assert at_once(gateway, PATHS[wire], body, limited) == {200, 429}
    assert 0 < sum(bill.nanodollars for bill in billing.log) <= nanodollars(0.85)
    unknown = {**body, "model": "unknown"}
    status, _, answer = post(gateway, PATHS[wire], unknown, Authorization=f"Bearer {limited}")
    assert (status, b"add window: ..." in answer) == (400, True)


@pytest.mark.parametrize("window", [None, 200_000], ids=["no window", "a window"])
def test_a_budget_holds_against_long_sounds(serve: Serve, billing: Billing, window: int | None) -> None:
    """Two hours, thirty times at once; the budget is enough for one reservation."""
    billing.read = 7200 * PER_SECOND if window is None else window
    prices = Tariff(1.0, 10.0, audio_in=1.0)
    gateway = serve(backend(billing, "small", prices=prices, context=window), keys=True)
    secret = key(gateway, "team", budget=nanodollars(0.85))
    body = {**request("chat", "small"), **spoken("chat", sound(recorded(7200.0)))}
    assert at_once(gateway, PATHS["chat"], body, secret) == {200, 429}
    assert 0 < sum(bill.nanodollars for bill in billing.log) <= nanodollars(0.85)


def mp3(seconds: float, tag: int = 0) -> tuple[bytes, float]:
    """MPEG audio at 8 kbit/s after a tag of so many bytes, and its exact length in seconds."""
    head = b"ID3\x04\x00\x00" + bytes([tag >> 21, tag >> 14 & 127, tag >> 7 & 127, tag & 127]) + bytes(tag)
    count = round(seconds * 24_000 / 576)  # frames of 576 samples, at 24 kHz
    return (head if tag else b"") + count * (b"\xff\xf3\x14\xc4" + bytes(20)), count * 576 / 24_000


@pytest.mark.parametrize("tag", [0, 5000])
def test_the_seconds_of_a_sound_are_counted_in_full(tag: int) -> None:
    data, seconds = mp3(600.0, tag)
    slow = base64.b64encode(data).decode()
    told = {sent: sound_tokens({"data": sent, "format": "x"}) for sent in (slow, recorded(seconds))}
    assert all(0 <= (tokens or 0) - PER_SECOND * seconds < 200 for tokens in told.values())
    assert sound_tokens({"data": f"data:audio/mpeg;base64,{slow}"}) == told[slow]
    for unknown in ({"data": "///"}, {"data": 5}, {"url": URL}, {"data": slow, "url": URL}, {"data": FLAC}):
        assert sound_tokens(unknown) is None


def test_a_sound_whose_header_can_be_read_in_two_ways_is_not_measured() -> None:
    whole = base64.b64decode(recorded(60.0))
    form = whole[12:36]
    faster = form[:12] + (10**6).to_bytes(4, "little") + form[16:]
    for other in (
        whole[:12] + faster + whole[12:],
        whole[:12] + b"JUNK\x07\0\0\0" + bytes(7) + whole[12:],
        whole[:12] + b"JUNK\0\x40\0\0" + faster + bytes(0x4000 - 24) + whole[12:],
        whole[:20] + b"\x11\0" + whole[22:],  # ADPCM
    ):
        assert sound_tokens({"data": base64.b64encode(other).decode()}) is None


UNBROKEN = "QUJD" * 100_000
COMPACTS = {"context_management": {"edits": [{"type": "compact_20260112"}]}}


@pytest.mark.parametrize(
    ("more", "read", "wrote", "budget"),
    [
        (spoken("chat", IMAGE, {"type": "text", "text": UNBROKEN}), 300_000, 4, 1.5),
        (
            {**spoken("chat"), "prediction": {"type": "content", "content": "x " * 50_000}},
            *(20, 50_000, 1.4),
        ),
    ],
    ids=["text without spaces beside an image", "a prediction that is wrong"],
)
def test_a_budget_holds_against_requests_that_are_billed_for_more_than_they_show(
    serve: Serve, billing: Billing, more: dict[str, Any], read: int, wrote: int, budget: float
) -> None:
    """Thirty at once; the budget is enough for one reservation."""
    billing.read, billing.wrote = read, wrote
    gateway = serve(backend(billing, "small", prices=Tariff(1.0, 10.0, image_in=1.0)), keys=True)
    secret = key(gateway, "team", budget=nanodollars(budget))
    assert at_once(gateway, PATHS["chat"], {**request("chat", "small"), **more}, secret) == {200, 429}
    billed = sum(bill.nanodollars for bill in billing.log)
    assert 0 < billed <= nanodollars(budget)
    assert billed == gateway.rows("SELECT sum(cost) FROM attempts")[0][0]


def summed(usage: dict[str, Any]) -> dict[str, Any]:
    """The counts as Anthropic states them after a summary: at the top those of the answer alone."""
    step = {"type": "compaction", "input_tokens": 40_000, "output_tokens": 600}
    answer = {"type": "message", "input_tokens": usage["input_tokens"] - 40_000, "output_tokens": 9}
    return {**usage, **answer, "type": None, "iterations": [step, answer]}


@pytest.mark.parametrize("stream", [False, True])
def test_a_summary_that_the_provider_writes_first_is_charged(serve: Serve, stream: bool) -> None:
    with closing(Billing({"small": Model(lie=summed)})) as billing:
        billing.read, billing.wrote = 45_000, 609
        small = backend(billing, "small")
        gateway = serve(small)
        says = {"role": "user", "content": "x" * 24_000}
        body = {**request("messages", "small", stream=stream, messages=[says]), **COMPACTS}
        headers = post(gateway, "messages", body)[1]
        bill = billing.log[-1].nanodollars
        assert gateway.settled(headers["x-pandora-decision-id"])[1] == bill
        assert bill <= small.bound(len(json.dumps(body)), body["max_tokens"], demand_of(body))


@pytest.mark.parametrize("input_", [[IMAGE], [{"image": URL}], [["x", {"image": URL}]]])
def test_embeddings_of_images_are_charged_as_billed_and_reserved(serve: Serve, input_: list[Any]) -> None:
    def claim(usage: Any) -> dict[str, int]:
        return {"prompt_tokens": 30_000, "total_tokens": 30_000}

    with closing(Provider({"small": Model(lie=claim)})) as books:
        gateway = serve(
            backend(books, "small", context=SOME, prices=Tariff(1.0, 0.0, image_in=1.0)), keys=True
        )
        poor, rich = key(gateway, "poor", budget=nanodollars(0.2)), key(gateway, "rich")
        body = {"model": "small", "input": input_}
        assert post(gateway, "embeddings", body, Authorization=f"Bearer {poor}")[0] == 429
        status, headers, _ = post(gateway, "embeddings", body, Authorization=f"Bearer {rich}")
        assert (status, gateway.settled(headers["x-pandora-decision-id"])[1]) == (200, nanodollars(0.03))


@pytest.mark.parametrize("wire", ["responses", "chat"])
def test_members_that_the_file_adds_are_reserved_and_charged(
    serve: Serve, billing: Billing, wire: str
) -> None:
    """A request of a few bytes to a specialist whose file gives it 8,000 characters of instructions."""
    billing.read, billing.wrote = 2000, 1
    own: Any = {"responses": {"instructions": "Be brief. " * 800}}
    wires = frozenset({"responses"})  # a chat request is translated
    gateway = serve(backend(billing, "small", own=own, wires=wires))
    limit = "max_output_tokens" if wire == "responses" else "max_tokens"
    headers = post(gateway, PATHS[wire], request(wire, "small", **{limit: 1}))[1]
    assert gateway.settled(headers["x-pandora-decision-id"])[1] == billing.log[-1].nanodollars

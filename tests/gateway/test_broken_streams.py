"""Streams of specialists of another wire that are cut, interleaved or full of rubbish, over real sockets.

Each case is drawn from a seed: what the model says, what is put between its events and where the stream ends.
What a client gets is read by the strict readers below, which know nothing of our own code, and what it is
charged is held against the books of the provider.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest

from pandora_router.gateway.providers.backend import Backend
from pandora_router.prices import Tariff
from pandora_router.transport.endpoint import Endpoint
from tests.gateway.conftest import Running, Serve
from tests.gateway.test_wires import PATHS, post, request
from tests.support.provider import Provider
from tests.support.provider_models import Fault, Model, Stream
from tests.support.provider_replies import Said

PAIRS = list(itertools.permutations(PATHS, 2))
CASES = 50
MOST = 60
"""Output tokens that a request allows."""
LIMITS = {"chat": "max_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}

HARMLESS = [
    b": a comment\n\n",
    b'event: ping\r\ndata: {"type": "ping"}\r\n\r\n',
    b'data: {"type": "response.of_next_year", "sequence_number": 7, "delta": "rubbish"}\n\n',
    b'event: content_block_of_next_year\ndata: {"type": "content_block_of_next_year", "index": 0}\n\n',
    b"data: {not json\n\n",
    b"data: 17\n\n",
    b"data: null\r\n\r\n",
    b"data: [1, 2]\n\n",
    b"data: \xff\xfe\n\n",
    b"data:\n\n",
    b"id: 9\nretry: 100\n\n",
    b"\n\n\r\n\r\n",
]
"""Events that mean nothing on any wire: the answer has to be whole, and its charge exact."""
HARMFUL = [
    b'data: {"choices": [{"delta": {"tool_calls": [{"function": {"name": 5}}]}}]}\n\n',
    b'data: {"choices": [{"index": 3, "delta": {"content": "x"}}]}\n\n',
    b'data: {"choices": [{"index": 0, "delta": {"content": {"a": 1}}}]}\n\n',
    b'data: {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": 4}}\n\n',
    b'data: {"type": "content_block_start", "index": 9, "content_block": {"type": "of_next_year"}}\n\n',
    b'data: {"type": "content_block_delta", "index": 77, "delta": {"type": "text_delta", "text": "x"}}\n\n',
    b'data: {"type": "content_block_stop", "index": 0}\n\n',
    b'data: {"type": "response.output_item.added", "output_index": 5, "item": {"type": "function_call"}}\n\n',
    b'data: {"type": "response.output_text.delta", "output_index": 44, "delta": "x"}\n\n',
    b'data: {"type": "response.output_item.done", "output_index": 0, "item": {"type": "message"}}\n\n',
    b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "no"}}\n\n',
    b'data: {"error": {"message": "no", "code": 500}}\n\n',
    b'data: {"type": "response.failed", "response": {"id": "r", "error": {"message": "no"}}}\n\n',
]
"""Events that break an answer or change it: only its form and the limits of its charge are sure."""


def parts_of(stream: Stream) -> list[object]:
    """The tool call that each event of the fake provider belongs to; None if it belongs to none."""
    parts: list[object] = []
    for frame, _ in stream:
        text = frame.decode()
        event = json.loads(text.partition("data: ")[2]) if "data: {" in text else {}
        calls = [c for one in event.get("choices") or () for c in one["delta"].get("tool_calls") or ()]
        part = calls[0]["index"] if calls else None
        if "tool_use" in json.dumps(event.get("content_block")) or event.get("index", "") in parts:
            part = event["index"]
        parts.append(event.get("output_index") if '"function_call' in text or "fc_" in text else part)
    return parts


def interleaved(stream: Stream, rng: random.Random) -> Stream:
    """The same events with those of several tool calls mixed; the order within each call stays."""
    before = [0, *(done for _, done in stream)]
    steps = [(frame, done - last) for (frame, done), last in zip(stream, before, strict=False)]
    parts = parts_of(stream)
    places = [i for i, part in enumerate(parts) if part is not None]
    queues = {parts[i]: [steps[j] for j in places if parts[j] == parts[i]] for i in places}
    drawn = [parts[i] for i in places]
    rng.shuffle(drawn)
    for place, part in zip(places, drawn, strict=True):
        steps[place] = queues[part].pop(0)
    return tuple(zip((frame for frame, _ in steps), itertools.accumulate(n for _, n in steps), strict=True))


def unnumbered(stream: Stream) -> Stream:
    """The same events, with all tool calls of the chat wire numbered 0, as by some providers."""
    number = re.compile(rb'(?<="tool_calls": \[\{"index": )\d+')
    return tuple((number.sub(b"0", frame), done) for frame, done in stream)


def littered(stream: Stream, rubbish: list[bytes], rng: random.Random) -> Stream:
    """The same events with rubbish between them."""
    made = list(stream)
    for odd in rubbish:
        place = rng.randint(0, len(made))
        made.insert(place, (odd, made[place - 1][1] if place else 0))
    return tuple(made)


def cut(stream: Stream, rng: random.Random) -> Stream:
    """The beginning of the stream, up to any byte."""
    place = rng.randrange(len(stream))
    frame, _ = stream[place]
    done = stream[place - 1][1] if place else 0
    return (*stream[:place], (frame[: rng.randrange(1, len(frame))], done))


@dataclass(frozen=True)
class Case:
    """What one model says, and what becomes of it on its way. kind: `whole`, `cut` or `harmed`."""

    said: Said
    kind: str
    seed: int

    @classmethod
    def drawn(cls, seed: int) -> Case:
        rng = random.Random(seed)
        words = tuple(f" w{rng.randrange(99)}" for _ in range(rng.randint(0, 6)))
        calls = tuple((f"tool_{i}", json.dumps({"x": rng.randrange(99)})) for i in range(rng.randint(0, 3)))
        thought = tuple(f" t{i}" for i in range(rng.choice([0, 0, 2])))
        return cls(Said(words or (" one",), thought, calls=calls), ("whole", "cut", "harmed")[seed % 3], seed)

    def fault(self) -> Fault:
        def rewrite(stream: Stream) -> Stream:
            rng = random.Random(self.seed)
            stream = interleaved(stream, rng) if rng.random() < 0.7 else unnumbered(stream)
            rubbish = rng.choices(HARMLESS, k=rng.randint(0, 4))
            rubbish += rng.choices(HARMFUL, k=rng.randint(1, 2)) if self.kind == "harmed" else []
            stream = littered(stream, rubbish, rng)
            return cut(stream, rng) if self.kind == "cut" else stream

        breaks = {"whole": "", "harmed": "", "cut": "end" if self.seed % 2 else "reset"}[self.kind]
        return Fault(rewrite=rewrite, breaks=breaks)  # type: ignore[arg-type]


@dataclass
class Read:
    """What a client reads: texts and tool calls, and whether the stream says that it is whole or failed."""

    text: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    whole: bool = False
    failed: bool = False


def events_of(body: bytes) -> list[tuple[str, Any]]:
    """Name and data of each event; every event must be complete and JSON, or be [DONE]."""
    assert not body or body.endswith(b"\n\n"), body[-200:]
    made = []
    for block in body.decode().split("\n\n")[:-1]:
        lines = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        if lines:
            data = lines["data"]
            made.append((lines.get("event", ""), data if data == "[DONE]" else json.loads(data)))
    return made


def read_chat(body: bytes) -> Read:
    read, pieces, finish = Read(), {}, None
    for _, data in events_of(body):
        assert not read.whole
        assert not read.failed, "an event after the end"
        if data == "[DONE]":
            assert finish is not None, "the end of an answer that never finished"
            read.whole = True
        elif "error" in data:
            assert isinstance(data["error"]["message"], str)
            read.failed = True
        else:
            for choice in data["choices"]:
                assert choice["index"] == 0
                assert finish is None, "content after the finish reason"
                finish = choice["finish_reason"]
                read.text += choice["delta"].get("content") or ""
                for call in choice["delta"].get("tool_calls") or ():
                    if call["index"] not in pieces:
                        assert call["index"] == len(pieces), "a call that is not numbered in order"
                        pieces[call["index"]] = [call["id"], call["function"]["name"], ""]
                        assert call["id"]
                        assert call["function"]["name"]
                    pieces[call["index"]][2] += call["function"].get("arguments") or ""
    if read.whole:
        assert (finish == "tool_calls") == bool(pieces), (finish, pieces)
        read.calls = [(name, json.loads(arguments)) for _, name, arguments in pieces.values()]
    return read


def read_messages(body: bytes) -> Read:
    """Blocks follow one another: each is closed before the next one opens."""
    read, open_, stopped = Read(), None, None
    for number, (name, data) in enumerate(events_of(body)):
        assert name == data["type"]
        assert (number == 0) == (name == "message_start") or name == "error"
        assert not read.whole
        assert not read.failed, "an event after the end"
        match name:
            case "content_block_start":
                assert open_ is None, "a block opens in another"
                open_, arguments = data, ""
            case "content_block_delta":
                assert open_ is not None
                assert data["index"] == open_["index"]
                read.text += data["delta"].get("text", "")
                arguments += data["delta"].get("partial_json", "")
            case "content_block_stop":
                assert open_ is not None
                assert data["index"] == open_["index"]
                if open_["content_block"]["type"] == "tool_use":
                    read.calls.append((open_["content_block"]["name"], arguments))
                open_ = None
            case "message_delta":
                assert open_ is None
                stopped = data["delta"]["stop_reason"]
                assert data["usage"]["output_tokens"] >= 0
            case "message_stop":
                assert stopped is not None
                assert (stopped == "tool_use") == bool(read.calls)
                read.whole = True
            case "error":
                assert open_ is None, "an error in an open block"
                read.failed = True
            case _:
                assert name == "message_start"
    read.calls = [(name, json.loads(text or "{}")) for name, text in read.calls] if read.whole else []
    return read


def read_responses(body: bytes) -> Read:
    read, items, last = Read(), {}, None
    for number, (name, data) in enumerate(events_of(body)):
        assert name == data["type"]
        assert data["sequence_number"] == number
        assert not read.whole
        assert not read.failed, "an event after the end"
        at = data.get("output_index")
        match name.removeprefix("response."):
            case "output_item.added":
                assert at == len(items)
                items[at] = {**data["item"], "open": True, "said": ""}
            case "output_text.delta" | "function_call_arguments.delta":
                assert items[at]["open"]
                assert data["item_id"] == items[at]["id"]
                items[at]["said"] += data["delta"]
            case "output_item.done":
                assert items[at]["open"]
                items[at] = {**items[at], **data["item"], "open": False}
            case "completed" | "incomplete":
                assert not any(item["open"] for item in items.values())
                read.whole, last = True, data["response"]
            case "failed":
                read.failed = True
            case _:
                pass
    if last is not None:
        assert len(last["output"]) == len(items)
        for at, item in enumerate(last["output"]):
            if item["type"] == "message":
                assert item["content"][0]["text"] == items[at]["said"]
                read.text += items[at]["said"]
            else:
                assert json.loads(item["arguments"]) == json.loads(items[at]["said"] or "{}")
                read.calls.append((item["name"], json.loads(item["arguments"])))
    return read


READERS: dict[str, Callable[[bytes], Read]] = {
    "chat": read_chat,
    "responses": read_responses,
    "messages": read_messages,
}


def started(serve: Serve, provider: Provider, wire: str) -> Running:
    """A gateway with every model of the provider as a specialist of `wire` that is asked again at once."""
    endpoint = Endpoint(provider.url, pause=0.001)
    wires: Any = frozenset({wire})
    return serve(*(Backend(name, endpoint, name, Tariff(1.0, 10.0), wires=wires) for name in provider.models))


@pytest.mark.parametrize(("here", "there"), PAIRS)
def test_a_broken_stream_is_well_formed_and_charged_as_its_provider_bills(
    serve: Serve, here: str, there: str
) -> None:
    cases = {f"m{seed}": Case.drawn(seed) for seed in range(CASES)}
    models = {
        name: Model(lambda _, case=case: case.said, fault=lambda _, case=case: case.fault())
        for name, case in cases.items()
    }
    ends = set()
    with closing(Provider(models)) as provider:
        gateway = started(serve, provider, there)
        for name, case in cases.items():
            body = request(here, name, stream=True, **{LIMITS[here]: MOST})
            status, headers, said = post(gateway, PATHS[here], body)
            assert status in (200, 502), (name, status, said)
            state, cost, _ = gateway.settled(headers["x-pandora-decision-id"])
            bills = [bill for bill in provider.log if bill.model == name]
            billed = sum(bill.nanodollars for bill in bills)
            most = len(bills) * (1000 * (len(json.dumps(body)) + 500) + 10_000 * MOST)
            assert cost <= most, (name, cost, bills)
            read = Read(failed=True) if status == 502 else READERS[here](said)
            assert read.whole != read.failed, (name, said)
            assert state == ("ok" if read.whole else "error"), (name, said)
            ends.add((case.kind, read.whole))
            if case.kind == "whole":
                wanted = "".join(case.said.words), [(tool, json.loads(arg)) for tool, arg in case.said.calls]
                assert (read.text, sorted(read.calls)) == (wanted[0], wanted[1]), (name, said)
            if case.kind == "whole":
                assert cost == billed, (name, cost, bills)
            if case.kind == "cut" and (read.whole or (case.seed % 2 and not case.said.calls)):
                assert cost >= billed, (name, cost, bills)  # an event is counted as one token
    assert ends >= {("whole", True), ("cut", False), ("harmed", False)}

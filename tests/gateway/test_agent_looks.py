"""Looks at agents: the first step, a plan or a tool call, is read live as `collect` recorded it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from pandora_router.collect.assemble import CollectPlan, Question
from pandora_router.collect.collection import Collected, collect
from pandora_router.collect.graders import ReferenceGrader, contains
from pandora_router.collect.journal import Journal
from pandora_router.prices import Tariff
from pandora_router.search import Always
from pandora_router.specialists.chat import ChatEndpoint
from pandora_router.specialists.chat_settings import Asking
from pandora_router.transport.endpoint import Endpoint
from pandora_router.types import Contexts, Matrix
from pandora_router.wires.known import BY_NAME
from pandora_router.wires.look import Glimpse, LookLength
from tests.gateway.talking import Script, Talking
from tests.gateway.test_looks import PROMPT, Listener, Served
from tests.gateway.test_translation import OFFERS
from tests.support import routers

CALLS = (("look_up", '{"place": "the river", "depth": 3}'), ("list_files", '{"folder": "."}'))
STEPS = {
    "a call": Script([], calls=CALLS[:1]),
    "two calls": Script([], calls=CALLS),
    "a plan and a call": Script(["I", " will", " look."], calls=CALLS[:1]),
    "a call without arguments": Script([], calls=(("list_files", "{}"),)),
    "a plan": Script(["First", " I", " read", " the", " file."]),
}


@pytest.fixture
def talking() -> Iterator[Talking]:
    with closing(Talking()) as running:
        yield running


@dataclass(frozen=True)
class Reader(Listener):
    """A costly estimate that keeps what it was shown."""

    read: list[str] = field(default_factory=list)

    def predict(self, prompts: Any, contexts: Contexts | None = None) -> Matrix:
        assert contexts is not None
        self.read.extend(str(text) for row in contexts for text in row if text is not None)
        return super().predict(prompts, contexts)


def collected(talking: Talking, path: Path, peek: int, *, stream: bool = False) -> Collected:
    """What `pandora collect` records of the agent `large`, which is offered a tool."""
    asking = Asking(options={"tools": [OFFERS["chat"]]}, context_characters=peek, stream=stream)
    agent = ChatEndpoint("large", Endpoint(talking.url), "large", Tariff(1.0, 10.0), asking)
    question = Question("q", PROMPT, ("look_up",), "agents", "train")
    plan = CollectPlan(
        questions=(question,), specialists=(agent,), graders={"": ReferenceGrader(contains)}, budget=1.0
    )
    with Journal(path) as journal:
        return asyncio.run(collect(plan, journal))


@pytest.mark.parametrize("peek", [9, 400])
@pytest.mark.parametrize("step", STEPS)
def test_a_look_at_an_agent_shows_what_collect_recorded_on_every_wire(
    talking: Talking, tmp_path: Path, step: str, peek: int
) -> None:
    router = routers.fitted()
    talking.says = {name: replace(STEPS[step]) for name in router.specialists}
    recorded = [collected(talking, tmp_path / str(i), peek, stream=bool(i)) for i in range(2)]
    contexts = [one.table.contexts for one in recorded]
    assert contexts[0] is not None
    assert contexts[1] is not None
    expected = contexts[0][0, 0]
    assert expected == contexts[1][0, 0]
    assert expected.startswith("look_up" if step in ("a call", "two calls") else expected[:1])
    costly = Reader(router.specialists)
    router = replace(router, costly=costly).with_policy(Always())
    for served_wires in ({"chat", "responses", "messages"}, {"chat"}, {"messages"}, {"responses"}):
        options = {"wires": frozenset(served_wires), "peek": LookLength(characters=peek)}
        folder = tmp_path / "-".join(sorted(served_wires))
        folder.mkdir()
        with closing(Served(talking, router, folder, backend=options)) as served:
            for wire in OFFERS:
                costly.read.clear()
                status, headers, body = served.ask(wire, tools=[OFFERS[wire]])
                assert status == 200, body
                assert headers["x-pandora-inspected"]
                assert set(costly.read) == {expected}, (wire, served_wires)


def test_a_tool_call_is_an_answer_that_graders_read(talking: Talking, tmp_path: Path) -> None:
    talking.says = {"large": STEPS["two calls"]}
    found = collected(talking, tmp_path / "j", 400)
    assert found.finishes == {"large": {"stop": 1}}
    assert found.table.score[0, 0] == 1.0


@pytest.mark.parametrize("wire", OFFERS)
def test_arguments_that_come_whole_are_shown_too(wire: str) -> None:
    """Some servers send a call in one event; a look shows what one in pieces would."""
    arguments = '{"place":"here"}'
    said = {"name": "look_up", "arguments": arguments}
    item = {"type": "function_call", "call_id": "c", **said}
    events: dict[str, list[dict[str, Any]]] = {
        "chat": [{"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": said}]}}]}],
        "responses": [
            {"type": "response.output_item.added", "output_index": 0, "item": {**item, "arguments": ""}},
            {"type": "response.function_call_arguments.done", "output_index": 0, "arguments": arguments},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
        ],
        "messages": [
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {
                    "type": "tool_use",
                    "id": "c",
                    "name": "look_up",
                    "input": json.loads(arguments),
                },
            }
        ],
    }
    glimpse = Glimpse(LookLength())
    for event in events[wire]:
        BY_NAME[wire].show(event, glimpse)
    assert glimpse.context == f"look_up{arguments}"


@pytest.mark.parametrize(
    ("wire", "asks", "own", "looked"),
    [
        ("messages", {"thinking": {"type": "adaptive"}}, {}, True),  # does not cross to chat
        ("messages", {"output_config": {"effort": "high"}}, {}, False),
        ("responses", {"reasoning": {"effort": "medium"}}, {}, False),
        ("responses", {"reasoning": {"effort": "medium"}}, {"reasoning_effort": "none"}, True),
        ("chat", {}, {"reasoning_effort": "high"}, False),
    ],
)
def test_whether_a_request_asks_for_reasoning_is_read_as_it_is_sent(
    talking: Talking, tmp_path: Path, wire: str, asks: Any, own: Any, looked: bool
) -> None:
    """Claude Code asks for reasoning in every request: a specialist that is not asked for it can be seen."""
    router = routers.fitted()
    talking.says = dict.fromkeys(router.specialists, STEPS["a plan and a call"])
    router = replace(router, costly=Reader(router.specialists)).with_policy(Always())
    options = {"wires": frozenset({"chat"}), "own": {"chat": own} if own else {}}
    with closing(Served(talking, router, tmp_path, backend=options)) as served:
        status, headers, body = served.ask(wire, tools=[OFFERS[wire]], **asks)
        assert status == 200, body
        assert bool(headers["x-pandora-inspected"]) == looked

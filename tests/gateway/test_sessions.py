"""Conversations: the router decides again at each turn of the user, at the price of reading it anew."""

from __future__ import annotations

import json
import urllib.request
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pandora_router.config.gateway import mount_dashboard
from pandora_router.prices import Tariff
from pandora_router.router import Router
from pandora_router.router.conversation import in_conversation, prefix_costs, sentence
from pandora_router.router.revalue import weighed
from pandora_router.store.rows import Session
from tests.gateway.conftest import Running, Serve, backend
from tests.gateway.stub import CACHED, OUTPUT, READ, Stub
from tests.gateway.test_wires import post
from tests.support.tables import generate

PLAIN = Tariff(1.0, 10.0)
HELD = Tariff(1.0, 10.0, cached_in=0.0, cached_write=1.0)
"""The cache of this provider holds what it says that it read from there."""


def answered(gateway: Running, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Who answered, by which policy, and what the log says about the conversation."""
    status, headers, answer = post(gateway, path, {"model": "auto", **body})
    assert status == 200, answer
    gateway.settled(headers["x-pandora-decision-id"])
    row = gateway.rows("SELECT detail FROM decisions WHERE id = ?", headers["x-pandora-decision-id"])
    stay = json.loads(row[0][0]).get("session")
    return {"by": headers["x-pandora-specialist"], "policy": headers["x-pandora-policy"], "stay": stay}


@pytest.fixture
def turns(router: Router) -> tuple[str, str]:
    """Two prompts that the router gives to different specialists."""
    prompts = generate().prompts
    first = router.route(prompts[0]).specialist
    return prompts[0], next(prompt for prompt in prompts if router.route(prompt).specialist != first)


def chat(*texts: str) -> dict[str, Any]:
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]}


def started(serve: Serve, stub: Stub, router: Router, first: str, tariff: Tariff, **settings: Any) -> Running:
    """A gateway after the first turn of a conversation; its specialist has the prices `tariff`."""
    name = router.route(first).specialist
    made = [
        replace(backend(stub, other, prices=tariff if other == name else PLAIN), model="small")
        for other in router.specialists
    ]
    gateway = serve(*made, router=router, **settings)
    assert answered(gateway, "chat/completions", chat(first))["by"] == name
    return gateway


def test_a_turn_of_the_user_is_decided_again_and_a_warm_cache_is_worth_its_refund(
    serve: Serve, stub: Stub, router: Router, turns: tuple[str, str]
) -> None:
    first, second = turns
    stays, leaves = (router.route(prompt).specialist for prompt in turns)
    gap = router.route(second).worth[leaves] - router.route(second).worth[stays]
    tokens = READ + CACHED + OUTPUT
    dear = replace(router, fee_weight=2.0 * gap * 1e6 / CACHED)  # the refund is worth twice the gap
    conversation = chat(first, "An answer.", second)
    for tariff, expected in ((HELD, stays), (PLAIN, leaves)):
        gateway = started(serve, stub, dear, first, tariff)
        turn = answered(gateway, "chat/completions", conversation)
        assert turn["by"] == expected
        assert (turn["stay"]["specialist"], turn["stay"]["tokens"]) == (stays, tokens)
        refund = CACHED / 1e6 if tariff is HELD else 0.0
        assert turn["stay"]["refund"] == pytest.approx(refund)
        costs = {name: tokens / 1e6 - (refund if name == stays else 0.0) for name in router.specialists}
        assert turn["stay"]["costs"] == pytest.approx(costs)
        assert ("stays" if expected == stays else f"left for {leaves}") in sentence(turn["stay"], expected)


def test_the_picture_of_a_decision_has_the_price_of_the_conversation(
    serve: Serve, stub: Stub, router: Router, turns: tuple[str, str], tmp_path: Path
) -> None:
    first, second = turns
    gateway = started(serve, stub, router, first, PLAIN)
    with ExitStack() as closing:
        mount_dashboard(str(tmp_path / "store0.sqlite"), gateway.gateway, closing)
        status, headers, _ = post(
            gateway, "chat/completions", {"model": "auto", **chat(first, "An answer.", second)}
        )
        assert status == 200
        gateway.settled(headers["x-pandora-decision-id"])
        address = f"{gateway.url}/dashboard/decisions/{headers['x-pandora-decision-id']}"
        with urllib.request.urlopen(address, timeout=30) as answer:
            page = answer.read().decode()
    picture = page[page.index("<svg") : page.index("</svg>")]
    cents = 100 * (READ + CACHED + OUTPUT) / 1e6
    assert f"expected of it for the conversation so far {cents:g} ¢" in picture
    assert "the conversation so far costs" in page


def test_switching_never_or_always(serve: Serve, stub: Stub, router: Router, turns: tuple[str, str]) -> None:
    first, second = turns
    stays, leaves = (router.route(prompt).specialist for prompt in turns)
    conversation = chat(first, "An answer.", second)
    always = answered(
        started(serve, stub, router, first, HELD, switch="always"), "chat/completions", conversation
    )
    assert (always["by"], always["stay"]) == (leaves, None)
    never = answered(
        started(serve, stub, router, first, HELD, switch="never"), "chat/completions", conversation
    )
    assert (never["by"], never["policy"]) == (stays, "session")
    assert "switch: never" in never["stay"]["because"]


CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"}
SECRET = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VjcmV0"}


def test_a_tool_loop_and_reasoning_that_others_cannot_read_stay(
    serve: Serve, stub: Stub, router: Router, turns: tuple[str, str]
) -> None:
    first, second = turns
    stays = router.route(first).specialist
    gateway = started(serve, stub, router, first, PLAIN)
    asked = {"role": "user", "content": first}
    tool = [asked, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
    loop = {"messages": [*tool, {"role": "tool", "tool_call_id": "c1", "content": second}]}
    signed = {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "An answer."}]}
    next_ = {"role": "user", "content": second}
    for path, body, why in (
        ("chat/completions", loop, "tool call"),
        ("messages", {"max_tokens": 9, "messages": [asked, signed, next_]}, "only that provider"),
        ("responses", {"input": [asked, SECRET, next_]}, "only that provider"),
    ):
        turn = answered(gateway, path, body)
        assert (turn["by"], turn["policy"]) == (stays, "session"), path
        assert why in turn["stay"]["because"]
    ended = {"messages": [*loop["messages"], {"role": "assistant", "content": "Done."}, next_]}
    assert answered(gateway, "chat/completions", ended)["by"] != stays


def test_a_cache_is_worth_nothing_after_its_lifetime_and_more_when_turns_follow() -> None:
    tariffs = {"a": Tariff(3.0, 15.0, cached_in=0.3, cached_write=3.75, cached_seconds=60.0), "b": PLAIN}
    session = Session("a", at=0.0, tokens=20_000, held=16_000)
    warm = prefix_costs(tariffs, session, 59.0)
    assert warm == pytest.approx({"a": (16_000 * 0.3 + 4_000 * 3.75) / 1e6, "b": 0.02})
    assert prefix_costs(tariffs, session, 60.0)["a"] == pytest.approx(20_000 * 3.75 / 1e6)
    later = prefix_costs(tariffs, session, 59.0, turns=2.0)
    assert later["a"] - warm["a"] == pytest.approx(2 * 20_000 * 0.3 / 1e6)
    assert later["b"] - warm["b"] == pytest.approx(2 * 0.02)


def test_prices_of_a_conversation_move_worths_by_the_weighted_cost(router: Router) -> None:
    tariffs = dict.fromkeys(router.specialists, HELD)
    name = router.specialists[0]
    session = Session(name, at=0.0, tokens=1000, held=1000)
    moved, stay = in_conversation(weighed(router, 7.0), tariffs, session, 1.0)
    before = weighed(router, 7.0).route("count the river")
    after = moved.route("count the river")
    for j, other in enumerate(router.specialists):
        lost = 7.0 * stay.costs[other]
        assert after.estimates.mean[j] == pytest.approx(before.estimates.mean[j] - lost)
    assert stay.costs[name] == 0.0
    assert stay.refund == pytest.approx(0.001)

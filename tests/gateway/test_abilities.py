"""A specialist without `supports` is asked for everything, and what its provider refuses is remembered."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pandora_router.config.file import Config
from pandora_router.config.gateway import backend as built
from pandora_router.config.shared import Builder
from pandora_router.gateway.providers.backend import FORGOTTEN, Backend, Circuit
from pandora_router.gateway.request.eligible import unsupported
from pandora_router.search import Always
from tests.gateway.conftest import Serve, backend
from tests.gateway.stub import USUAL, Stub
from tests.gateway.test_looks import Served, listening
from tests.gateway.test_translation import OFFERS
from tests.gateway.test_wires import PATHS, post, request
from tests.support.provider import Provider
from tests.support.provider_models import Asked, Fault

SAYINGS = {
    "ollama": (400, "registry.ollama.ai/library/tiny:latest does not support tools", "tools"),
    "vllm": (
        400,
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        "tools",
    ),
    "openrouter": (404, "No endpoints found that support tool use.", "tools"),
    "openrouter images": (404, "No endpoints found that support image input", "images"),
    "vllm images": (400, "tiny is not a multimodal model", "images"),
    "openai images": (400, "Invalid content type. image_url is only supported by certain models.", "images"),
    "deepseek images": (422, "messages[0]: unknown variant `image_url`, expected `text`", "images"),
    "openai schema": (
        400,
        "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.",
        "json_schema",
    ),
}
OWN_FAULTS = [
    "Invalid schema for function 'look_up': In context=(), 'additionalProperties' is required",
    "Missing required parameter: 'tools[0].function.name'.",
    "Invalid 'tools': array too long. Expected an array with maximum length 128",
    "Unsupported value: 'temperature' does not support 0.2 with this model.",
    "Could not process image",
    "You uploaded an unsupported image. Please make sure your image is of one of the following formats: png.",
]


@pytest.mark.parametrize("who", SAYINGS)
def test_refusals_of_an_ability_are_understood_as_providers_word_them(who: str) -> None:
    status, message, ability = SAYINGS[who]
    body = json.dumps({"error": {"message": message}}).encode()
    every = frozenset({"tools", "images", "json_schema"})
    assert unsupported(every, status, body) == {ability}
    assert unsupported(every - {ability}, status, body) == set()


@pytest.mark.parametrize("message", OWN_FAULTS)
def test_a_mistake_in_the_request_says_nothing_of_the_specialist(message: str) -> None:
    body = json.dumps({"error": {"message": message}}).encode()
    assert unsupported(frozenset({"tools", "images", "json_schema"}), 400, body) == set()
    assert unsupported(frozenset({"tools"}), 200, b'{"error": "tools are not supported"}') == set()


def _refusing(asked: Asked) -> Fault:
    return Fault(400, message="tiny does not support tools") if asked.body.get("tools") else Fault()


@pytest.fixture
def provider() -> Iterator[Provider]:
    with closing(Provider({"tiny": replace(USUAL, fault=_refusing), "able": USUAL})) as running:
        yield running


def unstated(provider: Provider, name: str, **more: Any) -> Backend:
    return backend(provider, name, learns=True, **more)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wires", [{"chat", "responses", "messages"}, {"chat"}])
@pytest.mark.parametrize("wire", OFFERS)
def test_a_refused_ability_goes_to_the_next_and_is_remembered(
    serve: Serve, provider: Provider, wire: str, wires: Any, stream: bool
) -> None:
    gateway = serve(*(unstated(provider, name, wires=frozenset(wires)) for name in ("tiny", "able")))
    asked = request(wire, "auto", tools=[OFFERS[wire]], stream=stream)
    for number in range(3):
        status, headers, body = post(gateway, PATHS[wire], asked)
        assert (status, headers["x-pandora-specialist"]) == (200, "able"), body
        gateway.settled(headers["x-pandora-decision-id"])
        rows = gateway.rows(
            "SELECT specialist, status, cost FROM attempts WHERE decision = ? ORDER BY at",
            headers["x-pandora-decision-id"],
        )
        assert [row[0] for row in rows] == (["able"] if number else ["tiny", "able"])
        assert all(cost == 0 for name, _, cost in rows if name == "tiny")
    assert provider.calls["tiny"] == 1
    status, headers, _ = post(gateway, PATHS[wire], request(wire, "auto", stream=stream))
    assert (status, headers["x-pandora-specialist"]) == (200, "tiny")  # it still answers without tools
    assert gateway.gateway.circuits["tiny"].failures == 0


def test_the_only_specialist_is_asked_each_time_and_its_answer_is_passed_on(
    serve: Serve, provider: Provider
) -> None:
    gateway = serve(unstated(provider, "tiny"))
    for _ in range(2):
        status, _, body = post(gateway, "chat/completions", request("chat", "auto", tools=[OFFERS["chat"]]))
        assert (status, b"tiny does not support tools" in body) == (400, True)
    assert provider.calls["tiny"] == 2


def test_what_is_stated_is_not_learnt(serve: Serve, provider: Provider) -> None:
    gateway = serve(backend(provider, "tiny"), backend(provider, "able"))
    status, _, body = post(gateway, "chat/completions", request("chat", "auto", tools=[OFFERS["chat"]]))
    assert (status, b"does not support tools" in body) == (400, True)


def test_what_was_shown_once_is_not_unlearnt_and_refusals_are_forgotten() -> None:
    circuit = Circuit()
    circuit.refuse(frozenset({"tools", "images"}), 0.0)
    assert circuit.lacking(1.0) == {"tools", "images"}
    circuit.succeed(frozenset({"tools"}))
    circuit.refuse(frozenset({"tools"}), 2.0)
    assert circuit.lacking(3.0) == {"images"}
    assert circuit.lacking(FORGOTTEN + 1.0) == frozenset()


def test_a_look_that_is_refused_is_not_made_again(tmp_path: Path) -> None:
    router = listening().with_policy(Always())
    refusing = {name: replace(USUAL, fault=_refusing) for name in router.specialists}
    with (
        closing(Provider(refusing)) as provider,
        closing(Served(provider, router, tmp_path, backend={"learns": True})) as served,  # type: ignore[arg-type]
    ):
        for _ in range(2):
            assert served.ask("chat", tools=[OFFERS["chat"]])[0] == 400
        assert served.gateway.circuits["small"].lacking(time.monotonic()) == {"tools"}


def test_an_entry_without_supports_learns() -> None:
    about = {"kind": "chat", "endpoint": "e", "model": "m", "prices": {"in": 1, "out": 1}}
    config = Config.model_validate(
        {
            "endpoints": {"e": {"base_url": "http://127.0.0.1:1"}},
            "specialists": {"open": about, "none": {**about, "supports": []}},
        }
    )
    made = {name: built(name, config, Builder(config, Path())) for name in ("open", "none")}
    assert (made["open"].learns, made["none"].learns) == (True, False)
    assert "tools" in made["open"].abilities
    assert not made["none"].abilities


def _effortless(asked: Asked) -> Fault:
    stated = "reasoning_effort" in asked.body or "output_config" in asked.body
    return Fault(400, message="Unrecognized request argument") if stated else Fault()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("here", "there"), [("messages", "chat"), ("responses", "chat"), ("responses", "messages")]
)
def test_an_effort_that_is_refused_after_translation_is_left_out(
    serve: Serve, here: str, there: str, stream: bool
) -> None:
    """Claude Code and Codex state an effort in every request; many servers refuse to be told one."""
    effort = (
        {"reasoning": {"effort": "high"}} if here == "responses" else {"output_config": {"effort": "high"}}
    )
    with closing(Provider({"tiny": replace(USUAL, fault=_effortless)})) as provider:
        gateway = serve(backend(provider, "tiny", wires=frozenset({there})))
        for number in range(2):
            status, headers, body = post(gateway, PATHS[here], request(here, "auto", stream=stream, **effort))
            assert status == 200, body
            assert gateway.settled(headers["x-pandora-decision-id"])[0] == "ok"
            assert provider.calls["tiny"] == 2 + number
    assert gateway.gateway.circuits["tiny"].failures == 0


def test_a_refusal_that_was_not_about_the_effort_is_passed_on(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "bad", wires=frozenset({"chat"})))
    asked = request("messages", "auto", output_config={"effort": "high"})
    status, _, body = post(gateway, "messages", asked)
    assert (status, b"no such option" in body) == (400, True)
    assert not gateway.gateway.circuits["bad"].lacking(time.monotonic())


def test_a_translated_request_asks_for_no_more_tokens_than_the_specialist_writes(
    serve: Serve, provider: Provider
) -> None:
    """Claude Code asks for 64,000."""
    gateway = serve(backend(provider, "able", wires=frozenset({"chat"}), longest=500, context=5000))
    status, _, body = post(gateway, "messages", request("messages", "auto", max_tokens=64000))
    assert status == 200, body
    assert json.loads(provider.bodies[-1])["max_tokens"] == 500

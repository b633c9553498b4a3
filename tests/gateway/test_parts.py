"""What a call is billed for beside plain tokens, to the nanodollar against the books of the provider."""

from __future__ import annotations

import base64
import http.client
import io
import json
import os
import random
import signal
import threading
import time
import urllib.error
import urllib.request
import wave
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pandora_router.gateway.providers.backend import Backend
from pandora_router.prices import Tariff
from pandora_router.store import accounts
from pandora_router.store.database import connect
from pandora_router.store.migrations import migrate
from pandora_router.store.money import nanodollars
from tests.gateway.conftest import Serve, backend
from tests.gateway.test_attacks import key
from tests.gateway.test_serve import everyone, served
from tests.gateway.test_wires import PATHS, post, request
from tests.support.provider import Provider
from tests.support.provider_models import Model
from tests.support.provider_replies import Said

SAID = Said(("one", " two", " three"), searches=1)
LONG = "a long text about rivers and their names " * 40
FACTORS = {"priority": 2.0, "flex": 0.5}
PARTS = {"written_hour": 2.0, "audio_in": 32.0, "image_in": 4.0, "audio_out": 64.0}
MODEL = Model(
    lambda _: SAID,
    prices=(1.0, 0.1, 1.25, 10.0),
    caches=True,
    parts=PARTS,
    tiers={**FACTORS, "fast": 6.0},
    long=(300, 2.0),
    search=0.01,
)


def tokens(factor: float) -> Tariff:
    parts = {
        "cached_in": 0.1,
        "cached_write": 1.25,
        "cached_write_hour": 2.0,
        "audio_in": 32.0,
        "image_in": 4.0,
        "audio_out": 64.0,
    }
    scaled = {name: factor * price for name, price in parts.items()}
    return Tariff(factor * 1.0, factor * 10.0, **scaled)


def tier(factor: float) -> Tariff:
    return replace(tokens(factor), above=((300, tokens(2.0 * factor)),))


PRICES = replace(
    tier(1.0),
    tools=(("web_search", 0.01),),
    service_tier=tuple((name, tier(factor)) for name, factor in FACTORS.items()),
    speed=(("fast", tier(6.0)),),
)
MESSAGES = {"chat": "messages", "responses": "input", "messages": "messages"}
TEXT = {"chat": "text", "responses": "input_text", "messages": "text"}
IMAGE = {
    "chat": {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    "responses": {"type": "input_image", "image_url": "https://example.com/a.png"},
    "messages": {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
}


def recorded(seconds: float) -> str:
    """A WAV file of so much silence, in base64: 24 samples a second, of one byte."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 1, 24, 0, "NONE", ""))
        sound.writeframes(bytes(round(24 * seconds)))
    return base64.b64encode(file.getvalue()).decode()


SOUND = {"type": "input_audio", "input_audio": {"data": recorded(1.0), "format": "wav"}}
SEARCH: dict[str, dict[str, Any]] = {
    "chat": {"web_search_options": {"search_context_size": "low"}},
    "responses": {"tools": [{"type": "web_search"}], "max_tool_calls": 2},
    "messages": {"tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 2}]},
}


def says(wire: str, *parts: Any) -> dict[str, Any]:
    text = {"type": TEXT[wire], "text": "what is this river called"}
    return {MESSAGES[wire]: [{"role": "user", "content": [*parts, text]}]}


def cached(wire: str, **mark: Any) -> dict[str, Any]:
    """A request with a prefix that is marked for the cache."""
    first = {
        "type": TEXT[wire],
        "text": "You know rivers. " * 9,
        "cache_control": {"type": "ephemeral", **mark},
    }
    if wire == "messages":
        return {"system": [first], **says(wire)}
    return {MESSAGES[wire]: [{"role": "system", "content": [first]}, *says(wire)[MESSAGES[wire]]]}


def asked(what: str, wire: str) -> dict[str, Any]:
    match what:
        case "priority" | "flex":
            return {"service_tier": what}
        case "fast":
            return {"speed": what}
        case "five minutes":
            return cached(wire)
        case "an hour":
            return cached(wire, ttl="1h")
        case "image":
            return says(wire, IMAGE[wire])
        case "sound":
            return says(wire, SOUND)
        case "speech":
            return {"modalities": ["text", "audio"]}
        case "long":
            return says(wire, {"type": TEXT[wire], "text": LONG})
        case "long, priority":
            return asked("long", wire) | asked("priority", wire)
        case "search":
            return SEARCH[wire]
    raise AssertionError(what)


CASES = [
    (what, wire)
    for what in ("priority", "flex", "fast", "five minutes", "an hour", "image", "sound", "speech", "long")
    for wire in PATHS
    if not (wire == "messages" and what == "sound")
] + [(what, wire) for what in ("long, priority", "search") for wire in PATHS]


@pytest.fixture
def books() -> Iterator[Provider]:
    with closing(Provider({"small": MODEL})) as running:
        yield running


@pytest.mark.parametrize("stream", [False, True])
def test_every_part_is_charged_as_it_is_billed(serve: Serve, books: Provider, stream: bool) -> None:
    gateway = serve(backend(books, "small", prices=PRICES), keys=True)
    secret = key(gateway, "team", budget=nanodollars(100.0))
    for what, wire in CASES:
        for again in range(2 if what in ("five minutes", "an hour") else 1):
            body = request(wire, "small", stream=stream, max_tokens=50) | asked(what, wire)
            status, headers, answer = post(gateway, PATHS[wire], body, Authorization=f"Bearer {secret}")
            assert status == 200, (what, wire, answer)
            bill = books.log[-1]
            cost = gateway.settled(headers["x-pandora-decision-id"])[1]
            assert cost == bill.nanodollars, (what, wire, again, bill)
            tokens = bill.tokens
            plain = nanodollars((tokens.fresh + tokens.cached + tokens.written + 10.0 * tokens.output) / 1e6)
            assert cost != plain, (what, wire)  # else the case would show nothing
    spent = gateway.rows("SELECT sum(cost) FROM decisions")[0][0]
    assert spent == sum(bill.nanodollars for bill in books.log)


@pytest.mark.parametrize(("what", "wire"), [case for case in CASES if case[0] != "long"])
def test_what_has_no_price_is_refused_where_money_is_limited(
    serve: Serve, books: Provider, what: str, wire: str
) -> None:
    gateway = serve(backend(books, "small", prices=Tariff(1.0, 10.0)), keys=True)
    limited, free = key(gateway, "limited", budget=nanodollars(100.0)), key(gateway, "free")
    body = request(wire, "small", max_tokens=50) | asked(what, wire)
    lines = {
        "priority": "service_tier: {priority: {in: ..., out: ...}}",
        "flex": "service_tier: {flex: {in: ..., out: ...}}",
        "fast": "speed: {fast: {in: ..., out: ...}}",
        "five minutes": "cached_in: ..., cached_write: ...",
        "an hour": "cached_in: ..., cached_write_hour: ...",
        "image": "image_in: ...",
        "sound": "audio_in: ...",
        "speech": "audio_out: ...",
        "long, priority": "service_tier: {priority: {in: ..., out: ...}}",
        "search": "tools: {web_search: ...}",
    }
    status, _, answer = post(gateway, PATHS[wire], body, Authorization=f"Bearer {limited}")
    message = json.loads(answer)["error"]["message"]
    assert (status, books.log) == (400, [])
    assert f"add {lines[what]} to specialists.small.prices" in message
    dear = {"Authorization": f"Bearer {free}", "x-pandora-max-fee": "50"}
    assert post(gateway, PATHS[wire], body, **dear)[0] == 400
    assert post(gateway, PATHS[wire], body, Authorization=f"Bearer {free}")[0] == 200


def test_a_router_leaves_out_the_specialists_that_have_no_price(serve: Serve, books: Provider) -> None:
    books.models["large"] = MODEL  # type: ignore[index]
    names = [backend(books, "small"), backend(books, "large", prices=PRICES)]
    gateway = serve(*names, keys=True, default="small")
    secret = key(gateway, "team", budget=nanodollars(100.0))
    for more, answers in (({}, "small"), ({"service_tier": "priority"}, "large")):
        body = request("chat", "auto", max_tokens=50, **more)
        headers = post(gateway, PATHS["chat"], body, Authorization=f"Bearer {secret}")[1]
        assert gateway.settled(headers["x-pandora-decision-id"])[2] == answers


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", PATHS)
@pytest.mark.parametrize(
    ("asks", "serves", "states"),
    [
        ("priority", "default", True),
        ("auto", "priority", True),
        (None, "priority", True),
        ("priority", "priority", False),
    ],
)
def test_the_tier_that_was_served_is_billed(
    serve: Serve, wire: str, stream: bool, asks: str | None, serves: str, states: bool
) -> None:
    model = replace(MODEL, serves=lambda _: serves, states=states)
    with closing(Provider({"small": model})) as books:
        gateway = serve(backend(books, "small", prices=PRICES), keys=True)
        secret = key(gateway, "team", budget=nanodollars(100.0))
        body = request(wire, "small", stream=stream, max_tokens=50, service_tier=asks)
        headers = post(gateway, PATHS[wire], body, Authorization=f"Bearer {secret}")[1]
        id_ = headers["x-pandora-decision-id"]
        assert gateway.settled(id_)[1] == books.log[0].nanodollars
        reason = gateway.rows("SELECT reason FROM attempts WHERE decision = ?", id_)[0][0]
        assert ("served as priority" in reason) == (serves == "priority")


WAYS = [("chat", "messages"), ("messages", "responses"), ("responses", "chat")]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("here", "there"), WAYS)
def test_a_translated_request_is_billed_by_what_crosses(
    serve: Serve, here: str, there: str, stream: bool
) -> None:
    """An image crosses; a tier and marks for the cache do not, so that they need no price."""
    prices = Tariff(1.0, 10.0, image_in=4.0, above=((300, Tariff(2.0, 20.0, image_in=8.0)),))
    with closing(Provider({"small": replace(MODEL, caches=False)})) as books:
        gateway = serve(backend(books, "small", prices=prices, wires=frozenset({there})), keys=True)
        secret = key(gateway, "team", budget=nanodollars(100.0))
        for what in ("image", "long", "priority", *(["five minutes"] if here == "messages" else [])):
            body = request(here, "small", stream=stream, max_tokens=50) | asked(what, here)
            if here == "responses":
                body = {name: value for name, value in body.items() if name != "max_tokens"}
            status, headers, answer = post(gateway, PATHS[here], body, Authorization=f"Bearer {secret}")
            assert status == 200, (what, json.loads(answer)["error"]["message"])
            bill = books.log[-1]
            assert (bill.tokens.image_in > 0, bill.tokens.service_tier) == (what == "image", "default")
            assert gateway.settled(headers["x-pandora-decision-id"])[1] == bill.nanodollars, what


def test_a_tool_without_a_limit_of_calls_is_refused_under_a_budget(serve: Serve, books: Provider) -> None:
    gateway = serve(backend(books, "small", prices=PRICES), keys=True)
    secret = key(gateway, "team", budget=nanodollars(100.0))
    body = request("messages", "small", tools=[{"type": "web_search_20250305", "name": "web_search"}])
    status, _, answer = post(gateway, PATHS["messages"], body, Authorization=f"Bearer {secret}")
    assert (status, b"state max_uses" in answer, books.log) == (400, True, [])


@pytest.mark.parametrize("what", ["priority", "fast", "an hour", "image", "search", "long, priority"])
def test_a_reservation_covers_the_bill(serve: Serve, books: Provider, what: str) -> None:
    """A budget of one nanodollar less than the worst case is refused; the bill is never above that."""
    wire = "messages"
    small: Backend = backend(books, "small", prices=PRICES)
    gateway = serve(small, keys=True)
    body = json.dumps(request(wire, "small", max_tokens=50) | asked(what, wire)).encode()
    free = key(gateway, "free")
    post(gateway, PATHS[wire], body, Authorization=f"Bearer {free}")
    bill = books.log[-1].nanodollars
    short = key(gateway, "short", budget=bill)  # tokens are fewer than bytes, so this cannot be reserved
    assert post(gateway, PATHS[wire], body, Authorization=f"Bearer {short}")[0] == 429
    assert len(books.log) == 1


def test_many_at_once_do_not_exceed_a_budget_at_the_prices_of_their_tier(serve: Serve) -> None:
    model = replace(MODEL, first=0.05, says=lambda _: Said(tuple(f" w{i}" for i in range(40))))
    with closing(Provider({"small": model})) as books:
        gateway = serve(backend(books, "small", prices=PRICES), keys=True)
        body = request("chat", "small", max_tokens=40, service_tier="priority")
        secret = key(gateway, "team", budget=nanodollars(0.01))
        statuses: list[int] = []

        def client() -> None:
            statuses.append(post(gateway, PATHS["chat"], body, Authorization=f"Bearer {secret}")[0])

        threads = [threading.Thread(target=client) for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert set(statuses) == {200, 429}
        billed = sum(bill.nanodollars for bill in books.log)
        assert billed <= nanodollars(0.01)
        assert billed == sum(row[0] for row in gateway.rows("SELECT cost FROM attempts"))


LEVEL = (
    "in: {}, out: {}, cached_in: {}, cached_write: {}, cached_write_hour: {}, audio_in: {}, image_in: {}, "
    "audio_out: {}"
)


def stated(factor: float) -> str:
    """The prices `tier(factor)` as a file states them, without the braces around."""
    once, twice = ([by * price for price in (1, 10, 0.1, 1.25, 2, 32, 4, 64)] for by in (factor, 2 * factor))
    return f"{LEVEL.format(*once)}, above: {{300: {{{LEVEL.format(*twice)}}}}}"


def ask_once(url: str, secret: str, wire: str, body: bytes) -> tuple[int, str]:
    """The status and the id of the decision; status 0 if the connection broke."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {secret}"}
    sent = urllib.request.Request(f"{url}/v1/{PATHS[wire]}", body, headers, method="POST")
    try:
        with urllib.request.urlopen(sent, timeout=60) as answer:
            answer.read()
            return answer.status, answer.headers["x-pandora-decision-id"]
    except urllib.error.HTTPError as error:
        with error:
            return error.code, ""
    except (OSError, http.client.HTTPException):
        return 0, ""


@pytest.mark.slow
def test_a_killed_worker_loses_no_money_of_any_part(tmp_path: Path) -> None:
    """Every kind of request at once to two workers, one of which is killed: bills as the provider's books."""
    more = [f"{name}: {{{stated(factor)}}}" for name, factor in FACTORS.items()]
    prices = f"{{{stated(1.0)}, tools: {{web_search: 0.01}}, service_tier: {{{', '.join(more)}}}, "
    prices += f"speed: {{fast: {{{stated(6.0)}}}}}}}"
    model = replace(MODEL, first=0.02, says=lambda _: Said(tuple(f" w{i}" for i in range(30)), searches=1))
    store, budget = tmp_path / "pandora.sqlite", nanodollars(50.0)
    with closing(Provider({"small": model})) as books:
        (tmp_path / "pandora.yaml").write_text(
            f"endpoints: {{here: {{base_url: '{books.url}'}}}}\nspecialists:\n  small: {{kind: chat, "
            f"endpoint: here, model: small, wires: [chat, responses, messages], prices: {prices}}}\n"
            f"serve: {{keys: required, store: '{store}', default: small}}\n"
        )
        database = connect(str(store))
        migrate(database)
        with database.transaction() as open_:
            _, secret = accounts.add_key(open_, "team", time.time(), budget=budget)
        rng = random.Random(3)
        asked_for = [(i, *rng.choice(CASES), rng.random() < 0.5) for i in range(240)]
        with served(tmp_path, "--workers", "2") as (_, url, _):
            victim = everyone(url, 2)[0]["worker"]

            def client(one: tuple[int, str, str, bool]) -> tuple[int, str]:
                i, what, wire, stream = one
                if i == 120:
                    os.kill(victim, signal.SIGKILL)
                body = request(wire, "small", stream=stream, max_tokens=50) | says(wire) | asked(what, wire)
                named = json.dumps(body).replace("this river called", f"river {i:03} called")
                return ask_once(url, secret, wire, named.encode())

            with ThreadPoolExecutor(12) as pool:
                answers = list(pool.map(client, asked_for))
            until = time.monotonic() + 60
            while time.monotonic() < until:
                with database.transaction() as open_:
                    if not open_.rows("SELECT 1 FROM decisions WHERE closed_at IS NULL LIMIT 1"):
                        break
                time.sleep(0.1)
        with database.transaction() as open_:
            costs = {str(id_): int(cost) for id_, cost in open_.rows("SELECT id, cost FROM decisions")}
            spent, reserved = open_.rows("SELECT sum(spent), sum(reserved) FROM budgets")[0]
        database.close()
        bills = {int(bill.prompt.split("river ")[1][:3]): bill.nanodollars for bill in books.log}
    whole = {i: id_ for i, (status, id_) in enumerate(answers) if status == 200}
    assert len(whole) > 180
    assert {status for status, _ in answers} <= {0, 200, 503}
    assert {i: costs[id_] for i, id_ in whole.items()} == {i: bills[i] for i in whole}
    assert (int(spent), int(reserved)) == (sum(costs.values()), 0)
    assert spent <= budget


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("claimed", [3, 10**6, 10**12])
def test_more_calls_of_a_tool_than_the_request_allows_are_not_charged(
    serve: Serve, claimed: int, stream: bool
) -> None:
    """The largest claim could not be written as an amount of money: its decision was never closed."""

    def lie(usage: dict[str, Any]) -> dict[str, Any]:
        return {**usage, "server_tool_use": {"web_search_requests": claimed}}

    with closing(Provider({"small": replace(MODEL, lie=lie)})) as lying:
        gateway = serve(backend(lying, "small", prices=PRICES), keys=True)
        secret = key(gateway, "team", budget=nanodollars(5.0))
        body = {**request("messages", "small", stream=stream), **SEARCH["messages"]}
        status, headers, _ = post(gateway, "messages", body, Authorization=f"Bearer {secret}")
        searches, bill = nanodollars(0.01), lying.log[-1]
        assert status == 200
        cost = gateway.settled(headers["x-pandora-decision-id"])[1]
        assert cost == bill.nanodollars + (2 - bill.tokens.searches) * searches
        reasons = gateway.rows("SELECT reason FROM attempts")
        assert "more calls were claimed" in reasons[0][0]

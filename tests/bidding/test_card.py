"""Agent cards of bidders over loopback: what ours says, and what is refused of others."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import orjson
import pytest

from pandora_router.bidding.card import EXTENSION, PATH, card_of, read_card
from pandora_router.bidding.network import Town, services_here
from pandora_router.bidding.rules import Rules
from pandora_router.errors import UpstreamError, UsageError
from pandora_router.market import WEAK, generate
from pandora_router.store import auctions
from pandora_router.store.worker import Store
from pandora_router.transport.asgi import Reply
from pandora_router.transport.client import HttpCall
from pandora_router.transport.endpoint import Endpoint
from tests.support.command import pandora

SECRET = "0123456789abcdef0123"


def bidder():
    town = Town(generate(WEAK, 3, 2, np.random.default_rng(0)), np.full(2, 0.02), Rules())
    return town.service(0)


def served(body):
    """An application that answers every request with `body`; HOST stands for its own address."""

    async def application(scope, receive, send):
        if scope["type"] == "http":
            host = dict(scope["headers"])[b"host"]
            await Reply(body.replace(b"HOST", b"http://" + host)).send(send)

    return application


def beside(application, work):
    """What `work(url)` returns while `application` is served."""

    async def run():
        async with services_here([application]) as (url,):
            return await work(url)

    return asyncio.run(run())


async def fetched(url):
    call = await HttpCall.open(Endpoint(url), PATH, None)
    try:
        return await call.json()
    finally:
        call.close()


def test_a_bidder_serves_a_card_with_the_members_that_a2a_requires():
    async def work(url):
        return url, await fetched(url), await read_card(url), await read_card(url + PATH)

    url, card, read, again = beside(bidder(), work)
    required = {"protocolVersion", "name", "description", "url", "version", "capabilities", "skills"}
    assert {*required, "defaultInputModes", "defaultOutputModes"} <= card.keys()
    assert all({"id", "name", "description", "tags"} <= skill.keys() for skill in card["skills"])
    assert card["url"] == url
    assert card["capabilities"]["extensions"][0]["uri"] == EXTENSION
    assert (read.name, read.address) == ("bidder-0", url)
    assert again == read


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"capabilities": {}}, "a card without it"),
        ({"capabilities": {"extensions": [{"uri": "urn:other"}]}}, "a card without it"),
        ({"url": "http://127.0.0.1:9"}, "another address"),
        ({"url": "https://bids.example.com"}, "another address"),
        ({"url": "file:///etc/passwd"}, "http:// or https://"),
        ({"supportedInterfaces": [{"url": "http://127.0.0.1:9"}]}, "another address"),
        ({"url": ""}, "http:// or https://"),
        ({"name": 7}, "name: string type"),
        ({"capabilities": None}, "capabilities"),
    ],
)
def test_a_card_of_another_protocol_or_address_is_refused(change, message):
    card = {**card_of("far", "HOST", "1"), "supportedInterfaces": [], **change}
    with pytest.raises(UsageError, match=message):
        beside(served(orjson.dumps(card)), read_card)


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>", b'{"name": "' + b"x" * 100_000 + b'"}'])
def test_what_is_no_card_or_too_large_is_a_failure_of_the_other_side(body):
    with pytest.raises(UpstreamError):
        beside(served(body), read_card)


def test_join_reads_the_address_from_the_card(tmp_path, monkeypatch):
    monkeypatch.setenv("PANDORA_MARKET_SECRET", SECRET)
    config = tmp_path / "pandora.yaml"
    config.write_text(
        "specialists:\n"
        "  small: {kind: function, function: 'tests.support.tables:generate', prices: free}\n"
        f"market: {{default: small, store: {json.dumps(str(tmp_path / 'market.sqlite'))}}}\n"
    )

    async def work(url):
        words = ("market", "join", "far", "--card", url, "--config", config)
        return url, await asyncio.to_thread(pandora, *words)

    url, joined = beside(bidder(), work)
    assert joined.exit_code == 0, joined.output
    store = Store(f"sqlite:///{tmp_path / 'market.sqlite'}")
    try:
        members = store.submit(auctions.bidders).result()
    finally:
        store.close()
    assert [(member.name, member.url) for member in members] == [("far", url)]
    for words in ((), ("--url", url, "--card", url)):
        refused = pandora("market", "join", "far", *words, "--config", config)
        assert refused.exit_code == 2
        assert "either --url or --card" in refused.stderr

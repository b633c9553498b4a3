"""The platform as a service, with a fitted router's specialist as a bidder; and the commands around it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json

import orjson
import pytest
from benchmarks.bidding_network import services_here

from pandora_router.bidding.auctioneer import Auctioneer
from pandora_router.bidding.platform_http import Market
from pandora_router.bidding.rules import RouterBeliefs, Rules
from pandora_router.bidding.service import BidderService, RouterSide
from pandora_router.bidding.wire import Offer, bidder_key
from pandora_router.errors import UsageError
from pandora_router.prices import Tariff
from pandora_router.specialists.function import Function
from pandora_router.store import accounts, auctions
from pandora_router.store.worker import Store
from pandora_router.transport.relay import Relay
from tests.support.command import pandora
from tests.support.routers import fitted
from tests.support.tables import NAMES

SECRET = b"0123456789abcdef0123"


def specialist(name, calls=None):
    def answer(prompt):
        if calls is not None:
            calls.append(prompt)
        return f"clearly it is {name}"

    return Function(name, answer, Tariff(0.0, 0.0, per_call=0.001))


async def ask(url, path, body=None, key=None):
    """Status and JSON of a request to the platform."""
    headers = {"content-type": "application/json"}
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    relay = await Relay.open(url + path, orjson.dumps(body), headers, 120.0)
    try:
        return relay.status, orjson.loads(await relay.read(2**20))
    finally:
        relay.close()


def in_market(tmp_path, work, mechanism="descending", calls=None, keys=False):
    """Run `work(url, store)` with a platform, two endpoints by proxy and one bidder with its own router."""

    async def play():
        store = Store(str(tmp_path / "store.sqlite"))
        router = fitted(contexts=True)
        first, *others = NAMES[:3]
        side = RouterSide(router, specialist(first, calls))
        service = BidderService(first, side, bidder_key(SECRET, first))
        try:
            async with services_here([service]) as (url,):
                await store.run(lambda open_: auctions.join(open_, first, url, 1.0, stake=5.0))
                rules = Rules(mechanism, deadline=120.0, auction=600.0, deliver=120.0)
                proxies = {name: specialist(name) for name in NAMES[:3]}  # the first bids for itself
                market = Market(
                    store, Auctioneer(SECRET, rules), RouterBeliefs(router), proxies, others[0], keys=keys
                )
                async with services_here([market]) as (platform,):
                    return await work(platform, store), service
        finally:
            store.close()

    return asyncio.run(play())


PROMPTS = [f"{verb} the river stone number {i}" for i in range(6) for verb in ("count", "tell about")]


@pytest.mark.parametrize("mechanism", ["descending", "sequential"])
def test_a_prompt_is_auctioned_answered_graded_and_settled(tmp_path, mechanism):
    calls: list[str] = []

    async def work(url, store):
        served = [await ask(url, "/prompts", {"prompt": prompt, "kind": "test"}) for prompt in PROMPTS]
        _, judge = await store.run(lambda open_: accounts.add_key(open_, "judge", 1.0, admin=True))

        async def grade(reward):
            return [
                await ask(url, "/feedback", {"auction": body["auction"], "reward": reward}, judge)
                for _, body in served
            ]

        graded = await grade(0.75)
        again = await grade(0.1)
        assert all(reply == (200, {"settled": False}) for reply in again)
        return served, graded, await store.run(auctions.balances)

    (served, graded, balances), service = in_market(tmp_path, work, mechanism, calls)
    won = [body for status, body in served if body["bidder"] == service.name]
    assert [status for status, _ in served] == [200] * len(PROMPTS)
    assert all(body["answer"].startswith("clearly it is") for _, body in served)
    assert all(body["answer"] == f"clearly it is {service.name}" for body in won)
    paid = sum(body["price"] for body in won)
    assert balances.get(f"bidder {service.name}", 0.0) == pytest.approx(0.75 * len(won) - paid)
    assert sum(balances.values()) == pytest.approx(0.0, abs=1e-9)
    assert service.tally.won == len(won)
    assert service.tally.looks > 0 or mechanism == "sequential"
    # a look is the beginning of the answer: no prompt is answered twice by the same specialist
    assert len(calls) == len(set(calls))
    assert [body for _, body in graded if body["settled"]]


def test_what_is_not_understood_is_refused_with_a_reason(tmp_path):
    async def work(url, store):
        _, judge = await store.run(lambda open_: accounts.add_key(open_, "judge", 1.0, admin=True))
        return [
            await ask(url, "/prompts", {"prompt": ""}),
            await ask(url, "/prompts", {"messages": [{"role": "system", "content": "x"}]}),
            await ask(url, "/prompts", {"prompt": "x", "unknown": 1}),
            await ask(url, "/feedback", {"auction": "none", "reward": 1.0}, judge),
            await ask(url, "/feedback", {"auction": "none", "reward": "much"}),
            await ask(url, "/feedback", {"auction": "none", "reward": 1.01}, judge),
            await ask(url, "/feedback", {"auction": "none", "reward": -0.01}, judge),
            await ask(url, "/nowhere", {}),
        ]

    replies, _ = in_market(tmp_path, work)
    assert [status for status, _ in replies] == [400] * 7 + [404]
    assert all(body["error"] for _, body in replies)
    assert "no such auction" in replies[3][1]["error"]


def test_no_client_and_no_bidder_pays_a_reward_or_reads_bids(tmp_path):
    """A bidder that could grade its own answers, or read what others bid, would own the market."""

    async def work(url, store):
        _, body = await ask(url, "/prompts", {"prompt": PROMPTS[0]})
        keys = [None]
        for name, admin in (("client", False), (NAMES[0], True), ("judge", True)):
            adding = lambda open_, n=name, a=admin: accounts.add_key(open_, n, 1.0, admin=a)  # noqa: E731
            keys.append((await store.run(adding))[1])
        before, graded, read = await store.run(auctions.balances), [], []
        for key in keys:
            reward = {"auction": body["auction"], "reward": 1.0}
            read.append(await fetch(url, f"/auctions/{body['auction']}", key))
            graded.append((await ask(url, "/feedback", reward, key))[0])
            if key != keys[-1]:
                assert await store.run(auctions.balances) == before
        return graded, read, body

    (graded, read, body), _ = in_market(tmp_path, work)
    assert graded == [403, 403, 403, 200]
    assert [status for status, _ in read] == [403, 403, 403, 200]
    assert all("calls" not in shown for _, shown in read[:3])
    assert (read[3][1]["bidder"], bool(read[3][1]["calls"])) == (body["bidder"], True)


@pytest.mark.parametrize("keys", [True, False])
def test_names_need_a_key_where_keys_are_required(tmp_path, keys):
    async def work(url, store):
        paths = ("/health", "/bidders", "/auctions/x", "/prompts", "/nowhere")
        return [(path, *await fetch(url, path)) for path in paths]

    replies, _ = in_market(tmp_path, work, keys=keys)
    named = [path for path, _, body in replies if any(name in json.dumps(body) for name in NAMES[:3])]
    assert named == ([] if keys else ["/health", "/bidders"])
    assert replies[0][1] == 200


async def fetch(url, path, key=None):
    """Status and JSON of GET, by an HTTP client that is not ours."""

    def get():
        client = http.client.HTTPConnection(url.removeprefix("http://"), timeout=120)
        with contextlib.closing(client):
            client.request("GET", path, headers={"authorization": f"Bearer {key}"} if key else {})
            reply = client.getresponse()
            return reply.status, json.loads(reply.read())

    return await asyncio.to_thread(get)


UNREADABLE = [
    [{"role": "wizard", "content": "x"}, {"role": "user", "content": PROMPTS[0]}],
    [{"role": "system", "content": "x"}],
]
"""Messages that no specialist can answer: an unknown role, and none by the user."""


@pytest.mark.parametrize("messages", UNREADABLE)
def test_messages_that_nobody_can_answer_cost_no_bidder_its_deposit(tmp_path, messages):
    async def work(url, store):
        sent = {"prompt": PROMPTS[0], "messages": messages}
        replies = [await ask(url, "/prompts", sent) for _ in range(4)]
        awarded = await store.run(lambda open_: open_.rows("SELECT count(*) FROM market_auctions"))
        return replies, awarded, await store.run(auctions.balances)

    (replies, awarded, balances), service = in_market(tmp_path, work)
    assert [status for status, _ in replies] == [400] * 4
    assert "by the user" in replies[0][1]["error"] or "a role among" in replies[0][1]["error"]
    assert awarded == [(0,)]
    assert balances[f"deposit {service.name}"] == 5.0


@pytest.mark.parametrize("messages", UNREADABLE)
def test_a_bidder_leaves_if_it_could_not_answer_the_messages(messages):
    first = NAMES[0]
    service = BidderService(first, RouterSide(fitted(contexts=True), specialist(first)), b"key")
    common = {"turn": 0, "mechanism": "second price", "price": -1.0, "deadline": 60.0, "keep": 60.0}
    plain = Offer(auction="plain", prompt=PROMPTS[0], **common)
    unreadable = Offer(auction="unreadable", prompt=PROMPTS[0], messages=messages, **common)

    async def both():
        return [(await service.offers(offer)).say for offer in (plain, unreadable)]

    assert asyncio.run(both()) == ["bid", "leave"]


def test_a_bidder_needs_a_router_that_knows_it():
    with pytest.raises(UsageError, match="for whom the router was fitted"):
        RouterSide(fitted(), specialist("stranger"))


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.setenv("PANDORA_MARKET_SECRET", SECRET.decode())
    path = tmp_path / "pandora.yaml"
    path.write_text(
        "specialists:\n"
        "  small: {kind: function, function: 'tests.support.tables:generate', prices: free}\n"
        "market: {default: small, store: market.sqlite}\n"
    )
    return path


def test_bidders_join_renew_their_keys_and_leave(config):
    joined = pandora(
        "market", "join", "far", "--url", "http://127.0.0.1:9/", "--stake", "2", "--config", config
    )
    assert joined.stdout.strip() == bidder_key(SECRET, "far").decode()
    renewed = pandora("market", "renew", "far", "--config", config)
    assert renewed.stdout.strip() == bidder_key(SECRET, "far", 2).decode()
    told = json.loads(pandora("market", "accounts", "--json", "--config", config).stdout)
    assert told["balances"] == {"deposit far": 2.0, "world": -2.0}
    assert "deposit far" in pandora("market", "accounts", "--config", config).output
    assert "no longer" in pandora("market", "leave", "far", "--config", config).output
    told = json.loads(pandora("market", "accounts", "--json", "--config", config).stdout)
    assert told["balances"] == {"deposit far": 0.0, "world": 0.0}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("market", "join", "far", "--url", "nowhere"), "http:// or https://"),
        (("market", "renew", "nobody"), "one that has joined"),
        (("market", "leave", "naer"), "expected a bidder that takes part, got 'naer'"),
    ],
)
def test_mistakes_of_the_commands_are_named(config, words, message):
    assert pandora("market", "join", "near", "--url", "http://127.0.0.1:9", "--config", config).exit_code == 0
    result = pandora(*words, "--config", config)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_market_without_a_secret_or_a_bidder_without_a_key_does_not_start(config, monkeypatch):
    monkeypatch.setenv("PANDORA_MARKET_SECRET", "short")
    assert "16 characters or more" in pandora("market", "serve", config).stderr
    monkeypatch.delenv("PANDORA_BIDDER_KEY", raising=False)
    assert "PANDORA_BIDDER_KEY" in pandora("bid", config, "--as", "small").stderr
    assert "one of small" in pandora("bid", config, "--as", "other").stderr


@pytest.mark.parametrize(("setting", "value"), [("deliver_seconds", 7200), ("deadline_ms", 7_200_000)])
def test_times_that_no_message_to_a_bidder_can_state_are_refused_at_the_start(config, setting, value):
    config.write_text(config.read_text().replace("{default:", f"{{{setting}: {value}, default:"))
    result = pandora("market", "accounts", "--config", config)
    assert result.exit_code == 2
    assert f"market.{setting}" in result.stderr
    assert "a number of at most 3" in result.stderr

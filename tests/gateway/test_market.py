"""`routing: market`: real bidder services beside the stub's endpoints, an auction for every request."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from benchmarks.bidding_network import services_here

from pandora_router.bidding.auctioneer import Auctioneer
from pandora_router.bidding.rules import Rules
from pandora_router.bidding.service import BidderService
from pandora_router.bidding.wire import LARGEST, bidder_key
from pandora_router.boxes import Independent
from pandora_router.config.gateway import ServePlan
from pandora_router.errors import UpstreamError, UsageError
from pandora_router.gateway.providers.backend import SpokenReply
from pandora_router.store import accounts, auctions
from pandora_router.wires.events import Frames, data_of
from pandora_router.wires.known import BY_NAME
from tests.gateway.conftest import Running, Serve, backend
from tests.gateway.stub import Stub
from tests.gateway.test_wires import PATHS, post, request

SECRET = b"0123456789abcdef0123"
PATIENT = {"deadline": 60.0, "auction": 600.0, "deliver": 60.0}
AT = {"chat": ("choices", 0, "message", "content"), "messages": ("content", 0, "text")}
AT["responses"] = ("output", 0, "content", 0, "text")


@dataclass
class Sure:
    """A bidder that knows what it is worth, and either delivers or does not."""

    worth: float
    text: str | None = "said by a bidder"
    prompts: tuple[Any, ...] = ()

    async def box(self, offer: Any) -> Independent:
        return Independent([self.worth], [0.0], 0.0)

    async def look(self, offer: Any) -> float:
        return self.worth

    async def answer(self, delivery: Any) -> str:
        self.prompts = (*self.prompts, delivery)
        if self.text is None:
            raise UpstreamError("not today")
        return self.text

    def drop(self, auction: str) -> None:
        """Nothing is begun."""


class Bidders:
    """Bidder services on sockets of their own, in a thread."""

    def __init__(self, sides: dict[str, Sure]) -> None:
        self.services = [BidderService(name, side, bidder_key(SECRET, name)) for name, side in sides.items()]
        self._loop, self._ready = asyncio.new_event_loop(), threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()))
        self._thread.start()
        assert self._ready.wait(60)

    async def _serve(self) -> None:
        async with services_here(self.services) as urls:
            self.urls = urls
            self._ready.set()
            await self._stop.wait()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


@pytest.fixture
def market(serve: Serve, stub: Stub) -> Iterator[Any]:
    """Start a gateway with these bidders and endpoints; the first endpoint is the default."""
    running: list[Bidders] = []

    def start(
        sides: dict[str, Sure], *endpoints: str, mechanism: str = "descending", stake: float = 5.0
    ) -> Running:
        running.append(Bidders(sides))
        gateway = serve(*(backend(stub, name) for name in endpoints or ("small",)))
        for name, url in zip(sides, running[-1].urls, strict=True):
            joining = lambda open_, name=name, url=url: auctions.join(open_, name, url, 1.0, stake=stake)  # noqa: E731
            gateway.gateway.store.submit(joining).result(30)
        auctioneer = Auctioneer(SECRET, Rules(mechanism, **PATIENT))  # type: ignore[arg-type]
        gateway.gateway.install(replace(gateway.gateway.site, market=auctioneer))
        return gateway

    yield start
    for bidders in running:
        bidders.close()


def text_of(wire: str, body: bytes) -> Any:
    found = json.loads(body)
    for step in AT[wire]:
        found = found[step]
    return found


def auction_of(gateway: Running, id_: str) -> Any:
    return gateway.gateway.store.submit(lambda open_: auctions.auction(open_, id_)).result(30)


def balances(gateway: Running) -> dict[str, float]:
    return gateway.gateway.store.submit(auctions.balances).result(30)


@pytest.mark.parametrize("wire", PATHS)
def test_a_bidder_that_wins_answers_on_the_wire_of_the_client(market: Any, wire: str) -> None:
    side = Sure(0.9)
    gateway = market({"clever": side})
    status, headers, body = post(gateway, PATHS[wire], request(wire, "auto"), x_pandora_kind="test")
    assert status == 200, body
    assert text_of(wire, body) == "said by a bidder"
    assert headers["x-pandora-specialist"] == "clever"
    assert headers["x-pandora-policy"] == "market: descending"
    id_ = headers["x-pandora-decision-id"]
    assert gateway.settled(id_) == ("ok", 0, "clever")
    row, calls = auction_of(gateway, id_)
    assert (row.status, row.bidder, row.kind, row.price) == ("delivered", "clever", "test", 0.9)
    assert {call.bidder for call in calls} == {"clever", "small"}
    (delivery,) = side.prompts
    assert [(turn.role, turn.content) for turn in delivery.messages] == [("user", "hi")]
    said = {"decision_id": id_, "reward": 0.75}
    assert post(gateway, "feedback", said)[0] == 200  # stored, but a client pays nobody
    assert balances(gateway)["bidder clever"] == pytest.approx(-0.9)
    _, judge = gateway.gateway.store.submit(
        lambda open_: accounts.add_key(open_, "judge", 1.0, admin=True)
    ).result(30)
    for _ in range(2):  # a second opinion moves no money
        assert post(gateway, "feedback", said, authorization=f"Bearer {judge}")[0] == 200
    assert balances(gateway)["bidder clever"] == pytest.approx(0.75 - 0.9)
    (score,) = gateway.gateway.store.submit(auctions.scores).result(30)
    assert (score.bidder, score.kind, score.graded) == ("clever", "test", 1)


@pytest.mark.parametrize("wire", PATHS)
def test_a_stream_has_the_same_answer_as_the_whole(market: Any, wire: str) -> None:
    gateway = market({"clever": Sure(0.9)})
    status, headers, body = post(gateway, PATHS[wire], request(wire, "auto", stream=True))
    assert (status, headers["content-type"].split(";")[0]) == (200, "text/event-stream")
    whole = BY_NAME[wire].assembly()
    for frame in Frames().feed(body):
        if data_of(frame) != b"[DONE]":
            whole.add(data_of(frame), json.loads(data_of(frame)))
    assert text_of(wire, whole.body()) == "said by a bidder"
    assert auction_of(gateway, headers["x-pandora-decision-id"])[0].status == "delivered"


@pytest.mark.parametrize("wire", PATHS)
def test_joining_the_pieces_of_a_spoken_answer_gives_the_spoken_whole(wire: Any) -> None:
    def reply(*, stream: bool) -> bytes:
        made = SpokenReply(BY_NAME[wire], 'a "text"\nof two lines', "clever", "id", 300, stream=stream)
        return asyncio.run(made.read(10**6))

    whole = BY_NAME[wire].assembly()
    for frame in Frames().feed(reply(stream=True)):
        if data_of(frame) != b"[DONE]":
            whole.add(data_of(frame), json.loads(data_of(frame)))
    wanted, joined = json.loads(reply(stream=False)), json.loads(whole.body())
    for changing in ("created", "created_at"):
        wanted.pop(changing, None), joined.pop(changing, None)
    if wire == "chat":
        wanted["choices"][0]["message"].pop("refusal")
    assert joined == wanted


def test_a_winner_that_stalls_loses_part_of_its_deposit_and_the_runner_up_serves(market: Any) -> None:
    gateway = market({"idle": Sure(0.9, None), "next": Sure(0.8)})
    status, headers, body = post(gateway, PATHS["chat"], request("chat", "auto"))
    assert (status, text_of("chat", body)) == (200, "said by a bidder")
    assert headers["x-pandora-specialist"] == "next"
    id_ = headers["x-pandora-decision-id"]
    assert gateway.settled(id_)[2] == "next"
    assert auction_of(gateway, id_)[0].bidder == "next"
    held = balances(gateway)
    assert held["deposit idle"] == pytest.approx(4.9)
    assert held["bidder idle"] == 0.0
    assert held["platform"] == pytest.approx(0.1 + 0.8)
    assert sum(held.values()) == pytest.approx(0.0, abs=1e-9)
    attempts = gateway.rows("SELECT kind, specialist, status FROM attempts ORDER BY at, kind")
    assert attempts == [("answer", "idle", "error"), ("retry", "next", "ok")]


def test_endpoints_take_part_by_proxy_and_fail_over_among_each_other(market: Any, stub: Stub) -> None:
    gateway = market({}, "broken", "small", mechanism="sequential")
    seen = set()
    for _ in range(8):  # ties are broken by the auction's id
        status, headers, body = post(gateway, PATHS["chat"], request("chat", "auto"))
        assert status == 200, body
        seen.add(headers["x-pandora-specialist"])
    assert seen == {"small"}
    assert {row[0] for row in gateway.rows("SELECT status FROM market_auctions")} == {"delivered"}


def test_what_a_bidder_cannot_do_goes_to_endpoints_alone(market: Any) -> None:
    side = Sure(0.9)
    gateway = market({"clever": side})
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    status, headers, _ = post(gateway, PATHS["chat"], request("chat", "auto", tools=[tool]))
    assert (status, headers["x-pandora-specialist"]) == (200, "small")
    status, headers, _ = post(gateway, PATHS["chat"], request("chat", "auto", n=2))
    assert (status, headers["x-pandora-specialist"]) == (200, "small")
    status, headers, _ = post(gateway, PATHS["chat"], request("chat", "small"))
    assert (status, headers["x-pandora-policy"]) == (200, "named")
    status, headers, _ = post(gateway, PATHS["chat"], request("chat", "auto"), x_pandora_router="off")
    assert (status, headers["x-pandora-policy"]) == (200, "default")
    status, headers, _ = post(gateway, PATHS["chat"], request("chat", "auto"), x_pandora_deny="clever")
    assert (status, headers["x-pandora-specialist"]) == (200, "small")
    assert side.prompts == ()
    status, _, body = post(gateway, "routing/decision", request("chat", "auto"))
    assert status == 400
    assert b"a decision alone is not possible" in body


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_no_message_to_a_bidder_can_hold_goes_to_an_endpoint(market: Any, stream: bool) -> None:
    gateway = market({"clever": Sure(0.9)})
    says = {"role": "user", "content": "x" * (LARGEST + 1)}
    body = request("chat", "auto", stream=stream, messages=[says])
    status, headers, _ = post(gateway, PATHS["chat"], body)
    assert (status, headers["x-pandora-specialist"]) == (200, "small")
    assert gateway.settled(headers["x-pandora-decision-id"])[2] == "small"


def test_nobody_answers_without_money_and_nobody_is_left_without_an_answer(market: Any) -> None:
    gateway = market({"poor": Sure(0.9)}, stake=0.0)
    status, headers, _ = post(gateway, PATHS["chat"], request("chat", "auto"))
    assert (status, headers["x-pandora-specialist"]) == (200, "small")
    gateway = market({"idle": Sure(0.9, None)}, "broken")
    status, headers, body = post(gateway, PATHS["chat"], request("chat", "auto"))
    assert status == 502, body
    id_ = headers["x-pandora-decision-id"]
    gateway.settled(id_)
    assert auction_of(gateway, id_)[0].status == "stalled"
    assert sum(balances(gateway).values()) == pytest.approx(0.0, abs=1e-9)


def test_an_award_whose_client_has_gone_is_taken_back(market: Any, stub: Stub) -> None:
    gateway = market({}, "hang")
    client = http.client.HTTPConnection(gateway.url.removeprefix("http://"), timeout=60)
    before = stub.calls["hang"]
    client.request("POST", "/v1/chat/completions", json.dumps(request("chat", "auto")).encode())
    while stub.calls["hang"] == before:
        time.sleep(0.01)
    client.close()
    (id_,) = gateway.rows("SELECT id FROM decisions")[0]
    assert gateway.settled(id_)[0] == "cancelled"
    assert auction_of(gateway, id_)[0].status == "abandoned"
    assert sum(balances(gateway).values()) == 0.0


def _read_to_the_end_and_leave(gateway: Running) -> None:
    """Read a streamed answer up to its last event and close the connection at once."""
    host, port = gateway.url.removeprefix("http://").split(":")
    body = json.dumps(request("chat", "auto", stream=True)).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=60) as client:
        client.sendall(head.encode() + body)
        received = b""
        while b"[DONE]" not in received:
            part = client.recv(65536)
            assert part, received
            received += part


@pytest.mark.parametrize(("sides", "winner"), [({}, "small"), ({"clever": Sure(0.9)}, "clever")])
def test_a_client_that_leaves_after_the_last_event_pays_for_what_was_sent(
    market: Any, stub: Stub, sides: dict[str, Sure], winner: str
) -> None:
    gateway = market(sides, stake=100.0)
    _, headers, _ = post(gateway, PATHS["chat"], request("chat", "auto", stream=True))
    patient = gateway.settled(headers["x-pandora-decision-id"])
    assert patient[2] == winner
    for _ in range(20):
        _read_to_the_end_and_leave(gateway)
    for (id_,) in gateway.rows("SELECT id FROM decisions"):
        assert gateway.settled(id_)[1:] == patient[1:]
        # an endpoint's award is taken back if the client left before its last event was passed on
        ends = {"delivered"} if sides else {"delivered", "abandoned"}
        assert auction_of(gateway, id_)[0].status in ends
    open_ones = gateway.rows("SELECT count(*) FROM attempts WHERE status IS NULL OR status = 'open'")
    assert open_ones == [(0,)]
    charged = gateway.rows("SELECT count(*), sum(cost) FROM attempts")[0]
    assert charged == (21, 21 * patient[1])


CONFIG = """
endpoints: {{here: {{base_url: "{url}"}}}}
specialists:
  small: {{kind: chat, endpoint: here, model: small, prices: free}}
serve: {{routing: market, default: small, keys: none{more}}}
market: {{mechanism: second price}}
"""


def test_the_file_says_routing_market(tmp_path: Any, stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pandora.yaml"
    path.write_text(CONFIG.format(url=stub.url, more=""))
    monkeypatch.delenv("PANDORA_MARKET_SECRET", raising=False)
    with pytest.raises(UsageError, match="secret of the market"):
        ServePlan(path).site()
    monkeypatch.setenv("PANDORA_MARKET_SECRET", SECRET.decode())
    site = ServePlan(path).site()
    assert site.market is not None
    assert site.market.rules.mechanism == "second price"
    path.write_text(CONFIG.format(url=stub.url, more=", observe: true"))
    with pytest.raises(UsageError, match="neither"):
        ServePlan(path).site()

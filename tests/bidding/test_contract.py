"""The contract of bidders: ours, the examples in Python and JavaScript, and those that break it."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import orjson
import pytest
from benchmarks.bidding_network import SimulatedMarket

from pandora_router.bidding import wire
from pandora_router.bidding.rules import Rules
from pandora_router.bidding.service import TRUTHFUL, BidderService
from pandora_router.bidding.wire import bidder_key
from pandora_router.market import WEAK, generate
from pandora_router.testing import BrokenContract, check_bidder
from pandora_router.transport.asgi import Address, serving

DOCS = Path(__file__).parents[2] / "docs"
KEY = b"0123456789abcdef"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def running(*command):
    """A bidder as a process, once its port answers."""
    port = free_port()
    process = subprocess.Popen([*command, str(port), KEY.decode()], stderr=subprocess.DEVNULL)
    try:
        for _ in range(2400):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def test_the_example_in_plain_python_keeps_the_contract():
    with running(sys.executable, str(DOCS / "bidders" / "bidder.py")) as url:
        check_bidder(url, KEY, ["What is 6 x 7?"], seconds=120.0)


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_example_in_javascript_keeps_the_contract():
    with running("node", str(DOCS / "bidders" / "bidder.mjs")) as url:
        check_bidder(url, KEY, ["What is 6 x 7?"], seconds=120.0)


def test_our_own_service_keeps_the_contract():
    instance = generate(WEAK, 3, 2, np.random.default_rng(0))
    town = SimulatedMarket(instance, np.full(2, 0.02), Rules())
    service = town.service(0)
    service.strategies = TRUTHFUL

    async def check():
        listening = Address("127.0.0.1", 0).bind(keys=False)
        async with serving(service, listening) as url:
            await asyncio.to_thread(check_bidder, url, service.key, ["0", "1", "2"])

    asyncio.run(check())


def test_a_repeated_delivery_gets_the_same_answer_once():
    instance = generate(WEAK, 3, 2, np.random.default_rng(0))
    service = SimulatedMarket(instance, np.full(2, 0.02), Rules()).service(0)
    won = wire.Delivery(auction="a", price=0.1, deadline=9.0, prompt="0")

    async def twice():
        return [await service.answers(won) for _ in range(2)]

    first, second = asyncio.run(twice())
    assert first == second
    assert (service.tally.won, service.tally.paid) == (1, 0.1)


class Careless(BaseHTTPRequestHandler):
    """Answers everybody, signs nothing."""

    said = None

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        body = orjson.dumps(self.said)
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_a_service_that_signs_nothing_breaks_the_contract():
    Careless.said = {"say": "bid", "limit": 0.5}
    server = HTTPServer(("127.0.0.1", 0), Careless)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with pytest.raises(BrokenContract, match="signed reply"):
            check_bidder(f"http://127.0.0.1:{server.server_port}", KEY, ["1"])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("said", "law"),
    [
        ({"say": "wait", "until": 0.9}, "nothing to wait for"),
        ({"say": "bid"}, "a bid has a limit"),
        ({"say": "maybe"}, "shape of the schema"),
        ({"say": "bid", "limit": 1e9}, "shape of the schema"),
    ],
)
def test_replies_that_make_no_sense_break_the_contract(said, law):
    class Odd(BidderService):
        async def offers(self, offer):
            return wire.BidReply.model_construct(**said)

    instance = generate(WEAK, 1, 2, np.random.default_rng(0))
    side = SimulatedMarket(instance, np.full(2, 0.02), Rules()).service(0).private

    async def check():
        listening = Address("127.0.0.1", 0).bind(keys=False)
        async with serving(Odd("odd", side, KEY), listening) as url:
            await asyncio.to_thread(check_bidder, url, KEY, ["0"])

    with pytest.raises(BrokenContract, match=law):
        asyncio.run(check())


def test_the_schema_in_the_documentation_is_that_of_the_messages():
    assert orjson.loads((DOCS / "market.schema.json").read_bytes()) == wire.schema()


def test_keys_differ_by_name_version_and_secret():
    keys = {bidder_key(s, n, v) for s in (b"a" * 16, b"b" * 16) for n in ("x", "y") for v in (1, 2)}
    assert len(keys) == 8

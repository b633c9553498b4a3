"""Calls that are passed on, against servers of plain sockets: replies whole, connections reused or left."""

from __future__ import annotations

import asyncio
import gc
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httptools", reason="pip install 'pandora-router[serve]'")

from pandora_router.transport import connection_pool as pool
from pandora_router.transport.failures import Failed
from pandora_router.transport.relay import Relay
from tests.support.raw_server import for_ever, raw_server, read_request, reply
from tests.transport.test_transport import CHUNKED, DRIPS, HEAD

JSON = {"Content-Type": "application/json"}


async def call(url: str, body: bytes = b"{}", timeout: float = 30.0) -> tuple[int, dict[str, str], bytes]:
    relay = await Relay.open(url, body, JSON, timeout)
    try:
        return relay.status, dict(relay.headers), await relay.read(10**8)
    finally:
        relay.close()


def failure(url: str, **more: Any) -> Failed:
    with pytest.raises(Failed) as caught:
        asyncio.run(call(url, **more))
    return caught.value


LOOPS: list[Callable[[Coroutine[Any, Any, Any]], Any]] = [asyncio.run]
try:
    import uvloop

    LOOPS.append(uvloop.run)
except ImportError:
    pass
each_loop = pytest.mark.parametrize("run", LOOPS, ids=lambda run: run.__module__)


@contextmanager
def keeping(*replies: bytes) -> Iterator[tuple[str, list[list[bytes]]]]:
    """A server that keeps connections: the n-th request gets the n-th reply; yields what each one got.

    After a reply without a line break it closes the connection.
    """
    listening = socket.create_server(("127.0.0.1", 0))
    requests: list[list[bytes]] = []
    left = iter(replies)

    def talk(connection: socket.socket) -> None:
        got: list[bytes] = []
        requests.append(got)
        with connection:
            while request := read_request(connection):
                got.append(request)
                said = next(left, b"\r\n")
                connection.sendall(said)
                if b"\r\n" not in said:
                    return

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=talk, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1/x", requests
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(5.0)


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LAST = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"


@each_loop
@pytest.mark.parametrize(
    ("replies", "connections"),
    [
        ([OK, OK, OK], 1),
        ([OK, LAST, OK], 2),
        ([b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", OK, OK], 2),
        ([OK + b"x", OK, OK], 2),
        ([b"HTTP/1.1 204 No\r\n\r\n", OK, OK], 1),
        ([CHUNKED + b"1\r\no\r\n1;a=b\r\nk\r\n0\r\nX: y\r\n\r\n", OK, OK], 1),
        ([b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nA: b\r\n\r\n" + OK, OK, OK], 1),
    ],
)
def test_a_connection_is_used_again_if_its_reply_allows(
    run: Any, replies: list[bytes], connections: int
) -> None:
    with keeping(*replies) as (url, requests):

        async def main() -> list[tuple[int, bytes]]:
            answers = [await call(url, b"%d" % i) for i in range(len(replies))]
            return [(status, body) for status, _, body in answers]

        answers = run(main())
    assert answers == [(204, b"") if b"204" in said else (200, b"ok") for said in replies]
    bodies = [[request.partition(b"\r\n\r\n")[2] for request in got] for got in requests]
    assert len(bodies) == connections
    assert [body for got in bodies for body in got] == [b"0", b"1", b"2"]


@each_loop
def test_a_call_that_is_left_does_not_give_its_connection_to_the_next(run: Any) -> None:
    with keeping(HEAD + b"Content-Length: 9\r\n\r\nhalf", OK) as (url, requests):

        async def main() -> bytes:
            relay = await Relay.open(url, b"1", JSON, 30.0)
            assert await relay.chunk() == b"half"
            relay.close()
            return (await call(url))[2]

        assert run(main()) == b"ok"
    assert [len(got) for got in requests] == [1, 1]


@each_loop
@pytest.mark.parametrize("size", [3, 200_000])
def test_a_kept_connection_that_ends_without_a_reply_is_replaced(run: Any, size: int) -> None:
    with keeping(OK, b"", OK) as (url, requests):

        async def main() -> list[bytes]:
            return [(await call(url, letter * size))[2] for letter in (b"a", b"b")]

        assert run(main()) == [b"ok", b"ok"]
    bodies = [[request.partition(b"\r\n\r\n")[2] for request in got] for got in requests]
    assert bodies == [[b"a" * size, b"b" * size], [b"b" * size]]


@each_loop
@pytest.mark.parametrize(
    ("replies", "calls"),
    [([b""], [1]), ([OK, b"", b"", OK], [2, 1]), ([OK, b"HTTP/1.1 200", OK], [2])],
    ids=["new connection", "twice", "reply begun"],
)
def test_a_call_on_which_the_server_may_have_worked_is_not_repeated(
    run: Any, replies: list[bytes], calls: list[int]
) -> None:
    with keeping(*replies) as (url, requests):

        async def main() -> None:
            if replies[0]:
                await call(url)
            with pytest.raises(Failed) as caught:
                await call(url)
            assert caught.value.charged

        run(main())
    assert [len(got) for got in requests] == calls


def test_a_kept_connection_that_the_server_closes_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closed by the server, or kept for too long."""
    with raw_server(lambda _: [OK], 0.0) as server:

        async def main() -> None:
            await call(server.url)
            connections = (await pool.pool_of_loop()).opened
            while connections:
                await asyncio.sleep(0.001)
            assert (await call(server.url))[2] == b"ok"

        asyncio.run(main())
    monkeypatch.setattr(pool, "KEPT", 0.0)
    with keeping(OK, OK) as (url, requests):

        async def again() -> None:
            await call(url)
            await call(url)

        asyncio.run(again())
    assert [len(got) for got in requests] == [1, 1]


@each_loop
def test_a_reply_may_come_byte_by_byte_and_end_with_its_connection(run: Any) -> None:
    for said in (reply(b'{"a": 1}'), HEAD + b'\r\n{"a": 1}', CHUNKED + b'8\r\n{"a": 1}\r\n0\r\n\r\n'):
        with raw_server(lambda _, said=said: (said[i : i + 1] for i in range(len(said))), 0.0002) as server:
            status, headers, body = run(call(server.url))
        assert (status, headers["content-type"], body) == (200, "application/json", b'{"a": 1}')


@pytest.mark.parametrize(
    ("said", "kind", "charged"),
    [
        (reply(b"{}")[:-1], "cut", True),
        (CHUNKED + b"5\r\nab", "cut", True),
        (b"SSH-2.0-server\r\n", "invalid reply", True),
        (CHUNKED + b"zz\r\n", "invalid reply", True),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "invalid reply", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "invalid reply", True),
        (b"HTTP/1.1 600 Beyond\r\nContent-Length: 2\r\n\r\nab", "invalid reply", True),
        (b"", "connection", True),
    ],
)
def test_replies_that_are_none(said: bytes, kind: str, charged: bool) -> None:
    with raw_server(lambda _: [said], 0.0) as server:
        error = failure(server.url)
    assert (error.failure, error.charged, error.again) == (kind, charged, True)


@pytest.mark.parametrize("pause", [0.005, 0.0], ids=["slowly", "fast"])
@pytest.mark.parametrize("what", [what for what in DRIPS if "body" not in what and what != "chunks"])
def test_no_wait_outlives_its_deadline(what: str, pause: float) -> None:
    """Bytes that are no part of a body do not extend the deadline."""
    with raw_server(DRIPS[what], pause if what != "nothing" else 0.005) as server:
        begun = time.monotonic()
        error = failure(server.url, timeout=0.4)
        assert time.monotonic() - begun < 10.0
    assert error.failure in {"timeout", "invalid reply"}
    assert error.failure == "timeout" or what != "nothing"


def test_a_server_that_cannot_be_reached_charges_nothing() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        free = listening.getsockname()[1]
    for url in (f"http://127.0.0.1:{free}/", "http://host.invalid/"):
        error = failure(url)
        assert (error.failure, error.charged) == ("connection", False)


@each_loop
def test_large_bodies_go_both_ways(run: Any) -> None:
    body = bytes(range(256)) * 20_000

    def echo(request: bytes) -> list[bytes]:
        return [reply(request.partition(b"\r\n\r\n")[2])]

    with raw_server(echo, 0.0) as server:
        assert run(call(server.url, body))[2] == body


def test_an_early_refusal_of_a_large_body_is_an_answer() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def refuse() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno")
            over.wait(30.0)

    thread = threading.Thread(target=refuse, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    status, _, body = asyncio.run(call(url, b"x" * 50_000_000))
    over.set()
    thread.join(30.0)
    listening.close()
    assert (status, body) == (413, b"no")


def test_a_reader_that_stops_stops_the_server() -> None:
    """What is read ahead stays small, however much the server sends."""
    head = HEAD + b"Content-Length: 1000000000\r\n\r\n"
    with raw_server(
        lambda _: (piece for part in ([head], for_ever(b"x" * 65536)) for piece in part), 0.0
    ) as server:

        async def main() -> int:
            relay = await Relay.open(server.url, b"{}", JSON, 30.0)
            before = -1
            while server.sent > before:
                before = server.sent
                await asyncio.sleep(0.3)
            held = len(await relay.chunk())
            relay.close()
            return held

        assert asyncio.run(main()) <= 2**20


def test_a_header_cannot_add_another() -> None:
    with keeping(OK) as (url, requests):
        for value in ("a\r\nX-Other: b", "a\nb", "a\0b"):
            with pytest.raises(Failed):
                asyncio.run(Relay.open(url, b"{}", {"X-One": value}, 5.0))
    assert not requests


def test_headers_of_the_caller_replace_the_usual_ones() -> None:
    with keeping(OK) as (url, requests):

        async def main() -> None:
            given = {"User-Agent": "mine", "HOST": "other", "Content-Length": "7", "X-Ü": "ü"}
            relay = await Relay.open(url + "?a=b c", b"{}", given, 5.0)
            await relay.read(10)
            relay.close()

        asyncio.run(main())
    lines = requests[0][0].partition(b"\r\n\r\n")[0].decode().split("\r\n")
    assert lines[0] == "POST /v1/x?a=b%20c HTTP/1.1"
    assert sorted(lines[1:]) == [
        "HOST: other",
        "User-Agent: mine",
        "X-Ü: ü",
        "accept: */*",
        "content-length: 2",
    ]


@each_loop
def test_connections_are_closed_with_their_loop(run: Any) -> None:
    """No connection is left to the garbage collector: warnings are errors here."""
    with keeping(OK, HEAD + b"Content-Length: 9\r\n\r\nhalf") as (url, _):

        async def main() -> None:
            await call(url)
            relay = await Relay.open(url, b"", JSON, 5.0)  # and this one is not closed
            assert relay.status == 200

        run(main())
    assert not any(loop.is_closed() for loop in [*pool._pools, *pool._closing])
    gc.collect()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
@each_loop
def test_certificates_are_checked(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    words = f"req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {certificate} -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(["openssl", *words.split(), *names], check=True, capture_output=True)
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(certificate, key)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"{}"):
            writer.write(OK)

    async def main() -> tuple[Failed, Failed, bytes]:
        server = await asyncio.start_server(serve, "localhost", 0, ssl=server_side)
        port = server.sockets[0].getsockname()[1]
        unknown = await _failed(f"https://localhost:{port}/")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        pool._context.cache_clear()
        other_name = await _failed(f"https://127.0.0.1:{port}/")
        body = (await call(f"https://localhost:{port}/"))[2]
        server.close()
        return unknown, other_name, body

    pool._context.cache_clear()
    try:
        unknown, other_name, body = run(main())
    finally:
        pool._context.cache_clear()
    assert body == b"ok"
    assert {unknown.failure, other_name.failure} == {"connection"}
    assert not unknown.charged
    assert not other_name.charged


async def _failed(url: str) -> Failed:
    with pytest.raises(Failed) as caught:
        await call(url)
    return caught.value

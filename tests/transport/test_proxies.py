"""Calls through a proxy on 127.0.0.1: passed on for http, tunnelled for https, and what a proxy refuses."""

from __future__ import annotations

import asyncio
import base64
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from pandora_router.transport import connection_pool as pool
from pandora_router.transport.client import post
from pandora_router.transport.endpoint import Endpoint
from pandora_router.transport.failures import Failed
from tests.support.raw_server import raw_server, reply
from tests.transport.test_relay import each_loop

SECRET = "sk-only-the-server-sees-this"
PASSWORD = "pass word"
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl for a certificate")


class Proxy:
    """A proxy that opens tunnels: `seen` are the heads of requests to it, `passed` all bytes in tunnels."""

    def __init__(self, answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n") -> None:
        self.answer, self.passed = answer, b""
        self.seen: list[bytes] = []

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.seen.append(head)
        writer.write(self.answer)
        if b" 200 " not in self.answer:
            if not self.answer:
                await reader.read()
            return
        host, _, port = head.split()[1].decode().rpartition(":")
        there, onward = await asyncio.open_connection(host, int(port))
        try:
            await asyncio.gather(self._copy(reader, onward), self._copy(there, writer))
        finally:
            onward.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            self.passed += data
            writer.write(data)
        writer.close()

    @asynccontextmanager
    async def open(self, secure: ssl.SSLContext | None = None) -> AsyncIterator[str]:
        async with served(self.talk, secure) as port:
            yield f"{'https' if secure else 'http'}://me:{PASSWORD.replace(' ', '%20')}@localhost:{port}"


@asynccontextmanager
async def served(talk: Any, secure: ssl.SSLContext | None) -> AsyncIterator[int]:
    """The port of a server that calls `talk` for every connection; the client ends all of them."""
    tasks: list[asyncio.Task[None]] = []

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.current_task())  # type: ignore[arg-type]
        with suppress(asyncio.IncompleteReadError, OSError):
            await talk(reader, writer)
        writer.close()

    server = await asyncio.start_server(one, "localhost", 0, ssl=secure)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        await (await pool.pool_of_loop()).close()
        server.close()
        _, left = await asyncio.wait(tasks, timeout=20.0) if tasks else (None, None)
        assert not left, "a connection was left open"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", SECRET)
    monkeypatch.setenv("no_proxy", "")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("certificate")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    words = f"req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {certificate} -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(["openssl", *words.split(), *names], check=True, capture_output=True)
    return certificate, key


@pytest.fixture
def secure(certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[ssl.SSLContext]:
    """The server's side of TLS; the client trusts its certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    pool._context.cache_clear()
    yield context
    pool._context.cache_clear()


@asynccontextmanager
async def https_server(secure: ssl.SSLContext, requests: list[bytes]) -> AsyncIterator[str]:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            requests.append(await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(2))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    async with served(talk, secure) as port:
        yield f"https://localhost:{port}/v1"


def endpoint(url: str, timeout: float = 30.0) -> Endpoint:
    return Endpoint(url, key_from="TEST_KEY", timeout=timeout, use_proxy=True)


@needs_openssl
@each_loop
@pytest.mark.parametrize("tls_to_proxy", [False, True], ids=["http proxy", "https proxy"])
def test_an_https_address_is_reached_through_a_tunnel(
    run: Any, tls_to_proxy: bool, secure: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy is told where to, with its own credentials; it sees neither key nor answer."""
    proxy = Proxy()
    requests: list[bytes] = []

    async def main() -> list[Any]:
        async with https_server(secure, requests) as url, proxy.open(secure if tls_to_proxy else None) as way:
            monkeypatch.setenv("https_proxy", way)
            monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
            return [url, *[await post(endpoint(url), "x", {}) for _ in range(3)]]

    url, *answers = run(main())
    assert answers == [{}] * 3
    assert [request.split(b"\r\n")[0] for request in requests] == [b"POST /v1/x HTTP/1.1"] * 3
    assert all(f"Bearer {SECRET}".encode() in request for request in requests)
    place = url.removeprefix("https://").removesuffix("/v1")
    lines = proxy.seen[0].decode().split("\r\n")
    assert len(proxy.seen) == 1, "the tunnel was not used again"
    assert lines[0] == f"CONNECT {place} HTTP/1.1"
    assert f"proxy-authorization: Basic {base64.b64encode(f'me:{PASSWORD}'.encode()).decode()}" in lines
    assert proxy.passed
    assert SECRET.encode() not in proxy.passed + proxy.seen[0]
    assert not any(b"proxy-authorization" in request.lower() for request in requests)


@needs_openssl
@each_loop
@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (b"HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n", "connection", "status 407"),
        (b"HTTP/1.1 502 No\r\n\r\n", "connection", "status 502"),
        (b"SSH-2.0-server\r\n", "connection", "Garbled"),
        (b"HTTP/1.1", "connection", "Broken"),
        (b"", "timeout", "within 0.5 s"),
    ],
)
def test_a_tunnel_that_is_not_opened_charges_nothing(
    run: Any, answer: bytes, kind: str, said: str, secure: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Proxy(answer)
    requests: list[bytes] = []

    async def main() -> Failed:
        async with https_server(secure, requests) as url, proxy.open() as way:
            monkeypatch.setenv("https_proxy", way)
            with pytest.raises(Failed) as caught:
                await post(endpoint(url, 0.5 if not answer else 30.0), "x", {})
            return caught.value

    error = run(main())
    assert (error.failure, error.charged, requests) == (kind, False, [])
    assert said in str(error)
    assert len(proxy.seen) == 1


@needs_openssl
@each_loop
def test_the_certificate_inside_a_tunnel_is_checked(
    run: Any, secure: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Proxy()
    requests: list[bytes] = []

    async def main() -> Failed:
        async with https_server(secure, requests) as url, proxy.open() as way:
            monkeypatch.setenv("https_proxy", way)
            with pytest.raises(Failed) as caught:  # the certificate is for localhost
                await post(endpoint(url.replace("localhost", "127.0.0.1")), "x", {})
            return caught.value

    error = run(main())
    assert (error.failure, error.charged, requests) == ("connection", False, [])
    assert len(proxy.seen) == 1


def test_an_http_address_is_named_whole_and_the_proxy_gets_its_credentials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with raw_server(lambda _: [reply(b'{"from": "proxy"}')], 0.0) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/v1").replace("http://", "me:a%40b@"))
        said = asyncio.run(post(endpoint("http://models.invalid/v1"), "x", {}))
        head = proxy.requests[0].decode().partition("\r\n\r\n")[0].split("\r\n")
    assert said == {"from": "proxy"}
    assert head[0] == "POST http://models.invalid/v1/x HTTP/1.1"
    assert "host: models.invalid" in head
    assert f"proxy-authorization: Basic {base64.b64encode(b'me:a@b').decode()}" in head


def test_no_proxy_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with raw_server(lambda _: [reply(b'{"from": "server"}')], 0.0) as server:
        assert asyncio.run(post(endpoint(server.url), "x", {})) == {"from": "server"}


def test_another_kind_of_proxy_is_refused_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "socks5://me:hidden@127.0.0.1:9")
    with pytest.raises(Failed, match="proxy") as caught:
        asyncio.run(post(endpoint("http://127.0.0.1:9/v1"), "x", {}))
    assert (caught.value.charged, caught.value.again) == (False, False)
    assert "hidden" not in str(caught.value)

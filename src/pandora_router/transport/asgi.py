"""ASGI applications: types, reading a body, whole replies, refusals, noticing a disconnect; and serving one.

For services with one process (`pandora bid`, `pandora market serve`, tests). The gateway has several worker
processes and reloads, so it uses only the address and the event loop and runs uvicorn itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit

from pandora_router.errors import PandoraError, UsageError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
PATIENCE = 60.0
"""Seconds in which the body of a request must arrive."""


@dataclass(frozen=True)
class Reply:
    """A complete HTTP response; `kind` is its content type."""

    body: bytes
    status: int = 200
    kind: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)

    async def send(self, send: Send, *, head: bool = False) -> None:
        """Send it to the client; with `head`, everything but the body."""
        named = {"content-type": self.kind, "content-length": str(len(self.body)), **self.headers}
        pairs = [(name.encode(), value.encode("latin-1", "replace")) for name, value in named.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": pairs})
        await send({"type": "http.response.body", "body": b"" if head else self.body, "more_body": False})


def frames_of(error: Exception) -> str:
    """Files and lines of a traceback, without the text of the error, which may repeat parts of a request."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(f"{trace.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno}")
        trace = trace.tb_next
    return " < ".join(reversed(frames))


class Refused(PandoraError):
    """A request that is refused, with HTTP status, message for the client, error code and headers."""

    def __init__(
        self, status: int, message: str, code: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self.status, self.message, self.code = status, message, code
        self.headers = dict(headers or {})
        super().__init__(message)


class Gone(Exception):
    """The client has disconnected."""


def bearer(header: str) -> str:
    """The token in the value of a header `Authorization`; the word before it may be written in any case.

    >>> bearer("Bearer pk-1"), bearer("bearer  pk-1"), bearer("pk-1"), bearer("")
    ('pk-1', 'pk-1', 'pk-1', '')
    """
    scheme, _, token = header.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else header.strip()


async def read_body(receive: Receive, largest: int, patience: float = PATIENCE) -> bytes:
    """The whole body of a request, which must arrive within `patience` seconds.

    Raises `Refused` (413 or 408) if it has more than `largest` bytes or is late, `Gone` if the client
    disconnected.

    Of a body that is too large up to four times the limit is read and discarded, because most clients read
    the response only after they have sent everything.
    """
    try:
        async with asyncio.timeout(patience):
            return await _whole_body(receive, largest)
    except TimeoutError:
        late = f"The body of the request did not arrive within {patience:g} seconds."
        raise Refused(408, late, "request_timeout", {"connection": "close"}) from None


async def _whole_body(receive: Receive, largest: int) -> bytes:
    parts: list[bytes] = []
    size, more = 0, True
    while more and size <= 4 * largest:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        part = message.get("body", b"")
        size += len(part)
        if size <= largest:
            parts.append(part)
        more = message.get("more_body", False)
    return b"".join(parts) if size <= largest else _too_large(largest)


def _too_large(largest: int) -> NoReturn:
    raise Refused(413, f"The request is larger than {largest:,} bytes.", "request_too_large")


OnDisconnect = Callable[[Callable[[], None] | None], None]
"""Registers what is called when the client disconnects, or nothing with None; given by a server."""
ON_DISCONNECT = "pandora.on_disconnect"
"""Name of an extension in an ASGI scope; its member `notify` is an `OnDisconnect`."""


async def watched(receive: Receive, work: Awaitable[None], notify: OnDisconnect | None = None) -> None:
    """Run `work` until it ends or the client disconnects; then cancels it and raises `Gone`.

    `notify` is the server's own notice of a disconnect; without one, a task waits for it in `receive`.
    """
    task = asyncio.current_task()
    assert task is not None
    over = gone = False

    def left() -> None:
        nonlocal gone
        if not over and not gone:
            gone = True
            task.cancel()

    leaving = None
    if notify is not None:
        notify(left)
    else:
        leaving = asyncio.ensure_future(_left(receive))
        leaving.add_done_callback(lambda done: None if done.cancelled() else left())
    try:
        await work
    except BaseException:
        if gone:
            task.uncancel()
            raise Gone from None
        raise
    finally:
        over = True
        if notify is not None:
            notify(None)
        if leaving is not None:
            leaving.cancel()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


T = TypeVar("T")
LOOPBACK = ("127.0.0.1", "::1", "localhost")
GRACE = 5
"""Seconds that requests in progress get to finish after a stop."""
KEPT = 75
"""Seconds that an idle connection is kept: longer than clients do, so that none sends on a closing one."""


@functools.lru_cache(1024)
def on_loopback(netloc: str) -> bool:
    """Whether the host in `netloc` ("host" or "host:port") is a name of the loopback interface.

    >>> on_loopback("localhost:8080"), on_loopback("[::1]"), on_loopback("localhost.example.com")
    (True, True, False)
    """
    try:
        host = urlsplit(f"//{netloc}").hostname or ""
    except ValueError:
        return False
    return host in LOOPBACK or host.endswith(".localhost")


def from_a_website(headers: Mapping[str, str]) -> bool:
    """Whether a page of another site may have sent a request to a server on the loopback interface.

    Browsers name that site in the header `Origin` of every POST. A site can also make its own name point to
    127.0.0.1 (DNS rebinding), which then is in the header `Host`. Programs send no `Origin`.
    """
    origin = headers.get("origin")
    if not on_loopback(headers.get("host", "localhost")) or origin == "null":
        return True
    scheme, _, netloc = (origin or "").partition("://")
    return scheme in ("http", "https") and not on_loopback(netloc)


@dataclass(frozen=True)
class Address:
    """Where to listen. Without keys only the loopback interface is allowed."""

    host: str = "127.0.0.1"
    port: int = 8000

    def bind(self, *, keys: bool) -> socket.socket:
        """A listening socket; raises `UsageError` if the address is in use, or public without keys."""
        if not keys and self.host not in LOOPBACK:
            raise UsageError(
                f"serving on {self.host}",
                expected="API keys, since others can reach this address",
                came="a configuration without keys",
                do="Ask for keys in the configuration, make them with `pandora keys add`, or use 127.0.0.1.",
            )
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit it: a body sent after its headers would wait 40 ms for their acknowledgement.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            listening.bind((self.host, self.port))
        except OSError as error:
            listening.close()
            raise UsageError(
                f"{self.host}:{self.port}",
                expected="a free address of this machine",
                came=error.strerror or str(error),
                do="Choose another with --host and --port.",
            ) from error
        listening.listen(2048)
        listening.set_inheritable(True)
        return listening


def run_event_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end on uvloop's event loop where that is installed, else on that of Python."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


def url_of(listening: socket.socket) -> str:
    """The base URL of a listening socket."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


@asynccontextmanager
async def serving(app: Any, listening: socket.socket) -> AsyncIterator[str]:
    """Serve the ASGI application `app` on the running event loop within a `with` block; yields the base URL.

    The end of the block waits at most `GRACE` seconds for requests in progress and closes the socket.
    """
    import uvicorn

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=GRACE,
        timeout_keep_alive=KEPT,
        server_header=False,
        date_header=False,
    )
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    url = url_of(listening)
    task = asyncio.ensure_future(server.serve(sockets=[listening]))
    try:
        while not server.started and not task.done():
            await asyncio.sleep(0.01)
        yield url
    finally:
        server.should_exit = True
        await task
        listening.close()


async def serve_until_stopped(app: Any, listening: socket.socket, ready: Callable[[str], None]) -> None:
    """Serve `app` until SIGTERM or SIGINT; calls `ready(url)` when it accepts requests."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with serving(app, listening) as url:
        ready(url)
        await stopped.wait()

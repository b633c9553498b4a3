"""Serve HTTP: the address to listen on, and an ASGI application served until it is stopped.

For services with one process (`pandora bid`, `pandora market serve`, tests). The gateway has several worker
processes and reloads, so it uses only the address and the event loop and runs uvicorn itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pandora_router.errors import UsageError

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

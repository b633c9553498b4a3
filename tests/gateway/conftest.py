"""A gateway on a real socket in front of a real upstream."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="pip install 'pandora-router[serve]'")

import uvicorn

from pandora_router.gateway.generation import Settings, Site
from pandora_router.gateway.http import protocol
from pandora_router.gateway.http.app import Gateway
from pandora_router.gateway.providers.backend import Backend
from pandora_router.prices import Tariff
from pandora_router.store.worker import Store
from pandora_router.transport.endpoint import Endpoint
from tests.gateway.stub import Stub
from tests.support.web_server import WebServer

WIRES = frozenset({"chat", "responses", "messages"})


@pytest.fixture(scope="session")
def stub() -> Iterator[Stub]:
    with closing(Stub()) as running:
        yield running


class Running:
    """A gateway that serves on 127.0.0.1, in a thread."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.server = uvicorn.Server(protocol.settings(gateway, host="127.0.0.1", port=0))
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        until = time.monotonic() + 30
        while not self.server.started and time.monotonic() < until:
            time.sleep(0.01)
        self.url = f"http://127.0.0.1:{self.server.servers[0].sockets[0].getsockname()[1]}"

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(30)

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.gateway.store.submit(lambda open_: open_.rows(sql, *values)).result(30)

    def settled(self, decision: str) -> tuple[Any, ...]:
        """Status and cost of a decision once it is closed."""
        until = time.monotonic() + 30
        while time.monotonic() < until:
            found = self.rows(
                "SELECT status, cost, specialist FROM decisions WHERE id = ? AND closed_at IS NOT NULL",
                decision,
            )
            if found:
                return found[0]
            time.sleep(0.02)
        raise AssertionError(f"{decision} was not closed")


def backend(stub: WebServer, name: str, **more: Any) -> Backend:
    endpoint = Endpoint(stub.url, timeout=more.pop("timeout", 30.0))
    return Backend(name, endpoint, name, more.pop("prices", Tariff(1.0, 10.0)), **{"wires": WIRES, **more})


Serve = Callable[..., Running]


@pytest.fixture
def serve(stub: Stub, tmp_path: Path) -> Iterator[Serve]:
    """Start a gateway over some models of the stub; everything is stopped at the end."""
    running: list[Running] = []

    def start(*backends: Backend, router: Any = None, **settings: Any) -> Running:
        store = Store(str(tmp_path / f"store{len(running)}.sqlite"))
        default = settings.pop("default", backends[0].name)
        site = Site(tuple(backends), Settings(default, **settings), router, hash=f"hash{len(running)}")
        running.append(Running(Gateway(site, store)))
        return running[-1]

    yield start
    for one in running:
        one.close()
        one.gateway.store.close()

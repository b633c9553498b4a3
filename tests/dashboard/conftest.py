"""A dashboard on a real socket over a store with made-up traffic."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="pip install 'pandora-router[serve]'")

import uvicorn

from pandora_router.dashboard.site import Dashboard, Serving
from pandora_router.store import accounts
from pandora_router.store.promises import Promise
from pandora_router.store.worker import Store
from tests.support.traffic import NAMES, RIGHT, fill, hold_auctions, team

NOW = time.time()
OUTLOOKS = (
    "looks at small cost about $0.00001; a whole answer $0.00006",
    "no looks at <b>code</b>: `looks: false`",
)
EVIL = "<script>document.title='broken'</script><img src=x onerror=\"document.title='broken'\">"


@dataclass(frozen=True)
class Reply:
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    text: str


class Running:
    """A dashboard that serves on 127.0.0.1, in a thread."""

    def __init__(
        self,
        path: Path,
        *,
        keys: bool = False,
        market: bool = False,
        bodies: bool = False,
        promises: Sequence[Promise] = (),
    ) -> None:
        self.keys, self.market, self.bodies, self.promises = keys, market, bodies, promises
        self.store = Store(str(path))
        self.dashboard = Dashboard(str(path), self.store, self._serving)
        config = uvicorn.Config(self.dashboard, host="127.0.0.1", port=0, log_level="warning", lifespan="off")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        until = time.monotonic() + 60
        while not self.server.started and time.monotonic() < until:
            time.sleep(0.01)
        self.port = self.server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/dashboard"

    def _serving(self) -> Serving:
        circuits = {name: "open" if name == "code" else "closed" for name in NAMES}
        models = {name: f"provider-{name}" for name in NAMES}
        return Serving(
            circuits,
            models,
            self.keys,
            market=self.market,
            bodies=self.bodies,
            right_answer=RIGHT,
            looks=OUTLOOKS,
            promises=self.promises,
        )

    def ask(self, path: str, method: str = "GET", body: str | None = None, **headers: str) -> Reply:
        """Send a request whose path is sent as it stands; headers have `_` for `-`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            named = {"content-type": "application/x-www-form-urlencoded", **named}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            text = answer.read().decode()
            return Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, text)
        finally:
            connection.close()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(60)
        self.dashboard.close()
        self.store.close()


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """An open dashboard over 300 decisions, five of which try to break pages."""
    running = Running(tmp_path_factory.mktemp("board") / "store.sqlite", market=True, bodies=True)

    def write(open_: object) -> None:
        keys = team(open_, NOW - 1e6)  # type: ignore[arg-type]
        bad, _ = accounts.add_key(open_, EVIL, NOW - 1e6)  # type: ignore[arg-type]
        fill(open_, 295, NOW - 80_000, NOW - 60, keys=keys)  # type: ignore[arg-type]
        names = (EVIL, EVIL + "2", "=cmd|' /C calc'!A0", "code", "search")
        fill(open_, 5, NOW - 50, NOW - 10, seed=9, names=names, keys=[bad.id], prompts=[EVIL], feedback=1.0)  # type: ignore[arg-type]

        hold_auctions(open_, 70, NOW - 80_000, NOW - 60, evil=EVIL)  # type: ignore[arg-type]

    running.store.submit(write).result()
    yield running
    running.close()

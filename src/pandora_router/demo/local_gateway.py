"""The gateway of the demo, and the provider behind it.

The demo's specialists behind one HTTP address that supports the three wires, for `pandora serve --demo`.

The gateway calls them like any provider. If a specialist's beginning is the start of its answer, the answer
is streamed while it is computed: if the client disconnects, the rest is not computed. Other answers are
streamed word by word when they are complete.

`pandora serve --demo`: the five small specialists behind a gateway, with a router fitted on the record.

Everything runs on this machine: the specialists on a free port of 127.0.0.1 (`upstream`), the store in a
temporary folder, and the router from the recorded answers in the package. Fitting takes about a minute of
processor time; the fitted router is cached in the user's cache folder under a hash of the record and the
library versions. If the small model is not installed, its recorded answers are used, and a question that was
not recorded is refused with an explanation.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path

import numpy as np
import orjson

from pandora_router import __version__
from pandora_router.boxes import Costs
from pandora_router.config.gateway import mount_dashboard
from pandora_router.data import Table
from pandora_router.demo import live_route, records
from pandora_router.demo.questions import recorded
from pandora_router.demo.specialists import FIRST, SECONDS, SMALL, calculate, the_specialists, weights
from pandora_router.demo.study import PRICE, WEIGHT
from pandora_router.errors import PandoraError, UsageError
from pandora_router.gateway.generation import Settings, Site
from pandora_router.gateway.http.app import Gateway
from pandora_router.gateway.incumbent import lined_up
from pandora_router.gateway.providers.backend import Backend
from pandora_router.prices import Tariff
from pandora_router.router import Router
from pandora_router.router.decision import stamp
from pandora_router.search import kernels
from pandora_router.specialists.function import Function
from pandora_router.specialists.specialist import Answer, Beginning, Request, Specialist, Unanswered
from pandora_router.store.versions import Lineup
from pandora_router.transport.asgi import Receive, Reply, Scope, Send, read_body
from pandora_router.transport.endpoint import Endpoint
from pandora_router.types import Advance, Vector
from pandora_router.wires.known import BY_PATH
from pandora_router.wires.look import LookLength
from pandora_router.wires.wire import Turn, Wire, WireAnswer

LARGEST = 2**20
NOTHING = "(no answer)"
"""The answer of a specialist that has none: a calculator asked for a poem, for example."""
_WORD = re.compile(r"\s*\S+\s*$|\s*\S+")


@dataclass(frozen=True)
class Upstream:
    """The ASGI application. `growing` are the specialists whose beginning is the start of their answer."""

    specialists: Mapping[str, Specialist]
    growing: frozenset[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request of any wire; `model` names the specialist."""
        wire = BY_PATH.get(scope["path"])
        if scope["type"] != "http" or wire is None:
            await Reply(
                orjson.dumps({"error": {"message": "There is no such path.", "code": "not_found"}}), 404
            ).send(send)
            return
        parsed = orjson.loads(await read_body(receive, LARGEST))
        turn = wire.read(parsed)
        try:
            request = Request.of(turn.prompt)
            if turn.stream:
                await self._stream(wire, turn, request, bool(parsed.get("logprobs")), send)
            else:
                answer = await self.specialists[turn.model].answer(request)
                said = _said(turn.model, answer, bool(parsed.get("logprobs")))
                await Reply(orjson.dumps(wire.speech().whole(said)), 200).send(send)
        except (Unanswered, UsageError) as error:
            await Reply(orjson.dumps(wire.error(404, str(error), "not_recorded")), 404).send(send)

    async def _stream(self, wire: Wire, turn: Turn, request: Request, chances: bool, send: Send) -> None:
        """Send the beginning as soon as it is there, then the rest; cancelled if the client leaves."""
        specialist, speech = self.specialists[turn.model], wire.speech()
        with await specialist.begin(request) as begun:
            said = _said(turn.model, None, chances, begun)
            first = (begun.context or "").lstrip() if turn.model in self.growing else ""
            head = speech.head(said) + (speech.delta(said, first) if first else b"")
            kind = (b"content-type", b"text/event-stream")
            await send({"type": "http.response.start", "status": 200, "headers": [kind]})
            await send({"type": "http.response.body", "body": head, "more_body": True})
            answer = await specialist.answer(request, begun)
        ended = replace(_said(turn.model, answer, chances), id=said.id, created=said.created)
        for word in _WORD.findall(ended.text.removeprefix(first)):
            part = {"type": "http.response.body", "body": speech.delta(said, word), "more_body": True}
            await send(part)
        tail = speech.tail(ended, usage=turn.wants_usage)
        await send({"type": "http.response.body", "body": tail, "more_body": False})


def _said(model: str, answer: Answer | None, chances: bool, begun: Beginning | None = None) -> WireAnswer:
    id_, at = stamp()
    shown = begun if begun is not None else answer
    seen = (shown.logprobs or ()) if shown is not None and chances else ()
    first = (shown.context or "") if shown is not None else ""
    said = WireAnswer(id_, model, int(at.timestamp()), logprobs=seen, first=first)
    if answer is None:
        return said
    return replace(
        said,
        text=answer.text.lstrip() or NOTHING,
        tokens_in=answer.tokens_in or 0,
        tokens_out=answer.tokens_out or 0,
        truncated=answer.finish == "truncated",
    )


class Running:
    """An upstream that serves on a free port of 127.0.0.1 from a thread, until it is closed."""

    def __init__(self, app: Upstream) -> None:
        """Start the thread and wait until it listens."""
        import uvicorn

        config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, name="demo", daemon=True)
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.005)
        if not self._server.started:
            raise UsageError(
                "the specialists of the demo",
                expected="a free port on 127.0.0.1",
                came="none",
                do="See the messages above.",
            )
        self.url = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}/v1"

    def close(self) -> None:
        """Stop listening and wait for the thread."""
        self._server.should_exit = True
        self._thread.join()


NEVER = 2.0
"""A cost, in units of reward, at which no look is worth it."""
DEFAULT = "open book"
"""Who answers what the router cannot judge: the best single one of the five in the record."""
GROWING = frozenset({"closed book", "examples"})
"""Whose first tokens are the start of the answer; the others show something else before they answer."""


@dataclass(frozen=True)
class DemoPlan:
    """How a worker makes the site of the demo: the fitted router in `folder`, specialists at `url`.

    `alive` are the specialists that run on this machine. An answer costs what its specialist took on average
    in the record, in processor seconds. `lineup`: the router that was promoted, and the one on trial.
    """

    url: str
    folder: Path
    alive: tuple[str, ...]
    lineup: Lineup = field(default_factory=Lineup)

    @property
    def store(self) -> str:
        """The address of the store: a SQLite file that is deleted with the folder."""
        return str(self.folder / "demo.sqlite")

    def site(self) -> Site:
        """The site; raises `UsageError` if the fitted router cannot be read."""
        first = Router.load(self.folder / "router")
        router, candidate = lined_up(first, self.lineup, Router.load)
        router = at_price(router)
        if candidate is not None:
            candidate = replace(candidate, router=at_price(candidate.router))
        backends = tuple(
            Backend(
                name,
                Endpoint(self.url, timeout=60.0),
                name,
                Tariff(0.0, 0.0, per_call=float(fee)),
                wires=frozenset({"chat", "responses", "messages"}),
                abilities=frozenset({"logprobs"}),
                context=2000,
                max_output=64,
                cancel="stops",
                looks=name in GROWING,
                peek=LookLength(tokens=FIRST, chances=True),
            )
            for name, fee in zip(router.specialists, router.fees, strict=True)
        )
        served = router.id if candidate is None else f"{router.id} {candidate.trial}"
        return Site(backends, Settings(DEFAULT, bodies=True), router, candidate=candidate, hash=served)

    def following(self, lineup: Lineup) -> DemoPlan:
        """The plan with the router that was promoted, and the candidate that is on trial."""
        return replace(self, lineup=lineup)

    def fixed(self) -> DemoPlan:
        """The plan itself: its files do not change while the demo runs."""
        return self

    def mount(self, gateway: Gateway, closing: ExitStack) -> None:
        """Put the dashboard beside the gateway."""
        mount_dashboard(self.store, gateway, closing)

    def fingerprint(self) -> str:
        """Nothing of the demo changes while it runs."""
        return "demo"


def at_price(router: Router) -> Router:
    """The router, which was fitted on fees in processor seconds, with their price."""
    paid = PRICE / 3600.0
    return replace(router, fees=paid * router.fees, fee_weight=router.fee_weight / paid)


@contextmanager
def running(say: Advance) -> Iterator[DemoPlan]:
    """Start the specialists, fit or read the router, and clean up at the end.

    `say` is called with the present step and the fraction done.
    """
    with tempfile.TemporaryDirectory(prefix="pandora-demo-") as folder, ThreadPoolExecutor(1) as beside:
        there = Path(folder)
        casting = beside.submit(cast)  # models load on one core while the router is fitted on another
        shutil.copytree(fitted(say), there / "router")
        say("loading the models", 0.9)
        specialists, alive = casting.result()
        upstream = Running(Upstream(specialists, GROWING & set(alive)))
        try:
            yield DemoPlan(upstream.url, there, alive)
        finally:
            upstream.close()


def cast() -> tuple[dict[str, Specialist], tuple[str, ...]]:
    """The five specialists, and the names of those that run here; the others answer from the record."""
    now: dict[str, Specialist] = {}
    if weights() is not None:
        now = {name: specialist for name, specialist in the_specialists().items() if name in SMALL}
    elif importlib.util.find_spec("sympy") is not None:
        now = {"calculator": Function("calculator", calculate, SECONDS)}
    asyncio.run(_load(now))
    if len(now) == len(SMALL):
        return now, SMALL
    replayed = live_route.cast(now, records.Recorded.read().answers, recorded())
    return {name: replayed[name] for name in SMALL}, tuple(now)


async def _load(specialists: Mapping[str, Specialist]) -> None:
    """Let every specialist answer once, so that no request waits for a model to load."""
    for specialist in specialists.values():
        await specialist.answer(Request.of("What is 1 + 1?"))


def fitted(say: Advance) -> Path:
    """The folder of the router for the five specialists, fitted now unless it is in the cache already."""
    folder = _cache() / f"demo-{_hash()}"
    try:
        Router.load(folder)
    except PandoraError:
        say("fitting the router", 0.0)
        record = records.Recorded.read()
        table = streamed(record.table.only(SMALL).with_fee_weight(WEIGHT))
        usable = (table.split == "train") | ~table.missing.any(axis=1)
        columns = [record.table.specialists.index(name) for name in SMALL]
        looks = WEIGHT * np.nanmean(record.looks[:, columns][table.split == "train"], axis=0)
        kernels.warm(lambda kernel, done, total: say(f"compiling {kernel}, once", 0.5 * done / total))
        router = Router.fit(
            table.rows(np.asarray(usable)),
            inspection_cost=look_costs(looks),
            default=DEFAULT,
            progress=lambda what, share: say(what, 0.5 + 0.4 * share),
        )
        router.save(folder, replace=True)
    return folder


def streamed(table: Table) -> Table:
    """The table with beginnings of those specialists alone whose stream begins with their answer.

    What the others show before they answer, such as a passage, is recorded but not sent over a wire.
    """
    assert table.contexts is not None
    contexts = table.contexts.copy()
    contexts[:, [name not in GROWING for name in table.specialists]] = None
    return replace(table, contexts=contexts)


def look_costs(looks: Vector) -> Costs:
    """The costs of looks at the five, in units of reward; out of reach where there is nothing to look at.

    Whoever was looked at goes on with what it began, so that its look is refunded.
    """
    here = np.array([name in GROWING for name in SMALL])
    return Costs(np.where(here, looks, NEVER), refund=np.where(here, looks, 0.0))


def _cache() -> Path:
    """The user's cache folder; the temporary folder where there is no home."""
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        base = tempfile.gettempdir()
    return Path(base) / "pandora-router"


def _hash() -> str:
    """A hash of the record, of the code that fits and of the versions of the libraries it uses."""
    digest = hashlib.sha256(records.FILE.read_bytes())
    rooms = Path(records.__file__).parent.parent
    for room in ("demo", "estimators", "calibrate", "router"):
        for source in sorted((rooms / room).rglob("*.py")):
            digest.update(source.read_bytes())
    versions = [metadata.version(name) for name in ("numpy", "scipy", "lightgbm", "wordllama")]
    digest.update(repr([__version__, *versions]).encode())
    return digest.hexdigest()[:16]

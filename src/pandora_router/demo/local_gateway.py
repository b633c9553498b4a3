"""`pandora serve --demo`: the five small specialists behind a gateway, with a router fitted on the record.

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
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import numpy as np

from pandora_router import __version__
from pandora_router.boxes import Costs
from pandora_router.config.gateway import mount_dashboard
from pandora_router.demo import live_route, records
from pandora_router.demo.headline import PRICE
from pandora_router.demo.questions import recorded
from pandora_router.demo.specialists import FIRST, SECONDS, SMALL, calculate, the_specialists, weights
from pandora_router.demo.study import WEIGHT
from pandora_router.demo.upstream import Running, Upstream
from pandora_router.errors import PandoraError
from pandora_router.gateway.generation import Settings, Site
from pandora_router.gateway.http.app import Gateway
from pandora_router.gateway.providers.backend import Backend
from pandora_router.prices import Tariff
from pandora_router.router import Router
from pandora_router.search import kernels
from pandora_router.specialists.function import Function
from pandora_router.specialists.request import Request
from pandora_router.specialists.specialist import Specialist
from pandora_router.transport.endpoint import Endpoint
from pandora_router.types import Advance
from pandora_router.wires.look import LookLength

DEFAULT = "open book"
"""Who answers what the router cannot judge: the best single one of the five in the record."""
GROWING = frozenset({"closed book", "examples"})
"""Whose first tokens are the start of the answer; the others show something else before they answer."""


@dataclass(frozen=True)
class DemoPlan:
    """How a worker makes the site of the demo: the fitted router in `folder`, specialists at `url`.

    `alive` are the specialists that run on this machine. An answer costs what its specialist took on average
    in the record, in processor seconds.
    """

    url: str
    folder: Path
    alive: tuple[str, ...]

    @property
    def store(self) -> str:
        """The address of the store: a SQLite file that is deleted with the folder."""
        return str(self.folder / "demo.sqlite")

    def site(self) -> Site:
        """The site; raises `UsageError` if the fitted router cannot be read."""
        router = Router.load(self.folder / "router")  # it was fitted on fees in processor seconds
        paid = PRICE / 3600.0
        router = replace(router, fees=paid * router.fees, fee_weight=router.fee_weight / paid)
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
        return Site(backends, Settings(DEFAULT), router, hash=router.id)

    def fixed(self) -> DemoPlan:
        """The plan itself: its files do not change while the demo runs."""
        return self

    def mount(self, gateway: Gateway, closing: ExitStack) -> None:
        """Put the dashboard beside the gateway."""
        mount_dashboard(self.store, gateway, closing)

    def fingerprint(self) -> str:
        """Nothing of the demo changes while it runs."""
        return "demo"


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
        table = record.table.only(SMALL).with_fee_weight(WEIGHT)
        usable = (table.split == "train") | ~table.missing.any(axis=1)
        columns = [record.table.specialists.index(name) for name in SMALL]
        looks = WEIGHT * np.nanmean(record.looks[:, columns][table.split == "train"], axis=0)
        kernels.warm(lambda kernel, done, total: say(f"compiling {kernel}, once", 0.5 * done / total))
        router = Router.fit(
            table.rows(np.asarray(usable)),
            inspection_cost=Costs(looks, refund=looks),  # whoever was looked at goes on with what it began
            default=DEFAULT,
            progress=lambda what, share: say(what, 0.5 + 0.4 * share),
        )
        router.save(folder, replace=True)
    return folder


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

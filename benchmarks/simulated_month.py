"""The requests of a month, sent to a real gateway by a moved clock; see `benchmarks.month`."""

from __future__ import annotations

import asyncio
import http.client
import json
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from tests.gateway.conftest import Running
from tests.support.provider import Provider
from tests.support.provider_models import Model
from tests.support.provider_replies import Said
from tests.support.routers import QUICK
from tests.support.tables import generate

from benchmarks.budget_streams import HOURS, month
from pandora_router.config.gateway import measured_curve, paced_router
from pandora_router.data import Table
from pandora_router.gateway.generation import Settings, Site
from pandora_router.gateway.http.app import Gateway
from pandora_router.gateway.http.chores import keep_pace
from pandora_router.gateway.providers.backend import Backend
from pandora_router.prices import Tariff
from pandora_router.report.tables import grid
from pandora_router.router import Router
from pandora_router.router.revalue import weighed
from pandora_router.store.money import UNIT, nanodollars
from pandora_router.store.rows import SharedBudget
from pandora_router.store.worker import Store
from pandora_router.transport.endpoint import Endpoint

SHAPES = ("growing", "weekly", "spike", "falling")
BEGIN = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
WORDS = ("It", " is", " so", ".")
LEVEL = 0.45
"""The budget for a request: how far between the cheapest and the dearest end of the curve."""
EVERY = 2
"""Hours of the moved clock between two paces."""
HELD = 700
"""Prompts of the generated table that the router is fitted on; the others are asked."""


@dataclass(frozen=True)
class Month:
    """What became of the requests of a month; `first_refused` is the day of the first 429, None without."""

    shape: str
    requests: int
    budget: float
    spent: float
    refused: int
    first_refused: float | None
    scored: float
    best: float


def arrivals(shape: str, requests: int, rng: np.random.Generator) -> np.ndarray:
    """Hours at which about so many requests come, the day before the month included (below 24), sorted."""
    rate = month(shape).astype(np.float64)
    rate = np.concatenate([rate[:24], rate]) * requests / rate.sum()
    hours = np.repeat(np.arange(HOURS + 24), rng.poisson(rate))
    return np.sort(hours + rng.random(len(hours)))


def provider(table: Table) -> Provider:
    """A model for each specialist whose answer of four tokens costs the fee of the table."""
    models = {
        name: Model(lambda _: Said(WORDS), (0.0, 0.0, 0.0, _price(table, name))) for name in table.specialists
    }
    return Provider(models)


def _price(table: Table, name: str) -> float:
    """Dollars per million tokens of output."""
    return float(table.fee[0, table.specialists.index(name)]) / len(WORDS) * 1e6


def gateway(router: Router, table: Table, url: str, store: Store, budget: float) -> Gateway:
    """A gateway over the models with the goal for all requests."""
    backends = tuple(
        Backend(
            name,
            Endpoint(url, timeout=60.0),
            name,
            Tariff(0.0, _price(table, name)),
            wires=frozenset({"chat"}),
        )
        for name in table.specialists
    )
    everybody = SharedBudget.named("all", "", nanodollars(budget), "month")
    site = Site(backends, Settings(table.specialists[0]), router, hash="month")
    return Gateway(replace(site, paced=paced_router(router, budget, everybody)), store)


def simulated(
    shape: str,
    requests: int,
    draw: int,
    router: Router,
    asked: Table,
    folder: Path,
    set_clock: Callable[[float], None],
) -> Month:
    """Send the requests of one month and read the books of the provider."""
    rng = np.random.default_rng([SHAPES.index(shape), draw])
    at = arrivals(shape, requests, rng)
    rows = rng.integers(len(asked), size=len(at))
    counted = at >= 24.0
    curve = measured_curve(router)
    assert curve is not None
    low, high = curve.points[-1].money, curve.points[0].money
    budget = float(counted.sum()) * (low + LEVEL * (high - low))
    scored, refused = 0.0, []
    store = Store(str(folder / f"{shape}-{draw}.sqlite"))
    with closing(provider(asked)) as models:
        running = Running(gateway(router, asked, models.url, store, budget))
        place = urlsplit(running.url)
        client = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
        paced, before = -EVERY, 0
        for hour, row, inside in zip(at, rows, counted, strict=True):
            set_clock(BEGIN + 3600.0 * (hour - 24.0))
            if hour >= paced + EVERY:
                asyncio.run(keep_pace(running.gateway, time.time()))
                paced = int(hour)
            if inside and not before:
                before = len(models.log) or -1
            name = _asked(client, asked.prompts[row])
            if inside and name is None:
                refused.append((hour - 24.0) / 24.0)
            elif inside and name is not None:
                scored += float(asked.score[row, asked.specialists.index(name)])
        client.close()
        running.close()
        bills = models.log[max(before, 0) :]
    store.close()
    return Month(
        shape,
        int(counted.sum()),
        budget,
        sum(bill.nanodollars for bill in bills) / UNIT,
        len(refused),
        min(refused, default=None),
        scored,
        best_fixed(router, asked, rows[counted], budget),
    )


def _asked(client: http.client.HTTPConnection, prompt: str) -> str | None:
    """Who answered; None if the budget refused the request."""
    body = {"model": "auto", "messages": [{"role": "user", "content": prompt}], "max_tokens": 8}
    client.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    answer = client.getresponse()
    said = answer.read()
    if answer.status == 429:
        return None
    if answer.status != 200:
        raise RuntimeError(said.decode())
    return answer.getheader("x-pandora-specialist")


def best_fixed(router: Router, asked: Table, rows: np.ndarray, budget: float) -> float:
    """The highest sum of scores of a fixed worth: dearer requests go to the cheapest once money is short."""
    curve = measured_curve(router)
    assert curve is not None
    cheapest = int(asked.fee[0].argmin())
    sums = []
    for point in curve.points:
        decisions = weighed(router, 1.0 / (point.worth or 1.0)).route_batch([asked.prompts[r] for r in rows])
        left, total = budget, 0.0
        for row, decision in zip(rows, decisions, strict=True):
            name = asked.specialists.index(decision.specialist)
            if asked.fee[row, name] > left:
                name = cheapest
            if asked.fee[row, name] <= left:
                left -= float(asked.fee[row, name])
                total += float(asked.score[row, name])
        sums.append(total)
    return max(sums)


def run(shapes: list[str], requests: int, draws: int, set_clock: Callable[[float], None]) -> list[Month]:
    """Fit once and simulate `draws` months of each shape; `set_clock` sets the time of this process."""
    whole = generate(n=2 * HELD, seed=7)
    held = np.arange(len(whole)) < HELD
    router = Router.fit(whole.rows(held), costly=QUICK, inspection_cost=0.002, remember_test=False)
    with tempfile.TemporaryDirectory() as folder:
        asked = whole.rows(~held)
        return [
            simulated(shape, requests, draw, router, asked, Path(folder), set_clock)
            for shape in shapes
            for draw in range(draws)
        ]


def page(months: list[Month]) -> str:
    """The table of docs/goals.md."""
    head = ["traffic", "requests", "spent of the budget", "refused", "first refused", "score", "best fixed"]
    rows = [
        [
            one.shape,
            f"{one.requests:,}",
            f"{one.spent / one.budget:.1%}",
            str(one.refused),
            "never" if one.first_refused is None else f"day {one.first_refused:.1f}",
            f"{one.scored / one.requests:.3f}",
            f"{one.best / one.requests:.3f}",
        ]
        for one in months
    ]
    return grid(head, rows)

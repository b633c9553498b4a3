"""A gateway compares prompts to those that its router knows, and raises an alert when their mix changes."""

from __future__ import annotations

import functools
import itertools
import time
from dataclasses import replace
from pathlib import Path

from pandora_router import Never, Router
from pandora_router.cli.learn import mix_lines
from pandora_router.config.gateway import ServePlan
from pandora_router.gateway.generation import LearningRules
from pandora_router.gateway.http.learner import learn
from pandora_router.learn.drift import FIRST
from pandora_router.learn.mix import NAMES, Mix
from pandora_router.store import alerts
from tests.gateway.conftest import Serve
from tests.gateway.stub import Stub
from tests.gateway.test_routing import asked, stubbed
from tests.learn.test_mix import NEW
from tests.support.routers import QUICK
from tests.support.tables import generate


def test_the_gateway_compares_prompts_and_raises_an_alert(serve: Serve, stub: Stub) -> None:
    router = Router.fit(generate(n=400, seed=1), costly=QUICK, policy=Never())
    gateway = serve(*stubbed(stub, router), router=router)
    site = gateway.gateway.site
    gateway.gateway.install(replace(site, mix=Mix.of(router.cheap), hash="with a mix"))
    store = gateway.gateway.store

    def raised() -> list[alerts.Alert]:
        """The alerts once all that was sent has been read, as a worker reads every few seconds."""
        for _ in range(4):
            now = time.time() + 3.0 * next(ticks)
            store.submit(functools.partial(learn, rules=LearningRules(), now=now)).result(30)
        return [alert for alert, _ in store.submit(alerts.newest).result(30)]

    ticks = itertools.count(1)
    store.submit(functools.partial(learn, rules=LearningRules(), now=time.time())).result(30)
    for prompt in generate(n=FIRST + 60, seed=3).prompts:
        asked(gateway, prompt)
    assert raised() == []
    for i in range(160):
        asked(gateway, f"{NEW[i % 3]} {i}")
    (alert,) = raised()
    assert (alert.kind, alert.subject) == ("drift", "prompts")
    assert "The mix of prompts has changed" in alert.message
    assert gateway.rows("SELECT count(*) FROM drifts WHERE specialist <> ''") == [(0,)]
    said = mix_lines(store.submit(alerts.mixes).result(30))[0]
    assert "300 are needed" in said  # the detector starts again


def test_a_gateway_of_a_file_compares_prompts(saved_router: Path, tmp_path: Path) -> None:
    loaded = Router.load(saved_router)
    names = [
        f"  {name}: {{kind: chat, endpoint: e, model: m, prices: {{in: 1, out: 2}}, looks: false}}"
        for name in loaded.specialists
    ]
    file = tmp_path / "pandora.yaml"
    file.write_text(
        "endpoints: {e: {base_url: 'http://127.0.0.1:1/v1'}}\nspecialists:\n"
        + "\n".join(names)
        + f"\nserve: {{keys: none, router: {saved_router}}}\n"
    )
    mix = ServePlan(file).site().mix
    assert mix is not None
    assert len(mix.ranks("count the kings")) == len(NAMES)

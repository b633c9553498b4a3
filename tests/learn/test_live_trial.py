"""A gateway that learns by itself: alarm, trial, promotion, return; a worker is killed in each phase."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pandora_router.store import alerts, versions
from pandora_router.store.database import Database, connect
from tests.gateway.stub import Stub
from tests.store.databases import postgresql, programs
from tests.support.command import listening, pandora
from tests.support.disputes import NAMES, prompt, router

CONFIG = """
value: {{right_answer: 1.0}}
endpoints: {{local: {{base_url: "{url}"}}}}
specialists:
  small: {{kind: chat, endpoint: local, model: small, prices: {{in: 1, out: 10}}}}
  large: {{kind: chat, endpoint: local, model: large, prices: {{in: 1, out: 10}}}}
  echo: {{kind: chat, endpoint: local, model: echo, prices: {{in: 1, out: 10}}}}
serve: {{keys: none, router: router, store: "{store}"}}
learn: {{promote: proof, delay_seconds: 0}}
"""
LONGEST = 240.0
"""Seconds for one phase, on a busy machine."""


@cache
def agreed() -> tuple[int, ...]:
    """Numbers of prompts to tell that are given to echo."""
    return tuple(i for i in range(1, 600) if router("large").route(prompt("tell", i)).specialist == "echo")


class Users:
    """People who ask and rate by the real API; `quality` is the chance that an answer is right."""

    def __init__(self, url: str) -> None:
        self.address = urlsplit(url).netloc
        self.quality = dict.fromkeys(NAMES, 0.0)
        self.rng = random.Random(1)
        self.number = 0
        self.lost = 0
        self.connection = http.client.HTTPConnection(self.address, timeout=30)

    def close(self) -> None:
        self.connection.close()

    def _post(self, path: str, body: object) -> tuple[int, http.client.HTTPMessage]:
        self.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        answer.read()
        return answer.status, answer.headers

    def ask(self, kind: str) -> str | None:
        """Ask once and rate the answer; who answered, None if the worker was killed meanwhile."""
        self.number += 1
        known = agreed() if kind == "tell" else (self.number,)
        asked = prompt(kind, known[self.number % len(known)])
        body = {"model": "auto", "messages": [{"role": "user", "content": asked}]}
        try:
            status, headers = self._post("/v1/chat/completions", body)
            assert status == 200
            name = str(headers["x-pandora-specialist"])
            right = float(self.rng.random() < self.quality[name])
            said = self._post(
                "/v1/feedback", {"decision_id": headers["x-pandora-decision-id"], "reward": right}
            )
            assert said[0] == 200
        except (OSError, http.client.HTTPException):
            self.connection.close()
            self.lost += 1
            return None
        return name

    def until(self, kind: str, done: Callable[[], bool], quickly: int) -> None:
        """Ask until something has happened; after `quickly` requests slowly.

        Workers look into the store every second or two: a fast machine asks many hundred times meanwhile.
        """
        end = time.monotonic() + LONGEST
        asked = 0
        while time.monotonic() < end:
            self.ask(kind)
            asked += 1
            if asked > quickly:
                time.sleep(0.05)
            if asked % 20 == 0 and done():
                return
        raise AssertionError(f"nothing happened in {asked} requests")


def kill_a_worker(parent: subprocess.Popen[str]) -> None:
    """kill -9 of one of the two workers; the parent starts another."""
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
    workers = [
        int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "store.sqlite")
        return
    if programs() is None:
        pytest.skip("PostgreSQL is not installed here: apt-get install postgresql")
    with postgresql() as server:
        yield server.url


def read(database: Database) -> tuple[list[str], versions.Lineup]:
    """The kinds of all alerts, oldest first, and what stands.

    The mix of prompts does change here: first all are of one kind, later of the other. That is left out.
    """
    with database.transaction() as open_:
        raised = [alert for alert, _ in reversed(alerts.newest(open_))]
        return [alert.kind for alert in raised if alert.subject != "prompts"], versions.lineup(open_)


@pytest.mark.slow
def test_alarm_trial_promotion_and_return(store: str, tmp_path: Path) -> None:
    router("large").save(tmp_path / "router")
    router("small").save(tmp_path / "router-b")
    with closing(Stub()) as stub:
        (tmp_path / "pandora.yaml").write_text(CONFIG.format(url=stub.url, store=store))
        command = [sys.executable, "-m", "pandora_router", "serve", "pandora.yaml", "--port", "0"]
        process = subprocess.Popen(
            [*command, "--workers", "2"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )  # fmt: skip
        with (
            listening(process) as (url, lines),
            closing(connect(store)) as database,
            closing(Users(url)) as users,
        ):
            _alarm(users, database, process)
            _promotion(users, database, process, store, tmp_path)
            _return(users, database, process)
            assert users.lost <= 12
            with database.transaction() as open_:
                _agrees(open_)
        assert not any("Traceback" in line for line in lines), lines


def _alarm(users: Users, database: Database, process: subprocess.Popen[str]) -> None:
    """echo, which both routers ask to tell, is good at first and gets worse."""
    users.quality |= {"echo": 0.9, "large": 0.3, "small": 0.9}
    for i in range(330):
        assert users.ask("tell") in ("echo", None)
        if i == 150:
            kill_a_worker(process)
    assert read(database)[0] == []
    users.quality["echo"] = 0.1
    users.until("tell", lambda: read(database)[0] == ["drift"], 200)
    end = time.monotonic() + 60.0  # a worker that trusts echo less asks another one
    while users.ask("tell") in ("echo", None) and time.monotonic() < end:
        time.sleep(0.2)
    assert time.monotonic() < end


def _promotion(
    users: Users, database: Database, process: subprocess.Popen[str], store: str, folder: Path
) -> None:
    begun = pandora(
        *("learn", "trial", folder / "router-b", "--rule", "proof", "-r", folder / "router", "--store", store)
    )
    assert begun.exit_code == 0, begun.output
    kill_a_worker(process)
    users.until("count", lambda: read(database)[0] == ["drift", "trial"], 500)
    version = read(database)[1].version
    assert version is not None
    assert version.artifact == router("small").id
    end = time.monotonic() + 60.0  # both workers serve it soon
    while [users.ask("count") for _ in range(8)].count("small") < 5 and time.monotonic() < end:
        time.sleep(0.2)
    assert time.monotonic() < end


def _return(users: Users, database: Database, process: subprocess.Popen[str]) -> None:
    """At half time what the promoted router asks gets worse: a tenth of the old router's choices shows it."""
    users.quality |= {"small": 0.02, "large": 0.98}
    kill_a_worker(process)
    users.until("count", lambda: read(database)[1].trial is None, 2500)
    version = read(database)[1].version
    assert version is not None
    assert version.artifact == router("large").id
    assert "went back" in version.why


def _agrees(open_: object) -> None:
    """What the evidence has counted is what the rows say: each session once, none twice."""
    for trial, _, _, state in versions.past(open_):  # type: ignore[arg-type]
        ((many, total),) = open_.rows(  # type: ignore[attr-defined]
            "SELECT count(difference), sum(difference) FROM draws WHERE trial = ?", trial.id
        )
        assert state["rated"] == many
        assert state["total"] == pytest.approx(total)

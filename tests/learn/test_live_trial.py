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
from contextlib import closing, suppress
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
PACE = 50
"""Requests a second. Workers look into the store every two seconds for what serves and what was rated.

A fast machine without a pace would ask hundreds of times before they see a trial. After hundreds of answers
of a promoted router that gets worse, its drift alarm may also come before the evidence of going back.
"""


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

    def until(self, kind: str, done: Callable[[], bool]) -> None:
        """Ask, at most `PACE` times a second, until something has happened."""
        end = time.monotonic() + LONGEST
        asked = 0
        while time.monotonic() < end:
            next_ = time.monotonic() + 1.0 / PACE
            self.ask(kind)
            asked += 1
            if asked % 20 == 0 and done():
                return
            time.sleep(max(next_ - time.monotonic(), 0.0))
        raise AssertionError(f"nothing happened in {asked} requests")

    def seldom(self, kind: str, names: tuple[str, ...], times: int = 1) -> None:
        """Ask a few times a second until one of `names` has answered so many times in sequence."""
        end = time.monotonic() + LONGEST
        inside = 0
        while inside < times:
            assert time.monotonic() < end
            time.sleep(0.2)
            inside = inside + 1 if self.ask(kind) in names else 0


def kill_a_worker(parent: subprocess.Popen[str]) -> None:
    """kill -9 of one of the two workers, once there are two; the parent starts another."""
    end = time.monotonic() + LONGEST
    while len(workers := _workers(parent)) < 2:  # the one in place of the last that was killed comes soon
        assert time.monotonic() < end
        time.sleep(0.2)
    os.kill(workers[0], signal.SIGKILL)


def _workers(parent: subprocess.Popen[str]) -> list[int]:
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
    found = []
    for child in children:
        with suppress(OSError):  # it has just ended
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(int(child))
    return found


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
    users.until("tell", lambda: read(database)[0] == ["drift"])
    users.seldom("tell", ("small", "large"))  # a worker that trusts echo less


def _promotion(
    users: Users, database: Database, process: subprocess.Popen[str], store: str, folder: Path
) -> None:
    begun = pandora(
        *("learn", "trial", folder / "router-b", "--rule", "proof", "-r", folder / "router", "--store", store)
    )
    assert begun.exit_code == 0, begun.output
    kill_a_worker(process)
    users.until("count", lambda: "trial" in read(database)[0])
    version = read(database)[1].version
    assert version is not None
    assert version.artifact == router("small").id
    users.seldom("count", ("small",), 5)


def _return(users: Users, database: Database, process: subprocess.Popen[str]) -> None:
    """At half time what the promoted router asks gets worse: a tenth of the old router's choices shows it."""
    users.quality |= {"small": 0.02, "large": 0.98}
    kill_a_worker(process)
    users.until("count", lambda: read(database)[1].trial is None)
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

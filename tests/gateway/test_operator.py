"""What an operator uses beside a running gateway: `pandora keys`, `pandora log`, metrics."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from pandora_router.store import rollups
from pandora_router.store.database import Transaction
from tests.gateway.conftest import Serve, backend
from tests.gateway.stub import Stub
from tests.gateway.test_serve import CONFIG, served
from tests.store.conftest import server  # noqa: F401 (a fixture)
from tests.store.databases import Server
from tests.support.command import pandora


def ask(url: str, path: str, body: object | None, key: str) -> tuple[int, dict[str, str], bytes]:
    data = None if body is None else json.dumps(body).encode()
    sent = urllib.request.Request(f"{url}/{path}", data, {"Authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(sent, timeout=60) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


def test_keys_and_decisions_are_those_of_the_configuration(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PANDORA_STORE", raising=False)
    text = CONFIG.format(url=stub.url, default="small").replace(
        "keys: none", "keys: required, store: mine.db"
    )
    (tmp_path / "pandora.yaml").write_text(text)
    key, other = (pandora("keys", "add", name).output.strip() for name in ("team", "other"))
    with served(tmp_path) as (_, url, _):
        body = {"model": "auto", "messages": [{"role": "user", "content": "hi"}]}
        status, headers, _ = ask(url, "v1/chat/completions", body, key)
        assert status == 200
        id_ = headers["x-pandora-decision-id"]
        feedback = {"decision_id": id_, "score": 1, "source": "evil\x1b[2J\nname"}
        assert ask(url, "v1/feedback", feedback, key)[0] == 200
        assert ask(url, "v1/feedback", feedback, other)[0] == 404
        assert ask(url, "v1/feedback", {**feedback, "reward": 1}, key)[0] == 400  # two names of one rating
        told = [
            *body["messages"],
            {"role": "assistant", "content": "x"},
            {"role": "user", "content": "go on"},
        ]
        ids = [ask(url, "v1/chat/completions", {**body, "messages": told}, key)[1]["x-pandora-decision-id"]]
        ids += [ask(url, "v1/chat/completions", body, other)[1]["x-pandora-decision-id"]]
        whole = {"decision_id": id_, "metric": "solved", "value": 0.5, "scope": "session"}
        assert ask(url, "v1/feedback", {**whole, "scope": "world"}, key)[0] == 400
        assert ask(url, "v1/feedback", whole, other)[0] == 404
        assert ask(url, "v1/feedback", whole, key)[0] == 200
        rated = [json.loads(pandora("log", "show", one).output)["feedback"] for one in (id_, *ids)]
        given = [[(one["metric"], one["value"]) for one in ratings] for ratings in rated]
        assert given == [[("reward", 1.0), ("solved", 0.5)], [("solved", 0.5)], []]
        assert ask(url, f"v1/routing/decisions/{id_}", None, other)[0] == 404
        shown = [json.loads(line) for line in pandora("log", "tail", "--json").output.splitlines()]
        assert [row["id"] for row in shown] == [*reversed(ids), id_]
        told = pandora("log", "show", id_).output
        assert "evil" in told
        assert "\x1b" not in told
        assert pandora("keys", "revoke", "team").exit_code == 0
        assert ask(url, "v1/chat/completions", body, key)[0] == 401
        listed = {row["name"]: row for row in json.loads(pandora("keys", "list", "--json").output)}
        assert listed["team"]["revoked"]
        assert listed["team"]["spent"] > 0
        again = pandora("keys", "add", "team", "--budget", "0").output.strip()
        assert ask(url, "v1/chat/completions", body, again)[0] in (400, 429)
        assert pandora("keys", "set", "team", "--budget", "5", "--per-minute", "2").exit_code == 0
        assert [ask(url, "v1/chat/completions", body, again)[0] for _ in range(3)] == [200, 200, 429]
        assert pandora("keys", "set", "team", "--per-minute", "none").exit_code == 0
        assert ask(url, "v1/chat/completions", body, again)[0] == 200
        listed = {row["name"]: row for row in json.loads(pandora("keys", "list", "--json").output)}
        assert (listed["team"]["budget"], listed["team"]["per_minute"]) == (5.0, None)
        assert pandora("keys", "set", "team").exit_code == 2
        assert pandora("keys", "set", "nobody", "--budget", "1").exit_code == 2
    assert pandora("log", "export", "--parquet", "decisions.parquet").exit_code == 0
    assert parquet.read_table(tmp_path / "decisions.parquet").column("id").to_pylist()[0] == id_
    assert (tmp_path / "mine.db").is_file()
    assert not (tmp_path / "pandora.sqlite").exists()


def test_without_a_configuration_the_store_is_a_file_of_this_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PANDORA_STORE", raising=False)
    assert pandora("keys", "add", "team").output.startswith("pk-")
    assert (tmp_path / "pandora.sqlite").is_file()
    monkeypatch.setenv("PANDORA_STORE", "other.db")
    result = pandora("keys", "list", "--json")
    assert result.exit_code == 2
    assert "other.db" in result.stderr  # a misspelt store is not made
    assert not (tmp_path / "other.db").exists()


def test_metrics_are_read_from_postgresql(
    stub: Stub,
    tmp_path: Path,
    server: Server,  # noqa: F811
) -> None:
    config = CONFIG.format(url=stub.url, default="small")
    config = config.replace("serve: {", f'serve: {{store: "{server.url}", ')
    (tmp_path / "pandora.yaml").write_text(config)
    with served(tmp_path) as (_, url, _):
        body = {"model": "auto", "messages": [{"role": "user", "content": "hi"}]}
        assert ask(url, "v1/chat/completions", body, "")[0] == 200
        status, _, text = ask(url, "metrics", None, "")
        assert status == 200
        assert b'pandora_requests_total{specialist="small"} 1' in text


def test_metrics_of_a_month_are_read_in_no_time(serve: Serve, stub: Stub) -> None:
    """A scrape comes every few seconds, and requests wait for the store meanwhile."""
    gateway = serve(backend(stub, "small"))
    sums = rollups.SUMS.split(", ")

    def month(open_: Transaction, table: str, unit: str, steps: int, each: int) -> None:
        open_.run(
            f"WITH RECURSIVE time(at) AS (SELECT 1 UNION ALL SELECT at + 1 FROM time WHERE at < {steps}), "
            "team(name) AS (SELECT 0 UNION ALL SELECT name + 1 FROM team WHERE name < 7) "
            f"INSERT INTO {table} ({unit}, specialist, key, {rollups.SUMS}) "
            f"SELECT at, 'small', name, {', '.join([str(each)] * len(sums))} FROM time, team"
        )

    store = gateway.gateway.store
    store.submit(lambda open_: month(open_, "minutes", "minute", 30 * 24 * 60, 1)).result()
    store.submit(lambda open_: month(open_, "hours", "hour", 30 * 24, 60)).result()
    looked = "INSERT INTO looked (hour, specialist, looks, won) VALUES (1, 'large', 3, 0), (2, 'large', 4, 1)"
    store.submit(lambda open_: open_.run(looked)).result()
    before = time.process_time()
    with urllib.request.urlopen(f"{gateway.url}/metrics") as reply:
        told = reply.read().decode()
    assert f'pandora_requests_total{{specialist="small"}} {8 * 30 * 24 * 60}' in told
    assert [line for line in told.splitlines() if line.startswith("pandora_looks_total")] == [
        'pandora_looks_total{specialist="large"} 7'  # of the one that was looked at, whoever answered
    ]
    assert time.process_time() - before < 0.1

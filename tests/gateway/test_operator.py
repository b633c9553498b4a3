"""`pandora keys` and `pandora log` beside a running gateway, in the folder of its pandora.yaml."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from tests.gateway.stub import Stub
from tests.gateway.test_serve import CONFIG, served
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
        feedback = {"decision_id": id_, "reward": 1, "source": "evil\x1b[2J\nname"}
        assert ask(url, "v1/feedback", feedback, key)[0] == 200
        assert ask(url, "v1/feedback", feedback, other)[0] == 404
        assert ask(url, f"v1/routing/decisions/{id_}", None, other)[0] == 404
        shown = [json.loads(line) for line in pandora("log", "tail", "--json").output.splitlines()]
        assert [row["id"] for row in shown] == [id_]
        told = pandora("log", "show", id_).output
        assert "evil" in told
        assert "\x1b" not in told
        assert pandora("keys", "revoke", "team").exit_code == 0
        assert ask(url, "v1/chat/completions", body, key)[0] == 401
        listed = {row["name"]: row for row in json.loads(pandora("keys", "list", "--json").output)}
        assert listed["team"]["revoked"]
        assert listed["team"]["spent"] > 0
    assert pandora("log", "export", "--parquet", "decisions.parquet").exit_code == 0
    assert parquet.read_table(tmp_path / "decisions.parquet").column("id").to_pylist() == [id_]
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

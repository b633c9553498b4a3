"""`pandora connect`: settings of coding agents are printed, merged into their files, and taken back."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml

pytest.importorskip("uvicorn", reason="pip install 'pandora-router[serve]'")

from tests.gateway.conftest import Running, backend
from tests.gateway.stub import Stub
from tests.support.command import pandora

FILES = {
    "claude-code": ".claude/settings.json",
    "codex": ".codex/config.toml",
    "opencode": ".config/opencode/opencode.json",
    "aider": ".aider.conf.yml",
}
OWN = {
    "claude-code": '{"env": {"A": "1", "ANTHROPIC_BASE_URL": "https://other"}, "model": "opus"}',
    "codex": 'model = "gpt-5"\nnotify = ["x"]\n\n[tui]\ntheme = "dark"\n',
    "opencode": '{"theme": "dark", "model": "other/one"}',
    "aider": "dark-mode: true\nmodel: other\n",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def read(file: Path) -> dict[str, object]:
    text = file.read_text()
    if file.suffix == ".toml":
        return tomllib.loads(text)
    return dict(json.loads(text) if file.suffix == ".json" else yaml.safe_load(text))


@pytest.mark.parametrize("agent", FILES)
def test_settings_are_written_into_a_new_file_and_taken_back(home: Path, agent: str) -> None:
    printed = pandora("connect", agent, "--no-check", "--url", "http://127.0.0.1:9999/v1/")
    assert printed.exit_code == 0, printed.output
    assert "http://127.0.0.1:9999" in printed.output
    assert list(home.iterdir()) == []
    assert pandora("connect", agent, "--no-check", "--write").exit_code == 0
    file = home / FILES[agent]
    assert "127.0.0.1:8080" in json.dumps(read(file))
    assert file.stat().st_mode & 0o777 == 0o600
    assert "already" in pandora("connect", agent, "--no-check", "--write").output
    assert pandora("connect", agent, "--undo", stdin="n\n").exit_code == 0
    assert file.exists()
    assert pandora("connect", agent, "--undo", stdin="y\n").exit_code == 0
    assert not file.exists()
    assert list(file.parent.glob("*pandora*")) == []


@pytest.mark.parametrize("agent", FILES)
def test_a_users_own_values_are_kept_or_replaced_after_a_question(home: Path, agent: str) -> None:
    file = home / FILES[agent]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(OWN[agent])
    refused = pandora("connect", agent, "--no-check", "--write", stdin="n\n")
    assert (refused.exit_code, file.read_text()) == (0, OWN[agent])
    assert "replace" in refused.output
    assert pandora("connect", agent, "--no-check", "--write", stdin="y\n").exit_code == 0
    now = read(file)
    assert "127.0.0.1:8080" in json.dumps(now)
    kept = {"claude-code": "model", "codex": "tui", "opencode": "theme", "aider": "dark-mode"}[agent]
    assert kept in now
    assert (
        pandora("connect", agent, "--no-check", "--write", "--yes", "--url", "http://127.0.0.1:1").exit_code
        == 0
    )
    assert pandora("connect", agent, "--undo", "--yes").exit_code == 0
    assert file.read_text() == OWN[agent]
    assert pandora("connect", agent, "--undo").exit_code == 2


def test_a_broken_file_is_not_touched_and_cursor_has_none(home: Path) -> None:
    file = home / FILES["opencode"]
    file.parent.mkdir(parents=True)
    file.write_text("{broken")
    assert pandora("connect", "opencode", "--no-check", "--write").exit_code == 2
    assert file.read_text() == "{broken"
    assert "Override OpenAI Base URL" in pandora("connect", "cursor", "--no-check").output
    assert pandora("connect", "cursor", "--no-check", "--write").exit_code == 2


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[str]:
    from pandora_router.gateway.generation import Settings, Site
    from pandora_router.gateway.http.app import Gateway
    from pandora_router.store.worker import Store

    with closing(Stub()) as stub, closing(Store(str(tmp_path / "s.sqlite"))) as store:
        site = Site((backend(stub, "small", wires=frozenset({"chat"})),), Settings("small"), hash="h")
        with closing(Running(Gateway(site, store))) as running:
            yield running.url


@pytest.mark.parametrize("agent", [*FILES, "cursor"])
def test_one_request_is_sent_before_anything_is_written(home: Path, gateway: str, agent: str) -> None:
    answered = pandora("connect", agent, "--url", gateway)
    assert answered.exit_code == 0, answered.output
    assert "answers: small" in answered.output
    assert ("translated" in answered.output) == (agent in ("claude-code", "codex"))
    silent = pandora("connect", agent, "--url", "http://127.0.0.1:9", "--no-keys")
    assert silent.exit_code != 0
    assert "does not answer" in silent.output

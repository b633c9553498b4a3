"""`pandora connect`: settings of coding agents are printed, merged into their files, and taken back."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("uvicorn", reason="pip install 'pandora-router[serve]'")

from pandora_router.store import accounts
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
    for name in ("PANDORA_API_KEY", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
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


SINCE = {
    "claude-code": ('"opus"', '"sonnet"'),
    "codex": ('"dark"\n', '"dark"\n\n[projects."/work"]\ntrust_level = "trusted"\n'),
    "opencode": ('"dark"', '"light"'),
    "aider": ("dark-mode: true", "dark-mode: false"),
}
"""What the user, or the agent by itself, changes in the file while it is connected."""


@pytest.mark.parametrize("agent", FILES)
def test_undo_keeps_what_was_changed_since(home: Path, agent: str) -> None:
    file = home / FILES[agent]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(OWN[agent])
    for keys in ("--keys", "--no-keys"):
        assert pandora("connect", agent, "--no-check", "--write", "--yes", keys).exit_code == 0
    file.write_text(file.read_text().replace(*SINCE[agent]))
    undone = pandora("connect", agent, "--undo", "--yes")
    assert "kept" in undone.output
    wanted = home / f"wanted{file.suffix}"
    wanted.write_text(OWN[agent].replace(*SINCE[agent]))
    assert read(file) == read(wanted)
    assert wanted.read_text() != OWN[agent]
    assert list(file.parent.glob("*before*")) == []


@pytest.mark.parametrize("agent", FILES)
def test_settings_with_a_key_replace_those_without(home: Path, agent: str) -> None:
    """A `none` that stays would be sent instead of the key, and a helper would fail where none is needed."""
    file, states = home / FILES[agent], []
    for keys in ("--no-keys", "--keys", "--no-keys"):
        written = pandora("connect", agent, "--no-check", "--write", "--yes", keys)
        assert ("PANDORA_API_KEY" in written.output) == (keys == "--keys")
        states.append(read(file))
    assert ("PANDORA_API_KEY" in str(states[1])) == (agent != "aider")
    assert "none" not in str(states[1])
    assert states[0] == states[2]


def test_a_folder_of_settings_that_a_variable_names_is_used(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {"CLAUDE_CONFIG_DIR": "claude-code", "CODEX_HOME": "codex", "XDG_CONFIG_HOME": "opencode"}
    for variable, agent in named.items():
        monkeypatch.setenv(variable, str(home / agent))
        assert pandora("connect", agent, "--no-check", "--write").exit_code == 0
        below = Path(*Path(FILES[agent]).parts[1:])
        assert "127.0.0.1:8080" in (home / agent / below).read_text()
    assert sorted(one.name for one in home.iterdir()) == ["claude-code", "codex", "opencode"]


def test_a_broken_file_is_not_touched_and_cursor_has_none(home: Path) -> None:
    file = home / FILES["opencode"]
    file.parent.mkdir(parents=True)
    file.write_text("{broken")
    assert pandora("connect", "opencode", "--no-check", "--write").exit_code == 2
    assert file.read_text() == "{broken"
    assert "Override OpenAI Base URL" in pandora("connect", "cursor", "--no-check").output
    assert pandora("connect", "cursor", "--no-check", "--write").exit_code == 2


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts a gateway with settings."""
    from pandora_router.gateway.generation import Settings, Site
    from pandora_router.gateway.http.app import Gateway
    from pandora_router.store.worker import Store

    with ExitStack() as stack:
        stub = stack.enter_context(closing(Stub()))

        def started(**settings: Any) -> Running:
            store = stack.enter_context(closing(Store(str(tmp_path_factory.mktemp("store") / "s.sqlite"))))
            named = backend(stub, "small", wires=frozenset({"chat"}))
            site = Site((named,), Settings("small", **settings), hash="h")
            return stack.enter_context(closing(Running(Gateway(site, store))))

        yield started


@pytest.mark.parametrize("agent", [*FILES, "cursor"])
def test_one_request_is_sent_before_anything_is_written(home: Path, start: Start, agent: str) -> None:
    answered = pandora("connect", agent, "--url", start().url)
    assert answered.exit_code == 0, answered.output
    assert "answers: small" in answered.output
    assert ("translated" in answered.output) == (agent in ("claude-code", "codex"))
    silent = pandora("connect", agent, "--url", "http://127.0.0.1:9", "--no-keys")
    assert silent.exit_code != 0
    assert "does not answer" in silent.output


@pytest.mark.parametrize("agent", FILES)
def test_the_gateway_says_whether_the_settings_need_a_key(
    home: Path, start: Start, monkeypatch: pytest.MonkeyPatch, agent: str
) -> None:
    running = start(keys=True)
    secret = running.gateway.store.submit(lambda open_: accounts.add_key(open_, "agents", 0.0)[1]).result()
    asked = ("connect", agent, "--url", running.url)
    missing = pandora(*asked, "--write")
    assert (missing.exit_code, "pandora keys add" in missing.output) == (2, True)
    assert list(home.iterdir()) == []
    monkeypatch.setenv("PANDORA_API_KEY", secret)
    printed = pandora(*asked)
    assert printed.exit_code == 0, printed.output
    assert "PANDORA_API_KEY" in printed.output
    assert secret not in printed.output
    refused = pandora(*asked, "--no-keys")  # the check sends what the settings would send
    assert (refused.exit_code != 0, "401" in refused.output) == (True, True)


def test_the_request_asks_for_the_model_that_the_agent_asks_for(home: Path, start: Start) -> None:
    running = start(aliases={"gpt-*": "auto"})
    refused = pandora("connect", "claude-code", "--url", running.url)
    assert refused.exit_code != 0
    assert "claude-" in refused.output
    assert "404" in refused.output
    assert pandora("connect", "codex", "--url", running.url).exit_code == 0

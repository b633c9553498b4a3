"""Coding agents as people install them, and SDKs, on specialists of another wire than theirs; offline.

The provider plays a model that solves a task in two steps with the tool of the client that runs commands: it
writes a file and reads it back. aider has no tools: there the model writes a file that the user's test
refuses, and then one that passes. Whether the file is right is checked on disk.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.conformance.conftest import environment
from tests.gateway.test_serve import served
from tests.support.provider import Provider
from tests.support.provider_models import Asked, Model
from tests.support.provider_replies import Said

pytestmark = pytest.mark.slow
TASK = "Write the number to answer.txt and read it back."
CONFIG = """
endpoints: {{local: {{base_url: "{url}"}}}}
specialists:
  on_chat: {{kind: chat, endpoint: local, model: m, prices: {{in: 1, out: 10}}, wires: [chat],
             supports: [tools]}}
  on_responses: {{kind: chat, endpoint: local, model: m, prices: {{in: 1, out: 10}}, wires: [responses],
                  supports: [tools]}}
  on_messages: {{kind: chat, endpoint: local, model: m, prices: {{in: 1, out: 10}}, wires: [messages],
                 supports: [tools]}}
serve: {{keys: none, default: on_chat}}
"""


TOOLS = {"Bash": "command", "exec_command": "cmd", "bash": "command"}
"""The tool that runs commands in Claude Code, Codex and opencode, and its member for the command."""


def steps(asked: Asked) -> Said:
    """Write the file, read it back, tell the number; each once the step before has left its mark."""
    offered = json.dumps(asked.body.get("tools") or [])
    told = json.dumps(asked.body)
    if "*file listing*" in told:
        number = "42" if "step-one-done" in told else "41"
        return Said(("The", " file:\n\n", "answer.txt\n```\n", f"{number}\n", "```\n"))
    name = next((name for name in TOOLS if f'"{name}"' in offered), None)
    if "step-two-done" in told or name is None:
        marks = ("[[ ## answer ## ]]\n",) if "[[ ## answer ## ]]" in told else ()  # DSPy asks for this mark
        return Said((*marks, "The", " number", " is", " 42."))
    if "step-one-done" in told:
        return called(name, "cat answer.txt; echo step-two-d''one", "Second", "b")
    return called(name, "echo 42 > answer.txt; echo step-one-d''one", "First", "a")


def called(tool: str, command: str, text: str, mark: str) -> Said:
    """A call of the tool that runs commands, after a word of text."""
    arguments = json.dumps({TOOLS[tool]: command, "description": "a step"})
    return Said((text,), calls=((tool, arguments),), mark=mark)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("agents")
    with closing(Provider({"m": Model(steps)})) as provider:
        (folder / "pandora.yaml").write_text(CONFIG.format(url=provider.url))
        with served(folder) as (_, url, lines):
            yield url
        assert not any("Traceback" in line or "bug" in line for line in lines), lines


AGENTS = Path(os.environ.get("PANDORA_AGENTS") or Path(__file__).parents[2] / ".agents")


def program(name: str) -> Path:
    """A program in .agents (or where PANDORA_AGENTS says), which `make agents` installs; skips without it."""
    file = AGENTS / "node_modules" / ".bin" / name
    if not file.exists():
        if os.environ.get("CI"):
            raise RuntimeError(f"CI must install {name}: make agents")
        pytest.skip(f"make agents installs {name}")
    return file.resolve()


def run(folder: Path, *command: str | Path, **variables: str) -> str:
    """What a program prints, with a home folder of its own and nothing of ours in its environment."""
    work = folder / "work"
    work.mkdir()
    done = subprocess.run(
        list(command),
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "NO_PROXY": "127.0.0.1", **variables},
        cwd=work,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    told = f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    assert done.returncode == 0, told
    assert (work / "answer.txt").read_text() == "42\n", told
    return done.stdout


def connected(agent: str, home: Path, url: str) -> None:
    """The settings that `pandora connect` writes into the home folder."""
    command = [sys.executable, "-m", "pandora_router", "connect", agent, "--url", url, "--write", "--yes"]
    subprocess.run(command, env={**os.environ, "HOME": str(home)}, check=True, capture_output=True)


@pytest.mark.parametrize("specialist", ["on_chat", "on_responses"])
def test_claude_code_solves_a_task_in_two_steps(url: str, tmp_path: Path, specialist: str) -> None:
    claude = program("claude")
    connected("claude-code", tmp_path, url)
    printed = run(
        *(tmp_path, claude, "-p", TASK, "--allowedTools", "Bash"),
        ANTHROPIC_API_KEY="a key of Anthropic's that the settings hide",
        ANTHROPIC_CUSTOM_HEADERS=f"x-pandora-allow: {specialist}",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        DISABLE_AUTOUPDATER="1",
    )
    assert "The number is 42." in printed


@pytest.mark.parametrize(
    ("specialist", "more"),
    [("on_chat", ""), ("on_messages", 'model = "gpt-5.5"\nsupports_websockets = true\n')],
)
def test_codex_solves_a_task_in_two_steps(url: str, tmp_path: Path, specialist: str, more: str) -> None:
    """With the settings of `pandora connect`, and with a model that Codex knows and websockets."""
    codex = program("codex")
    connected("codex", tmp_path, url)
    file = tmp_path / ".codex/config.toml"
    model, _, sockets = more.partition("\n")
    settings = file.read_text().replace('model = "auto"', model or 'model = "auto"')
    file.write_text(f'{settings}{sockets}http_headers = {{ "x-pandora-allow" = "{specialist}" }}\n')
    unsafe = "--dangerously-bypass-approvals-and-sandbox"
    printed = run(tmp_path, codex, "exec", "--skip-git-repo-check", unsafe, TASK)
    assert "The number is 42." in printed


@pytest.mark.parametrize("specialist", ["on_messages", "on_responses"])
def test_opencode_solves_a_task_in_two_steps(url: str, tmp_path: Path, specialist: str) -> None:
    opencode = program("opencode")
    connected("opencode", tmp_path, url)
    file = tmp_path / ".config/opencode/opencode.json"
    settings = json.loads(file.read_text())
    settings["provider"]["pandora"]["options"]["headers"] = {"x-pandora-allow": specialist}
    file.write_text(json.dumps({**settings, "autoupdate": False, "share": "disabled"}))
    printed = run(tmp_path, opencode, "run", TASK, OPENCODE_DISABLE_MODELS_FETCH="1")
    assert "The number is 42." in printed


@pytest.mark.parametrize("specialist", ["on_messages", "on_responses"])
def test_aider_solves_a_task_in_two_steps(url: str, tmp_path: Path, specialist: str) -> None:
    aider = environment(".venv-aider", "make aider", url).folder / "bin" / "aider"
    connected("aider", tmp_path, url)
    quiet = (
        "--no-check-update",
        "--no-show-release-notes",
        "--analytics-disable",
        "--no-show-model-warnings",
    )
    tested = ("--auto-test", "--test-cmd", "grep 42 answer.txt || (echo step-one-d''one; exit 1)")
    run(
        *(tmp_path, aider, "--model", f"openai/{specialist}", *quiet, "--yes-always", "--no-git"),
        *("--edit-format", "whole", *tested, "--message", TASK, "answer.txt"),
        LITELLM_LOCAL_MODEL_COST_MAP="True",
    )


def test_sdks_accept_translated_answers(url: str) -> None:
    clients = environment(".venv-clients", "make clients", url)
    told = clients.run("python", "-m", "pytest", "-c", "pytest.ini", "translated_suite.py")
    assert "18 passed" in told, told


def test_frameworks_call_tools(url: str) -> None:
    clients = environment(".venv-clients", "make clients", url)
    chosen = "agents or langchain or haystack or llm and not index"
    told = clients.run("python", "-m", "pytest", "-c", "pytest.ini", "frameworks_suite.py", "-k", chosen)
    assert "10 passed" in told, told


def test_frameworks_on_litellm_call_tools(url: str) -> None:
    litellm = environment(".venv-litellm", "make litellm", url)
    arguments = (
        "-m",
        "pytest",
        "-c",
        "pytest.ini",
        "--noconftest",
        "frameworks_suite.py",
        "-k",
        "llama or dspy",
    )
    told = litellm.run("python", *arguments)
    assert "4 passed" in told, told


def test_the_agent_sdk_solves_a_task(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE", str(program("claude")))
    clients = environment(".venv-clients", "make clients", url)
    told = clients.run("python", "-m", "pytest", "-c", "pytest.ini", "frameworks_suite.py", "-k", "claude")
    assert "1 passed" in told, told


def test_the_ai_sdk_calls_tools(url: str) -> None:
    program("conformance")  # installed together with the AI SDK; skips without it
    suite = Path(__file__).with_name("suites") / "ai_sdk.mjs"
    variables = {**os.environ, "AGENTS": str(AGENTS.resolve()), "GATEWAY": url}
    done = subprocess.run(
        ["node", suite], env=variables, capture_output=True, text=True, timeout=200, check=False
    )
    assert "ai-sdk: ok" in done.stdout, done.stderr[-4000:]

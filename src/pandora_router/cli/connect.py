"""`pandora connect`: let a coding agent use the gateway.

Settings are printed, or with --write merged into the agent's own file. The file as it was is kept beside it
under `BACKUP`, from which --undo restores it. Values of the user's own are replaced only after a question.
"""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from pandora_router import folders
from pandora_router.cli.console import echo
from pandora_router.errors import UpstreamError, UsageError

BACKUP = ".before-pandora"
"""The end of the name under which the file is kept as it was; an empty file stands for none."""
KEY = "PANDORA_API_KEY"


@dataclass(frozen=True)
class Agent:
    """An agent: its settings file under the home folder, None if it has none, and the path that it calls.

    merged: makes, of the text of the file, the address of the gateway and whether that needs keys, the new
    text, and names the values that it replaces.
    """

    file: str | None
    merged: Callable[[str, str, bool], tuple[str, list[str]]]
    path: str
    hint: str = ""


def merged_json(text: str, settings: Mapping[str, Any]) -> tuple[str, list[str]]:
    """A JSON object with `settings` merged into it, and the names of values that this replaces."""
    try:
        whole = json.loads(text) if text.strip() else {}
    except ValueError:
        whole = None
    if not isinstance(whole, dict):
        raise UsageError(
            "the settings",
            expected="a JSON object",
            came="something else",
            do="Repair the file, or print the settings.",
        )
    replaced: list[str] = []
    _merge(whole, settings, "", replaced)
    return json.dumps(whole, indent=2) + "\n", replaced


def _merge(whole: dict[str, Any], settings: Mapping[str, Any], where: str, replaced: list[str]) -> None:
    for name, value in settings.items():
        if isinstance(value, Mapping) and isinstance(whole.setdefault(name, {}), dict):
            _merge(whole[name], value, f"{where}{name}.", replaced)
            continue
        if name in whole and whole[name] != value:
            replaced.append(f"{where}{name}")
        whole[name] = value


def merged_lines(text: str, lines: Mapping[str, str], mark: str) -> tuple[str, list[str]]:
    """A file with these lines (name, `mark`, value) before its first section, and what they replace."""
    start = re.search(r"(?m)^\[", text)
    head, tail = (text, "") if start is None else (text[: start.start()], text[start.start() :])
    replaced = []
    for name, value in lines.items():
        line = re.compile(rf"(?m)^{re.escape(name)}\s*{mark}\s*(.*)\n?")
        if (known := line.search(head)) and known[1].strip() != value:
            replaced.append(name)
        head = line.sub("", head)
    space = " = " if mark == "=" else ": "
    head = "".join(f"{name}{space}{value}\n" for name, value in lines.items()) + head
    return head + tail, replaced


def _claude_code(text: str, url: str, keys: bool) -> tuple[str, list[str]]:
    token = {} if keys else {"ANTHROPIC_AUTH_TOKEN": "none"}
    return merged_json(text, {"env": {"ANTHROPIC_BASE_URL": url, **token}})


def _codex(text: str, url: str, keys: bool) -> tuple[str, list[str]]:
    section = "[model_providers.pandora]\n"
    lines = {"name": '"pandora"', "base_url": f'"{url}/v1"', "wire_api": '"responses"'}
    lines |= {"env_key": f'"{KEY}"'} if keys else {}
    body = section + "".join(f"{name} = {value}\n" for name, value in lines.items())
    known = re.search(r"(?m)^\[model_providers\.pandora\]\n(?:[^\[\n].*\n?|\n)*", text)
    rest = text if known is None else text[: known.start()] + text[known.end() :]
    made, replaced = merged_lines(rest, {"model": '"auto"', "model_provider": '"pandora"'}, "=")
    if known is not None and known[0].strip() != body.strip():
        replaced.append("model_providers.pandora")
    return f"{made.rstrip()}\n\n{body}", replaced


def _opencode(text: str, url: str, keys: bool) -> tuple[str, list[str]]:
    key = f"{{env:{KEY}}}" if keys else "none"
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "pandora",
        "options": {"baseURL": f"{url}/v1", "apiKey": key},
        "models": {"auto": {"name": "auto"}},
    }
    return merged_json(text, {"provider": {"pandora": provider}, "model": "pandora/auto"})


def _aider(text: str, url: str, keys: bool) -> tuple[str, list[str]]:
    lines = {"model": "openai/auto", "openai-api-base": f"{url}/v1"}
    return merged_lines(text, lines if keys else {**lines, "openai-api-key": "none"}, ":")


def _cursor(text: str, url: str, keys: bool) -> tuple[str, list[str]]:
    key = "a key of `pandora keys add`" if keys else "any text"
    where = "Cursor Settings > Models > API Keys"
    return f"{where}:\n  Override OpenAI Base URL: {url}/v1\n  OpenAI API Key: {key}\n  Add model: auto\n", []


AGENTS: Mapping[str, Agent] = {
    "claude-code": Agent(
        *(".claude/settings.json", _claude_code, "/v1/messages"),
        "With keys: export ANTHROPIC_AUTH_TOKEN before you start it.",
    ),
    "codex": Agent(".codex/config.toml", _codex, "/v1/responses", f"With keys: export {KEY}."),
    "opencode": Agent(
        *(".config/opencode/opencode.json", _opencode, "/v1/chat/completions"), f"With keys: export {KEY}."
    ),
    "cursor": Agent(
        *(None, _cursor, "/v1/chat/completions"),
        "Cursor calls the address from its own servers: it must be reachable from there.",
    ),
    "aider": Agent(".aider.conf.yml", _aider, "/v1/chat/completions", "With keys: export OPENAI_API_KEY."),
}


@click.command()
@click.argument("agent", type=click.Choice(list(AGENTS)))
@click.option("--url", default="http://127.0.0.1:8080", show_default=True, help="Address of the gateway.")
@click.option("--keys/--no-keys", help=f"The gateway needs a key; it is read from {KEY}, never written.")
@click.option(
    "--write", is_flag=True, help="Merge the settings into the agent's file; asks before it replaces."
)
@click.option("--undo", is_flag=True, help="Restore the agent's file as it was before --write.")
@click.option("--yes", is_flag=True, help="Replace or restore without a question.")
@click.option("--check/--no-check", default=True, help="Send one short request through the gateway first.")
def connect(agent: str, url: str, keys: bool, write: bool, undo: bool, yes: bool, check: bool) -> None:
    """Print the settings with which AGENT uses the gateway, or write them.

    \b
    Examples:
      pandora connect claude-code
      pandora connect codex --write
      pandora connect codex --undo
    """
    chosen, url = AGENTS[agent], url.rstrip("/").removesuffix("/v1")
    file = None if chosen.file is None else Path.home() / chosen.file
    if (write or undo) and file is None:
        raise UsageError(
            agent, expected="an agent with a settings file", came="none", do="Leave out --write and --undo."
        )
    if undo:
        assert file is not None
        _restored(file, yes=yes)
        return
    if check:
        echo(_checked(chosen, url))
    if not write or file is None:
        made, _ = chosen.merged("", url, keys)
        echo(made.rstrip() if file is None else f"{file}:\n\n{made.rstrip()}")
        echo(f"\n{chosen.hint}" + ("" if file is None else " With --write this is merged into the file."))
        return
    _written(file, chosen, url, keys=keys, yes=yes)


def _written(file: Path, agent: Agent, url: str, *, keys: bool, yes: bool) -> None:
    """Merge the settings into the file, atomically, after a copy of it was kept."""
    before = file.read_text("utf-8") if file.exists() else ""
    made, replaced = agent.merged(before, url, keys)
    if made == before:
        echo(f"{file} has these settings already.")
        return
    if replaced and not yes and not click.confirm(f"{file}: replace {', '.join(replaced)}?"):
        echo("Nothing was changed.")
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    backup = file.with_name(file.name + BACKUP)
    if not backup.exists():  # a second --write keeps the file as it was before the first
        folders.replace_text(backup, before)
        backup.chmod(0o600)
    mode = file.stat().st_mode & 0o777 if file.exists() else 0o600
    folders.replace_text(file, made)
    file.chmod(mode)
    echo(f"Written to {file}; as it was: {backup}. {agent.hint}")


def _restored(file: Path, *, yes: bool) -> None:
    """Put the file back as it was before the first --write, after a question."""
    backup = file.with_name(file.name + BACKUP)
    if not backup.exists():
        raise UsageError(
            str(file),
            expected="settings that --write changed",
            came="no copy of it",
            do="There is nothing to undo.",
        )
    if not yes and not click.confirm(f"Put {file} back as it was? What was changed since then is lost."):
        echo("Nothing was changed.")
        return
    before = backup.read_text("utf-8")
    if before:
        os.replace(backup, file)
    else:
        file.unlink(missing_ok=True)
        backup.unlink()
    echo(f"{file} is as it was." if before else f"{file} is gone, as it was.")


def _checked(agent: Agent, url: str) -> str:
    """Send one request; says who answered. Raises `UpstreamError` if nobody did."""
    said = (
        {"input": "Say hello."}
        if agent.path == "/v1/responses"
        else {"messages": [{"role": "user", "content": "Say hello."}]}
    )
    limit = {"max_output_tokens": 16} if agent.path == "/v1/responses" else {"max_tokens": 16}
    body = json.dumps({"model": "auto", **said, **limit}).encode()
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get(KEY):
        headers["Authorization"] = f"Bearer {key}"
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url + agent.path, body, headers), timeout=60
        ) as answer:
            translated = answer.headers.get("x-pandora-translated")
            way = f", translated {translated}" if translated else ""
            return f"{url} answers: {answer.headers.get('x-pandora-specialist')} on {agent.path}{way}."
    except urllib.error.HTTPError as error:
        with error:
            why = error.read(2000).decode("utf-8", "replace")
        raise UpstreamError(f"{url}{agent.path} answered with status {error.code}: {why}") from None
    except (OSError, ValueError) as error:
        why = f"{url} does not answer ({error})"
        raise UpstreamError(f"{why}. Start `pandora serve`, or say --url, or --no-check") from None

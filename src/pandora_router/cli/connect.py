"""`pandora connect`: let a coding agent use the gateway.

Settings are printed, or with --write merged into the agent's own file. The file as it was is kept beside it
under `BACKUP`; --undo takes from there the values that were replaced, and keeps what else was changed since,
by the user or by the agent itself. Values of the user's own are replaced only after a question.
"""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
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
HELPER = f"printenv {KEY}"
PLAIN = ("none", HELPER)
"""What the settings say in place of a key, with keys and without: replaced without a question."""
AIDER = ("model", "openai-api-base", "openai-api-key")
SECTION = re.compile(r"(?m)^\[")
"""The first section of a file of lines."""
OURS = re.compile(r"(?m)^\[model_providers\.pandora\]\n(?:[^\[\n].*\n?|\n)*")
"""The section that Codex gets."""


@dataclass(frozen=True)
class Agent:
    """An agent: its settings file under the home folder, None if it has none, and the path that it calls.

    home: the environment variable that stands for the first folder of `file`, if the agent has one. merged:
    makes, of the text of the file, the address of the gateway and whether that needs keys, the new text, and
    names the values that it replaces. restored: makes, of the text of the file and the text before
    it was merged, the text without our values. hint: what else there is to know. keyed: what to do about the
    key. model: the name that the agent asks for.
    """

    file: str | None
    merged: Callable[[str, str, bool], tuple[str, list[str]]]
    restored: Callable[[str, str], str]
    path: str
    hint: str = ""
    keyed: str = f"Before it starts: export {KEY}=the key."
    model: str = "auto"
    home: str = ""

    def place(self) -> Path | None:
        """Where the settings file is."""
        if self.file is None:
            return None
        first, *rest = Path(self.file).parts
        folder = Path(stated) if (stated := os.environ.get(self.home, "")) else Path.home() / first
        return folder.joinpath(*rest)


def merged_json(text: str, settings: Mapping[str, Any]) -> tuple[str, list[str]]:
    """A JSON object with `settings` merged into it, and the names of values that this replaces."""
    whole, replaced = _object(text), list[str]()
    _merge(whole, settings, "", replaced)
    return json.dumps(whole, indent=2) + "\n", replaced


def _object(text: str) -> dict[str, Any]:
    """The JSON object in a file, which may be empty; raises `UsageError`."""
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
    return whole


def restored_json(text: str, before: str, ours: Sequence[str]) -> str:
    """A JSON object with the members `ours` ("a.b") as they were in `before`; the others stay."""
    whole, old = _object(text), _object(before)
    for path in ours:
        _put_back(whole, old, path.split("."))
    return before if whole == old else json.dumps(whole, indent=2) + "\n"


def _put_back(whole: dict[str, Any], old: Mapping[str, Any], path: Sequence[str]) -> None:
    """Give the member at `path` the value that it has in `old`; an object that this empties is removed."""
    name, *rest = path
    inner, before = whole.get(name), old.get(name)
    if rest and isinstance(inner, dict):
        _put_back(inner, before if isinstance(before, dict) else {}, rest)
        if not inner and name not in old:
            del whole[name]
    elif name in old:
        whole[name] = before
    else:
        whole.pop(name, None)


def _merge(whole: dict[str, Any], settings: Mapping[str, Any], where: str, replaced: list[str]) -> None:
    """Merge `settings` in; a value None removes a member."""
    for name, value in settings.items():
        if isinstance(value, Mapping) and isinstance(whole.setdefault(name, {}), dict):
            _merge(whole[name], value, f"{where}{name}.", replaced)
            continue
        if whole.get(name, value) not in (value, *PLAIN):
            replaced.append(f"{where}{name}")
        whole[name] = value
        if value is None:
            del whole[name]


def merged_lines(text: str, lines: Mapping[str, str | None], mark: str) -> tuple[str, list[str]]:
    """A file with these lines (name, `mark`, value) before its first section, and what they replace.

    A value None removes a line.
    """
    start = SECTION.search(text)
    head, tail = (text, "") if start is None else (text[: start.start()], text[start.start() :])
    replaced = []
    for name, value in lines.items():
        line = _line(name, mark)
        if (known := line.search(head)) and known[1].strip() not in (value, *PLAIN):
            replaced.append(name)
        head = line.sub("", head)
    space = " = " if mark == "=" else ": "
    head = "".join(f"{name}{space}{value}\n" for name, value in lines.items() if value is not None) + head
    return head + tail, replaced


def restored_lines(text: str, before: str, names: Sequence[str], mark: str) -> str:
    """A file whose lines (name, `mark`, value) before its first section are those of `before`."""
    starts = [section.start() if (section := SECTION.search(one)) else len(one) for one in (text, before)]
    old = ""
    head, tail, known = text[: starts[0]], text[starts[0] :], before[: starts[1]]
    for name in names:
        line = _line(name, mark)
        head = line.sub("", head)
        old += "".join(found[0].rstrip("\n") + "\n" for found in line.finditer(known))
    made = old + head + tail
    same = sorted(filter(None, made.split("\n"))) == sorted(filter(None, before.split("\n")))
    return before if same else made


def _line(name: str, mark: str) -> re.Pattern[str]:
    return re.compile(rf"(?m)^{re.escape(name)}\s*{mark}\s*(.*)\n?")


def _claude_code(text: str, url: str, keys: bool) -> tuple[str, list[str]]:
    """Claude Code asks a command for its key, so that the variable is the same as for the other agents.

    A key of Anthropic's in the environment would be sent instead, to the gateway: it is hidden.
    """
    env = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_AUTH_TOKEN": None if keys else "none",
        "ANTHROPIC_API_KEY": "",
    }
    return merged_json(text, {"env": env, "apiKeyHelper": HELPER if keys else None})


def _codex(text: str, url: str, keys: bool) -> tuple[str, list[str]]:
    section = "[model_providers.pandora]\n"
    lines = {"name": '"pandora"', "base_url": f'"{url}/v1"', "wire_api": '"responses"'}
    lines |= {"env_key": f'"{KEY}"'} if keys else {}
    body = section + "".join(f"{name} = {value}\n" for name, value in lines.items())
    known = OURS.search(text)
    rest = text if known is None else text[: known.start()] + text[known.end() :]
    made, replaced = merged_lines(rest, {"model": '"auto"', "model_provider": '"pandora"'}, "=")
    if known is not None and known[0].strip() != body.strip():
        replaced.append("model_providers.pandora")
    return f"{made.rstrip()}\n\n{body}", replaced


def _codex_restored(text: str, before: str) -> str:
    old = OURS.search(before)
    rest = OURS.sub("", text).rstrip() + "\n" + ("" if old is None else f"\n{old[0]}")
    return restored_lines(rest, before, ("model", "model_provider"), "=")


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
    key = None if keys else "none"
    return merged_lines(text, dict(zip(AIDER, ("openai/auto", f"{url}/v1", key), strict=True)), ":")


def _cursor(text: str, url: str, keys: bool) -> tuple[str, list[str]]:
    key = "a key of `pandora keys add`" if keys else "any text"
    where = "Cursor Settings > Models > API Keys"
    return f"{where}:\n  Override OpenAI Base URL: {url}/v1\n  OpenAI API Key: {key}\n  Add model: auto\n", []


CLAUDE = ("env.ANTHROPIC_BASE_URL", "env.ANTHROPIC_AUTH_TOKEN", "env.ANTHROPIC_API_KEY", "apiKeyHelper")
AGENTS: Mapping[str, Agent] = {
    "claude-code": Agent(
        *(".claude/settings.json", _claude_code, lambda text, old: restored_json(text, old, CLAUDE)),
        path="/v1/messages",
        model="claude-sonnet-4-5",
        home="CLAUDE_CONFIG_DIR",
    ),
    "codex": Agent(
        *(".codex/config.toml", _codex, _codex_restored, "/v1/responses"),
        hint="Codex warns that it has no metadata for `auto`: it uses its defaults, and works.",
        home="CODEX_HOME",
    ),
    "opencode": Agent(
        *(".config/opencode/opencode.json", _opencode),
        lambda text, old: restored_json(text, old, ("provider.pandora", "model")),
        path="/v1/chat/completions",
        home="XDG_CONFIG_HOME",
    ),
    "cursor": Agent(
        *(None, _cursor, lambda text, _: text, "/v1/chat/completions"),
        hint="Cursor calls the address from its own servers: it must be reachable from there.",
        keyed="",
    ),
    "aider": Agent(
        *(".aider.conf.yml", _aider, lambda text, old: restored_lines(text, old, AIDER, ":")),
        path="/v1/chat/completions",
        keyed=f"Before it starts: export OPENAI_API_KEY=${KEY}",
    ),
}


@click.command()
@click.argument("agent", type=click.Choice(list(AGENTS)))
@click.option("--url", default="http://127.0.0.1:8080", show_default=True, help="Address of the gateway.")
@click.option(
    "--keys/--no-keys",
    default=None,
    help=f"Whether the gateway needs a key, from {KEY}; it is never written [the gateway is asked].",
)
@click.option(
    "--write", is_flag=True, help="Merge the settings into the agent's file; asks before it replaces."
)
@click.option("--undo", is_flag=True, help="Take the settings out of the agent's file again.")
@click.option("--yes", is_flag=True, help="Replace or restore without a question.")
@click.option("--check/--no-check", default=True, help="Send one short request through the gateway first.")
def connect(agent: str, url: str, keys: bool | None, write: bool, undo: bool, yes: bool, check: bool) -> None:
    """Print the settings with which AGENT uses the gateway, or write them.

    One short request is sent first, with the model, the path and the key that the agent will send.

    \b
    Examples:
      pandora connect claude-code
      pandora connect codex --write
      pandora connect codex --undo
    """
    chosen, url = AGENTS[agent], url.rstrip("/").removesuffix("/v1")
    file = chosen.place()
    if (write or undo) and file is None:
        raise UsageError(
            agent, expected="an agent with a settings file", came="none", do="Leave out --write and --undo."
        )
    if undo:
        assert file is not None
        _restored(file, chosen, yes=yes)
        return
    if keys is None:
        keys = _needs_key(url) if check else KEY in os.environ
    if check:
        echo(_checked(chosen, url, keys=keys))
    hints = " ".join(filter(None, (chosen.hint, chosen.keyed if keys else "")))
    if write and file is not None:
        _written(file, chosen, url, keys=keys, yes=yes, hints=hints)
        return
    made, _ = chosen.merged("", url, keys)
    echo(made.rstrip() if file is None else f"{file}:\n\n{made.rstrip()}")
    written = "" if file is None else "With --write this is merged into the file."
    echo("\n" + " ".join(filter(None, (written, hints))))


def _written(file: Path, agent: Agent, url: str, *, keys: bool, yes: bool, hints: str) -> None:
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
    echo(f"Written to {file}; as it was: {backup}. {hints}".rstrip())


def _restored(file: Path, agent: Agent, *, yes: bool) -> None:
    """Take the settings out of the file, after a question; what else was changed since --write stays."""
    backup = file.with_name(file.name + BACKUP)
    if not backup.exists():
        raise UsageError(
            str(file),
            expected="settings that --write changed",
            came="no copy of it",
            do="There is nothing to undo.",
        )
    before = backup.read_text("utf-8")
    made = agent.restored(file.read_text("utf-8"), before) if file.exists() else before
    if not yes and not click.confirm(f"Take the settings of the gateway out of {file}?"):
        echo("Nothing was changed.")
        return
    if made.strip() in ("", "{}") and not before:
        file.unlink(missing_ok=True)
        echo(f"{file} is gone, as it was.")
    else:
        mode = (file if file.exists() else backup).stat().st_mode & 0o777
        folders.replace_text(file, made)
        file.chmod(mode)
        kept = "" if made == before else "; what else was changed since is kept"
        echo(f"{file} is as it was{kept}.")
    backup.unlink()


def _needs_key(url: str) -> bool:
    """Whether the gateway asks for a key; raises `UpstreamError` if nobody answers."""
    try:
        with urllib.request.urlopen(f"{url}/v1/models", timeout=60):
            return False
    except urllib.error.HTTPError as error:
        with error:
            return error.code == 401
    except (OSError, ValueError) as error:
        raise _silent(url, error) from None


def _checked(agent: Agent, url: str, *, keys: bool) -> str:
    """Send one request as the agent will; says who answered. Raises `UpstreamError` if nobody did."""
    key = os.environ.get(KEY)
    if keys and not key:
        raise UsageError(
            KEY,
            expected="a key of the gateway in this environment variable",
            came="none",
            do=f"Make one in the folder of pandora.yaml: export {KEY}=$(pandora keys add agents).",
        )
    said = (
        {"input": "Say hello."}
        if agent.path == "/v1/responses"
        else {"messages": [{"role": "user", "content": "Say hello."}]}
    )
    limit = {"max_output_tokens": 16} if agent.path == "/v1/responses" else {"max_tokens": 16}
    body = json.dumps({"model": agent.model, **said, **limit}).encode()
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if keys else {})
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
        raise UpstreamError(
            f"{url}{agent.path} answered a request for {agent.model} with status {error.code}: {why}"
        ) from None
    except (OSError, ValueError) as error:
        raise _silent(url, error) from None


def _silent(url: str, error: Exception) -> UpstreamError:
    why = f"{url} does not answer ({error})"
    return UpstreamError(f"{why}. Start `pandora serve`, or say --url, or --no-check")

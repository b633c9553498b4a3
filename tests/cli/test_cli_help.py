"""Every verb explains itself: help that shows examples, one to a line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from pandora_router import cli as package
from pandora_router.cli.main import MODULES, SUMMARIES, main
from tests.support.command import pandora, start


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if not isinstance(command, click.Group):
        yield path
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from leaves(found, (*path, name))


@pytest.mark.parametrize("path", sorted(leaves(main)), ids=" ".join)
def test_help_shows_examples(path: tuple[str, ...]) -> None:
    result = pandora(*path, "--help")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    examples = [line for line in lines if line.strip().startswith("pandora " + " ".join(path))]
    assert "Examples:" in result.output
    assert len(examples) >= 2, result.output
    assert "\\b" not in result.output
    assert not result.output.startswith("Usage: pandora [OPTIONS] COMMAND")


def test_an_unknown_verb_is_refused_and_the_nearest_is_named() -> None:
    result = pandora("rout")
    assert (result.exit_code, "Did you mean 'route'?" in result.stderr) == (2, True)
    other = pandora("xylophone")
    assert (other.exit_code, "xylophone" in other.stderr, "mean" in other.stderr) == (2, True, False)


def test_the_help_lists_every_verb_on_one_line_each() -> None:
    shown = pandora("-h")
    assert (shown.exit_code, shown.output) == (0, pandora("--help").output)
    lines = shown.output.splitlines()
    assert max(map(len, lines)) <= 80
    for verb, summary in SUMMARIES.items():
        assert [line.split() for line in lines if line.split()[:1] == [verb]] == [[verb, *summary.split()]]
    context = click.Context(main)
    for verb in SUMMARIES:
        command = main.get_command(context, verb)  # type: ignore[attr-defined]
        assert command is not None
        assert command.name == verb
        assert verb not in MODULES or not (Path(package.__file__).parent / f"{verb}.py").exists()
    assert pandora("route", "-h").output.startswith("Usage: pandora route")


def test_completion_names_verbs_and_their_summaries() -> None:
    asked = {"_PANDORA_COMPLETE": "zsh_complete", "COMP_WORDS": "pandora ", "COMP_CWORD": "1"}
    with start(**asked) as shell:
        out, _ = shell.communicate(timeout=60)
    assert "route\n" + SUMMARIES["route"] in out


@pytest.mark.parametrize("verb", ["fit", "init", "serve", "keys", "log", "bid"])
def test_help_of_a_verb_imports_nothing_heavy(verb: str) -> None:
    code = f"""
import sys
from pandora_router.cli.main import main
main([{verb!r}, "--help"], standalone_mode=False)
print("heavy:", sorted({{"numpy", "scipy", "pydantic", "pyarrow", "httptools"}} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.endswith("heavy: []\n"), done.stdout[-200:]

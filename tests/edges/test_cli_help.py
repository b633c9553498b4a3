"""Every verb explains itself: help that shows examples, one to a line."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from pandora_router.cli.main import main


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
    result = CliRunner().invoke(main, [*path, "--help"])
    assert result.exit_code == 0
    lines = result.output.splitlines()
    examples = [line for line in lines if line.strip().startswith("pandora " + " ".join(path))]
    assert "Examples:" in result.output
    assert len(examples) >= 2, result.output
    assert "\\b" not in result.output
    assert not result.output.startswith("Usage: pandora [OPTIONS] COMMAND")


def test_an_unknown_verb_is_refused() -> None:
    result = CliRunner().invoke(main, ["rout"])
    assert result.exit_code == 2
    assert "rout" in result.output

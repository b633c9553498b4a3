"""The command `pandora`: one file per verb, imported only when the verb is used."""

from __future__ import annotations

from importlib import import_module

import click

# one module of this package per verb, and in it a command of the same name
VERBS = (
    "collect",
    "compare",
    "data",
    "demo",
    "evaluate",
    "explain",
    "fit",
    "init",
    "market",
    "route",
    "sweep",
)


class Verbs(click.Group):
    """A group that imports a verb's module when it is asked for, so that `pandora --help` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs, in alphabetical order."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import and return one verb."""
        if name not in VERBS:
            return None
        command: click.Command = getattr(import_module(f"pandora_router.cli.{name}"), name)
        return command


@click.command(cls=Verbs, epilog="Start with: pandora demo")
@click.version_option(package_name="pandora-router")
def main() -> None:
    """Decide, prompt by prompt, which estimates are worth buying and which specialist should answer."""

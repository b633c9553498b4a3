"""`pandora warm`: compile the search kernels now, so that later commands decide fast from the start."""

from __future__ import annotations

import click

from pandora_router.cli.console import SlowProgress, echo, echo_json
from pandora_router.search import kernels


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print where compiled code is kept as JSON.")
def warm(as_json: bool) -> None:
    """Compile the search kernels and store them on disk: tens of seconds the first time.

    Without compiled kernels every command takes the same decisions, more slowly. Run this when an image is
    built, or after an upgrade. Compiled code is stored in NUMBA_CACHE_DIR if that is set, else beside the
    package, else in the user's cache folder.

    \b
    Examples:
      pandora warm
      pandora warm --json
    """
    with SlowProgress() as progress:
        folder = kernels.warm(progress)
    if as_json:
        echo_json({"folder": None if folder is None else str(folder)})
    elif folder is None:
        echo("Compiled, for this process only: no folder for compiled code can be written.", err=True)
        echo("Set NUMBA_CACHE_DIR to a folder that can, and run pandora warm again.", err=True)
    else:
        echo(f"Search kernels are compiled, in {folder}")

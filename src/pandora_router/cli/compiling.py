"""A word before the search kernels are compiled for the first time: some seconds in which nothing is seen."""

from __future__ import annotations

import os
from pathlib import Path

import click

from pandora_router.search import kernels

ROOM = Path(kernels.__file__).parent


def tell_first_use(kernel: str) -> None:
    """Say on standard error that a kernel will be compiled, if it will be."""
    if first_use(kernel, ROOM):
        click.echo(
            "First use on this machine: compiling the search kernels takes some seconds, once.", err=True
        )


def first_use(kernel: str, room: Path) -> bool:
    """Whether there is no compiled `kernel` newer than the sources; False where none could be kept."""
    newest = max(source.stat().st_mtime for source in room.glob("*.py"))
    compiled = (room / "__pycache__").glob(f"{kernel}.*.nbi")
    fresh = any(file.stat().st_mtime >= newest for file in compiled)
    return not fresh and os.access(room, os.W_OK) and "NUMBA_CACHE_DIR" not in os.environ

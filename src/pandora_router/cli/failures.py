"""How a command fails: one clear message on standard error and exit code 2, never a traceback."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import click

from pandora_router.errors import PandoraError

P = ParamSpec("P")
R = TypeVar("R")


class Failure(click.ClickException):
    """An error of ours in the words of click."""

    exit_code = 2


def told_plainly(command: Callable[P, R]) -> Callable[P, R]:
    """Turn our errors, and those of the file system, into one message."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except PandoraError as error:
            raise Failure(str(error)) from error
        except OSError as error:
            raise Failure(f"{error.filename or 'file system'}: {error.strerror or error}") from error

    return run

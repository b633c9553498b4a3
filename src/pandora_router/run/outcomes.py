"""What came of a shard in another process: a result or an error, as bytes that always reach the caller.

An exception may not survive pickling: a constructor with other arguments than `args`, an attribute that
cannot be pickled, a class that the caller cannot import. Its type, message and traceback travel as text
beside it, so that the caller learns what happened in any case.
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from pandora_router.run.runner import on_one_core

S = TypeVar("S")


class ShardError(RuntimeError):
    """An error of a shard whose own exception could not be brought here, or the traceback of one that was.

    `kind` is the name of the exception's type, `message` its text, `trace` its traceback over there.
    """

    def __init__(self, kind: str, message: str, trace: str) -> None:
        super().__init__(kind, message, trace)
        self.kind, self.message, self.trace = kind, message, trace

    def __str__(self) -> str:
        """Type, message and traceback."""
        return f"{self.kind}: {self.message}\n\nIn the process of the shard:\n{self.trace}"


def attempted(function: Callable[[S], Any], shard: S) -> bytes:
    """function(shard) on one core; the result, or the exception that it raised, as bytes for `concluded`."""
    try:
        result = on_one_core(function, shard)
    except Exception as error:
        return pickle.dumps((None, _pickled(error), _told(error)))
    try:
        return pickle.dumps((result, None, None))
    except Exception as error:
        return pickle.dumps((None, None, _told(error, "the result of a shard cannot be pickled: ")))


def concluded(outcome: bytes) -> Any:
    """The result in what `attempted` returned; raises the exception of the shard if it raised one.

    The exception is caused by a `ShardError` with its traceback; if it cannot be unpickled here, that
    `ShardError` is raised itself.
    """
    try:
        result, raised, failure = pickle.loads(outcome)  # noqa: S301 (from our own worker)
    except Exception as error:
        raise ShardError(*_told(error, "the result of a shard cannot be unpickled: ")) from error
    if failure is None:
        return result
    own = None if raised is None else _unpickled(raised)
    if own is not None:
        raise own from ShardError(*failure)
    raise ShardError(*failure)


def _told(error: BaseException, head: str = "") -> tuple[str, str, str]:
    """Type, message (after `head`) and traceback of an exception."""
    try:
        message = str(error)
    except Exception:
        message = "(it has no text)"
    return type(error).__name__, head + message, "".join(traceback.format_exception(error))


def _unpickled(raised: bytes) -> BaseException | None:
    try:
        error = pickle.loads(raised)  # noqa: S301 (from our own worker)
    except Exception:
        return None
    return error if isinstance(error, BaseException) else None


def _pickled(error: BaseException) -> bytes | None:
    try:
        return pickle.dumps(error)
    except Exception:
        return None

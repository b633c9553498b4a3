"""The `Runner` interface: computes each shard once, and yields results as they finish or in order.

The result for a shard is the same bit for bit with every runner, because each computes a shard on one core
(`on_one_core`); a threaded BLAS would add in another order. (Different processors may still round
differently.) Shards are taken from the iterable as workers become free, so it need not fit in memory.

The result of a shard in another process, or its error, is sent to the caller as bytes (`attempted` and
`concluded`). An exception may not survive pickling: its constructor may take other arguments than `args`, an
attribute may not be picklable, or the caller cannot import its class. Therefore its type, message and
traceback are sent as text too.
"""

from __future__ import annotations

import pickle
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits

from pandora_router.search.batch import limited

S = TypeVar("S")
R = TypeVar("R")


def on_one_core(function: Callable[[S], R], shard: S) -> R:
    """function(shard) with one thread for linear algebra and one for batches of searches."""
    with threadpool_limits(1), limited(1):
        return function(shard)


class Runner(ABC):
    """Computes shards."""

    @abstractmethod
    def finish(self, function: Callable[[S], R], shards: Iterable[S]) -> Generator[tuple[int, R], None, None]:
        """Yield (number of the shard, its result) as results arrive; an error of the function is raised.

        Closing the iterator stops all work in progress.
        """

    def map(self, function: Callable[[S], R], shards: Iterable[S]) -> Iterator[R]:
        """The results in the order of the shards."""
        early: dict[int, R] = {}
        wanted = 0
        for number, result in self.finish(function, shards):
            early[number] = result
            while wanted in early:
                yield early.pop(wanted)
                wanted += 1


@dataclass(frozen=True)
class InPlace(Runner):
    """One shard after the other in this process."""

    def finish(self, function: Callable[[S], R], shards: Iterable[S]) -> Generator[tuple[int, R], None, None]:
        """As `Runner.finish`; in order."""
        for number, shard in enumerate(shards):
            yield number, on_one_core(function, shard)


class ShardError(RuntimeError):
    """Error of a shard whose exception could not be sent, or the traceback of one that could.

    `kind` is the name of the exception's type, `message` its text, `trace` its traceback in the worker.
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
    """The result in the bytes returned by `attempted`; raises the exception of the shard if there was one.

    Its cause is a `ShardError` with the traceback; if it cannot be unpickled here, that `ShardError` is
    raised.
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

"""The `Runner` interface, and runners in this process and in several (`InPlace`, `Pool`).

A runner computes each shard once, and yields results as they finish or in order.

The result for a shard is the same bit for bit with every runner, because each computes a shard on one core
(`on_one_core`); a threaded BLAS would add in another order. (Different processors may still round
differently.) Shards are taken from the iterable as workers become free, so it need not fit in memory.

The result of a shard in another process, or its error, is sent to the caller as bytes (`attempted` and
`concluded`). An exception may not survive pickling: its constructor may take other arguments than `args`, an
attribute may not be picklable, or the caller cannot import its class. Therefore its type, message and
traceback are sent as text too.

`Pool` runs shards in processes of this machine; if a worker is killed, only its shard is run again. Workers
are spawned, so they inherit no locks or threads, and each has one thread for linear algebra. A worker gets
one shard at a time through its own pipe, so that it is known which shard was lost when it dies: a new worker
runs that shard again, at most `tries` times in total. Workers ignore Ctrl-C and are stopped by this process.
If this process is killed, the system ends them at once (`_die_with`).
"""

from __future__ import annotations

import fcntl
import os
import pickle
import signal
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits

from pandora_router.errors import UpstreamError, UsageError
from pandora_router.search.batch import limited

S = TypeVar("S")
R = TypeVar("R")
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
PATIENCE = 5.0  # seconds that a worker gets to end before it is killed


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


@dataclass
class _Worker:
    """A process, this end of its pipe, the lifeline that only this process holds, and its present shard."""

    process: SpawnProcess
    pipe: Connection
    lifeline: Connection
    at: int | None = None

    @classmethod
    def start(cls) -> _Worker:
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        watched, lifeline = context.Pipe(duplex=False)
        process = context.Process(target=_serve, args=(theirs, watched), daemon=True)
        with _inherited(ONE_THREAD):
            process.start()
        theirs.close()
        watched.close()
        return cls(process, ours, lifeline)

    def give(self, number: int, function: Callable[[Any], Any], shard: Any) -> None:
        self.at = number
        with suppress(BrokenPipeError, ConnectionResetError):  # dead: its pipe is ready, `answer` says so
            self.pipe.send((function, shard))

    def answer(self) -> bytes:
        """The result of the shard, for `concluded`; EOFError if the worker died."""
        try:
            return self.pipe.recv_bytes()
        except ConnectionResetError as error:
            raise EOFError from error

    def stop(self) -> None:
        self.pipe.close()
        self.process.terminate()
        self.process.join(PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.process.close()
        self.lifeline.close()


@dataclass(frozen=True)
class Pool(Runner):
    """A pool of `workers` processes; None: one per core that this process may use."""

    workers: int | None = None
    tries: int = 3

    def __post_init__(self) -> None:
        if (self.workers is not None and self.workers < 1) or self.tries < 1:
            raise UsageError(
                "a pool", expected="one or more workers and tries", came=repr(self), do="Correct the number."
            )

    def finish(self, function: Callable[[S], R], shards: Iterable[S]) -> Generator[tuple[int, R], None, None]:
        """As `Runner.finish`."""
        with _Crew(self.workers or cores(), self.tries) as crew:
            yield from crew.finish(function, shards)


@dataclass
class _Crew:
    """The workers of one call, the shards that must be run again, and the number of tries of each."""

    most: int
    tries: int
    workers: list[_Worker] = field(default_factory=list)
    again: deque[tuple[int, Any]] = field(default_factory=deque)
    held: dict[int, Any] = field(default_factory=dict)
    deaths: dict[int, int] = field(default_factory=dict)

    def finish(self, function: Callable[[S], R], shards: Iterable[S]) -> Generator[tuple[int, R], None, None]:
        fresh = enumerate(shards)
        while True:
            self._employ(function, fresh)
            if not self.held:
                return
            busy = {worker.pipe: worker for worker in self.workers if worker.at is not None}
            for pipe in wait(list(busy)):
                worker = busy[pipe]  # type: ignore[index]
                assert worker.at is not None
                number = worker.at
                try:
                    outcome = worker.answer()
                except EOFError:
                    self._bury(worker, number)
                    continue
                worker.at = None
                del self.held[number]
                self._employ(function, fresh)  # before the caller processes the result
                yield number, concluded(outcome)

    def _employ(self, function: Callable[[Any], Any], fresh: Iterator[tuple[int, Any]]) -> None:
        """Give every idle worker a shard; start workers only if there are shards for them."""
        while True:
            idle = next((worker for worker in self.workers if worker.at is None), None)
            if idle is None and len(self.workers) >= self.most:
                return
            number, shard = self.again.popleft() if self.again else next(fresh, (-1, None))
            if number < 0:
                return
            if idle is None:
                idle = _Worker.start()
                self.workers.append(idle)
            self.held[number] = shard
            idle.give(number, function, shard)

    def _bury(self, worker: _Worker, number: int) -> None:
        worker.process.join(PATIENCE)
        code = worker.process.exitcode
        worker.stop()
        self.workers.remove(worker)
        self.deaths[number] = self.deaths.get(number, 0) + 1
        if self.deaths[number] >= self.tries:
            raise UpstreamError(
                f"shard {number}: its worker process died {self.tries} times (last exit code {code}). "
                "If the machine ran out of memory, use fewer workers."
            )
        self.again.append((number, self.held[number]))

    def __enter__(self) -> _Crew:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self.workers:
            worker.stop()


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _serve(pipe: Connection, lifeline: Connection) -> None:
    """Main function of a worker: reads shards and writes results until the pipe closes."""
    _die_with(lifeline)
    while True:
        try:
            function, shard = pipe.recv()
        except (EOFError, ConnectionResetError):
            return
        try:
            pipe.send_bytes(attempted(function, shard))
        except (BrokenPipeError, ConnectionResetError):
            return


def _die_with(lifeline: Connection) -> None:
    """Let the system end this process as soon as the other end of the pipe `lifeline` is closed.

    The pipe raises SIGIO, whose default action ends the process without running Python code, so that a shard
    inside a library that holds the interpreter is ended too.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    handle = lifeline.fileno()
    fcntl.fcntl(handle, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(handle, fcntl.F_SETFL, fcntl.fcntl(handle, fcntl.F_GETFL) | os.O_ASYNC)
    if lifeline.poll():  # the parent was gone before the signal was armed
        os._exit(1)


@contextmanager
def _inherited(variables: dict[str, str]) -> Iterator[None]:
    """Environment of processes started inside the block: these variables, and Ctrl-C ignored.

    BLAS reads its variables when it is loaded, and an interrupt may come before a worker's first line. The
    resource tracker of `multiprocessing` is started first, because starting it unblocks SIGINT.
    """
    resource_tracker.ensure_running()
    before = {name: os.environ.get(name) for name in variables}
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)

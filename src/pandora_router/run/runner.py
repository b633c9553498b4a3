"""What every runner promises: each shard once, in any order as they finish or in the order they came.

The answer for a shard is the same bit for bit whoever computes it: every runner computes a shard on one core
(`on_one_core`), since a threaded BLAS adds up in another order than a plain one. (Processors of different
make may still round differently.) Shards are taken from the iterable as workers become free, so it may be
longer than memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from threadpoolctl import threadpool_limits

from pandora_router.search.batch import limited

S = TypeVar("S")
R = TypeVar("R")


def on_one_core(function: Callable[[S], R], shard: S) -> R:
    """function(shard) with one thread for linear algebra and one for batches of searches."""
    with threadpool_limits(1), limited(1):
        return function(shard)


class Runner(ABC):
    """Somewhere to compute shards."""

    @abstractmethod
    def finish(self, function: Callable[[S], R], shards: Iterable[S]) -> Generator[tuple[int, R], None, None]:
        """(number of the shard, its result) as results come; an error of the function is raised here.

        Closing the iterator stops all work that is under way.
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

"""An estimator as a search sees it: one query, some specialists, one number each, at a price.

The fitted estimators of this room work on arrays; `Fitted` is the thin edge over them. `Scorer` makes an
estimator of any callable, plain or async. A box whose estimate cannot be had is NaN: inside a
search failure is data, and the money is still counted by whoever charges (`search.state`).
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np

from pandora_router.errors import UpstreamError, UsageError
from pandora_router.estimators.worker import Worker
from pandora_router.folders.saved import Saved
from pandora_router.transport.rate_limit import Place, RateLimit
from pandora_router.types import Contexts, Matrix, Vector


@dataclass(frozen=True)
class Query:
    """What is to be answered, and what has been seen so far of each specialist's answer, by its name."""

    prompt: str
    contexts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


class Named(Protocol):
    """Anything with a name, such as a specialist."""

    @property
    def name(self) -> str:
        """The specialist's name, as in the routing table."""
        ...


@runtime_checkable
class Estimator(Protocol):
    """Predicts rewards one query at a time and may wait for it: a judge, any callable, a look at answers."""

    @property
    def needs(self) -> frozenset[str]:
        """The specialists that can be estimated only if the query carries their context."""
        ...

    @property
    def together(self) -> bool:
        """True if one purchase pays for the estimates of all specialists, false if each has its price."""
        ...

    async def estimate(self, query: Query, specialists: Sequence[Named | str]) -> Vector:
        """One estimate per specialist, in the order asked; NaN where none could be had."""
        ...


@runtime_checkable
class Predictor(Protocol):
    """A fitted estimator: computes in this process, for many prompts at once, and can be saved."""

    @property
    def specialists(self) -> tuple[str, ...]:
        """Columns of `predict`, by name."""
        ...

    @property
    def needs(self) -> frozenset[str]:
        """The specialists whose context was read in training, and must be there for their estimate."""
        ...

    @property
    def together(self) -> bool:
        """True if one purchase pays for the estimates of all specialists, false if each has its price."""
        ...

    def predict(self, prompts: Sequence[str], contexts: Contexts | None = None) -> Matrix:
        """Estimated rewards (prompts, specialists); `contexts` has that shape, None where nothing is seen."""
        ...

    def state(self) -> Saved:
        """What is written to disk, without pickle; `opened.estimator_of` turns it back."""
        ...


@runtime_checkable
class CrossFitted(Protocol):
    """A fitted estimator that kept what it said of each training prompt without having learnt from it."""

    @property
    def out_of_fold(self) -> Matrix:
        """Predictions (training prompts, specialists) by models that never saw the prompt."""
        ...


def fitted(costly: Predictor | Estimator) -> Predictor | None:
    """The predictor behind a costly estimate, or None if it is an `Estimator`, asked one query at a time.

    The only place that tells the two contracts apart. Raises `UsageError` if neither is kept.
    """
    if isinstance(costly, Estimator):
        return None
    if isinstance(costly, Predictor):
        return costly
    raise UsageError(
        "a costly estimate",
        expected="an Estimator (needs, together, estimate) or a Predictor (specialists, needs, together, "
        "predict, state)",
        came=type(costly).__name__,
        do="Declare what is missing; pandora_router.testing.check_estimator checks the rest.",
    )


def names(specialists: Sequence[Named | str]) -> list[str]:
    """The names of specialists given as objects or as names."""
    return [specialist if isinstance(specialist, str) else specialist.name for specialist in specialists]


@dataclass(frozen=True)
class Fitted:
    """A fitted estimator behind the async edge; `price` is per call, whatever the number of specialists."""

    predictor: Predictor = field(repr=False)
    price: float = 0.0

    @property
    def needs(self) -> frozenset[str]:
        """As the predictor's."""
        return self.predictor.needs

    @property
    def together(self) -> bool:
        """As the predictor's."""
        return self.predictor.together

    async def estimate(self, query: Query, specialists: Sequence[Named | str]) -> Vector:
        """Estimates for these specialists, from the prompt and whatever contexts the query carries."""
        column = {name: j for j, name in enumerate(self.predictor.specialists)}
        wanted = names(specialists)
        unknown = [name for name in wanted if name not in column]
        if unknown:
            raise UsageError(
                "specialists to estimate",
                expected=f"among {sorted(column)}",
                came=f"{unknown}",
                do="Fit the estimator with them, or leave them out.",
            )
        contexts = np.full((1, len(column)), None, dtype=object)
        for name, text in query.contexts.items():
            if name in column:
                contexts[0, column[name]] = text
        predicted = self.predictor.predict([query.prompt], contexts)
        return predicted[0, [column[name] for name in wanted]]


Score = Callable[[Query, str], float | Awaitable[float]]


@dataclass(frozen=True)
class Scorer:
    """Any callable (query, specialist name) -> number, plain or async, made an estimator.

    Specialists are scored at the same time: `at_once` calls run together, over all prompts of an event loop.
    Plain callables run in as many threads; one that outlives its timeout still counts until it returns. Each
    try has `timeout` seconds; a timeout or an `UpstreamError` is tried again `retries` times, then the
    estimate is NaN. Any other exception is a bug of the callable and is raised. `price` is per specialist.
    `needs` has the specialists that the callable can score only with their context; `together` says that one
    purchase pays for all specialists.
    """

    score: Score = field(repr=False)
    price: float = 0.0
    timeout: float = 30.0
    retries: int = 1
    at_once: int = 8
    needs: frozenset[str] = frozenset()
    together: bool = False
    _limit: RateLimit = field(init=False, repr=False, compare=False)
    _threads: Worker = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_limit", RateLimit(self.at_once))
        object.__setattr__(self, "_threads", Worker(self.at_once))

    async def estimate(self, query: Query, specialists: Sequence[Named | str]) -> Vector:
        """One score per specialist, NaN where the callable did not deliver a finite number in time."""
        scores = await asyncio.gather(*(self._score(query, name) for name in names(specialists)))
        return np.asarray(scores, dtype=np.float64)

    async def _score(self, query: Query, name: str) -> float:
        for _ in range(self.retries + 1):
            place = await self._limit.take()
            call = self._awaited(query, name, place) if self._waits else self._threaded(query, name, place)
            try:
                value = float(await asyncio.wait_for(call, self.timeout))
            except (TimeoutError, UpstreamError):
                continue
            return value if np.isfinite(value) else float("nan")
        return float("nan")

    @property
    def _waits(self) -> bool:
        return inspect.iscoroutinefunction(self.score)

    def _awaited(self, query: Query, name: str, place: Place) -> Awaitable[float]:
        """Call an async callable; the place is free again when it has ended or was cancelled."""
        task = asyncio.ensure_future(cast("Coroutine[Any, Any, float]", self.score(query, name)))
        task.add_done_callback(lambda _: place.release())
        return task

    def _threaded(self, query: Query, name: str, place: Place) -> Awaitable[float]:
        """Call a plain callable in a thread; the place is free again when the thread has really ended."""
        loop = asyncio.get_running_loop()

        def ended(_: object) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits for the place any more
                loop.call_soon_threadsafe(place.release)

        thread = self._threads.submit(self.score, query, name)
        thread.add_done_callback(ended)

        async def arrived() -> float:
            value = await asyncio.wrap_future(thread)
            return float(await value if inspect.isawaitable(value) else value)

        return arrived()

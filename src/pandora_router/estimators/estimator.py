"""The interfaces of estimators: `Estimator` (one query, asynchronous) and `Predictor` (fitted, on arrays).

`Fitted` adapts a predictor to the asynchronous interface, `Scorer` any callable, plain or async. An estimate
that cannot be obtained is NaN, never an exception: the search goes on, and its cost is still charged by the
caller (`search.state`).
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, Self, cast, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.errors import UpstreamError, UsageError
from pandora_router.folders.saved import Saved
from pandora_router.specialists.threads import Worker
from pandora_router.transport.failures import Place, RateLimit
from pandora_router.types import Contexts, Matrix, Vector


@dataclass(frozen=True)
class Query:
    """A prompt, and what was seen so far of each specialist's answer (`contexts`, by name)."""

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
    """Predicts rewards for one query at a time, asynchronously: a judge, a callable, a look at answers."""

    @property
    def needs(self) -> frozenset[str]:
        """The specialists that can be estimated only if the query has their context."""
        ...

    @property
    def together(self) -> bool:
        """True if one purchase pays for the estimates of all specialists, false if each is paid for."""
        ...

    async def estimate(self, query: Query, specialists: Sequence[Named | str]) -> Vector:
        """One estimate per specialist, in the order given; NaN where there is none."""
        ...


@runtime_checkable
class Rereading(Estimator, Protocol):
    """An estimator whose later purchases may change the estimates of specialists that were not bought."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The specialists that `estimate_all` estimates, in order."""
        ...

    async def estimate_all(self, query: Query, specialists: Sequence[Named | str]) -> Vector:
        """Buy the estimates of `specialists`; returns those of everybody, given all that was bought so far.

        NaN for the specialists among those bought for which there is none.
        """
        ...


@runtime_checkable
class Predictor(Protocol):
    """A fitted estimator: computes in this process, for many prompts at once, and can be saved."""

    @property
    def specialists(self) -> tuple[str, ...]:
        """Names of the columns of `predict`."""
        ...

    @property
    def needs(self) -> frozenset[str]:
        """The specialists whose context was read in training and is required for their estimate."""
        ...

    @property
    def together(self) -> bool:
        """True if one purchase pays for the estimates of all specialists, false if each is paid for."""
        ...

    def predict(self, prompts: Sequence[str], contexts: Contexts | None = None) -> Matrix:
        """Estimated rewards (prompts, specialists); `contexts` has the same shape, None where not seen."""
        ...

    def state(self) -> Saved:
        """The state to save, without pickle; `saved.estimator_of` restores the estimator."""
        ...


@runtime_checkable
class CrossFitted(Protocol):
    """A fitted estimator that kept its out-of-fold predictions of the training prompts."""

    @property
    def out_of_fold(self) -> Matrix:
        """Predictions (training prompts, specialists) by models that were fitted without the prompt."""
        ...


def fitted(costly: Predictor | Estimator) -> Predictor | None:
    """`costly` itself if it is a `Predictor`, None if it is an `Estimator` (asked one query at a time).

    The only place that distinguishes the two protocols. Raises `UsageError` if `costly` is neither.
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


def columns_of(predictor: Predictor, wanted: Sequence[str]) -> dict[str, int]:
    """The column of each specialist in the predictions; raises `UsageError` if one of `wanted` has none."""
    column = {name: j for j, name in enumerate(predictor.specialists)}
    unknown = [name for name in wanted if name not in column]
    if unknown:
        raise UsageError(
            "specialists to estimate",
            expected=f"among {sorted(column)}",
            came=f"{unknown}",
            do="Fit the predictor with them, or leave them out.",
        )
    return column


def context_row(column: Mapping[str, int], contexts: Mapping[str, str | None]) -> Contexts:
    """Contexts by specialist as one row (1, M); None where there is none, unknown specialists ignored."""
    row = np.full((1, len(column)), None, dtype=object)
    for name, text in contexts.items():
        if name in column:
            row[0, column[name]] = text
    return row


@dataclass(frozen=True)
class Fitted:
    """A predictor as an `Estimator`; `price` is per call, whatever the number of specialists."""

    predictor: Predictor = field(repr=False)
    price: float = 0.0

    @property
    def needs(self) -> frozenset[str]:
        """Those of the predictor."""
        return self.predictor.needs

    @property
    def together(self) -> bool:
        """Those of the predictor."""
        return self.predictor.together

    async def estimate(self, query: Query, specialists: Sequence[Named | str]) -> Vector:
        """Estimates for these specialists, from the prompt and the contexts in the query."""
        wanted = names(specialists)
        column = columns_of(self.predictor, wanted)
        predicted = self.predictor.predict([query.prompt], context_row(column, query.contexts))
        return predicted[0, [column[name] for name in wanted]]


Score = Callable[[Query, str], float | Awaitable[float]]


@dataclass(frozen=True)
class Scorer:
    """An `Estimator` made from any callable (query, specialist name) -> number, plain or async.

    score: the callable. Plain callables run in threads.
    price: cost of one estimate of one specialist.
    timeout, retries: seconds per try; a timeout or an `UpstreamError` is retried `retries` times, then the
        estimate is NaN. Any other exception is a bug in the callable and is raised.
    at_once: most calls at the same time, over all prompts of an event loop. A plain callable that exceeds
        its timeout counts until it returns.
    needs: specialists that can be scored only with their context.
    together: whether one purchase pays for all specialists.
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
        """One score per specialist; NaN where the callable returned no finite number in time."""
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
        """Call an async callable; `place` is released when it ends or is cancelled."""
        task = asyncio.ensure_future(cast("Coroutine[Any, Any, float]", self.score(query, name)))
        task.add_done_callback(lambda _: place.release())
        return task

    def _threaded(self, query: Query, name: str, place: Place) -> Awaitable[float]:
        """Call a plain callable in a thread; `place` is released when the thread really ends."""
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


class PromptsOnly:
    """Base of predictors that read prompts alone and estimate all specialists in one computation."""

    @property
    def needs(self) -> frozenset[str]:
        """Empty: no contexts are read."""
        return frozenset()

    @property
    def together(self) -> bool:
        """True: one computation gives all specialists."""
        return True


@runtime_checkable
class Known(Predictor, Protocol):
    """A predictor with known prompts that it can also predict as if they were new."""

    def predict_unseen(self, prompts: Sequence[str]) -> Matrix:
        """As `predict`, but a known prompt is predicted as if it were new."""
        ...


@runtime_checkable
class Remembering(Known, Protocol):
    """A cheap estimate to which known prompts can be added, without changing how prompts are embedded.

    Signal models are fitted on `leave_one_out`, so that no prompt influences its own estimate.
    """

    def remember(self, prompts: Sequence[str], reward: ArrayLike) -> Self:
        """The same estimator with these prompts and rewards (n, M), NaN where missing, added."""
        ...

    def leave_one_out(self) -> Matrix:
        """Predictions (N, M) for the known prompts in the order they were added, each without itself."""
        ...


def unseen(predictor: Predictor, prompts: Sequence[str]) -> Matrix:
    """Predictions (n, M) for prompts as if they were new to the predictor."""
    return predictor.predict_unseen(prompts) if isinstance(predictor, Known) else predictor.predict(prompts)

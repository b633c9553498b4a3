"""Buying costly estimates for one prompt: the only place where a search meets money, waiting and failure.

A purchase hands the estimator the prompt and the contexts of the boxes paid for so far, nothing else. What
does not arrive (a timeout, an `UpstreamError`, NaN) is None: the search counts the money and goes on. Any
other exception is a bug and is raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from pandora_router.calibrate import SignalModel
from pandora_router.errors import UpstreamError, UsageError
from pandora_router.estimators.estimator import Estimator, Fitted, Predictor, Query, fitted
from pandora_router.search import Inspect, State
from pandora_router.types import Mask, Vector

T = TypeVar("T")
FAILURES = (UpstreamError, TimeoutError, OSError)


def is_local(costly: Predictor | Estimator) -> bool:
    """Whether estimates come from this process: no waiting, no timeouts, many prompts at once."""
    return fitted(costly) is not None


@dataclass
class Purchases:
    """What has been bought for one prompt. `cheap` (M,) are its cheap estimates."""

    prompt: str
    contexts: Mapping[str, str]
    specialists: tuple[str, ...]
    costly: Predictor | Estimator
    signal: SignalModel
    cheap: Vector
    timeout: float | None
    paid: set[str] = field(default_factory=set)
    told: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def closed(self) -> Mask:
        """The boxes that cannot be inspected because their context is not there (M,); says so in `notes`."""
        out = np.zeros(len(self.specialists), dtype=np.bool_)
        for j, name in enumerate(self.specialists):
            if name not in self.contexts and name in self.costly.needs:
                out[j] = True
                self.notes[name] = "cannot be inspected: its context was not given"
        return out

    def query(self, inspect: Inspect) -> Query:
        """What the estimator is shown: the prompt, and contexts of boxes paid for, these included."""
        self.paid |= {self.specialists[box] for box in inspect.boxes}
        return Query(self.prompt, {name: text for name, text in self.contexts.items() if name in self.paid})

    async def open(self, state: State, inspect: Inspect) -> list[float | None]:
        """Buy the costly estimates of these boxes in one call."""
        query, names = self.query(inspect), [self.specialists[box] for box in inspect.boxes]
        costly = self.costly
        try:
            if isinstance(costly, Estimator):
                found = await asyncio.wait_for(costly.estimate(query, names), self.timeout)
            else:
                found = await Fitted(costly).estimate(query, names)
        except FAILURES as error:
            reason = f"{type(error).__name__}: {error}".rstrip(": ")
            self.notes.update(dict.fromkeys(names, f"inspection failed ({reason})"))
            return [None] * len(names)
        return self.settle(inspect, found)

    def settle(self, inspect: Inspect, found: Sequence[float] | Vector) -> list[float | None]:
        """Costly estimates as values on the scale of the boxes; None where there is no number."""
        if len(found) != len(inspect.boxes):
            raise UsageError(
                "costly estimates",
                expected=f"{len(inspect.boxes)} numbers, one per specialist asked for",
                came=f"{len(found)}",
                do="Return them in the order asked, NaN where there is none.",
            )
        shown: list[float | None] = []
        for box, g in zip(inspect.boxes, found, strict=True):
            name = self.specialists[box]
            if np.isfinite(g):
                self.told[name] = float(g)
                shown.append(self.signal.value(self.cheap, box, float(g)))
            else:
                self.notes[name] = "inspection failed (no finite number came back)"
                shown.append(None)
        return shown


def checked_contexts(contexts: Mapping[str, str] | None, specialists: tuple[str, ...]) -> dict[str, str]:
    """Contexts by specialist, refusing names nobody bears and what is not text."""
    given = dict(contexts or {})
    for name, text in given.items():
        if name not in specialists or not isinstance(text, str):
            raise UsageError(
                f"the context of {name!r}",
                expected=f"a text for one of {', '.join(specialists[:8])}" + " ..." * (len(specialists) > 8),
                came="no such specialist" if name not in specialists else type(text).__name__,
                do="Check the spelling: names are compared exactly.",
            )
    return given


def finish(work: Coroutine[Any, Any, T], *, waits: bool) -> T:
    """Run a coroutine from plain code: by hand where nothing in it waits, else on a loop of its own."""
    if waits:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(work)
        work.close()
        raise UsageError(
            "route",
            expected="no event loop running in this thread, since costly estimates are awaited",
            came="a running one",
            do="Use `await router.aroute(...)`.",
        )
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise RuntimeError("an estimator of this process waited for something")

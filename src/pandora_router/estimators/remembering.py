"""Protocols of estimators that keep known prompts: predict them as if unseen, and add more of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self, runtime_checkable

from numpy.typing import ArrayLike

from pandora_router.estimators.estimator import Predictor
from pandora_router.types import Matrix


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

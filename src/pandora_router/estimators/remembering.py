"""What an estimate promises that knows prompts: to predict them as if unseen, and to learn more of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self, runtime_checkable

from numpy.typing import ArrayLike

from pandora_router.estimators.estimator import Predictor
from pandora_router.types import Matrix


@runtime_checkable
class Known(Predictor, Protocol):
    """A predictor that knows prompts with their rewards and can predict them as if it did not."""

    def predict_unseen(self, prompts: Sequence[str]) -> Matrix:
        """As `predict`, but a prompt that is known is predicted as if it were not."""
        ...


@runtime_checkable
class Remembering(Known, Protocol):
    """A cheap estimate whose known prompts can grow; how prompts are embedded does not change by that.

    Signal models are fitted from estimates that no prompt influenced itself: `leave_one_out`.
    """

    def remember(self, prompts: Sequence[str], reward: ArrayLike) -> Self:
        """The same estimate once these prompts and their rewards (n, M), NaN where missing, are known."""
        ...

    def leave_one_out(self) -> Matrix:
        """Predictions (N, M) for the known prompts in the order they were learnt, each without itself."""
        ...


def unseen(predictor: Predictor, prompts: Sequence[str]) -> Matrix:
    """What the predictor says of prompts that are new to it, or as if they were (n, M)."""
    return predictor.predict_unseen(prompts) if isinstance(predictor, Known) else predictor.predict(prompts)

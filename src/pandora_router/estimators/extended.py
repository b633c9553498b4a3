"""A fitted estimator with a new specialist, from a few dozen scored prompts, without refitting the others.

The newcomer's estimate is a ridge regression of its rewards on the estimates for the other specialists: these
say how hard the prompt is, and which specialists the newcomer resembles. The penalty is chosen by
cross-validation on the scored prompts; the largest one in the grid makes the estimate nearly constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.errors import UsageError
from pandora_router.estimators.embedders.embedder import Embedder
from pandora_router.estimators.estimator import Predictor, unseen
from pandora_router.estimators.linear import Ridge, fit_ridge, grouped_folds
from pandora_router.estimators.rewards import checked_reward
from pandora_router.estimators.states import Saved, estimator_of, write
from pandora_router.types import Contexts, Matrix

PENALTIES = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0, 1e5)


@dataclass(frozen=True)
class Extended:
    """The fitted estimator `base` with `newcomer` as last specialist; the other estimates do not change."""

    base: Predictor
    newcomer: str
    head: Ridge = field(repr=False)

    @classmethod
    def fit(
        cls, base: Predictor, newcomer: str, prompts: Sequence[str], reward: ArrayLike, *, seed: int = 0
    ) -> Extended:
        """Fit on the newcomer's `reward` (prompts,), NaN where it was not scored.

        Prompts known to `base` are predicted as if they were new to it. Raises `UsageError` if `base` already
        has a specialist of that name.
        """
        if newcomer in base.specialists:
            raise UsageError(
                "a new specialist",
                expected="a name the estimator does not know",
                came=f"{newcomer!r}",
                do="Fit again to change a specialist it knows.",
            )
        column = np.asarray(reward, dtype=np.float64).reshape(-1, 1)
        matrix = checked_reward(column, len(prompts), [newcomer])
        present = np.flatnonzero(np.isfinite(matrix[:, 0]))
        scored = [prompts[int(i)] for i in present]
        folds = grouped_folds(scored, 8, seed)
        head, _ = fit_ridge(_features(unseen(base, scored)), matrix[present], folds, PENALTIES)
        return cls(base, newcomer, head)

    @property
    def specialists(self) -> tuple[str, ...]:
        """The specialists of the base, then the newcomer."""
        return (*self.base.specialists, self.newcomer)

    @property
    def needs(self) -> frozenset[str]:
        """As for the base; the newcomer's context is never read."""
        return self.base.needs

    @property
    def together(self) -> bool:
        """As for the base: the newcomer's estimate is computed from those of the others."""
        return self.base.together

    def predict(self, prompts: Sequence[str], contexts: Contexts | None = None) -> Matrix:
        """Estimated rewards (prompts, specialists); contexts of the newcomer are ignored."""
        others = self.base.predict(prompts, None if contexts is None else contexts[:, :-1])
        return np.hstack([others, self.head.predict(_features(others))])

    def predict_unseen(self, prompts: Sequence[str]) -> Matrix:
        """As `predict`, but prompts known to the base are predicted as if they were new to it."""
        others = unseen(self.base, prompts)
        return np.hstack([others, self.head.predict(_features(others))])

    def state(self) -> Saved:
        """The state to save; `from_state` restores it."""
        arrays = {"weights": self.head.weights, "intercept": self.head.intercept}
        return Saved("extended", {"newcomer": self.newcomer}, arrays, parts={"base": self.base.state()})

    @classmethod
    def from_state(cls, saved: Saved, *, embedder: Embedder | None = None) -> Extended:
        """The estimator whose `state` is `saved`; `embedder` as in `saved.load_estimator`."""
        state = saved.of_kind("extended")
        head = Ridge(state.arrays["weights"], state.arrays["intercept"])
        return cls(
            estimator_of(state.parts["base"], embedder=embedder), str(state.settings["newcomer"]), head
        )

    def save(self, folder: Path | str) -> Path:
        """Write the estimator to `folder`, atomically; an estimator already there is replaced."""
        return write(folder, self.state())


def _features(others: Matrix) -> Matrix:
    """Mean estimate over specialists (scaled up, so hardly penalised), and each estimate minus that mean."""
    common = others.mean(axis=1, keepdims=True)
    return np.hstack([4.0 * common, others - common])

"""A fitted estimator with a new specialist, without refitting the others.

`Extended`: from a few dozen scored prompts. The newcomer's estimate is a ridge regression of its rewards on
the estimates for the other specialists: these say how hard the prompt is, and which specialists the newcomer
resembles. The penalty is chosen by cross-validation on the scored prompts; the largest one in the grid makes
the estimate nearly constant.

`Unscored`: from nothing but its fee. The linear model (`estimators.pooled`) takes it for one of its
colleagues until answers of it are rated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.errors import UsageError
from pandora_router.estimators.embedders.embedder import Embedder
from pandora_router.estimators.estimator import Predictor, PromptsOnly, unseen
from pandora_router.estimators.linear import Ridge, fit_ridge, grouped_folds
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.estimators.pooled import Blended, Pooled
from pandora_router.estimators.rewards import checked_reward
from pandora_router.estimators.states import Saved, estimator_of, write
from pandora_router.types import Contexts, Matrix

COMMON = 4.0
"""The mean estimate over specialists is scaled up by this, so that it is hardly penalised."""
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

    @classmethod
    def like_colleagues(cls, base: Predictor, newcomer: str, above: float) -> Extended:
        """The newcomer's estimate is the mean of the others' plus `above`: nothing is known of it."""
        weights = np.zeros((len(base.specialists) + 1, 1))
        weights[0] = 1.0 / COMMON
        return cls(base, newcomer, Ridge(weights, np.array([above])))

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


@dataclass(frozen=True)
class Unscored(PromptsOnly):
    """The estimator `base` with `newcomers`, which had no score of any known prompt when they joined.

    linear: the linear model of all specialists, the newcomers last. It alone estimates these.
    """

    base: Neighbours | Blended
    newcomers: tuple[str, ...]
    linear: Pooled

    @classmethod
    def of(cls, cheap: Predictor, newcomer: str, above: float) -> Unscored:
        """`cheap` with one newcomer more, whose mean reward is that of the others plus `above`.

        Raises `UsageError` if the estimates do not come from neighbours, or if these know too little.
        """
        known = neighbours_of(cheap)
        if known is None or not isinstance(cheap, Neighbours | Blended | Unscored):
            raise strange(cheap)
        base, earlier = (cheap.base, cheap.newcomers) if isinstance(cheap, Unscored) else (cheap, ())
        linear = Pooled.of(known) if isinstance(cheap, Neighbours) else cheap.linear
        return cls(base, (*earlier, newcomer), linear.joined(float(linear.level.mean()) + above))

    @property
    def embedder(self) -> Embedder:
        """That of the base."""
        return self.base.embedder

    @property
    def specialists(self) -> tuple[str, ...]:
        """The specialists of the base, then the newcomers."""
        return (*self.base.specialists, *self.newcomers)

    def predict(self, prompts: Sequence[str], contexts: Contexts | None = None) -> Matrix:
        """Estimated rewards (prompts, specialists); `contexts` is ignored."""
        return np.hstack([self.base.predict(prompts), self.expected(prompts)])

    def predict_unseen(self, prompts: Sequence[str]) -> Matrix:
        """As `predict`, but prompts known to the base are predicted as if they were new to it."""
        return np.hstack([self.base.predict_unseen(prompts), self.expected(prompts)])

    def expected(self, prompts: Sequence[str]) -> Matrix:
        """Estimated rewards (prompts, newcomers) of the newcomers alone."""
        known = neighbours_of(self)
        assert known is not None
        units = known.units(self.embedder.embed(prompts))
        return self.linear.predict(units)[:, -len(self.newcomers) :]

    def state(self) -> Saved:
        """The state to save; `from_state` restores it."""
        parts = {"base": self.base.state(), "linear": self.linear.state()}
        return Saved("unscored", {"newcomers": list(self.newcomers)}, {}, parts=parts)

    @classmethod
    def from_state(cls, saved: Saved, *, embedder: Embedder | None = None) -> Unscored:
        """What `state` returned; `embedder` only if it was a callable or remote."""
        state = saved.of_kind("unscored")
        base = estimator_of(state.parts["base"], embedder=embedder)
        if not isinstance(base, Neighbours | Blended):
            raise strange(base)
        return cls(base, tuple(state.settings["newcomers"]), Pooled.from_state(state.parts["linear"]))

    def save(self, folder: Path | str) -> Path:
        """Write the estimator to `folder`, atomically; an estimator already there is replaced."""
        return write(folder, self.state())


def neighbours_of(cheap: object) -> Neighbours | None:
    """The neighbours of the fit in a cheap estimate; None if it is not made of neighbours."""
    base = cheap.base if isinstance(cheap, Unscored) else cheap
    before = base.fitted if isinstance(base, Blended) else base
    return before if isinstance(before, Neighbours) else None


def strange(cheap: object) -> UsageError:
    """Why a router with this cheap estimate cannot learn from a log."""
    return UsageError(
        "learning from a log",
        expected="a router whose cheap estimate is made of neighbours",
        came=type(cheap).__name__,
        do="Leave fit.cheap out and fit again.",
    )


def _features(others: Matrix) -> Matrix:
    """Mean estimate over specialists (scaled up, so hardly penalised), and each estimate minus that mean."""
    common = others.mean(axis=1, keepdims=True)
    return np.hstack([COMMON * common, others - common])

"""A costly estimate g that is a weighted average of others: the boosted stack and the fine-tuned transformer.

Each part was fitted with out-of-fold predictions of its training prompts. The weights are non-negative and
minimise the squared error of these predictions, pooled over all specialists:

    g(x) = mean + sum_k w_k (g_k(x) - mean)

where `mean` is each specialist's mean training reward. Weights that sum to less than 1 shrink g towards it.
Measured by `python -m benchmarks.blend`; not part of the package, because it gained no reward
(docs/decisions/0530-deleted-what-measured-zero.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pandora_router.data import Table
from pandora_router.errors import UsageError
from pandora_router.estimators.estimator import Predictor
from pandora_router.estimators.linear import grouped_folds
from pandora_router.estimators.rewards import blend_weights, filled_mean
from pandora_router.estimators.states import Saved
from pandora_router.router import StackRecipe, TransformerRecipe
from pandora_router.types import Advance, Contexts, Matrix, Vector


@dataclass(frozen=True)
class Blend:
    """A fitted blend of `parts` with `weights` (parts,); `out_of_fold` (N, M) are the blend's predictions."""

    parts: tuple[Predictor, ...]
    weights: Vector
    mean: Vector
    out_of_fold: Matrix = field(repr=False)

    @classmethod
    def fit(cls, parts: Sequence[Predictor], outside: Sequence[Matrix], reward: Matrix) -> Blend:
        """Fit the weights on out-of-fold predictions `outside`, one (N, M) per part, of `reward` (N, M).

        Cells without a reward or without a prediction of some part are left out. Raises `UsageError` if
        the parts do not predict the same specialists.
        """
        columns = {part.specialists for part in parts}
        if len(columns) != 1:
            raise UsageError(
                "parts of a blend",
                expected="predictors of the same specialists in the same order",
                came=f"{len(columns)} different lists",
                do="Fit all parts on the same table.",
            )
        mean = filled_mean(reward)
        weights = blend_weights(outside, reward, mean)
        mixed = mean + np.tensordot(weights, np.asarray(outside) - mean, axes=1)
        return cls(tuple(parts), weights, mean, mixed)

    @property
    def specialists(self) -> tuple[str, ...]:
        """Names of the columns of `predict`."""
        return self.parts[0].specialists

    @property
    def needs(self) -> frozenset[str]:
        """The specialists whose context some part needs."""
        return frozenset().union(*(part.needs for part in self.parts))

    @property
    def together(self) -> bool:
        """True if one purchase shows all specialists, which holds if it does for every part."""
        return all(part.together for part in self.parts)

    def predict(self, prompts: Sequence[str], contexts: Contexts | None = None) -> Matrix:
        """Estimated rewards (prompts, specialists); all parts read the same prompts and contexts."""
        blended = self.mean + np.zeros((len(prompts), len(self.specialists)))
        for weight, part in zip(self.weights, self.parts, strict=True):
            if weight > 0.0:
                blended += weight * (part.predict(prompts, contexts) - self.mean)
        return blended

    def state(self) -> Saved:
        """The weights and the states of all parts."""
        arrays = {"weights": self.weights, "mean": self.mean, "out_of_fold": self.out_of_fold}
        parts = {f"part{i}": part.state() for i, part in enumerate(self.parts)}
        return Saved("blend", {"parts": len(parts)}, arrays, parts=parts)


@dataclass(frozen=True)
class BlendRecipe:
    """The boosted stack and the fine-tuned transformer, weighted by their out-of-fold squared errors.

    One transformer is fitted for each of `folds` folds of the training prompts, and their mean is used, so a
    fit takes `folds` - 1 times as long as `TransformerRecipe` (extra `[transformer]`). `stack` and
    `transformer` should read the same contexts: give both the same `peek`.
    """

    stack: StackRecipe
    transformer: TransformerRecipe
    folds: int = 3

    def fit(self, train: Table, say: Advance, work: Path | None = None) -> Blend:
        """Fit both and compute their weights."""
        grown = self.stack.fit(train, lambda what, share: say(what, 0.1 * share), work)
        folds = grouped_folds(train.prompts, self.folds, self.transformer.seed)
        tuned, outside = self.transformer.cross_fit(
            train, folds, lambda what, share: say(what, 0.1 + 0.9 * share), work
        )
        return Blend.fit((grown, tuned), (grown.out_of_fold, outside), train.reward)

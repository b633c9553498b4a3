"""A costly estimate g that is a weighted average of others: the boosted stack and the fine-tuned transformer.

Each part was fitted with out-of-fold predictions of its training prompts. The weights are non-negative and
minimise the squared error of these predictions, pooled over all specialists:

    g(x) = mean + sum_k w_k (g_k(x) - mean)

where `mean` is each specialist's mean training reward. Weights that sum to less than 1 shrink g towards it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pandora_router.errors import UsageError
from pandora_router.estimators.embedders.embedder import Embedder
from pandora_router.estimators.estimator import Predictor
from pandora_router.estimators.rewards import blend_weights, filled_mean
from pandora_router.estimators.saved import Saved, estimator_of, read, write
from pandora_router.types import Contexts, Matrix, Vector


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
        """The state to save; `from_state` restores it."""
        arrays = {"weights": self.weights, "mean": self.mean, "out_of_fold": self.out_of_fold}
        parts = {f"part{i}": part.state() for i, part in enumerate(self.parts)}
        return Saved("blend", {"parts": len(parts)}, arrays, parts=parts)

    @classmethod
    def from_state(cls, saved: Saved, *, embedder: Embedder | None = None) -> Blend:
        """The blend whose `state` is `saved`; `embedder` only if a part was fitted with a callable one."""
        count, arrays = saved.of_kind("blend").settings["parts"], saved.arrays
        parts = tuple(estimator_of(saved.parts[f"part{i}"], embedder=embedder) for i in range(count))
        return cls(parts, arrays["weights"], arrays["mean"], arrays["out_of_fold"])

    def save(self, folder: Path | str) -> Path:
        """Write the blend to `folder`, atomically; an estimator already there is replaced."""
        return write(folder, self.state())

    @classmethod
    def load(cls, folder: Path | str, *, embedder: Embedder | None = None) -> Blend:
        """Read an estimator written by `save`; `UsageError` if the folder is damaged or of another kind."""
        return cls.from_state(read(folder), embedder=embedder)

"""A costly estimate g that blends others: the boosted stack and the fine-tuned transformer.

Each part is a predictor that was fitted with out-of-fold predictions of its training prompts. The weights are
non-negative and minimise the squared error of those, pooled over all specialists:

    g(x) = mean + sum_k w_k (g_k(x) - mean)

with `mean` each specialist's mean training reward, so that weights that sum to less than 1 shrink to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pandora_router.errors import UsageError
from pandora_router.estimators.embedders.embedder import Embedder
from pandora_router.estimators.estimator import Predictor
from pandora_router.estimators.rewards import filled_mean
from pandora_router.estimators.saved import Saved, estimator_of, read, write
from pandora_router.types import Contexts, Matrix, Vector


@dataclass(frozen=True)
class Blend:
    """A fitted blend of `parts` with `weights` (parts,); `out_of_fold` (N, M) are those of the blend."""

    parts: tuple[Predictor, ...]
    weights: Vector
    mean: Vector
    out_of_fold: Matrix = field(repr=False)

    @classmethod
    def fit(cls, parts: Sequence[Predictor], outside: Sequence[Matrix], reward: Matrix) -> Blend:
        """Weigh fitted parts by their out-of-fold predictions `outside`, each (N, M), of `reward` (N, M).

        Cells without a reward or without a prediction of some part count for nothing. Raises `UsageError` if
        the parts do not predict the same specialists.
        """
        from scipy.optimize import nnls  # half a second to import, and only a fit needs it

        columns = {part.specialists for part in parts}
        if len(columns) != 1:
            raise UsageError(
                "parts of a blend",
                expected="predictors of the same specialists in the same order",
                came=f"{len(columns)} different lists",
                do="Fit all parts on the same table.",
            )
        mean = filled_mean(reward)
        there = np.isfinite(reward) & np.isfinite(outside).all(axis=0)
        design = np.column_stack([(part - mean)[there] for part in outside])
        turned, small = np.linalg.qr(design)  # the same least squares with as many rows as parts
        weights, _ = nnls(small, turned.T @ (reward - mean)[there])
        mixed = mean + np.tensordot(weights, np.asarray(outside) - mean, axes=1)
        return cls(tuple(parts), np.asarray(weights, dtype=np.float64), mean, mixed)

    @property
    def specialists(self) -> tuple[str, ...]:
        """Columns of `predict`, by name."""
        return self.parts[0].specialists

    @property
    def needs(self) -> frozenset[str]:
        """The specialists whose contexts some part read in training."""
        return frozenset().union(*(part.needs for part in self.parts))

    @property
    def together(self) -> bool:
        """Whether one purchase shows all specialists: only if it does so for every part."""
        return all(part.together for part in self.parts)

    def predict(self, prompts: Sequence[str], contexts: Contexts | None = None) -> Matrix:
        """Estimated rewards (prompts, specialists); every part sees the same prompts and contexts."""
        blended = self.mean + np.zeros((len(prompts), len(self.specialists)))
        for weight, part in zip(self.weights, self.parts, strict=True):
            if weight > 0.0:
                blended += weight * (part.predict(prompts, contexts) - self.mean)
        return blended

    def state(self) -> Saved:
        """What is written to disk."""
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
        """Write the blend to a folder, atomically."""
        return write(folder, self.state())

    @classmethod
    def load(cls, folder: Path | str, *, embedder: Embedder | None = None) -> Blend:
        """Read what `save` wrote."""
        return cls.from_state(read(folder), embedder=embedder)

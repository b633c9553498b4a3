"""Laws of movement for tests: that of a joint normal, and a made-up one that depends on everything."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pandora_router.boxes import Joint


def standard_outcomes(count: int) -> np.ndarray:
    """Equally likely outcomes of mean 0 and variance 1."""
    z = np.sort(np.random.default_rng(5).standard_normal(count))
    z -= z.mean()
    return z / z.std()


@dataclass(frozen=True, eq=False)
class JointMovement:
    """How the means of a joint normal move, with `count` equally likely steps in place of the normal law."""

    covariance: np.ndarray
    count: int = 16
    known: dict[bytes, np.ndarray] = field(default_factory=dict)

    def steps(self, opened: np.ndarray, mean: np.ndarray, box: int) -> np.ndarray:
        """Equally likely steps along the column of the covariance given what is open."""
        return np.stack([self._steps(row, box) for row in opened])

    def _steps(self, row: np.ndarray, box: int) -> np.ndarray:
        key = row.tobytes() + bytes([box])
        if key not in self.known:
            boxes = Joint(np.zeros(len(row)), self.covariance, 0.01)
            for j in np.flatnonzero(row):
                boxes = boxes.given(int(j), 0.0)
            std = boxes.std[box]
            direction = boxes.column(box) / std if std > 0.0 else np.zeros(len(row))
            self.known[key] = standard_outcomes(self.count)[:, None] * direction
        return self.known[key]

    def only(self, boxes: np.ndarray) -> JointMovement:
        """The law of some of the boxes."""
        return JointMovement(self.covariance[np.ix_(boxes, boxes)], self.count)


@dataclass(frozen=True, eq=False)
class MadeUpMovement:
    """Steps that depend on the box, on what is open and on its present mean, drawn from a seed."""

    boxes: int
    seed: int = 0
    count: int = 8
    known: dict[bytes, np.ndarray] = field(default_factory=dict)

    def steps(self, opened: np.ndarray, mean: np.ndarray, box: int) -> np.ndarray:
        """Drawn steps, larger or smaller with the mean of the box that is opened."""
        size = 0.5 + np.abs(np.sin(5.0 * mean[:, box]))
        return size[:, None, None] * np.stack([self._base(row, box) for row in opened])

    def _base(self, row: np.ndarray, box: int) -> np.ndarray:
        key = row.tobytes() + bytes([box])
        if key not in self.known:
            rng = np.random.default_rng([self.seed, box, *row.astype(int)])
            base = rng.normal(0.0, 0.15, (self.count, self.boxes))
            self.known[key] = base - base.mean(axis=0)
        return self.known[key]

    def only(self, boxes: np.ndarray) -> MadeUpMovement:
        """Not a law of the same boxes: tests that leave boxes out use the fitted law."""
        raise NotImplementedError

"""One ensemble of gradient-boosted trees per fold, over all (prompt, specialist) pairs (LightGBM).

Each fold is saved when it is finished, so that an interrupted fit resumes with the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pandora_router.estimators.stack.ensemble import Ensemble
from pandora_router.estimators.states import Stages
from pandora_router.types import Advance, Mask, Matrix, Positions

SPECIALIST = 0
BLIND_SHARE = 0.2
Pairs = NDArray[np.float32]


@dataclass(frozen=True)
class Trees:
    """Parameters of the trees. `smallest`: fewest pairs in a leaf (lower if there are few pairs)."""

    rounds: int = 600
    patience: int = 40
    rate: float = 0.05
    leaves: int = 15
    smallest: int = 200
    features: float = 0.5
    rows: float = 0.5
    penalty: float = 10.0
    folds: int = 5
    threads: int = 1

    def parameters(self, pairs: int, seed: int) -> dict[str, Any]:
        """The parameters under LightGBM's names, for training."""
        return {
            "objective": "l2",
            "learning_rate": self.rate,
            "num_leaves": self.leaves,
            "min_data_in_leaf": max(2, min(self.smallest, pairs // 16)),
            "feature_fraction": self.features,
            "bagging_fraction": self.rows,
            "bagging_freq": 1,
            "lambda_l2": self.penalty,
            "max_bin": 63,
            "num_threads": self.threads,
            "seed": seed,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }


def grow(
    table: Pairs,
    reward: Matrix,
    folds: Positions,
    trees: Trees,
    seed: int,
    say: Advance,
    blind: int | None,
    stages: Stages = Stages(),  # noqa: B008 (frozen)
) -> tuple[tuple[Ensemble, ...], Matrix]:
    """One ensemble per fold, stopped early on that fold; and every pair predicted by the ensemble without it.

    With a peek, some of the pairs are used a second time with the last `blind` columns (everything from
    contexts) missing, so that the trees can also predict specialists that were not looked at.
    """
    target, pair_folds = reward.ravel(), np.repeat(folds, reward.shape[1])
    present = np.isfinite(target)
    outside = np.zeros(len(target))
    boosters = []
    count = int(folds.max()) + 1
    for k in range(count):
        say("growing trees", 0.4 + 0.6 * k / count)
        learn, watch = present & (pair_folds != k), present & (pair_folds == k)
        if not learn.any() or not watch.any():
            continue
        stage = stages.get(f"trees-{k}")
        if stage is None:
            grown = _grown(table, target, learn, watch, trees, seed + k, blind)
            stages.put(f"trees-{k}", grown.state())
        else:
            grown = Ensemble.from_state(stage)
        boosters.append(grown)
        outside[pair_folds == k] = grown.predict(table[pair_folds == k])
    return tuple(boosters), outside.reshape(reward.shape)


def _grown(
    table: Pairs,
    target: Matrix,
    learn: Mask,
    watch: Mask,
    trees: Trees,
    seed: int,
    blind: int | None,
) -> Ensemble:
    """One ensemble, truncated where the error on the pairs in `watch` was lowest."""
    import lightgbm

    parameters = trees.parameters(int(learn.sum()), seed)
    shown, wanted = table[learn], target[learn]
    if blind is not None:
        again = np.random.default_rng(seed).random(len(shown)) < BLIND_SHARE
        unseen = shown[again]
        unseen[:, -blind:] = np.nan
        shown, wanted = np.vstack([shown, unseen]), np.concatenate([wanted, wanted[again]])
    data = lightgbm.Dataset(shown, wanted, categorical_feature=[SPECIALIST], params=dict(parameters))
    kept = lightgbm.Dataset(table[watch], target[watch], reference=data, params=dict(parameters))
    stop = lightgbm.early_stopping(trees.patience, verbose=False)
    booster = lightgbm.train(parameters, data, trees.rounds, valid_sets=[kept], callbacks=[stop])
    return Ensemble.of(booster)

"""The default costly estimate g: gradient-boosted trees stacked on what is known of a prompt. No torch.

One LightGBM ensemble (Ke et al. 2017) over all (prompt, specialist) pairs: features are those of
`evidence` (surface, directions, ridge and neighbour predictions made without the pair's own reward), the
specialist itself and, with a `Peek`, what the specialist has begun to say. Squared loss. One ensemble is
grown per fold and stopped early on that fold; their mean is the prediction, and each pair's prediction by
the ensemble that never saw its prompt is kept in `out_of_fold` for whoever calibrates. A non-negative blend
with the ridge and neighbour predictions, fitted on the same out-of-fold predictions, guards small data.

One call predicts all specialists, so its price is per prompt; with a peek it is per peeked specialist.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls

from pandora_router.errors import UsageError
from pandora_router.estimators.embedders import Embedder, checked_texts
from pandora_router.estimators.evidence import Layer, PromptEvidence
from pandora_router.estimators.heads import Folds, grouped_folds
from pandora_router.estimators.peek import ContextEvidence, Peek
from pandora_router.estimators.persistence import Saved, read, write
from pandora_router.estimators.rewards import Contexts, Matrix, checked_contexts, checked_reward

SPECIALIST = 0
BLIND_SHARE = 0.2
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Trees:
    """How trees are grown. `smallest` is the least number of pairs in a leaf (less when data are few)."""

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
        """The same in LightGBM's words."""
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


@dataclass(frozen=True)
class Boosted:
    """A fitted stack. `blend` weighs trees, ridge and neighbours, each as a difference to the mean reward."""

    specialists: tuple[str, ...]
    evidence: PromptEvidence
    contexts: ContextEvidence | None
    boosters: tuple[lightgbm.Booster, ...] = field(repr=False)
    blend: Matrix
    out_of_fold: Matrix = field(repr=False)

    @classmethod
    def fit(
        cls,
        prompts: Sequence[str],
        reward: ArrayLike,
        specialists: Sequence[str],
        *,
        contexts: Contexts | None = None,
        peek: Peek | None = None,
        embedder: Embedder | None = None,
        trees: Trees = Trees(),  # noqa: B008 (frozen)
        seed: int = 0,
        progress: Progress | None = None,
    ) -> Boosted:
        """Fits on rewards (prompts, specialists), NaN where missing; with a peek, on contexts as well.

        Identical prompts share a fold. `progress(what, share done)` is called between the steps.
        """
        say = progress or (lambda what, done: None)
        matrix = checked_reward(reward, len(prompts), specialists)
        checked = checked_contexts(contexts, matrix.shape) if peek is not None else None
        if peek is not None and checked is None:
            raise UsageError(
                "contexts", expected="contexts for a peek", came="none", do="Pass contexts, or peek=None."
            )
        folds = grouped_folds(checked_texts(prompts), trees.folds, seed)
        say("embedding prompts", 0.0)
        evidence, layer = PromptEvidence.fit(prompts, matrix, specialists, folds, embedder)
        seen, columns = None, None
        if peek is not None and checked is not None:
            say("reading contexts", 0.2)
            left = matrix - layer.ridge
            mean = evidence.neighbours.mean
            seen, columns = ContextEvidence.fit(peek, prompts, checked, left, mean, folds, embedder)
        blind = None if columns is None else columns.shape[2]
        boosters, outside = _grow(_table(layer, columns), matrix, folds, trees, seed, say, blind)
        blend = _blend(outside, layer, matrix, evidence.neighbours.mean)
        mixed = _mix(blend, outside, layer, evidence.neighbours.mean)
        return cls(tuple(specialists), evidence, seen, boosters, blend, mixed)

    def predict(self, prompts: Sequence[str], contexts: Contexts | None = None) -> Matrix:
        """Estimated rewards (prompts, specialists).

        A stack fitted with a peek also takes contexts of that shape; None cells (or no contexts at all) mean
        that nothing was seen of that specialist, and the prompt alone decides.
        """
        layer = self.evidence.layer(prompts)
        columns = None
        if self.contexts is not None:
            shape = (len(prompts), len(self.specialists))
            given = contexts if contexts is not None else np.full(shape, None, dtype=object)
            checked = checked_contexts(given, shape)
            columns = None if checked is None else self.contexts.columns(prompts, checked)
        table = _table(layer, columns)
        grown = np.mean([_predicted(booster, table) for booster in self.boosters], axis=0)
        return _mix(self.blend, grown.reshape(layer.ridge.shape), layer, self.evidence.neighbours.mean)

    def state(self) -> Saved:
        """What is written to disk."""
        texts = {f"trees{i}": booster.model_to_string() for i, booster in enumerate(self.boosters)}
        parts = {"evidence": self.evidence.state()}
        if self.contexts is not None:
            parts["contexts"] = self.contexts.state()
        arrays: dict[str, NDArray[Any]] = {"blend": self.blend, "out_of_fold": self.out_of_fold}
        settings = {"specialists": list(self.specialists), "trees": len(self.boosters)}
        return Saved("boosted", settings, arrays, texts, parts)

    @classmethod
    def from_state(cls, saved: Saved, *, embedder: Embedder | None = None) -> Boosted:
        """The estimator that `state` described; `embedder` is needed only if it was a callable or remote."""
        settings, parts = saved.of_kind("boosted").settings, saved.parts
        seen = parts.get("contexts")
        texts = [saved.texts[f"trees{i}"] for i in range(settings["trees"])]
        return cls(
            tuple(settings["specialists"]),
            PromptEvidence.from_state(parts["evidence"], embedder=embedder),
            None if seen is None else ContextEvidence.from_state(seen, embedder=embedder),
            tuple(lightgbm.Booster(model_str=text) for text in texts),
            saved.arrays["blend"],
            saved.arrays["out_of_fold"],
        )

    def save(self, folder: Path | str) -> Path:
        """Writes the estimator to a folder, whole or not at all."""
        return write(folder, self.state())

    @classmethod
    def load(cls, folder: Path | str, *, embedder: Embedder | None = None) -> Boosted:
        """Reads what `save` wrote."""
        return cls.from_state(read(folder), embedder=embedder)


def _table(layer: Layer, columns: Matrix | None) -> NDArray[np.float32]:
    """One row per (prompt, specialist) pair: the specialist's number, its features, the shared ones."""
    prompts, specialists = layer.ridge.shape
    blocks = [
        np.tile(np.arange(specialists), prompts)[:, None],
        layer.own.reshape(prompts * specialists, -1),
        np.repeat(layer.shared, specialists, axis=0),
    ]
    if columns is not None:
        blocks.append(columns.reshape(prompts * specialists, -1))
    return np.hstack([block.astype(np.float32) for block in blocks])


def _grow(
    table: NDArray[np.float32],
    reward: Matrix,
    folds: Folds,
    trees: Trees,
    seed: int,
    say: Progress,
    blind: int | None,
) -> tuple[tuple[lightgbm.Booster, ...], Matrix]:
    """One ensemble per fold, stopped early on it; and every pair as seen by the one that left it out.

    With a peek, a part of the pairs is shown a second time with the last `blind` columns (all that comes from
    contexts) missing, so that the trees also know what to say of a specialist nobody has looked at.
    """
    target, pair_folds = reward.ravel(), np.repeat(folds, reward.shape[1])
    there = np.isfinite(target)
    outside = np.zeros(len(target))
    boosters = []
    count = int(folds.max()) + 1
    for k in range(count):
        say("growing trees", 0.4 + 0.6 * k / count)
        learn, watch = there & (pair_folds != k), there & (pair_folds == k)
        if not learn.any() or not watch.any():
            continue
        parameters = trees.parameters(int(learn.sum()), seed + k)
        shown, wanted = table[learn], target[learn]
        if blind is not None:
            again = np.random.default_rng(seed + k).random(len(shown)) < BLIND_SHARE
            unseen = shown[again]
            unseen[:, -blind:] = np.nan
            shown, wanted = np.vstack([shown, unseen]), np.concatenate([wanted, wanted[again]])
        data = lightgbm.Dataset(shown, wanted, categorical_feature=[SPECIALIST], params=dict(parameters))
        kept = lightgbm.Dataset(table[watch], target[watch], reference=data, params=dict(parameters))
        stop = lightgbm.early_stopping(trees.patience, verbose=False)
        booster = lightgbm.train(parameters, data, trees.rounds, valid_sets=[kept], callbacks=[stop])
        booster = lightgbm.Booster(model_str=booster.model_to_string(num_iteration=booster.best_iteration))
        boosters.append(booster)
        outside[pair_folds == k] = _predicted(booster, table[pair_folds == k])
    return tuple(boosters), outside.reshape(reward.shape)


def _predicted(booster: lightgbm.Booster, table: NDArray[np.float32]) -> Matrix:
    return np.asarray(booster.predict(table, num_threads=1), dtype=np.float64)


def _blend(outside: Matrix, layer: Layer, reward: Matrix, mean: Matrix) -> Matrix:
    """Non-negative weights of trees, ridge and far neighbours that best explain reward minus its mean."""
    there = np.isfinite(reward)
    parts = np.column_stack([(part - mean)[there] for part in (outside, layer.ridge, layer.far)])
    weights, _ = nnls(parts.T @ parts, parts.T @ (reward - mean)[there])
    return np.asarray(weights, dtype=np.float64)


def _mix(blend: Matrix, grown: Matrix, layer: Layer, mean: Matrix) -> Matrix:
    parts = (grown, layer.ridge, layer.far)
    mixed: Matrix = mean + sum(weight * (part - mean) for weight, part in zip(blend, parts, strict=True))
    return mixed

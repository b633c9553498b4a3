"""Gradient-boosted trees: grown by LightGBM, kept and summed as arrays.

Gradient-boosted regression trees as arrays: checked when made, summed by compiled code or by numpy.

LightGBM grows the trees and is not needed again. It takes a second to import, needs the OpenMP threads of the
process, which a forked child does not have, and ends the process when a model is not what it expects. So an
`Ensemble` keeps the trees as arrays, checks that they are trees, and sums them itself, in the order and by
the rules of LightGBM: all three agree bit for bit.

One ensemble of gradient-boosted trees per fold, over all (prompt, specialist) pairs (LightGBM).

Each fold is saved when it is finished, so that an interrupted fit resumes with the next one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pandora_router.estimators.states import Stages
from pandora_router.folders.saved import Saved
from pandora_router.search import kernels
from pandora_router.types import Advance, Mask, Matrix, Positions, Vector

if TYPE_CHECKING:
    import lightgbm


Integers = NDArray[np.int32]
CATEGORICAL, LEFT_IF_MISSING = 1, 2  # bits of `decision`; the next two say what counts as missing
MISSING_ZERO, MISSING_NAN = 1, 2
ZERO = 1e-35  # LightGBM's: nearer to zero is zero
NODES = ("feature", "threshold", "decision", "left", "right")
LEFT_OUT = 2  # the largest code of what counts as missing: none, zero, NaN
MOST_FEATURES = 2**20
BLOCK = 2**18  # rows x trees that are summed together


@dataclass(frozen=True, eq=False)
class Ensemble:
    """The sum of regression trees over rows of `features` numbers.

    `leaves` (T,) has the number of leaves of each tree; a tree of L leaves has L - 1 nodes. All other arrays
    hold the trees one after the other. A node has the `feature` it tests, a `threshold` (or the number of its
    set of categories), the `decision` bits, and its children `left` and `right`: the number of a later node
    of the same tree, or -1 - k for leaf k. `value` has the leaf values. `sets` (T,) has the number of
    category sets of each tree; set i of a tree is the bit mask in words `bounds[i]` to `bounds[i + 1]` of its
    `words`.

    Raises `ValueError` if the arrays are not valid trees.
    """

    features: int
    leaves: Integers
    feature: Integers = field(repr=False)
    threshold: Vector = field(repr=False)
    decision: Integers = field(repr=False)
    left: Integers = field(repr=False)
    right: Integers = field(repr=False)
    value: Vector = field(repr=False)
    sets: Integers = field(repr=False)
    bounds: Integers = field(repr=False)
    words: NDArray[np.uint32] = field(repr=False)

    def __post_init__(self) -> None:
        _check_counts(self)
        _check_nodes(self)
        _check_sets(self)

    @classmethod
    def of(cls, model: lightgbm.Booster) -> Ensemble:
        """The trees of a fitted booster, up to its best iteration if it was stopped early."""
        text = model.model_to_string(num_iteration=model.best_iteration or -1)
        head, *blocks = text.partition("\nend of trees\n")[0].split("\nTree=")
        trees = [dict(line.partition("=")[::2] for line in block.splitlines()[1:]) for block in blocks]

        def all_of(key: str, kind: type[np.generic]) -> NDArray[Any]:
            return np.array([word for tree in trees for word in tree.get(key, "").split()], dtype=kind)

        features = next(line for line in head.splitlines() if line.startswith("max_feature_idx="))
        return cls(
            int(features.partition("=")[2]) + 1,
            all_of("num_leaves", np.int32),
            all_of("split_feature", np.int32),
            all_of("threshold", np.float64),
            all_of("decision_type", np.int32),
            all_of("left_child", np.int32),
            all_of("right_child", np.int32),
            all_of("leaf_value", np.float64),
            all_of("num_cat", np.int32),
            all_of("cat_boundaries", np.int32),
            all_of("cat_threshold", np.uint32),
        )

    def predict(self, rows: NDArray[Any]) -> Vector:
        """The sum over trees for each row (N, features); NaN is a missing number."""
        _need(rows.ndim == 2 and rows.shape[1] == self.features, "rows of another width")
        compiled = kernels.ready()
        if compiled is None:
            return self.plain_predict(rows)
        sums = np.empty(len(rows))
        compiled.tree_sums(np.array(rows, dtype=np.float64, order="C"), *self._flat, sums)
        return sums

    def plain_predict(self, rows: NDArray[Any]) -> Vector:
        """As `predict`, by numpy: all trees of a block of rows go down one level at a time."""
        height = max(BLOCK // len(self.leaves), 1)
        blocks = [self._sums(rows[lo : lo + height].astype(np.float64)) for lo in range(0, len(rows), height)]
        return np.concatenate(blocks) if blocks else np.empty(0)

    def _sums(self, table: Vector) -> Vector:
        starts, nodes, thresholds, children, values, _, _ = self._flat
        at = np.tile(np.where(self.leaves > 1, 0, -1), (len(table), 1))  # node, or -1 - leaf: (rows, trees)
        while (at >= 0).any():
            row, tree = np.nonzero(at >= 0)
            node = starts[tree, 0] + at[row, tree]
            value, bits = table[row, nodes[node, 0]], nodes[node, 1]
            left = _goes_left(value, bits, thresholds[node])
            for k in np.flatnonzero(bits & CATEGORICAL):
                left[k] = self._in_set(value[k], thresholds[node[k]], tree[k])
            at[row, tree] = np.where(left, children[node, 0], children[node, 1])
        return np.cumsum(values[starts[:, 1] - 1 - at], axis=1)[:, -1]  # in the order of the trees

    def _in_set(self, value: float, number: float, tree: int) -> bool:
        """Whether category `value` is in set `number` of a tree; NaN and negatives are in none."""
        starts, _, _, _, _, bounds, words = self._flat
        if not value > -1.0:
            return False
        low, high = bounds[starts[tree, 2] + int(number) :][:2].tolist()
        word, bit = divmod(int(value), 32)
        return word < high - low and bool(int(words[starts[tree, 3] + low + word]) >> bit & 1)

    @functools.cached_property
    def _flat(self) -> tuple[NDArray[Any], ...]:
        """The trees as arguments of `tree_sums`."""
        nodes, bounds = self.leaves - 1, np.array([len(b) for b, _ in self._categories()])
        words = np.array([len(w) for _, w in self._categories()])
        starts = [np.cumsum(sizes) - sizes for sizes in (nodes, self.leaves, bounds, words)]
        return (
            np.column_stack([*starts, self.leaves]).astype(np.int64),
            np.column_stack([self.feature, self.decision]).astype(np.int32),
            np.array(self.threshold),
            np.column_stack([self.left, self.right]).astype(np.int32),
            np.array(self.value),
            np.array(self.bounds),
            np.array(self.words),
        )

    def _categories(self) -> Iterator[tuple[Integers, NDArray[np.uint32]]]:
        """Bounds and words of each tree; empty for a tree without categories."""
        at = start = 0
        for count in self.sets.tolist():
            bounds = self.bounds[at : at + count + 1] if count else self.bounds[:0]
            size = int(bounds[-1]) if count else 0
            yield bounds, self.words[start : start + size]
            at, start = at + len(bounds), start + size

    def state(self) -> Saved:
        """The state to save; `from_state` restores it."""
        arrays = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "features"}
        return Saved("trees", {"features": self.features}, arrays)

    @classmethod
    def from_state(cls, saved: Saved) -> Ensemble:
        """Restore the trees from their `state`; `ValueError` if they are not valid trees."""
        arrays: Mapping[str, Any] = saved.of_kind("trees").arrays
        return cls(features=saved.settings["features"], **arrays)


def _goes_left(value: Vector, bits: Integers, threshold: Vector) -> Mask:
    """Whether numbers go to the left at nodes with these decision bits and thresholds, as in LightGBM."""
    missing_is = bits >> 2
    value = np.where(np.isnan(value) & (missing_is != MISSING_NAN), 0.0, value)
    missing = np.isnan(value) | ((missing_is == MISSING_ZERO) & (np.abs(value) <= ZERO))
    return np.where(missing, (bits & LEFT_IF_MISSING) != 0, value <= threshold)


def _need(holds: bool | np.bool_, what: str) -> None:
    if not holds:
        raise ValueError(f"trees with {what}")


def _check_counts(e: Ensemble) -> None:
    """Check types and lengths of the arrays."""
    for name in ("leaves", "feature", "decision", "left", "right", "sets", "bounds"):
        _need(getattr(e, name).dtype == np.int32 and getattr(e, name).ndim == 1, f"{name} of another type")
    _need(e.threshold.dtype == np.float64 and e.value.dtype == np.float64, "numbers of another type")
    _need(e.words.dtype == np.uint32 and e.words.ndim == 1, "sets of another type")
    _need(type(e.features) is int and 1 <= e.features <= MOST_FEATURES, "a strange number of features")
    trees = len(e.leaves)
    _need(trees > 0 and bool((e.leaves >= 1).all()), "no leaves")
    total = int(e.leaves.sum(dtype=np.int64))
    _need(
        e.value.shape == (total,) and bool(np.isfinite(e.value).all()),
        "values that are missing or not finite",
    )
    _need(all(getattr(e, name).shape == (total - trees,) for name in NODES), "nodes that are missing")
    _need(len(e.sets) == trees and bool((e.sets >= 0).all()), "sets that are missing")


def _check_nodes(e: Ensemble) -> None:
    """Check that each node but the first is the child of one earlier node, and each leaf of one node."""
    sizes = (e.leaves - 1).astype(np.int64)
    tree = np.repeat(np.arange(len(sizes)), sizes)
    number = np.arange(len(tree)) - (np.cumsum(sizes) - sizes)[tree]
    _need(bool(((e.feature >= 0) & (e.feature < e.features)).all()), "a feature that there is not")
    _need(bool(((e.decision >= 0) & (e.decision >> 2 <= LEFT_OUT)).all()), "an unknown kind of decision")
    child = np.concatenate([e.left, e.right]).astype(np.int64)
    twice, at = np.tile(tree, 2), np.tile(number, 2)
    inner = child >= 0
    _need(bool((child[inner] > at[inner]).all()), "a node that leads back")
    _need(bool((child[inner] < sizes[twice[inner]]).all()), "a node that there is not")
    _need(bool((-1 - child[~inner] < e.leaves[twice[~inner]]).all()), "a leaf that there is not")
    met = (np.cumsum(sizes) - sizes)[twice[inner]] + child[inner]
    _need(len(np.unique(met)) == len(met), "two ways to a node")
    fallen = (np.cumsum(e.leaves, dtype=np.int64) - e.leaves)[twice[~inner]] + (-1 - child[~inner])
    _need(len(np.unique(fallen)) == len(fallen), "two ways to a leaf")


def _check_sets(e: Ensemble) -> None:
    """Check that category sets lie within `words` and that nodes refer to existing sets."""
    _need(len(e.bounds) == int((e.sets + (e.sets > 0)).sum()), "bounds that are missing")
    used = 0
    for count, (bounds, _) in zip(e.sets.tolist(), e._categories(), strict=True):
        if count:
            _need(bounds[0] == 0 and bool((np.diff(bounds) > 0).all()), "bounds out of order")
            used += int(bounds[-1])
    _need(used == len(e.words), "sets that are missing")
    asks = (e.decision & CATEGORICAL) > 0
    tree = np.repeat(np.arange(len(e.leaves)), e.leaves - 1)
    wanted = e.threshold[asks]
    _need(
        bool(((wanted >= 0) & (wanted < e.sets[tree[asks]]) & (wanted == np.floor(wanted))).all()),
        "a set that there is not",
    )


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

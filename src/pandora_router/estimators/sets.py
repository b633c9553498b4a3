"""Estimates of all specialists from everything opened so far, for any set of opened specialists.

A first layer estimates each specialist from the prompt and its own beginning (`stack.boosted`). The second
layer, in this module, is trained on random sets of opened specialists. For every specialist, sealed or
opened, it reads the cheap estimates, the first-layer estimates of the opened specialists, how far their
beginnings agree (features of `stack.agreement`, from comparisons of pairs) and `beginnings.NUMBERS`
(log-probabilities, hits of retrieved passages). One LightGBM ensemble per fold, squared loss. Part of the
gain from agreement is that answers may already be visible in the beginnings (docs/method.md, section 9).

A beginning that was opened can be opened further: a judge reads it and says how probable a right answer is.
What is open is therefore held as tiers (N, M): 0 sealed, 1 a look, 2 a look and a verdict. Contexts carry
verdicts on their first line (`specialists.beginning.with_verdict`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from pandora_router.estimators.beginnings import NUMBERS, numbers
from pandora_router.estimators.embedders.embedder import Embedder
from pandora_router.estimators.rewards import checked_contexts
from pandora_router.estimators.saved import Saved
from pandora_router.estimators.stack.agreement import Saying, saying
from pandora_router.estimators.stack.boosted import Boosted
from pandora_router.estimators.stack.ensemble import Ensemble
from pandora_router.estimators.stack.heads import grouped_folds
from pandora_router.estimators.stack.trees import Trees, grow
from pandora_router.specialists.beginning import read_head, split_verdict
from pandora_router.types import Advance, Contexts, Mask, Matrix, Positions, Vector, silent

NEAR, FAR = 15, 50
EVERY = 9  # with up to this many sets, training uses every one
DRAWN = 6  # sets drawn per training prompt if there are more
DIGITS = 5  # of features; beyond, the order of summation matters, and trees must not split on that
WORDS = 3  # kinds of overlap that are compared: numbers, names, words
SAME = 2  # kinds of statements that are equal or not: the last number, the last option letter


@dataclass(frozen=True, eq=False)
class Signs:
    """Features of N prompts if every box were open; `table` selects those of the opened boxes.

    near, far: mean rewards of near training prompts at two sizes (N, M), without the prompt's own reward.
    own: first-layer estimates from the prompt and each specialist's own beginning (N, M).
    same: whether two specialists end in the same number or letter (N, M, M, SAME), NaN where one has none.
    overlap: fraction of a specialist's numbers, names and words that another has too (N, M, M, WORDS).
    read: `NUMBERS` and the length of each beginning (N, M, len(NUMBERS) + 1).
    verdict: a judge's verdict on each beginning (N, M), NaN where there is none.

    `own`, `same`, `overlap` and `read` are NaN where there is no beginning.
    """

    near: Matrix
    far: Matrix
    own: Matrix
    same: Matrix
    overlap: Matrix
    read: Matrix
    verdict: Matrix

    def __len__(self) -> int:
        return len(self.own)

    @property
    def there(self) -> Mask:
        """Mask (N, M) of the beginnings that exist; other boxes cannot be opened."""
        return np.isfinite(self.read[:, :, -1])

    @property
    def reach(self) -> Positions:
        """How often each box can be opened (N, M): 0 without a beginning, 2 with a verdict on it."""
        return self.there.astype(np.intp) * (1 + np.isfinite(self.verdict))

    def rows(self, which: Positions | Mask | slice) -> Signs:
        """The features of some of the prompts."""
        return Signs(*(getattr(self, part.name)[which] for part in fields(self)))

    @classmethod
    def of(
        cls, prompts: Sequence[str], contexts: Contexts, near: Matrix, far: Matrix, own: Matrix, most: int
    ) -> Signs:
        """Features of prompts with beginnings `contexts` (N, M), of which `most` characters are read."""
        shape = near.shape
        same = np.full((*shape, shape[1], SAME), np.nan)
        overlap = np.full((*shape, shape[1], WORDS), np.nan)
        read = np.full((*shape, len(NUMBERS) + 1), np.nan)
        verdict = np.full(shape, np.nan)
        for i, prompt in enumerate(prompts):
            parts = {j: split_verdict(str(text)) for j, text in enumerate(contexts[i]) if text is not None}
            texts = {j: text[:most] for j, (_, text) in parts.items()}
            verdict[i, list(parts)] = [np.nan if said is None else said for said, _ in parts.values()]
            said = saying(prompt, [read_head(text)[1] for text in texts.values()])
            for (j, text), mine in zip(texts.items(), said, strict=True):
                read[i, j] = [*numbers(prompt, text), len(text)]
                for k, other in zip(texts, said, strict=True):
                    same[i, j, k], overlap[i, j, k] = _compared(mine, other)
        own = np.where(np.isfinite(read[:, :, -1]), own, np.nan)
        return cls(near, far, own, same, overlap, read, verdict)


def _compared(first: Saying, second: Saying) -> tuple[list[float], list[float]]:
    same = [
        np.nan if a is None or b is None else float(a == b)
        for a, b in ((first.number, second.number), (first.letter, second.letter))
    ]
    pairs = ((first.numbers, second.numbers), (first.names, second.names), (first.words, second.words))
    return same, [len(a & b) / len(a) if a else np.nan for a, b in pairs]


def table(signs: Signs, tier: Positions, strength: Vector, tiers: int = 1) -> NDArray[np.float32]:
    """Features (N x M, F), one row per prompt and specialist, when boxes were opened `tier` (N, M) times.

    There are columns for verdicts if boxes can be opened more than once (`tiers`).
    """
    prompts, boxes = tier.shape
    opened = (tier > 0) & signs.there
    own = np.where(opened, signs.own, np.nan)
    each = _agreement(signs, opened, np.exp(4.0 * (strength - strength.max())))
    read = np.where(opened[..., None], signs.read, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a mean over nothing is NaN: nothing was seen
        news = np.nanmean(own - signs.far, axis=1)
        overall = [np.nanmean(own, axis=1), np.nanmax(own, axis=1), news, signs.far.mean(axis=1)]
        everybody = [np.nanmean(each, axis=1), np.nanmax(each, axis=1), np.nanmean(read, axis=1)]
    common = np.column_stack([opened.sum(axis=1), *overall, *everybody, own])
    number = np.broadcast_to(np.arange(boxes), (prompts, boxes))
    alone = np.stack([number, signs.near, signs.far, opened, own], axis=2)
    shared = np.broadcast_to(common[:, None, :], (prompts, boxes, common.shape[1]))
    parts = [alone, each, read, shared]
    if tiers > 1:
        parts.append(_verdicts(np.where(tier > 1, signs.verdict, np.nan)))
    rows = np.concatenate(parts, axis=2)
    return np.round(rows, DIGITS).reshape(prompts * boxes, -1).astype(np.float32)


def _verdicts(said: Matrix) -> Matrix:
    """For each specialist the verdict on it, the mean and the highest verdict, and all of them (N, M, F)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of nothing
        common = np.column_stack([np.nanmean(said, axis=1), np.nanmax(said, axis=1), said])
    shared = np.broadcast_to(common[:, None, :], (*said.shape, common.shape[1]))
    return np.concatenate([said[:, :, None], shared], axis=2)


def _agreement(signs: Signs, opened: Mask, pull: Vector) -> Matrix:
    """Agreement of each opened beginning with the other opened ones (N, M, F); NaN for sealed boxes."""
    boxes = opened.shape[1]
    others = opened[:, None, :] & opened[:, :, None] & ~np.eye(boxes, dtype=np.bool_)
    columns = []
    for kind in range(SAME):
        same = signs.same[..., kind]
        heard = others & np.isfinite(same)
        agree = np.where(heard, same, 0.0)
        spoke = np.isfinite(same[:, np.arange(boxes), np.arange(boxes)]) & opened
        columns += [_share(agree, heard), _share(agree * pull, heard * pull)]
        most = np.where(spoke, agree.sum(axis=2) + 1.0, 0.0).max(axis=1) / np.maximum(spoke.sum(axis=1), 1)
        columns.append(np.where(spoke, most[:, None], np.nan))
    for kind in range(WORDS):
        part = signs.overlap[..., kind]
        heard = others & np.isfinite(part)
        agree = np.where(heard, part, 0.0)
        columns += [_share(agree, heard), _share(agree * pull, heard * pull)]
    return np.where(opened[..., None], np.stack(columns, axis=2), np.nan)


def _share(agree: Matrix, heard: Matrix | Mask) -> Matrix:
    total = heard.sum(axis=2)
    return np.where(total > 0, agree.sum(axis=2) / np.where(total > 0, total, 1.0), np.nan)


def subsets(boxes: int, tiers: int = 1) -> Positions:
    """All sets of `boxes` specialists ((T + 1)^M, M); row k has the digits of k to the base T + 1."""
    base = tiers + 1
    return np.array([[k // base**j % base for j in range(boxes)] for k in range(base**boxes)], dtype=np.intp)


def chains(prompts: int, boxes: int, count: int, seed: int, tiers: int = 1) -> Iterator[Positions]:
    """`count` random orders of opening per prompt: the sets (N, M) after 0, 1, ..., T M openings.

    Each box takes T places in the order, the first of which opens it once, and so on.
    """
    rng = np.random.default_rng(seed)
    for _ in range(count):
        rank = np.argsort(rng.random((prompts, tiers * boxes)), axis=1)
        for size in range(tiers * boxes + 1):
            yield (rank < size).reshape(prompts, tiers, boxes).sum(axis=1)


@dataclass(frozen=True, eq=False)
class SetTrees:
    """The second layer: the mean of `boosters` over the features of `table`.

    strength: mean rewards (M,). tiers: how often a box can be opened, 2 if it was trained with verdicts.
    """

    boosters: tuple[Ensemble, ...] = field(repr=False)
    strength: Vector
    tiers: int = 1

    @classmethod
    def fit(
        cls, signs: Signs, reward: Matrix, folds: Positions, seed: int = 0, say: Advance | None = None
    ) -> SetTrees:
        """Fit on rewards (N, M), NaN where missing; one ensemble per fold, fitted on the other folds.

        Uses every set of opened boxes if there are few, otherwise sets drawn for each prompt. Uses verdicts
        if most beginnings have one.
        """
        prompts, boxes = reward.shape
        strength = np.nanmean(reward, axis=0)
        tiers = 2 if 2 * int((signs.reach > 1).sum()) > int(signs.there.sum()) else 1
        if (tiers + 1) ** boxes <= EVERY:
            shown = [np.broadcast_to(subset, reward.shape) for subset in subsets(boxes, tiers)]
        else:
            rng, most = np.random.default_rng(seed), tiers * boxes
            size = rng.integers(0, most + 1, (DRAWN, prompts, 1))
            drawn = np.argsort(rng.random((DRAWN, prompts, most)), axis=2) < size
            shown = list(drawn.reshape(DRAWN, prompts, tiers, boxes).sum(axis=2))
        rows = np.vstack([table(signs, tier, strength, tiers) for tier in shown])
        trees = Trees(rounds=400, smallest=50 * len(shown), folds=int(folds.max()) + 1)
        wanted, groups = np.tile(reward, (len(shown), 1)), np.tile(folds, len(shown))
        boosters, _ = grow(rows, wanted, groups, trees, seed, say or silent, None)
        return cls(boosters, strength, tiers)

    def predict(self, signs: Signs, tier: Positions) -> Matrix:
        """Estimated rewards (N, M) of all specialists when boxes were opened `tier` (N, M) times."""
        rows = table(signs, tier, self.strength, self.tiers)
        return np.mean([booster.predict(rows) for booster in self.boosters], axis=0).reshape(tier.shape)

    def left_out(self, signs: Signs, tier: Positions, folds: Positions) -> Matrix:
        """As `predict` for training prompts, each by the ensemble that was fitted without it."""
        estimates = np.full(tier.shape, np.nan)
        for k, booster in enumerate(self.boosters):
            here = folds == k
            if here.any():
                rows = table(signs.rows(here), tier[here], self.strength, self.tiers)
                estimates[here] = booster.predict(rows).reshape(-1, tier.shape[1])
        return estimates


@dataclass(frozen=True, eq=False)
class SetEstimate:
    """The predictor: estimates of all specialists from the prompt and the contexts of those opened so far."""

    first: Boosted = field(repr=False)
    second: SetTrees = field(repr=False)

    @property
    def specialists(self) -> tuple[str, ...]:
        """Names of the columns of `predict`."""
        return self.first.specialists

    @property
    def needs(self) -> frozenset[str]:
        """The specialists whose beginnings were read in training."""
        return self.first.needs

    @property
    def together(self) -> bool:
        """False: each look is paid for."""
        return False

    @property
    def peek(self) -> int:
        """Number of characters of a beginning that are read, also by a judge."""
        return peeked(self.first)

    def predict(self, prompts: Sequence[str], contexts: Contexts | None = None) -> Matrix:
        """Estimated rewards (prompts, specialists) of sealed and opened boxes.

        A box is sealed if its context is None; it was opened twice if its context has a verdict.
        """
        signs = self.signs(prompts, contexts)
        return self.second.predict(signs, np.minimum(signs.reach, self.second.tiers))

    def signs(self, prompts: Sequence[str], contexts: Contexts | None) -> Signs:
        """Features of new prompts."""
        return new_signs(self.first, prompts, contexts)

    def state(self) -> Saved:
        """The state to save; `from_state` restores it."""
        parts = {f"trees{i}": booster.state() for i, booster in enumerate(self.second.boosters)}
        settings = {"trees": len(self.second.boosters), "tiers": self.second.tiers}
        parts["first"] = self.first.state()
        return Saved("sets", settings, {"strength": self.second.strength}, parts=parts)

    @classmethod
    def from_state(cls, saved: Saved, *, embedder: Embedder | None = None) -> SetEstimate:
        """Restore the estimator from its `state`."""
        count, tiers = (int(saved.of_kind("sets").settings.get(name, 1)) for name in ("trees", "tiers"))
        trees = tuple(Ensemble.from_state(saved.parts[f"trees{i}"]) for i in range(count))
        first = Boosted.from_state(saved.parts["first"], embedder=embedder)
        return cls(first, SetTrees(trees, saved.arrays["strength"], tiers))


def new_signs(first: Boosted, prompts: Sequence[str], contexts: Contexts | None) -> Signs:
    """Features of prompts that are new to `first`; a None cell of `contexts` (N, M) is a sealed box."""
    shape = (len(prompts), len(first.specialists))
    given = contexts if contexts is not None else np.full(shape, None, dtype=object)
    checked = checked_contexts(given, shape)
    neighbours = first.evidence.neighbours
    near, far = neighbours.predict_each(neighbours.embedder.embed(prompts), [NEAR, FAR])
    return Signs.of(prompts, given, near, far, first.predict(prompts, checked), peeked(first))


def training_signs(first: Boosted, prompts: Sequence[str], contexts: Contexts) -> Signs:
    """Features of the training prompts of `first`, from left-out neighbours and out-of-fold estimates."""
    near, far = first.evidence.neighbours.leave_one_out_each([NEAR, FAR])
    return Signs.of(prompts, contexts, near, far, first.out_of_fold, peeked(first))


def peeked(first: Boosted) -> int:
    """Number of characters of a beginning that the first layer reads."""
    return 0 if first.contexts is None else first.contexts.peek.characters


def second_folds(prompts: Sequence[str], count: int, seed: int) -> Positions:
    """Fold of each prompt for the second layer; identical prompts share a fold."""
    return grouped_folds(list(prompts), count, seed)

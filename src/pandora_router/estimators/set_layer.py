"""Estimates of all specialists from everything opened so far, for any set of opened specialists.

A first layer estimates each specialist from the prompt and its own beginning (`stack.boosted`). The second
layer, in this module, is trained on random sets of opened specialists. For every specialist, sealed or
opened, it reads the cheap estimates, the first-layer estimates of the opened specialists, how far their
beginnings agree (features of `stack.agreement`, from comparisons of pairs) and `NUMBERS`
(log-probabilities, hits of retrieved passages). One LightGBM ensemble per fold, squared loss. Part of the
gain from agreement is that answers may already be visible in the beginnings (docs/method.md, section 9).
"""

from __future__ import annotations

import math
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from pandora_router.estimators.embedders.embedder import Embedder
from pandora_router.estimators.linear import grouped_folds
from pandora_router.estimators.rewards import checked_contexts
from pandora_router.estimators.stack.agreement import Saying, saying
from pandora_router.estimators.stack.boosted import Boosted
from pandora_router.estimators.stack.ensemble import Ensemble, Trees, grow
from pandora_router.estimators.states import Saved
from pandora_router.types import Advance, Contexts, Mask, Matrix, Positions, Vector, silent
from pandora_router.wires.look import read_head

NUMBERS = (
    "tokens", "sum", "mean", "worst", "first",
    "words", "hits", "weighty hits", "figures", "lines", "agreement",
)  # fmt: skip
_WORD = re.compile(r"[^\W_]+")


def numbers(prompt: str, context: str) -> list[float]:
    """The `NUMBERS` of a context and its prompt; NaN where they are not defined."""
    chances, text = read_head(context)
    lines = text.split("\n")
    said = [" ".join(_WORD.findall(line.casefold())) for line in lines]
    words = set(" ".join(said).split())
    prompt_words = [word for word in _WORD.findall(prompt.casefold()) if not word.isdigit()]
    weights = [math.exp(min(len(word), 10) / 3.0) for word in prompt_words]  # long words are rare words
    met = [weight for word, weight in zip(prompt_words, weights, strict=True) if word in words]
    votes = Counter(line for line in said if line)
    return [
        len(chances),
        sum(chances) if chances else math.nan,
        sum(chances) / len(chances) if chances else math.nan,
        min(chances) if chances else math.nan,
        chances[0] if chances else math.nan,
        len(words),
        len(met) / max(len(prompt_words), 1),
        sum(met) / max(sum(weights), 1e-9),
        float(any(word.isdigit() for word in words)),
        len([line for line in said if line]),
        max(votes.values()) / votes.total() if votes else 0.0,
    ]


NEAR, FAR = 15, 50
EVERY = 3  # with up to this many specialists, training uses every set
DRAWN = 6  # sets drawn per training prompt if there are more specialists
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

    `own`, `same`, `overlap` and `read` are NaN where there is no beginning.
    """

    near: Matrix
    far: Matrix
    own: Matrix
    same: Matrix
    overlap: Matrix
    read: Matrix

    def __len__(self) -> int:
        return len(self.own)

    @property
    def there(self) -> Mask:
        """Mask (N, M) of the beginnings that exist; other boxes cannot be opened."""
        return np.isfinite(self.read[:, :, -1])

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
        for i, prompt in enumerate(prompts):
            texts = {j: str(text)[:most] for j, text in enumerate(contexts[i]) if text is not None}
            said = saying(prompt, [read_head(text)[1] for text in texts.values()])
            for (j, text), mine in zip(texts.items(), said, strict=True):
                read[i, j] = [*numbers(prompt, text), len(text)]
                for k, other in zip(texts, said, strict=True):
                    same[i, j, k], overlap[i, j, k] = _compared(mine, other)
        return cls(near, far, np.where(np.isfinite(read[:, :, -1]), own, np.nan), same, overlap, read)


def _compared(first: Saying, second: Saying) -> tuple[list[float], list[float]]:
    same = [
        np.nan if a is None or b is None else float(a == b)
        for a, b in ((first.number, second.number), (first.letter, second.letter))
    ]
    pairs = ((first.numbers, second.numbers), (first.names, second.names), (first.words, second.words))
    return same, [len(a & b) / len(a) if a else np.nan for a, b in pairs]


def table(signs: Signs, opened: Mask, strength: Vector) -> NDArray[np.float32]:
    """Features (N x M, F), one row per prompt and specialist, when the boxes `opened` (N, M) are open."""
    prompts, boxes = opened.shape
    opened = opened & signs.there
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
    rows = np.concatenate([alone, each, read, shared], axis=2)
    return np.round(rows, DIGITS).reshape(prompts * boxes, -1).astype(np.float32)


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


def subsets(boxes: int) -> Mask:
    """All sets of `boxes` specialists (2^M, M); row k contains the specialists at the one-bits of k."""
    return np.array([[bool(k >> j & 1) for j in range(boxes)] for k in range(2**boxes)])


def chains(prompts: int, boxes: int, count: int, seed: int) -> Iterator[Mask]:
    """`count` random orders of opening per prompt: the opened sets (N, M) after 0, 1, ..., M openings."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        rank = np.argsort(rng.random((prompts, boxes)), axis=1)
        for size in range(boxes + 1):
            yield rank < size


@dataclass(frozen=True, eq=False)
class SetTrees:
    """The second layer: the mean of `boosters` over the features of `table`.

    `strength` (M,): mean rewards.
    """

    boosters: tuple[Ensemble, ...] = field(repr=False)
    strength: Vector

    @classmethod
    def fit(
        cls, signs: Signs, reward: Matrix, folds: Positions, seed: int = 0, say: Advance | None = None
    ) -> SetTrees:
        """Fit on rewards (N, M), NaN where missing; one ensemble per fold, fitted on the other folds.

        Uses every set of opened boxes if there are few specialists, otherwise sets drawn for each prompt.
        """
        prompts, boxes = reward.shape
        strength = np.nanmean(reward, axis=0)
        if boxes <= EVERY:
            shown = [np.broadcast_to(subset, reward.shape) for subset in subsets(boxes)]
        else:
            rng = np.random.default_rng(seed)
            size = rng.integers(0, boxes + 1, (DRAWN, prompts, 1))
            shown = list(np.argsort(rng.random((DRAWN, prompts, boxes)), axis=2) < size)
        rows = np.vstack([table(signs, opened, strength) for opened in shown])
        trees = Trees(rounds=400, smallest=50 * len(shown), folds=int(folds.max()) + 1)
        wanted, groups = np.tile(reward, (len(shown), 1)), np.tile(folds, len(shown))
        boosters, _ = grow(rows, wanted, groups, trees, seed, say or silent, None)
        return cls(boosters, strength)

    def predict(self, signs: Signs, opened: Mask) -> Matrix:
        """Estimated rewards (N, M) of all specialists when the boxes `opened` (N, M) are open."""
        rows = table(signs, opened, self.strength)
        return np.mean([booster.predict(rows) for booster in self.boosters], axis=0).reshape(opened.shape)

    def left_out(self, signs: Signs, opened: Mask, folds: Positions) -> Matrix:
        """As `predict` for training prompts, each by the ensemble that was fitted without it."""
        estimates = np.full(opened.shape, np.nan)
        for k, booster in enumerate(self.boosters):
            here = folds == k
            if here.any():
                rows = table(signs.rows(here), opened[here], self.strength)
                estimates[here] = booster.predict(rows).reshape(-1, opened.shape[1])
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

    def predict(self, prompts: Sequence[str], contexts: Contexts | None = None) -> Matrix:
        """Estimated rewards (prompts, specialists) of sealed and opened boxes.

        A box is sealed if its context is None.
        """
        signs = self.signs(prompts, contexts)
        return self.second.predict(signs, signs.there)

    def signs(self, prompts: Sequence[str], contexts: Contexts | None) -> Signs:
        """Features of new prompts."""
        return new_signs(self.first, prompts, contexts)

    def state(self) -> Saved:
        """The state to save; `from_state` restores it."""
        parts = {f"trees{i}": booster.state() for i, booster in enumerate(self.second.boosters)}
        settings = {"trees": len(self.second.boosters)}
        parts["first"] = self.first.state()
        return Saved("sets", settings, {"strength": self.second.strength}, parts=parts)

    @classmethod
    def from_state(cls, saved: Saved, *, embedder: Embedder | None = None) -> SetEstimate:
        """Restore the estimator from its `state`."""
        count = int(saved.of_kind("sets").settings["trees"])
        trees = tuple(Ensemble.from_state(saved.parts[f"trees{i}"]) for i in range(count))
        first = Boosted.from_state(saved.parts["first"], embedder=embedder)
        return cls(first, SetTrees(trees, saved.arrays["strength"]))


def new_signs(first: Boosted, prompts: Sequence[str], contexts: Contexts | None) -> Signs:
    """Features of prompts that are new to `first`; a None cell of `contexts` (N, M) is a sealed box."""
    shape = (len(prompts), len(first.specialists))
    given = contexts if contexts is not None else np.full(shape, None, dtype=object)
    checked = checked_contexts(given, shape)
    assert checked is not None
    neighbours = first.evidence.neighbours
    near, far = neighbours.predict_each(neighbours.embedder.embed(prompts), [NEAR, FAR])
    return Signs.of(prompts, checked, near, far, first.predict(prompts, checked), peeked(first))


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

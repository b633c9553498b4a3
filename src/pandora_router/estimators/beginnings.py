"""A costly estimate from numbers computed on a specialist's beginning: log-probabilities, hits, agreement.

A context is text. Its first line may be "log-probabilities: -0.1 -2.3 ..." (of the first tokens) or
"scores: 7.5 2.0 ..." (of retrieved passages, best first). Each other line is a retrieved passage or the
beginning of an answer. Prompt and context give eleven numbers (`NUMBERS`), the first five of them from that
first line. One small LightGBM ensemble per specialist, with squared loss, predicts its reward from them and
from f, the mean reward of `NEAR` and `FAR` nearest training prompts. In training, f is computed without the
prompt's own reward. Without a context the prediction is f. No text is stored.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.estimators.embedders.embedder import Embedder
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.estimators.rewards import checked_contexts, checked_reward
from pandora_router.estimators.saved import Saved
from pandora_router.estimators.stack.ensemble import Ensemble
from pandora_router.specialists.beginning import read_head
from pandora_router.types import Contexts, Matrix

NUMBERS = (
    "tokens", "sum", "mean", "worst", "first",
    "words", "hits", "weighty hits", "figures", "lines", "agreement",
)  # fmt: skip
NEAR, FAR = 10, 50
FEWEST = 40
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


@dataclass(frozen=True)
class BeginningTrees:
    """Parameters of the ensemble of each specialist."""

    rounds: int = 150
    rate: float = 0.05
    leaves: int = 8
    smallest: int = 15
    penalty: float = 5.0

    def parameters(self, rows: int, seed: int) -> dict[str, Any]:
        """The parameters under LightGBM's names, for training."""
        return {
            "objective": "l2",
            "learning_rate": self.rate,
            "num_leaves": self.leaves,
            "min_data_in_leaf": max(2, min(self.smallest, rows // 8)),
            "lambda_l2": self.penalty,
            "feature_fraction": 0.7,
            "bagging_fraction": 0.7,
            "bagging_freq": 1,
            "num_threads": 1,
            "seed": seed,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }


@dataclass(frozen=True)
class Beginnings:
    """The fitted estimator; a specialist with fewer than `FEWEST` scored contexts has f as its estimate."""

    neighbours: Neighbours
    boosters: tuple[Ensemble | None, ...] = field(repr=False)

    @classmethod
    def fit(
        cls,
        prompts: Sequence[str],
        reward: ArrayLike,
        specialists: Sequence[str],
        contexts: Contexts,
        *,
        embedder: Embedder | None = None,
        trees: BeginningTrees = BeginningTrees(),  # noqa: B008 (frozen)
        seed: int = 0,
    ) -> Beginnings:
        """Fit on rewards (prompts, specialists), NaN where missing, and contexts of the same shape."""
        import lightgbm

        matrix = checked_reward(reward, len(prompts), specialists)
        seen = checked_contexts(contexts, matrix.shape)
        assert seen is not None
        neighbours = Neighbours.fit(prompts, matrix, specialists, embedder=embedder, k=FAR)
        near, far = neighbours.leave_one_out_each([NEAR, FAR])
        boosters: list[Ensemble | None] = []
        for j in range(matrix.shape[1]):
            shown = np.array([text is not None for text in seen[:, j]])
            learn = np.flatnonzero(shown & np.isfinite(matrix[:, j]))
            if len(learn) < FEWEST:
                boosters.append(None)
                continue
            table = _table(prompts, seen[:, j], near[:, j], far[:, j], far)[learn]
            parameters = trees.parameters(len(learn), seed)
            data = lightgbm.Dataset(table, matrix[learn, j], params=dict(parameters))
            grown = lightgbm.train(parameters, data, trees.rounds)
            boosters.append(Ensemble.of(grown))
        return cls(neighbours, tuple(boosters))

    @property
    def specialists(self) -> tuple[str, ...]:
        """Names of the columns of `predict`."""
        return self.neighbours.specialists

    @property
    def needs(self) -> frozenset[str]:
        """The specialists with an ensemble: their estimate requires a context."""
        pairs = zip(self.specialists, self.boosters, strict=True)
        return frozenset(name for name, booster in pairs if booster is not None)

    @property
    def together(self) -> bool:
        """False: a look shows one specialist, and each look is paid for."""
        return False

    def predict(self, prompts: Sequence[str], contexts: Contexts | None = None) -> Matrix:
        """Estimated rewards (prompts, specialists); f where a context is None."""
        near, far = self.neighbours.predict_each(self.neighbours.embedder.embed(prompts), [NEAR, FAR])
        estimates = far.copy()
        if contexts is None:
            return estimates
        seen = checked_contexts(contexts, estimates.shape)
        assert seen is not None
        for j, booster in enumerate(self.boosters):
            rows = np.flatnonzero([text is not None for text in seen[:, j]])
            if booster is not None and len(rows):
                table = _table(prompts, seen[:, j], near[:, j], far[:, j], far)[rows]
                estimates[rows, j] = booster.predict(table)
        return estimates

    def state(self) -> Saved:
        """The state to save; `from_state` restores it."""
        parts = {
            f"trees{j}": booster.state() for j, booster in enumerate(self.boosters) if booster is not None
        }
        parts["neighbours"] = self.neighbours.state()
        return Saved("beginnings", {"boosters": len(self.boosters)}, parts=parts)

    @classmethod
    def from_state(cls, saved: Saved, *, embedder: Embedder | None = None) -> Beginnings:
        """Restore the estimator from its `state`."""
        count = saved.of_kind("beginnings").settings["boosters"]
        grown = [saved.parts.get(f"trees{j}") for j in range(count)]
        boosters = tuple(None if saved_ is None else Ensemble.from_state(saved_) for saved_ in grown)
        return cls(Neighbours.from_state(saved.parts["neighbours"], embedder=embedder), boosters)


def _table(prompts: Sequence[str], seen: Contexts, near: Matrix, far: Matrix, everybody: Matrix) -> Matrix:
    """One row per prompt: f of this specialist at two sizes, f of all, the numbers of its context."""
    blank = [math.nan] * len(NUMBERS)
    counted = [
        blank if text is None else numbers(prompt, str(text))
        for prompt, text in zip(prompts, seen, strict=True)
    ]
    return np.column_stack([near, far, everybody, np.asarray(counted, dtype=np.float64)])

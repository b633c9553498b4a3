"""The section `fit`: estimates, signal model and policy of the router, and inspection costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from pandora_router.calibrate import (
    Auto,
    Calibrated,
    CheapMean,
    EmpiricalDraws,
    GaussianIndependent,
    GaussianJoint,
    NeighbourSignal,
    RidgeMean,
    Unfitted,
)
from pandora_router.config.shared import (
    Above,
    Amount,
    Builder,
    Closed,
    Count,
    Name,
    Natural,
    Refund,
    Text,
    shape,
    usual_kind,
)
from pandora_router.data import Fractions, Table, resplit
from pandora_router.estimators.embedders.embedder import Embedder, default_embedder
from pandora_router.estimators.embedders.remote import RemoteEmbedder
from pandora_router.estimators.judge import Judge
from pandora_router.estimators.linear import COMPONENTS
from pandora_router.estimators.neighbours import USUAL
from pandora_router.router import (
    External,
    LinearRecipe,
    NeighbourRecipe,
    SetRecipe,
    StackRecipe,
    TransformerRecipe,
)
from pandora_router.router.artifact import POLICIES
from pandora_router.router.recipes import Costly
from pandora_router.search import KnowledgeGradient, Policy

if TYPE_CHECKING:
    from pandora_router.config.file import Config


class SplitSettings(Closed):
    """A new split in place of that of the table."""

    seed: Natural = 0
    train: Amount = Fractions.train
    calibration: Amount = Fractions.calibration
    test: Amount = Fractions.test

    def draw(self, table: Table) -> Table:
        """The table with this split."""
        return resplit(table, seed=self.seed, fractions=self.fractions)

    @property
    def fractions(self) -> Fractions:
        """The shares of the three parts."""
        return Fractions(self.train, self.calibration, self.test)


class RemoteSettings(Closed):
    """An embeddings model behind one of the endpoints of the file."""

    kind: Literal["remote"]
    endpoint: Name
    model: Text

    def build(self, config: Config) -> Embedder:
        """The embedder; the key stays in the environment."""
        return RemoteEmbedder(Builder(config, Path()).endpoint(self.endpoint)[0], self.model)


Embedding = Annotated[
    Annotated[Literal["fitted", "words", "minilm"], Tag("plain")]
    | Annotated[RemoteSettings, Tag("parts")]
    | Annotated[Literal["fitted", "words", "minilm"], Tag("list")],
    Discriminator(shape),
]
"""The embedder of prompts: `fitted` on training prompts, fixed `words`, `minilm`, or an endpoint."""


def _embedder(named: str | RemoteSettings, config: Config) -> Embedder | None:
    """The embedder of that name; None means one that is fitted on the training prompts."""
    if isinstance(named, RemoteSettings):
        return named.build(config)
    if named == "minilm":
        from pandora_router.estimators.embedders.minilm import minilm

        return minilm()
    return default_embedder() if named == "words" else None


class CheapSettings(Closed):
    """The cheap estimate f: mean reward of the k nearest known prompts, averaged over all numbers in `k`."""

    kind: Literal["neighbours"] = "neighbours"
    k: Annotated[
        Annotated[Count, Tag("plain")]
        | Annotated[Annotated[list[Count], Field(min_length=1)], Tag("list")]
        | Annotated[Count, Tag("parts")],
        Discriminator(shape),
    ] = Field(default_factory=lambda: list(USUAL))
    embedder: Embedding = "fitted"

    def build(self, config: Config) -> NeighbourRecipe:
        """The recipe."""
        counts = tuple(self.k) if isinstance(self.k, list) else self.k
        return NeighbourRecipe(counts, _embedder(self.embedder, config))


class LinearSettings(Closed):
    """A faster cheap estimate f: a linear function of a few components of the embedding."""

    kind: Literal["linear"]
    components: Annotated[int, Field(ge=1, le=1000)] = COMPONENTS
    embedder: Embedding = "fitted"

    def build(self, config: Config) -> LinearRecipe:
        """The recipe."""
        return LinearRecipe(self.components, _embedder(self.embedder, config))


class BoostedSettings(Closed):
    """What boosted trees have in common; defaults are those of `Router.fit`."""

    peek: Natural | None = SetRecipe.peek
    seed: Natural = SetRecipe.seed
    rounds: Count = SetRecipe.rounds
    folds: Annotated[int, Field(ge=2)] = SetRecipe.folds


class StackSettings(BoostedSettings):
    """A boosted stack, whose estimate of a specialist reads that specialist's own context.

    `peek` is the number of characters of a specialist's context that it reads (0: none). By default it reads
    400 where the table has contexts and a look can be priced. With `agreement` it reads the contexts of all
    specialists together.
    """

    kind: Literal["stack"]
    agreement: bool = StackRecipe.agreement

    @model_validator(mode="after")
    def _together(self) -> StackSettings:
        if self.agreement and not self.peek:
            raise ValueError("a number of characters as `peek` beside `agreement: true`")
        return self

    def build(self, config: Config) -> Costly:
        """The recipe."""
        return StackRecipe(**self.model_dump(exclude={"kind"}))

    def characters(self, table: Table) -> int:
        """Number of characters of contexts that are read with this table."""
        return StackRecipe(self.peek).characters(table)


class OpenedSettings(BoostedSettings):
    """The default costly estimate g: a boosted stack and, where contexts are read, all those opened so far.

    `peek` is as for the stack. With contexts, looks are bought one at a time, and estimates of all
    specialists are read from all beginnings opened so far. The fit uses the stack, which reads each
    specialist's own beginning, if that did clearly better on held-out prompts.
    """

    kind: Literal["opened"] = "opened"

    def build(self, config: Config) -> Costly:
        """The recipe."""
        return SetRecipe(**self.model_dump(exclude={"kind"}))

    def characters(self, table: Table) -> int:
        """Number of characters of contexts that are read with this table."""
        return SetRecipe(self.peek).characters(table)


class TransformerSettings(Closed):
    """The paper's costly estimate g: a small transformer fine-tuned to predict rewards."""

    kind: Literal["transformer"]
    form: Literal["all", "named"] | None = TransformerRecipe.form
    peek: Natural | None = TransformerRecipe.peek
    tokens: Annotated[int, Field(ge=16, le=512)] = TransformerRecipe.tokens
    layers: Annotated[int, Field(ge=1, le=6)] = TransformerRecipe.layers
    epochs: Count = TransformerRecipe.epochs
    rate: Above = TransformerRecipe.rate
    batch: Count = TransformerRecipe.batch
    seed: Natural = TransformerRecipe.seed

    def build(self, config: Config) -> Costly:
        """The recipe."""
        return TransformerRecipe(**self.model_dump(exclude={"kind"}))

    def characters(self, table: Table) -> int:
        """Number of characters of contexts that are read with this table."""
        return TransformerRecipe(self.form, self.peek).reads(table)[1]


class JudgeSettings(Closed):
    """A specialist of the file (usually a hidden one) that estimates the probability of a right answer."""

    kind: Literal["judge"]
    judge: Name

    def build(self, config: Config) -> Costly:
        """The estimator; it needs no fitting."""
        return External(self.estimator(config), f"judge {self.judge}")

    def estimator(self, config: Config) -> Judge:
        """The judge; paths of its settings are relative to the working directory."""
        return Judge(Builder(config, Path()).specialist(self.judge))

    @property
    def peek(self) -> int:
        """0: a judge reads no contexts."""
        return 0

    def characters(self, table: Table) -> int:
        """0: a judge reads no contexts."""
        return 0


class InspectionParts(Closed):
    """Inspection costs in money: `shared` once per prompt, and for each specialist its `own`, or else `each`.

    `refund` (full, none or a fraction) is the part of the specialist's own cost that comes back if it is
    inspected and chosen. By default it follows from the kind of look (`config.inspection`).
    """

    shared: Amount = 0.0
    each: Amount | None = None
    own: dict[Name, Amount] = Field(default_factory=dict)
    refund: Refund | None = None


Inspection = Annotated[
    Annotated[InspectionParts, Tag("parts")]
    | Annotated[Amount, Tag("plain")]
    | Annotated[Amount, Tag("list")],
    Discriminator(shape),
]
"""Inspection costs in money. One number is the price of one purchase: of the estimates for all specialists if
the estimator shows them together, otherwise of the estimate for one specialist."""


class CalibratedSettings(Closed):
    """The default signal model; each part can be switched off.

    With `pooled`, mean and slope are fitted on training and calibration prompts, else on the latter alone.
    """

    kind: Literal["calibrated"] = "calibrated"
    mean: Literal["ridge", "identity"] = "ridge"
    scale: Literal["by_mean", "constant"] = Calibrated.scale
    correlation: Literal["ledoit_wolf", "none"] = Calibrated.correlation
    slope: bool = Calibrated.slope
    law: Literal["likeliest", "quantiles", "levels", "normal"] = Calibrated.law
    pooled: bool = Calibrated.pooled

    def build(self) -> Unfitted:
        """The model before it is fitted."""
        mean = RidgeMean() if self.mean == "ridge" else CheapMean()
        return Calibrated(mean, self.scale, self.correlation, self.slope, self.law, pooled=self.pooled)


class OtherSignalSettings(Closed):
    """The other signal models, with their defaults."""

    kind: Literal["gaussian_joint", "gaussian_independent", "neighbours", "draws"]

    def build(self) -> Unfitted:
        """The model before it is fitted."""
        if self.kind == "gaussian_joint":
            return GaussianJoint()
        if self.kind == "gaussian_independent":
            return GaussianIndependent()
        return NeighbourSignal() if self.kind == "neighbours" else EmpiricalDraws()


class GradientSettings(Closed):
    """Open boxes that are worth their cost, looking one or two inspections ahead."""

    kind: Literal["knowledge_gradient"] = "knowledge_gradient"
    depth: Literal[1, 2] = 2

    def build(self) -> Policy | Auto:
        """The policy."""
        return KnowledgeGradient(self.depth)


class AutoSettings(Closed):
    """Choose by cross-validation on the calibration split."""

    kind: Literal["auto"]
    folds: Annotated[int, Field(ge=2)] = Auto.folds
    rule: Literal["mean", "one_standard_error"] = Auto.rule

    def build(self) -> Policy | Auto:
        """The choice, made when the router is fitted."""
        return Auto((), self.folds, self.rule)


class OtherPolicySettings(Closed):
    """The other policies, with their defaults."""

    kind: Literal["rollout", "committing", "obligatory", "never", "always"]

    def build(self) -> Policy | Auto:
        """The policy."""
        named = {name.lower(): kind for name, kind in POLICIES.items()}
        return named[self.kind]()


PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "paper": {
        "cheap": {"kind": "neighbours", "k": 3},
        "costly": {"kind": "transformer"},
        "signal": {"kind": "gaussian_joint"},
        "policy": {"kind": "committing"},
    }
}
"""For each preset the sections that it stands for, as in the file."""


class FitSettings(Closed):
    """How the router is fitted; everything has a default.

    preset: `paper` is the router of the paper, as `Router.fit(..., preset="paper")` fits it. A section that
        names another `kind` replaces that of the preset; one without `kind` changes settings of it.
    specialists: use only these columns of the table, in this order.
    default: the specialist that answers if the router declines; by default the one with the highest mean
        reward in training.
    timeout: most seconds to wait for a costly estimate from outside.
    """

    preset: Literal["paper"] | None = None
    specialists: Annotated[list[Name], Field(min_length=2)] | None = None
    split: SplitSettings | None = None
    inspection: Inspection | None = None
    cheap: Annotated[
        Annotated[CheapSettings | LinearSettings, Field(discriminator="kind")],
        usual_kind("neighbours"),
    ] = CheapSettings()
    costly: Annotated[
        Annotated[
            StackSettings | OpenedSettings | TransformerSettings | JudgeSettings,
            Field(discriminator="kind"),
        ],
        usual_kind("opened"),
    ] = OpenedSettings()
    signal: Annotated[
        Annotated[CalibratedSettings | OtherSignalSettings, Field(discriminator="kind")],
        usual_kind("calibrated"),
    ] = CalibratedSettings()
    policy: Annotated[
        Annotated[GradientSettings | AutoSettings | OtherPolicySettings, Field(discriminator="kind")],
        usual_kind("knowledge_gradient"),
    ] = GradientSettings()
    default: Name | None = None
    timeout: Above | None = 30.0

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, given: Any) -> Any:
        """The sections as given, each completed by the preset if it has the same kind or none."""
        if not isinstance(given, dict) or given.get("preset") not in PRESETS:
            return given
        complete = dict(given)
        for section, parts in PRESETS[given["preset"]].items():
            stated = given.get(section, {})
            if isinstance(stated, dict) and stated.get("kind", parts["kind"]) == parts["kind"]:
                complete[section] = parts | stated
        return complete

"""What a config file may say, as pydantic models, and the objects it stands for.

The schema is closed: every model knows all its keys. Paths are relative to the file. Keys of endpoints are
named by environment variable, never written down.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from pandora_router.boxes import Costs
from pandora_router.calibrate import (
    Auto,
    Calibrated,
    CheapMean,
    EmpiricalDraws,
    GaussianIndependent,
    GaussianJoint,
    NeighbourSignal,
    RidgeMean,
    TreeMean,
    Unfitted,
)
from pandora_router.data import Fractions, Table, load, resplit
from pandora_router.errors import UsageError
from pandora_router.estimators.embedders import Embedder, default_embedder
from pandora_router.estimators.judge import Judge
from pandora_router.estimators.remote import RemoteEmbedder
from pandora_router.router import External, NeighbourRecipe, Router, StackRecipe, TransformerRecipe
from pandora_router.router.artifact import POLICIES
from pandora_router.router.recipes import Costly
from pandora_router.search import KnowledgeGradient, Policy
from pandora_router.specialists.asking import Asking
from pandora_router.specialists.chat import ChatEndpoint
from pandora_router.specialists.prices import Prices
from pandora_router.transport.endpoint import Endpoint
from pandora_router.transport.rate_limit import RateLimit
from pandora_router.types import Advance

NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Closed(BaseModel):
    """Settings that know all their keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class SplitSettings(Closed):
    """A fresh split instead of the one in the table."""

    seed: int = 0
    train: NotNegative = 0.6
    calibration: NotNegative = 0.2
    test: NotNegative = 0.2


class DataSettings(Closed):
    """Where the routing table is and how it is read."""

    table: str
    fee_weight: NotNegative | None = None
    specialists: list[str] | None = None
    split: SplitSettings | None = None


class RemoteSettings(Closed):
    """An embeddings model behind an OpenAI-compatible endpoint."""

    kind: Literal["remote"]
    base_url: str
    model: str
    key_from: str | None = "OPENAI_API_KEY"
    timeout: Annotated[float, Field(gt=0)] = 30.0

    def build(self) -> Embedder:
        """The embedder; the key stays in the environment."""
        return RemoteEmbedder(Endpoint(self.base_url, self.key_from, self.timeout), self.model)


Embedding = Literal["fitted", "words", "minilm"] | RemoteSettings


def embedder(chosen: Embedding) -> Embedder | None:
    """The embedder that was named; None is the one that is fitted on the training prompts."""
    if isinstance(chosen, RemoteSettings):
        return chosen.build()
    if chosen == "minilm":
        from pandora_router.estimators.minilm import minilm

        return minilm()
    return default_embedder() if chosen == "words" else None


class CheapSettings(Closed):
    """The cheap estimate f."""

    kind: Literal["neighbours"] = "neighbours"
    k: Annotated[int, Field(ge=1)] = 50
    embedder: Embedding = "fitted"

    def build(self) -> NeighbourRecipe:
        """The recipe."""
        return NeighbourRecipe(self.k, embedder(self.embedder))


class StackSettings(Closed):
    """The default costly estimate g."""

    kind: Literal["stack"] = "stack"
    peek: Annotated[int | None, Field(ge=0)] = None
    agreement: bool = False
    seed: int = 0
    rounds: Annotated[int, Field(ge=1)] = 600
    folds: Annotated[int, Field(ge=2)] = 5

    def build(self) -> Costly:
        """The recipe."""
        return StackRecipe(self.peek, self.agreement, None, self.seed, self.rounds, self.folds)


class TransformerSettings(Closed):
    """The paper's costly estimate g: a small transformer fine-tuned to predict rewards."""

    kind: Literal["transformer"]
    form: Literal["all", "named"] | None = None
    peek: Annotated[int | None, Field(ge=0)] = None
    tokens: Annotated[int, Field(ge=16, le=512)] = 192
    layers: Annotated[int, Field(ge=1, le=6)] = 2
    epochs: Annotated[int, Field(ge=1)] = 2
    rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-4
    batch: Annotated[int, Field(ge=1)] = 32
    seed: int = 0

    def build(self) -> Costly:
        """The recipe."""
        return TransformerRecipe(**self.model_dump(exclude={"kind"}))


class JudgeSettings(Closed):
    """A model behind an OpenAI-compatible endpoint that says how likely a specialist is right.

    `price` is what one judgement costs in money, for the forecast of a fit.
    """

    kind: Literal["judge"]
    base_url: str
    model: str
    price: NotNegative | None = None
    key_from: str | None = "OPENAI_API_KEY"
    timeout: Annotated[float, Field(gt=0)] = 30.0
    retries: Annotated[int, Field(ge=0)] = 1
    at_once: Annotated[int, Field(ge=1)] = 8

    def build(self) -> Costly:
        """The estimator, ready made."""
        return External(self.scorer(), f"judge {self.model}")

    def scorer(self) -> Judge:
        """The judge as an estimator."""
        endpoint = Endpoint(self.base_url, self.key_from, self.timeout, self.retries)
        prices = Prices(0.0, 0.0, per_call=self.price or 0.0)
        limit = RateLimit(self.at_once)
        return Judge(ChatEndpoint("judge", endpoint, self.model, prices, Asking(tokens=32), limit))


class CostSettings(Closed):
    """Inspection costs in units of reward: `shared` once per prompt, `own` for each specialist opened."""

    shared: NotNegative = 0.0
    own: NotNegative | dict[str, NotNegative] = 0.0


class CalibratedSettings(Closed):
    """The default signal model; each part can be switched off."""

    kind: Literal["calibrated"] = "calibrated"
    mean: Literal["ridge", "boosted", "identity"] = "ridge"
    scale: Literal["by_mean", "constant"] = "by_mean"
    correlation: Literal["ledoit_wolf", "none"] = "ledoit_wolf"
    slope: bool = True
    law: Literal["quantiles", "normal"] = "quantiles"

    def build(self) -> Unfitted:
        """The model before it is fitted."""
        mean = {"ridge": RidgeMean, "boosted": TreeMean, "identity": CheapMean}[self.mean]()
        return Calibrated(mean, self.scale, self.correlation, self.slope, self.law)


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
    """Open what is worth its cost, looking one or two inspections ahead."""

    kind: Literal["knowledge_gradient"] = "knowledge_gradient"
    depth: Literal[1, 2] = 2

    def build(self) -> Policy | Auto:
        """The policy."""
        return KnowledgeGradient(self.depth)


class AutoSettings(Closed):
    """Choose by cross-validation on the calibration split."""

    kind: Literal["auto"]
    folds: Annotated[int, Field(ge=2)] = 5
    rule: Literal["mean", "one_standard_error"] = "mean"

    def build(self) -> Policy | Auto:
        """The choice to be made."""
        return Auto((), self.folds, self.rule)


class OtherPolicySettings(Closed):
    """The other policies, with their defaults."""

    kind: Literal["rollout", "relative", "committing", "obligatory", "never", "always"]

    def build(self) -> Policy | Auto:
        """The policy."""
        named = {name.lower(): kind for name, kind in POLICIES.items()}
        return named[self.kind]()


def _by_kind(usual: type[Closed]) -> Any:
    """A union told apart by `kind`; without one it is the usual."""

    def add(value: Any) -> Any:
        if isinstance(value, dict) and "kind" not in value:
            return {"kind": usual.model_fields["kind"].default, **value}
        return value

    return BeforeValidator(add)


class Config(Closed):
    """A whole config file."""

    data: DataSettings
    inspection_cost: NotNegative | CostSettings
    cheap: CheapSettings = CheapSettings()
    costly: Annotated[
        Annotated[StackSettings | TransformerSettings | JudgeSettings, Field(discriminator="kind")],
        _by_kind(StackSettings),
    ] = StackSettings()
    signal: Annotated[
        Annotated[CalibratedSettings | OtherSignalSettings, Field(discriminator="kind")],
        _by_kind(CalibratedSettings),
    ] = CalibratedSettings()
    policy: Annotated[
        Annotated[GradientSettings | AutoSettings | OtherPolicySettings, Field(discriminator="kind")],
        _by_kind(GradientSettings),
    ] = GradientSettings()
    default: str | None = None
    timeout: Annotated[float | None, Field(gt=0)] = 30.0

    def table(self, folder: Path) -> Table:
        """The routing table; `folder` is where the config file lies."""
        table = load(folder / self.data.table)
        if self.data.fee_weight is not None:
            table = table.with_fee_weight(self.data.fee_weight)
        if self.data.specialists is not None:
            table = table.only(self.data.specialists)
        if self.data.split is None:
            return table
        shares = self.data.split
        return resplit(
            table, seed=shares.seed, fractions=Fractions(shares.train, shares.calibration, shares.test)
        )

    def costs(self, specialists: tuple[str, ...]) -> float | Costs:
        """Inspection costs: one number per purchase, or own and shared parts."""
        told = self.inspection_cost
        if not isinstance(told, CostSettings):
            return told
        own = told.own
        if isinstance(own, dict):
            odd = sorted(set(own) ^ set(specialists))
            if odd:
                raise UsageError(
                    "inspection_cost.own",
                    expected=f"a number for each of {', '.join(specialists)}",
                    came=f"{'none' if odd[0] in specialists else 'one'} for {odd[0]!r}",
                    do="Name every specialist once; a missing price is never 0.",
                )
        each = [own[name] for name in specialists] if isinstance(own, dict) else [own] * len(specialists)
        return Costs(each, [told.shared], [0] * len(each)) if told.shared else Costs(each)

    def fit(self, table: Table, *, progress: Advance | None = None, work: Path | None = None) -> Router:
        """Fit the router that this file describes."""
        return Router.fit(
            table,
            cheap=self.cheap.build(),
            costly=self.costly.build(),
            signal=self.signal.build(),
            policy=self.policy.build(),
            inspection_cost=self.costs(table.specialists),
            default=self.default,
            timeout=self.timeout,
            progress=progress,
            work=work,
            settings={"config": self.model_dump(mode="json")},
        )

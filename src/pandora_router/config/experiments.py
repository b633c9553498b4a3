"""An experiment as one YAML file, read by the same rules and with the same terms as `pandora.yaml`.

title: Mathematics, small against large      # shown in reports
data: zeroeval_math                          # folder or stored table, below --data or beside this file;
# a list: their specialists side by side on common prompts
tasks: [math, mmlu_pro/]                     # only these; a name ending in / means all that begin so
specialists: {gemma-2-2b-it: 0, o1-mini: .6} # who takes part, with a fee each; or a list; or left out
fee_per_trillion: 3                          # instead: parameters x price
parameters: {gemini-1.5-pro-002: 180}        # billions, where the data has none
fee_column: cost_usd                         # instead: a column of the data
fee_weight: 1                                # reward = score - fee_weight x fee; left out: the table's
complete: 0.9                                # leave out specialists with a smaller share of scores
peek: 400                                    # characters of its answer that g sees; 0: prompt only
neighbours: [3]                              # beside the router's own f: the mean reward of so many
# nearest prompts; []: nothing beside it
prompts: 12000                               # at most so many
split: [0.5, 0.2, 0.3]                       # train, calibration, test
costs: [0.001, 0.01, 0.03]                   # inspection costs to sweep
inspection: {shared: 0, own: {o1-mini: 3}}   # multiples of the cost: once a prompt; per specialist, where
# those not named pay `each`, usually 1
#           {refund: full}                   # what comes back if a specialist that was looked at is chosen:
# full, none or a share of its own cost
seeds: 5                                     # fresh splits
arms: [router, never inspect]                # left out: all
sweep: {calibration: [50, 200], samples: [10, 1000], signal_neighbours: [4, 64], signals: true}
usd: {embed: .2, read: .25, write: 2.5, written: 20, call: 0}  # prices, see `evaluate.experiments.UsdPrices`
domain: MATH                                 # whose curves of the paper to draw beside
control: true                                # a negative control: nothing to gain is expected
paraphrases: words.csv                       # columns `prompt` and `paraphrase`: who gets the same question
# in other words, and what a change costs

A `pandora.yaml` is an experiment too: the router that `pandora fit` makes from it, at the inspection costs
that it charges there, beside the ways to route that a fit reports.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field

from pandora_router.boxes import Costs
from pandora_router.config import open_router, read_config
from pandora_router.config.document import Document, read_document, validated
from pandora_router.config.file import Config, first_worth
from pandora_router.config.fit_section import FitSettings, OpenedSettings, StackSettings
from pandora_router.config.inspection import looking
from pandora_router.config.shared import Amount, Closed, Count, Name, Natural, Refund, Text
from pandora_router.config.worth import stated_worth, worth_of
from pandora_router.data import Fractions, Table
from pandora_router.errors import UsageError
from pandora_router.evaluate.experiments import COSTS, Experiment, Sweep, UsdPrices
from pandora_router.router.inspection import Inspection
from pandora_router.text import money

FITTED = ("router", "never inspect", "always inspect", "best single", "cheapest", "every single", "oracle")
"""The ways to route that `pandora fit` reports."""


def _once(values: list[int]) -> list[int]:
    if len(set(values)) < len(values):
        raise ValueError("each number once")
    return values


def _seeds(value: Any) -> Any:
    """Turn a number n of seeds into the seeds 1, 2, ..., n."""
    return list(range(1, value + 1)) if type(value) is int and value > 0 else value


def _free(value: Any) -> Any:
    """Turn a list of specialists into specialists with fee 0."""
    return dict.fromkeys(value, 0.0) if isinstance(value, list) and value else value


def _folders(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Share = Annotated[float, Field(ge=0, le=1)]
Texts = Annotated[list[Text], Field(min_length=1)]
Neighbours = Annotated[list[Count], AfterValidator(_once)]
Pairs = Annotated[list[Annotated[int, Field(ge=2)]], Field(min_length=1), AfterValidator(_once)]


class InspectionMultiples(Closed):
    """Inspection costs as multiples of the cost that is swept."""

    shared: Amount = Inspection.shared
    own: dict[Name, Amount] = Field(default_factory=dict)
    each: Amount = Inspection.each
    refund: Refund = Inspection.refund


class SweepSettings(Closed):
    """Variations on the same splits."""

    calibration: Pairs = Field(default_factory=list)
    samples: Pairs = Field(default_factory=list)
    signal_neighbours: Pairs = Field(default_factory=list)
    signals: bool = Sweep.signals


class UsdSettings(Closed):
    """Token prices of estimates."""

    embed: Amount = UsdPrices.embed
    read: Amount = UsdPrices.read
    write: Amount = UsdPrices.write
    written: Amount = UsdPrices.written
    call: Amount = UsdPrices.call
    tokens: Amount = UsdPrices.tokens


class ExperimentSettings(Closed):
    """All keys of an experiment."""

    data: Annotated[Texts, BeforeValidator(_folders)]
    tasks: Texts | None = None
    title: str = Experiment.title
    specialists: Annotated[dict[Name, Amount] | None, BeforeValidator(_free)] = None
    fee_per_trillion: Amount = Experiment.fee_per_trillion
    parameters: dict[Name, Amount] = Field(default_factory=dict)
    fee_column: str = Experiment.fee_column
    fee_weight: Amount | None = None
    complete: Share = Experiment.complete
    peek: Natural = Experiment.peek
    agreement: bool = Experiment.agreement
    neighbours: Neighbours = Field(default_factory=lambda: [3])
    prompts: Count = Experiment.prompts
    split: Annotated[list[Share], Field(min_length=3, max_length=3)] = Field(default=[0.5, 0.2, 0.3])
    costs: Annotated[list[Amount], Field(min_length=1)] = Field(default=list(COSTS))
    inspection: InspectionMultiples | None = None
    seeds: Annotated[list[Natural], Field(min_length=1), BeforeValidator(_seeds)] = Field(
        default=[1, 2, 3, 4, 5]
    )
    arms: Texts | None = None
    sweep: SweepSettings = SweepSettings()
    usd: UsdSettings | None = None
    domain: str = Experiment.domain
    control: bool = Experiment.control
    paraphrases: str = Experiment.paraphrases

    def build(self, name: str) -> Experiment:
        """The experiment with these settings and the name `name`."""
        wide = self.inspection
        same = ("title", "fee_per_trillion", "parameters", "fee_column", "fee_weight", "complete", "peek")
        more = ("agreement", "prompts", "domain", "control", "paraphrases")
        return Experiment(
            name=name,
            data=self.data[0] if len(self.data) == 1 else tuple(self.data),
            tasks=tuple(self.tasks or ()),
            specialists=self.specialists,
            neighbours=tuple(self.neighbours),
            split=Fractions(*self.split),
            costs=tuple(self.costs),
            inspection=None if wide is None else Inspection(wide.shared, wide.own, wide.each, wide.refund),
            seeds=tuple(self.seeds),
            arms=tuple(self.arms or ()),
            sweep=Sweep(
                tuple(self.sweep.calibration),
                tuple(self.sweep.samples),
                tuple(self.sweep.signal_neighbours),
                self.sweep.signals,
            ),
            usd=None if self.usd is None else UsdPrices(**self.usd.model_dump()),
            **{key: getattr(self, key) for key in (*same, *more)},
        )


def read_experiment(path: Path | str) -> Experiment:
    """Read an experiment from a YAML file or a `pandora.yaml`; its name is the file name without suffix.

    Raises `UsageError` with file and line for anything that differs from the description above.
    """
    path = Path(path)
    document = read_document(path)
    if _describes_a_router(document):
        return _of_config(read_config(path), path)
    return validated(ExperimentSettings, document).build(path.stem)


def currency(path: Path) -> str:
    """The currency of a `pandora.yaml`; empty for an experiment, whose fees have no stated unit."""
    document = read_document(path)
    return read_config(path).value.currency if _describes_a_router(document) else ""


def _describes_a_router(document: Document) -> bool:
    content = document.content
    return isinstance(content, dict) and "data" not in content and "table" in content


def _of_config(config: Config, path: Path) -> Experiment:
    """What `pandora fit` does with the config file at `path`, as an experiment over fresh splits.

    Raises `UsageError` for a table that cannot be read, and for estimates, signal models and policies other
    than the usual ones, which experiments do not fit.
    """
    fit, usual = config.fit, FitSettings()
    agreement = isinstance(fit.costly, StackSettings) and fit.costly.agreement
    costly: StackSettings | OpenedSettings = OpenedSettings(peek=fit.costly.peek)
    if agreement:
        costly = StackSettings(kind="stack", peek=fit.costly.peek, agreement=True)
    known = {"cheap": usual.cheap, "costly": costly, "signal": usual.signal, "policy": usual.policy}
    for key, default in known.items():
        if getattr(fit, key) != default:
            raise UsageError(
                f"{path}: fit.{key}",
                expected="the default one: an experiment measures the usual router",
                came=f"kind {getattr(fit, key).kind}"
                + (" with settings of its own" if key == "costly" else ""),
                do="Leave it out for pandora evaluate; pandora fit measures it on the test split.",
            )
    table, said = _priced(config, path)
    price = looking(config, table)
    at, inspection = _multiples(price.cost, table.specialists, path)
    split = Fractions(0.5, 0.2, 0.3) if fit.split is None else fit.split.fractions
    return Experiment(
        name=path.stem,
        data=config.table,
        title=f"{config.table} with the settings of {path.name}; a right answer is worth {said}",
        specialists=None if fit.specialists is None else dict.fromkeys(fit.specialists, 0.0),
        fee_weight=table.fee_weight,
        peek=price.peek,
        agreement=agreement,
        neighbours=(),
        costs=(at,),
        inspection=inspection,
        arms=FITTED,
        split=split,
    )


def _priced(config: Config, path: Path) -> tuple[Table, str]:
    """The table with the fee weight that the file asks for, and what a right answer is worth, in words.

    The worth that keeps a share of a specialist's score is that of the fitted router, `serve.router`; another
    goal than that of its fit is looked up on its curve. A goal that is a budget is measured at the worth at
    which the fit begins. Raises `UsageError` for a goal `keep` if there is no router.
    """
    table, goal = config.routing_table(path.parent), config.goal
    source = "value.right_answer" if config.value.right_answer is not None else "the fee weight of the table"
    if goal is not None and goal.keep is not None:
        folder = path.parent / (config.serve.router or "router")
        if not folder.exists():
            raise UsageError(
                f"{path}: goal",
                expected="a router, which says what a right answer is worth so that the goal is met",
                came=f"no folder {folder.name}",
                do=f"Fit it first: pandora fit {path.name} -o {folder.name}",
            )
        router = open_router(folder, config)
        at = stated_worth(config, router) or worth_of(router) or first_worth(table)
        table = table.with_fee_weight(1.0 / at)
        source = f"keeps {goal.keep:.0%} of {goal.of}, by the router in {folder.name}"
    elif goal is not None and goal.budget is not None:
        source = "where a fit for a budget begins; the gateway follows the budget from there"
    if table.fee_weight == 0.0:
        return table, "any fee (fee weight 0)"
    return table, f"{money(1.0 / table.fee_weight, config.value.currency)} ({source})"


def _multiples(
    cost: float | Costs, specialists: tuple[str, ...], path: Path
) -> tuple[float, Inspection | None]:
    """A price, and the costs of a fit as multiples of it; raises `UsageError` if refunds differ in share."""
    if not isinstance(cost, Costs):
        return float(cost), None
    price = float(cost.own.mean()) or float(cost.shared.sum()) or 1.0
    shares = cost.refund[cost.own > 0.0] / cost.own[cost.own > 0.0]
    if shares.size and not np.allclose(shares, shares[0]):
        raise UsageError(
            f"{path}: refunds",
            expected="one share that comes back, the same for all specialists",
            came="several",
            do="State one: fit: {inspection: {each: 0.0001, refund: none}}.",
        )
    own = {name: float(part) / price for name, part in zip(specialists, cost.own, strict=True)}
    refund = float(shares[0]) if shares.size else 0.0
    return price, Inspection(float(cost.shared.sum()) / price, own, refund=refund)


def experiment(name: str, content: object) -> Experiment:
    """The experiment called `name` from the values `content` of such a file."""
    return validated(ExperimentSettings, Document(name, content, {})).build(name)

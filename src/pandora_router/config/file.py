"""The file `pandora.yaml`: one description of the specialists for all commands."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from pandora_router.calibrate.readings import Readings
from pandora_router.collect.assemble import CollectPlan, Question
from pandora_router.config.callables import FunctionSettings, McpSettings
from pandora_router.config.collect_section import (
    CollectSettings,
    FunctionGrading,
    Grading,
    JudgeGrading,
    Prompts,
    grader,
    grades,
)
from pandora_router.config.fit_section import FitSettings, JudgeSettings, RemoteSettings
from pandora_router.config.inspection import lengths, looking, waiting
from pandora_router.config.services import (
    AlertSettings,
    BidSettings,
    GoalSettings,
    LearnSettings,
    MarketSettings,
    ProfileSettings,
    ServeSettings,
)
from pandora_router.config.shared import Above, Amount, Builder, Closed, Name, Text
from pandora_router.config.specialists import (
    ChatSettings,
    EndpointSettings,
    RetrievalSettings,
    SamplingSettings,
    SpecialistSettings,
    identity,
)
from pandora_router.data import Table, load
from pandora_router.errors import UsageError
from pandora_router.router import Router
from pandora_router.router.curve import Curve
from pandora_router.router.latency import timings_of
from pandora_router.run import Runner
from pandora_router.text import did_you_mean
from pandora_router.types import Advance

FITS = 3
"""Most fits in the search for the worth that meets a goal."""


class ValueSettings(Closed):
    """What things are worth, in the currency of the prices; `currency` is its symbol.

    right_answer: worth of a right answer; reward = score - fee / right_answer.
    second: cost of one second of waiting.
    cpu_second: cost of one processor second, for the estimators of this package.
    """

    currency: Text = "$"
    right_answer: Above | None = None
    second: Amount = 0.0
    cpu_second: Amount = 0.00002


class Config(Closed):
    """All sections; each command needs only its own. Paths are relative to the file."""

    table: Text = "table"
    value: ValueSettings = ValueSettings()
    goal: GoalSettings | None = None
    endpoints: dict[Name, EndpointSettings] = Field(default_factory=dict)
    specialists: dict[Name, SpecialistSettings] = Field(default_factory=dict)
    prompts: Prompts | None = None
    grading: Grading | None = None
    collect: CollectSettings | None = None
    fit: FitSettings = FitSettings()
    serve: ServeSettings = ServeSettings()
    learn: LearnSettings = LearnSettings()
    alerts: AlertSettings = AlertSettings()
    market: MarketSettings = MarketSettings()
    bid: BidSettings = BidSettings()

    @property
    def answering(self) -> tuple[str, ...]:
        """The specialists that can be chosen by the router, in the order of the file."""
        return tuple(name for name, settings in self.specialists.items() if not settings.hidden)

    @property
    def goals(self) -> dict[str, GoalSettings | ProfileSettings]:
        """The goal and the profiles, by profile; that of all requests under ""."""
        return {**({} if self.goal is None else {"": self.goal}), **self.serve.profiles}

    def store_address(self, folder: Path) -> str:
        """The address of the gateway's store; a plain file name is relative to `folder`, that of the file."""
        stated = self.serve.store.address
        return stated if "://" in stated else str(folder / stated)

    def imports(self) -> list[str]:
        """The functions, as module:name, and the commands that are run when this file is used."""
        everybody = self.specialists.values()
        names = [s.function for s in everybody if isinstance(s, FunctionSettings)]
        names += [" ".join(s.command) for s in everybody if isinstance(s, McpSettings) and s.command]
        return names + [g.function for g in grades(self.grading).values() if isinstance(g, FunctionGrading)]

    def check(self) -> None:
        """Raise `UsageError` for undefined names, circles of specialists, and a goal beside a worth."""
        goal, value = self.goal, self.value
        if goal is not None and goal.latency is not None and value.second:
            raise UsageError(
                "goal.latency",
                expected="a goal latency, or value.second",
                came="both",
                do="Remove one: the price of a second follows from the goal.",
            )
        if goal is not None and goal.sets_worth and value.right_answer is not None:
            raise UsageError(
                "goal",
                expected="a goal, or value.right_answer",
                came="both",
                do="Remove one: the worth of a right answer follows from the goal.",
            )
        for place, name, names in self._names():
            if name not in names:
                raise UsageError(
                    place,
                    expected=f"one of {', '.join(names)}" if names else "a name that is defined in this file",
                    came=repr(name),
                    do=did_you_mean(name, names, "Define it, or name another one."),
                )
        for name in self.specialists:
            chain = [name]
            while isinstance(inner := self.specialists[chain[-1]], RetrievalSettings | SamplingSettings):
                if inner.inner in chain:
                    raise UsageError(
                        f"specialists.{name}.inner",
                        expected="a chain of `inner` that ends",
                        came=" -> ".join([*chain, inner.inner]),
                        do="Change one of them.",
                    )
                chain.append(inner.inner)

    def _names(self) -> list[tuple[str, str, list[str]]]:
        """Every reference to a specialist or an endpoint: place, name, names that exist."""
        everybody, endpoints, answering = list(self.specialists), list(self.endpoints), list(self.answering)
        named: list[tuple[str, str, list[str]]] = []
        for name, settings in self.specialists.items():
            if isinstance(settings, ChatSettings | McpSettings) and settings.endpoint is not None:
                named.append((f"specialists.{name}.endpoint", settings.endpoint, endpoints))
            elif isinstance(settings, RetrievalSettings | SamplingSettings):
                named.append((f"specialists.{name}.inner", settings.inner, everybody))
        for task, grade in grades(self.grading).items():
            if isinstance(grade, JudgeGrading):
                named.append((f"grading.{task}.judge" if task else "grading.judge", grade.judge, everybody))
        if isinstance(self.fit.costly, JudgeSettings):
            named.append(("fit.costly.judge", self.fit.costly.judge, everybody))
        if isinstance(self.fit.cheap.embedder, RemoteSettings):
            named.append(("fit.cheap.embedder.endpoint", self.fit.cheap.embedder.endpoint, endpoints))
        if self.specialists:
            lists = {"fit.specialists": self.fit.specialists, "fit.default": [self.fit.default]}
            lists |= {"serve.default": [self.serve.default], "market.default": [self.market.default]}
            lists |= {"market.proxies": self.market.proxies}
            lists |= {"goal.of": [None if self.goal is None else self.goal.of]}
            for profile, limits in self.serve.profiles.items():
                lists |= {f"serve.profiles.{profile}.only": limits.only}
                lists |= {f"serve.profiles.{profile}.exclude": limits.exclude}
                lists |= {f"serve.profiles.{profile}.of": [limits.of]}
            for place, names in lists.items():
                named += [(place, name, answering) for name in names or () if name is not None]
        return named

    def plan(self, folder: Path, *, dry_run: bool = False) -> CollectPlan:
        """What `pandora collect` buys; `folder` is the folder of the file. A dry run imports no code."""
        for key in ("prompts", "grading", "collect"):
            if getattr(self, key) is None:
                do = "Add it; `pandora init` shows an example."
                raise UsageError("the configuration", expected=f"a section {key}", came="none", do=do)
        assert self.prompts is not None
        assert self.collect is not None
        builder, how = Builder(self, folder, dry_run), self.collect
        return CollectPlan(
            questions=self.prompts.read(folder, how.seed),
            specialists=tuple(builder.specialist(name) for name in self.answering),
            graders={task: grader(grade, builder) for task, grade in grades(self.grading).items()},
            budget=how.budget,
            samples=how.samples,
            at_once=how.at_once,
            give_up=how.give_up,
            fee_weight=1.0 if self.value.right_answer is None else 1.0 / self.value.right_answer,
            log_probabilities=how.log_probabilities,
        )

    def label_plan(self, folder: Path, questions: tuple[Question, ...]) -> CollectPlan:
        """What `pandora learn label` buys: the answers of all specialists to logged prompts, and scores.

        Raises `UsageError` without `learn.labels`, or if `grading` needs to know the right answer.
        """
        return self._judged("labels", folder, questions, tuple(self.answering))

    def shadow_plan(
        self, folder: Path, questions: tuple[Question, ...], names: tuple[str, ...]
    ) -> CollectPlan:
        """What `pandora learn shadow` buys: the answers of `names` to logged prompts, and scores.

        Raises `UsageError` without `learn.shadow`, or if `grading` needs to know the right answer.
        """
        return self._judged("shadow", folder, questions, names)

    def _judged(
        self, section: str, folder: Path, questions: tuple[Question, ...], names: tuple[str, ...]
    ) -> CollectPlan:
        stated = self.learn.labels if section == "labels" else self.learn.shadow
        if stated is None:
            raise UsageError(
                f"learn.{section}",
                expected="what may be spent in a month",
                came="nothing",
                do=f"Write, for example, learn: {{{section}: {{budget: 2}}}}.",
            )
        kinds = grades(self.grading)
        if not kinds or not all(isinstance(g, JudgeGrading | FunctionGrading) for g in kinds.values()):
            raise UsageError(
                "grading",
                expected="a judge or a function, since nothing is known of the right answer",
                came="none" if not kinds else "one that compares with it",
                do="For example, grading: {judge: NAME, template: 'Is {answer} right for {question}?'}.",
            )
        builder = Builder(self, folder)
        return CollectPlan(
            questions=questions,
            specialists=tuple(builder.specialist(name) for name in names),
            graders={task: grader(grade, builder) for task, grade in kinds.items()},
            budget=stated.budget,
            fee_weight=1.0 if self.value.right_answer is None else 1.0 / self.value.right_answer,
        )

    def routing_table(self, folder: Path) -> Table:
        """The table to fit on, with the fee weight, specialists and split of this file."""
        table = load(folder / self.table)
        if self.value.right_answer is not None:
            table = table.with_fee_weight(1.0 / self.value.right_answer)
        elif self.goal is not None and self.goal.sets_worth:
            table = table.with_fee_weight(1.0 / first_worth(table))
        if self.fit.specialists is not None:
            table = table.only(self.fit.specialists)
        elif self.specialists:
            again = f"pandora init --data {self.table} --replace writes a file with those of the table."
            _agree("the table", table.specialists, self.answering, again)
        return table if self.fit.split is None else self.fit.split.draw(table)

    def fitted(
        self,
        table: Table,
        *,
        progress: Advance | None = None,
        work: Path | None = None,
        on_estimates: Callable[[Mapping[str, Readings]], None] | None = None,
        runner: Runner | None = None,
    ) -> Router:
        """Fit the router that this file describes; arguments as for `Router.fit`.

        With a goal `keep` the table's fee weight is where the search for the right worth begins: the router
        is fitted there, its curve on held-out prompts says which worth meets the goal, and it is fitted again
        at that worth, up to `FITS` times in all. The price of a second that meets a goal `latency` is found
        in the same fits, from 0 on. `record.goal` says what was reached.
        """
        goal, price = self.goal, 0.0  # of a second, in right answers
        if goal is None or (goal.keep is None and goal.latency is None):
            return self._fitted(table, self.value.second, progress, work, on_estimates, runner)
        for _ in range(FITS):
            second = self.value.second if goal.latency is None else price / (table.fee_weight or 1.0)
            router = self._fitted(table, second, progress, work, on_estimates, runner)
            weight, wanted = router.fee_weight, price
            if goal.keep is not None and goal.of is not None:
                weight = 1.0 / (curve_of(router).keep(goal.keep, goal.of).point.worth or math.inf)
            if goal.latency is not None:
                timed = timings_of(router.record.report, goal.latency.until)
                wanted = timed.within(goal.latency.level, goal.latency.seconds).timing.price
            same = math.isclose(weight, router.fee_weight, rel_tol=1e-6)
            if same and math.isclose(wanted, price, rel_tol=1e-6, abs_tol=1e-12):
                break
            price, table = wanted, table.with_fee_weight(weight)
        reached: dict[str, Any] = {}
        if goal.keep is not None and goal.of is not None:
            reached |= asdict(curve_of(router).at(1.0 / router.fee_weight, goal.keep, goal.of))
        if goal.latency is not None:
            timed, latency = timings_of(router.record.report, goal.latency.until), goal.latency
            reached["latency"] = asdict(timed.at(second * router.fee_weight, latency.level, latency.seconds))
        return replace(router, record=replace(router.record, goal=reached))

    def _fitted(
        self,
        table: Table,
        second: float,
        progress: Advance | None,
        work: Path | None,
        on_estimates: Callable[[Mapping[str, Readings]], None] | None,
        runner: Runner | None,
    ) -> Router:
        """The router at the price `second` of a second, in money."""
        inspection = looking(self, table, second)
        costly = self.fit.costly
        if not isinstance(costly, JudgeSettings) and inspection.peek != costly.characters(table):
            costly = costly.model_copy(update={"peek": inspection.peek})
        identities = {name: identity(name, self) for name in table.specialists if name in self.specialists}
        router = Router.fit(
            table,
            cheap=self.fit.cheap.build(self),
            costly=costly.build(self),
            signal=self.fit.signal.build(),
            policy=self.fit.policy.build(),
            inspection_cost=inspection.cost,
            waiting=waiting(self, table, inspection, second),
            default=self.fit.default,
            timeout=self.fit.timeout,
            progress=progress,
            work=work,
            on_estimates=on_estimates,
            runner=runner,
            settings={
                "config": self.model_dump(mode="json", by_alias=True, exclude_defaults=True),
                "specialists": identities,
                "inspection": {
                    "money": inspection.money,
                    "why": inspection.why,
                    "peek": inspection.peek,
                    "looks": {name: asdict(fare) for name, fare in inspection.looks.items()},
                },
            },
        )
        return replace(router, record=replace(router.record, lengths=lengths(self, table)))

    def check_artifact(self, specialists: tuple[str, ...], settings: dict[str, Any]) -> None:
        """Raise `UsageError` if an artifact was fitted for other specialists than those of this file."""
        _agree(
            "the router",
            specialists,
            tuple(self.fit.specialists or self.answering),
            "Fit again with this file, or describe the specialists of the router in it.",
        )
        for name, before in settings.get("specialists", {}).items():
            if name in self.specialists and identity(name, self) != before:
                raise UsageError(
                    f"specialists.{name}",
                    expected="the specialist that the router was fitted for",
                    came="another model, address or way of asking",
                    do="Fit again (on its own answers, if it is another one), or restore its settings.",
                )


def first_worth(table: Table) -> float:
    """A worth of a right answer to begin with: ten times what the dearest specialist costs more."""
    fees = np.nanmean(table.fee, axis=0)
    return 10.0 * float(fees.max() - fees.min()) or 1.0


def curve_of(router: Router) -> Curve:
    """Quality against cost of a fitted router; `UsageError` if the fit could not measure it."""
    if not traced(router):
        raise UsageError(
            "goal",
            expected="a router measured on test prompts, and fees that differ between specialists",
            came="no curve of quality against cost",
            do="Score answers of all specialists to some test prompts, and state fees; then fit again.",
        )
    return Curve.from_dict(router.record.report["routing"]["curve"])


def traced(router: Router) -> bool:
    """Whether the fit could measure quality against cost."""
    return bool(router.record.report.get("routing", {}).get("curve"))


def _agree(what: str, theirs: tuple[str, ...], ours: tuple[str, ...], do: str) -> None:
    """Raise `UsageError`, which ends with `do`, unless `what` and the file have the same specialists."""
    if not set(theirs) & set(ours):
        raise UsageError(
            "the specialists",
            expected=f"the same in {what} and in the file",
            came=f"{', '.join(theirs[:6])} in {what} and {', '.join(ours[:6])} in the file",
            do=do,
        )
    for name in (*ours, *theirs):
        if (name in theirs) != (name in ours):
            has, lacks = (what, "the file") if name in theirs else ("the file", what)
            others = ours if name in theirs else theirs
            raise UsageError(
                "the specialists",
                expected=f"the same in {what} and in the file",
                came=f"{name!r}, which {has} has and {lacks} has not",
                do=did_you_mean(name, others, f"List those in both under fit.specialists, or: {do}"),
            )

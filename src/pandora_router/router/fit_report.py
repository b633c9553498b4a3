"""Report on a fitted router, measured on held-out prompts.

Squared errors against rewards (training mean, kNN-3, kNN-50, f, h(f), g), coverage and residual correlation,
and the net reward per prompt of the router and the other ways to route (`calibrate.ways`). Measured on the
test split if there is one and g is free there, otherwise cross-validated on the calibration split.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pandora_router.boxes import Costs
from pandora_router.calibrate import SignalModel, Unfitted, check, cross_check
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.ways import ORACLE, RANDOM, ROUTER, Routed, Standing, basic, search
from pandora_router.data import Table
from pandora_router.errors import UsageError
from pandora_router.router.curve import Route, trace
from pandora_router.router.inspection import Waiting
from pandora_router.router.latency import REPORTED, timings
from pandora_router.router.revalue import Moved
from pandora_router.search import Policy
from pandora_router.text import money
from pandora_router.types import Matrix, Vector


@dataclass(frozen=True, eq=False)
class Priced:
    """What a fit knows of money: `weight` of a fee, mean `fees` (M,) in training, names of specialists."""

    weight: float
    fees: Vector
    specialists: tuple[str, ...]

    def curve(self, route: Route, part: Readings, costs: Costs, waiting: Waiting) -> dict[str, Any] | None:
        """Quality against cost (`router.curve`) as plain values; None if fees do not count."""
        traced = trace(route, part, costs, waiting, self.weight, self.fees, self.specialists)
        return None if traced is None else traced.to_dict()

    def timings(
        self, route: Route, part: Readings, costs: Costs, waiting: Waiting, table: Table
    ) -> dict[str, Any]:
        """Times over the price of a second (`router.latency`) as plain values; empty if not wanted."""
        if not waiting.timed:
            return {}
        measured = {
            name: timings(route, part, costs, waiting, table, self.weight, until)
            for until, name in REPORTED.items()
        }
        return {name: asdict(timed) for name, timed in measured.items() if timed is not None}


def report(
    held: Mapping[str, Readings],
    others: Mapping[str, Mapping[str, Matrix]],
    signal: SignalModel,
    unfitted: Unfitted,
    policy: Policy,
    costs: Costs,
    *,
    training_mean: Vector,
    standing: Standing,
    waiting: Waiting,
    priced: Priced,
    test: Table,
) -> dict[str, Any]:
    """The report as plain values for JSON.

    `held` has the readings of "calibration" and, if they may be used, of "test"; `others` has further cheap
    estimates of the same prompts, by name, whose squared errors are reported too. Decisions count `waiting`
    as a gateway does. `test` has the seconds of the test answers, where they were recorded.
    """
    name = "test" if "test" in held else "calibration"
    part = held[name]
    if name == "test":
        checked = check(signal, part, training_mean=training_mean)
    else:
        try:
            checked = cross_check(unfitted, part, training_mean=training_mean)
        except UsageError as error:
            return {"on": "nothing", "because": str(error)}
    facts = checked.to_dict()
    cells = ~(np.isnan(part.costly) | np.isnan(part.reward))
    errors = {
        what: float(((values - part.reward)[cells] ** 2).mean()) for what, values in others[name].items()
    }
    facts["mse"] = {"training mean": facts["mse"]["training mean"], **errors, **facts["mse"]}
    facts["on"] = "test" if name == "test" else "calibration, cross-validated"
    if name == "test":
        complete = int(part.complete.sum())
        if complete < 2:
            facts["because"] = f"{complete:,} of {len(part):,} test prompts have scores of all specialists"
        else:
            whole, hurried = part.rows(part.complete), Moved(signal, -waiting.lost)
            routes = basic(hurried, policy, whole, costs, standing)
            facts["routing"] = routing(whole, routes, costs)

            def route(by: Vector, at: Costs) -> Routed:
                return search(policy, Moved(signal, by), whole, at)

            facts["routing"]["curve"] = priced.curve(route, whole, costs, waiting)
            facts["routing"] |= priced.timings(route, whole, costs, waiting, test.rows(part.complete))
    return facts


@dataclass(frozen=True)
class Report:
    """What a fit measured, as text (`str`) for people and as plain values (`facts`) for programs.

    weight: `fee_weight` of the router, which converts reward to money. sign: the currency.
    """

    facts: Mapping[str, Any]
    weight: float
    sign: str = "$"

    def __str__(self) -> str:
        """One line per way of routing: share of right answers, money per 1,000 prompts, inspections."""
        measured = self.facts.get("routing", {})
        if "ways" not in measured:
            return f"Not measured: {self.facts.get('because', 'there was no test split to measure on')}."
        ways = {name: way for name, way in measured["ways"].items() if "cost" in way}
        wide = max(map(len, ways))
        lines = [f"On {measured['prompts']:,} test prompts; money per 1,000 prompts, inspections included:"]
        for name, way in ways.items():
            cost = money(1000.0 * way["cost"] / (self.weight or 1.0), self.sign)
            bought = f"{way['inspections']:.2f} inspections a prompt"
            lines.append(f"{name:<{wide}}  {way['accuracy']:.3f} right  {cost:>10}  {bought}")
        return "\n".join(lines)


def routing(part: Readings, routes: Mapping[str, Routed], costs: Costs) -> dict[str, Any]:
    """Results of each way to route (`calibrate.ways.basic`) on two or more complete prompts, with errors.

    For each way: `net_reward` (reward minus inspection cost), `accuracy` (score), `fee` (weighted), `spent`
    on inspections, `cost` (the money of it: fee plus spent without waiting for looks), the number of
    `inspections`. `behind_error` is the standard error of the paired difference in net reward to the router.
    """
    rows, root = np.arange(len(part)), np.sqrt(len(part))
    ways = {}
    router = routes[ROUTER].reward(part) - routes[ROUTER].spent
    for name, routed in routes.items():
        net = routed.reward(part) - routed.spent
        score, fee = part.score[rows, routed.choice], part.fee[rows, routed.choice]
        cost = fee + routed.money(costs)
        ways[name] = {
            "net_reward": float(net.mean()),
            "standard_error": float(net.std(ddof=1) / root),
            "behind_error": float((router - net).std(ddof=1) / root),
            "accuracy": float(score.mean()),
            "accuracy_error": float(score.std(ddof=1) / root),
            "fee": float(fee.mean()),
            "spent": float(routed.spent.mean()),
            "cost": float(cost.mean()),
            "cost_error": float(cost.std(ddof=1) / root),
            "inspections": float(routed.inspections.mean()),
            "inspections_error": float(routed.inspections.std(ddof=1) / root),
        }
    by_lot = part.reward.mean(axis=1)
    oracle = ways.pop(ORACLE)
    ways[RANDOM] = {
        "net_reward": float(by_lot.mean()),
        "standard_error": float(by_lot.std(ddof=1) / root),
        "accuracy": float(part.score.mean()),
        "fee": float(part.fee.mean()),
        "spent": 0.0,
        "inspections": 0.0,
    }
    ways[ORACLE] = oracle
    return {"prompts": len(part), "ways": ways}

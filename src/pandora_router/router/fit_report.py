"""Report on a fitted router, measured on held-out prompts.

Squared errors against rewards (training mean, kNN-3, kNN-50, f, h(f), g), coverage and residual correlation,
and the net reward per prompt of the router and the other ways to route (`calibrate.ways`). Measured on the
test split if there is one and g is free there, otherwise cross-validated on the calibration split.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pandora_router.boxes import Costs
from pandora_router.calibrate import SignalModel, Unfitted, check, cross_check
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.ways import ORACLE, RANDOM, ROUTER, Routed, Standing, basic
from pandora_router.errors import UsageError
from pandora_router.search import Policy
from pandora_router.types import Matrix, Vector


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
) -> dict[str, Any]:
    """The report as plain values for JSON.

    `held` has the readings of "calibration" and, if they may be used, of "test"; `others` has further cheap
    estimates of the same prompts, by name, whose squared errors are reported too.
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
        whole = part.rows(part.complete)
        facts["routing"] = routing(whole, basic(signal, policy, whole, costs, standing))
    return facts


def routing(part: Readings, routes: Mapping[str, Routed]) -> dict[str, Any]:
    """Results of each way to route (`calibrate.ways.basic`) on complete prompts: means and standard errors.

    For each way: `net_reward` (reward minus inspection cost), `accuracy` (score), `fee` (weighted), `spent`
    on inspections, `cost` (fee plus spent), the number of `inspections`. `behind_error` is the standard error
    of the paired difference in net reward to the router.
    """
    if len(part) < 2:
        return {"prompts": len(part)}
    rows, root = np.arange(len(part)), np.sqrt(len(part))
    ways = {}
    router = routes[ROUTER].reward(part) - routes[ROUTER].spent
    for name, routed in routes.items():
        net = routed.reward(part) - routed.spent
        score, fee = part.score[rows, routed.choice], part.fee[rows, routed.choice]
        ways[name] = {
            "net_reward": float(net.mean()),
            "standard_error": float(net.std(ddof=1) / root),
            "behind_error": float((router - net).std(ddof=1) / root),
            "accuracy": float(score.mean()),
            "accuracy_error": float(score.std(ddof=1) / root),
            "fee": float(fee.mean()),
            "spent": float(routed.spent.mean()),
            "cost": float((fee + routed.spent).mean()),
            "cost_error": float((fee + routed.spent).std(ddof=1) / root),
            "inspections": float(routed.inspections.mean()),
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

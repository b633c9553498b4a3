"""What a fitted router is worth on prompts nobody was fitted on.

Errors against rewards (training mean, kNN-3, kNN-50, f, h(f), g), coverage and residual correlation, and what
routing earns per prompt net of inspection cost, next to the static ways of routing. On the test split where
there is one and g can be asked for free, else cross-validated on calibration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pandora_router.boxes import Costs
from pandora_router.calibrate import SignalModel, Unfitted, check, cross_check
from pandora_router.calibrate.choose import decide
from pandora_router.data import Table
from pandora_router.errors import UsageError
from pandora_router.search import Always, Never, Policy
from pandora_router.types import Matrix, Vector


@dataclass(frozen=True, eq=False)
class HeldOut:
    """F, G, R and fees of a split that trained nothing; `others` are cheap estimates to compare with."""

    name: str
    f: Matrix
    g: Matrix
    r: Matrix
    others: Mapping[str, Matrix]

    @classmethod
    def of(cls, name: str, part: Table, arrays: Mapping[str, Matrix]) -> HeldOut:
        """The arrays called `name.f`, `name.g` and so on."""
        mine = {key.removeprefix(f"{name}."): a for key, a in arrays.items() if key.startswith(f"{name}.")}
        others = {what: values for what, values in mine.items() if what not in ("f", "g")}
        return cls(name, mine["f"], mine["g"], part.reward, others)


def report(
    held: Mapping[str, HeldOut],
    signal: SignalModel,
    unfitted: Unfitted,
    policy: Policy,
    costs: Costs,
    *,
    training_mean: Vector,
    fee: Vector,
) -> dict[str, Any]:
    """The report as plain values, ready for JSON."""
    part = held.get("test") or held["calibration"]
    if part.name == "test":
        found = check(signal, part.f, part.g, part.r, training_mean=training_mean)
    else:
        try:
            found = cross_check(unfitted, part.f, part.g, part.r, training_mean=training_mean)
        except UsageError as error:
            return {"on": "nothing", "because": str(error)}
    told = found.to_dict()
    cells = ~(np.isnan(part.g) | np.isnan(part.r))
    errors = {name: float(((values - part.r)[cells] ** 2).mean()) for name, values in part.others.items()}
    told["mse"] = {"training mean": told["mse"]["training mean"], **errors, **told["mse"]}
    told["on"] = "test" if part.name == "test" else "calibration, cross-validated"
    if part.name == "test":
        told["routing"] = routing(part, signal, policy, costs, training_mean, fee)
    return told


def routing(
    part: HeldOut, signal: SignalModel, policy: Policy, costs: Costs, usual: Vector, fee: Vector
) -> dict[str, Any]:
    """Reward per prompt less inspection cost of several ways to route, on prompts with every cell."""
    whole = ~(np.isnan(part.r) | np.isnan(part.g)).any(axis=1)
    if whole.sum() < 2:
        return {"prompts": int(whole.sum())}
    f, g, r = part.f[whole], part.g[whole], part.r[whole]
    rows = np.arange(len(r))
    net = {
        "best single": r[:, int(usual.argmax())],
        "cheapest": r[:, int(fee.argmin())],
        "random": r.mean(axis=1),
        "f-only": r[rows, f.argmax(axis=1)],
    }
    batch, values = signal.batch(f, costs), signal.values(f, g)
    opened = {}
    for name, how in (("never inspect", Never()), ("always inspect", Always()), ("router", policy)):
        choice, spent, count = decide(how, batch, values)
        net[name] = r[rows, choice] - spent
        opened[name] = {"spent": float(spent.mean()), "inspections": float(count.mean())}
    net["oracle"] = r.max(axis=1)
    error = np.sqrt(len(r))
    return {
        "prompts": len(r),
        "ways": {
            name: {
                "net_reward": float(values.mean()),
                "standard_error": float(values.std(ddof=1) / error),
                **opened.get(name, {}),
            }
            for name, values in net.items()
        },
    }

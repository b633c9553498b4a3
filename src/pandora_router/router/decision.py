"""What was decided for one prompt, with everything that was known when it was."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pandora_router.boxes import Boxes, Draws
from pandora_router.search import Inspect, Select, Trace
from pandora_router.search.payoffs import marginal_std
from pandora_router.types import Vector


@dataclass(frozen=True, eq=False)
class Estimates:
    """Each specialist's cheap estimate f, the mean and standard deviation of its box before any inspection.

    `costly` has g where it was bought and arrived (None elsewhere), `notes` why a specialist could not be
    inspected or what went wrong when it was. All arrays are (M,), in the order of `specialists`.
    """

    specialists: tuple[str, ...]
    cheap: Vector
    mean: Vector
    std: Vector
    costly: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Prices:
    """Reservation and backup price and inspection cost of each box before any inspection; each (M,)."""

    reservation: Vector
    backup: Vector
    inspection_cost: Vector

    @classmethod
    def of(cls, boxes: Boxes) -> Prices:
        """The prices of boxes as they are now."""
        return cls(boxes.reservation_price(), boxes.backup_price(), boxes.inspection_cost)


@dataclass(frozen=True, eq=False)
class Decision:
    """Who answers, what was bought on the way, and why.

    `declined_because` is None for a decision that was searched for. Otherwise the router could not judge
    the prompt and names the default that was chosen beforehand, with the reason; it never falls to a
    specialist silently.
    """

    id: str
    specialist: str
    trace: Trace
    estimates: Estimates
    prices: Prices
    policy: str
    artifact: str
    seconds: float
    declined_because: str | None = None

    @property
    def inspected(self) -> tuple[str, ...]:
        """The specialists whose costly estimates were paid for, in order."""
        return tuple(self.estimates.specialists[box] for box in self.trace.inspected)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; None where a number does not exist or is infinite."""
        known, prices = self.estimates, self.prices
        by_name = {
            name: {
                "cheap": plain(known.cheap[j]),
                "mean": plain(known.mean[j]),
                "std": plain(known.std[j]),
                "costly": known.costly.get(name),
                "reservation_price": plain(prices.reservation[j]),
                "backup_price": plain(prices.backup[j]),
                "inspection_cost": plain(prices.inspection_cost[j]),
                "note": known.notes.get(name),
            }
            for j, name in enumerate(known.specialists)
        }
        return {
            "id": self.id,
            "specialist": self.specialist,
            "declined_because": self.declined_because,
            "spent": self.trace.spent,
            "steps": self._steps(),
            "specialists": by_name,
            "policy": self.policy,
            "artifact": self.artifact,
            "seconds": self.seconds,
        }

    def _steps(self) -> list[dict[str, Any]]:
        names = self.estimates.specialists
        steps: list[dict[str, Any]] = []
        for action, shown in zip(self.trace.actions, (*self.trace.values, ()), strict=True):
            if isinstance(action, Inspect):
                steps.append({"inspect": [names[box] for box in action.boxes], "shown": list(shown)})
            else:
                steps.append({"select": names[action.box]})
        return steps


def plain(number: float) -> float | None:
    """A number as JSON has it."""
    return float(number) if math.isfinite(number) else None


def new_id() -> str:
    """A name for one decision that no other has."""
    return uuid.uuid4().hex


def std_of(boxes: Boxes) -> Vector:
    """The standard deviation of each box's next value (M,)."""
    return boxes.samples.std(axis=1) if isinstance(boxes, Draws) else marginal_std(boxes)


def declined(
    specialists: tuple[str, ...], default: str, because: str, *, policy: str, artifact: str, seconds: float
) -> Decision:
    """The decision not to decide: the default answers, nothing was bought, and the reason is given."""
    unknown = np.full(len(specialists), np.nan)
    return Decision(
        new_id(),
        default,
        Trace((Select(specialists.index(default)),), (), 0.0),
        Estimates(specialists, unknown, unknown, unknown),
        Prices(unknown, unknown, unknown),
        policy,
        artifact,
        seconds,
        because,
    )

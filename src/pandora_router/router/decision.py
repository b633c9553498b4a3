"""The decision for one prompt, with everything it was based on: one row, in memory or as JSON.

`Decision.to_dict` is the only format in which decisions leave the process (`--json`, batch files, stores,
pages), and `Decision.from_dict` reads it: to_dict(from_dict(row)) == row for every decision. `SCHEMA` changes
when the meaning of a field changes.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import numpy as np

from pandora_router.boxes import Costs
from pandora_router.errors import UsageError
from pandora_router.search import Inspect, Select, Trace
from pandora_router.search.state import Action
from pandora_router.types import Positions, Vector

SCHEMA = 1


class BoxStatus(StrEnum):
    """Status of a specialist's costly estimate at the end of a decision."""

    SEALED = "sealed"  # not bought, though it could have been
    OPENED = "opened"  # bought, and it arrived
    EXCLUDED = "not a candidate"  # the caller excluded the specialist
    LOST = "lost"  # bought, but it did not arrive: its cost counts, the box keeps its mean
    UNAVAILABLE = "not for sale"  # the estimator needs a context of this specialist, and there is none
    LATE = "too late"  # the deadline passed before it could be bought


class PurchaseStatus(StrEnum):
    """Result of one purchase."""

    ARRIVED = "arrived"  # a number for every specialist asked about
    PARTLY = "partly arrived"  # for some of them
    FAILED = "failed"  # for none: the estimator failed, or sent no finite number
    LATE = "too late"  # no estimate: the deadline of the decision passed first


@dataclass(frozen=True)
class Purchase:
    """One purchase of costly estimates.

    specialists: those that were estimated; `estimates` (g) and `values` have an entry for each, None where
        nothing arrived.
    worth: why it was bought: the expected improvement of the choice by opening these boxes, before cost.
    cost: in units of reward. fee: what an upstream charged in money, None if unknown.
    note: what went wrong, for people to read.
    means: those of all specialists afterwards, if estimates depend on everything opened; else empty.
    """

    specialists: tuple[str, ...]
    estimates: tuple[float | None, ...]
    values: tuple[float | None, ...]
    worth: float
    cost: float
    seconds: float
    status: PurchaseStatus
    fee: float | None = None
    note: str | None = None
    means: tuple[float, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        lists = {name: list(fields[name]) for name in ("specialists", "estimates", "values", "means")}
        return {**fields, **lists, "status": self.status.value}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Purchase:
        """Restore the purchase from `to_dict`."""
        lists = {name: tuple(row[name]) for name in ("specialists", "estimates", "values")}
        means = tuple(row.get("means", ()))
        return cls(**{**row, **lists, "means": means, "status": PurchaseStatus(row["status"])})


@dataclass(frozen=True, eq=False)
class Estimates:
    """The state of each specialist before any purchase: f, and mean and standard deviation of its box.

    `status` is that of its costly estimate at the end. All arrays are (M,), in the order of `specialists`;
    NaN if the router declined.
    """

    specialists: tuple[str, ...]
    cheap: Vector
    mean: Vector
    std: Vector
    status: tuple[BoxStatus, ...]


@dataclass(frozen=True, eq=False)
class Prices:
    """Reservation price, backup price and inspection cost of each box before any inspection; each (M,).

    `refund` is the part of the cost that comes back if the specialist is inspected and chosen. `shared` (G,)
    are costs paid once for a group, and `group` (M,) is the group of each specialist (-1: none); both are
    empty if no cost is shared. `wait` (M,) is the part of the cost that is waiting: of specialists inspected
    together the longest is paid; empty if a second costs nothing.
    """

    reservation: Vector
    backup: Vector
    inspection_cost: Vector
    refund: Vector
    shared: Vector = field(default_factory=lambda: np.zeros(0))
    group: Positions = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    wait: Vector = field(default_factory=lambda: np.zeros(0))

    def costs(self) -> Costs:
        """The costs at which the decision was made."""
        wait = self.wait if len(self.wait) else 0.0
        if not len(self.shared):
            return Costs(self.inspection_cost, refund=self.refund, wait=wait)
        own = self.inspection_cost - np.where(self.group >= 0, self.shared[self.group], 0.0)
        own = np.maximum(own, np.maximum(self.refund, wait))
        return Costs(own, self.shared, self.group, self.refund, wait)


@dataclass(frozen=True, eq=False)
class Decision:
    """The chosen specialist, the purchases before the choice, and the reasons.

    declined_because: None unless the router could not judge the prompt; then the default answers for this
        reason.
    at: time of the decision (UTC); `id` sorts by it.
    seconds: duration, including waiting.
    worth: of each candidate's answer at the end: expected score minus weighted fee. What comes back of a look
        at it is not part of it, but of the choice. Empty if declined.
    """

    id: str
    at: datetime
    specialist: str
    trace: Trace
    purchases: tuple[Purchase, ...]
    estimates: Estimates
    prices: Prices
    policy: str
    artifact: str
    seconds: float
    declined_because: str | None = None
    worth: Mapping[str, float] = field(default_factory=dict)

    @property
    def inspected(self) -> tuple[str, ...]:
        """The specialists whose costly estimates were paid for, in order."""
        return tuple(name for purchase in self.purchases for name in purchase.specialists)

    @property
    def costly(self) -> dict[str, float]:
        """The costly estimates that arrived, by specialist."""
        return {
            name: g
            for purchase in self.purchases
            for name, g in zip(purchase.specialists, purchase.estimates, strict=True)
            if g is not None
        }

    @property
    def expected_reward(self) -> float | None:
        """The value of the chosen box if it was opened, else the mean it had at first; None if declined.

        Purchases for other specialists may have changed the mean of a sealed box; `explain` shows that.
        """
        if self.declined_because is not None:
            return None
        for purchase in reversed(self.purchases):
            if purchase.means:
                return purchase.means[self.trace.selected]
            for name, value in zip(purchase.specialists, purchase.values, strict=True):
                if name == self.specialist and value is not None:
                    return value
        return float(self.estimates.mean[self.trace.selected])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON.

        An infinite price is null (reservation price +inf and backup price -inf for a free inspection). In a
        declined decision every number of a specialist is null. `spent` is net of `refunded`: spent + refunded
        was paid before the choice.
        """
        estimates, prices = self.estimates, self.prices
        specialists = {
            name: {
                "cheap": plain(estimates.cheap[j]),
                "mean": plain(estimates.mean[j]),
                "std": plain(estimates.std[j]),
                "reservation_price": plain(prices.reservation[j]),
                "backup_price": plain(prices.backup[j]),
                "inspection_cost": plain(prices.inspection_cost[j]),
                "refund": plain(prices.refund[j]),
                **({"group": int(prices.group[j])} if len(prices.shared) else {}),
                **({"wait": float(prices.wait[j])} if len(prices.wait) else {}),
                "status": estimates.status[j].value,
            }
            for j, name in enumerate(estimates.specialists)
        }
        return {
            "schema": SCHEMA,
            "id": self.id,
            "at": self.at.isoformat(),
            "specialist": self.specialist,
            "declined_because": self.declined_because,
            "spent": self.trace.spent,
            "refunded": self.trace.refunded,
            "shared_costs": prices.shared.tolist(),
            "purchases": [purchase.to_dict() for purchase in self.purchases],
            "specialists": specialists,
            "worth": dict(self.worth),
            "policy": self.policy,
            "artifact": self.artifact,
            "seconds": self.seconds,
        }

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Decision:
        """Restore the decision from `to_dict`; `UsageError` for a row of another schema or a damaged one."""
        if row.get("schema") != SCHEMA:
            raise UsageError(
                "a decision",
                expected=f"schema {SCHEMA}",
                came=repr(row.get("schema")),
                do="Read it with the version that wrote it.",
            )
        try:
            return cls._read(row)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(
                "a decision",
                expected="the fields that Decision.to_dict writes",
                came=f"{type(error).__name__}: {error}",
                do="Store rows as they are written.",
            ) from error

    @classmethod
    def _read(cls, row: Mapping[str, Any]) -> Decision:
        lines, because, shared = row["specialists"], row["declined_because"], row["shared_costs"]
        names = tuple(lines)
        purchases = tuple(Purchase.from_dict(written) for written in row["purchases"])
        place = {name: j for j, name in enumerate(names)}
        actions: list[Action] = [
            Inspect(tuple(place[n] for n in purchase.specialists)) for purchase in purchases
        ]
        trace = Trace(
            (*actions, Select(place[row["specialist"]])),
            tuple(purchase.values for purchase in purchases),
            row["spent"],
            row["refunded"],
        )

        def column(key: str, missing: float = math.nan) -> Vector:
            other = missing if because is None else math.nan
            return np.array([other if line[key] is None else float(line[key]) for line in lines.values()])

        status = tuple(BoxStatus(line["status"]) for line in lines.values())
        return cls(
            row["id"],
            datetime.fromisoformat(row["at"]),
            row["specialist"],
            trace,
            purchases,
            Estimates(names, column("cheap"), column("mean"), column("std"), status),
            Prices(
                column("reservation_price", math.inf),
                column("backup_price", -math.inf),
                column("inspection_cost"),
                column("refund"),
                np.array(shared, dtype=np.float64),
                np.array([line["group"] for line in lines.values()] if shared else [], dtype=np.intp),
                np.array([line["wait"] for line in lines.values() if "wait" in line], dtype=np.float64),
            ),
            row["policy"],
            row["artifact"],
            row["seconds"],
            because,
            {str(name): float(value) for name, value in row["worth"].items()},
        )


def plain(number: float) -> float | None:
    """A number for JSON: None if it is infinite or NaN."""
    return float(number) if math.isfinite(number) else None


def base_id(artifact: str) -> str:
    """The id of the artifact on disk: without what was added for another worth or policy.

    >>> base_id("0f3c9a21@0.05"), base_id("0f3c9a21/Never()")
    ('0f3c9a21', '0f3c9a21')
    """
    return artifact.partition("@")[0].partition("/")[0]


def stamp() -> tuple[str, datetime]:
    """A new id and its time."""
    nanoseconds = time.time_ns()
    return new_id(nanoseconds), datetime.fromtimestamp(nanoseconds // 1000 / 1e6, UTC)


def new_id(nanoseconds: int | None = None) -> str:
    """A new UUID of version 7 (RFC 9562), which as text sorts by its Unix time, now unless that is stated.

    The first 48 bits are milliseconds, the next 12 the fraction of the millisecond, 62 are random.
    """
    milliseconds, rest = divmod(time.time_ns() if nanoseconds is None else nanoseconds, 1_000_000)
    fraction = rest * 4096 // 1_000_000
    chance = int.from_bytes(os.urandom(8)) >> 2
    digits = f"{(milliseconds << 80) | (7 << 76) | (fraction << 64) | (2 << 62) | chance:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def declined(
    specialists: Sequence[str], default: str, because: str, *, policy: str, artifact: str, seconds: float
) -> Decision:
    """A declined decision: the default answers, nothing was bought, and the reason is given."""
    names = tuple(specialists)
    unknown = np.full(len(names), np.nan)
    name, at = stamp()
    return Decision(
        name,
        at,
        default,
        Trace((Select(names.index(default)),), (), 0.0),
        (),
        Estimates(names, unknown, unknown, unknown, (BoxStatus.SEALED,) * len(names)),
        Prices(unknown, unknown, unknown, unknown),
        policy,
        artifact,
        seconds,
        because,
    )

"""What was decided for one prompt, with everything that was known when it was: one row, in memory or as JSON.

`Decision.to_dict` is the only form in which decisions leave the process (`--json`, batch files, stores,
pages) and `Decision.from_dict` reads it back: to_dict(from_dict(row)) == row for every decision. `SCHEMA`
changes when a field changes its meaning.
"""

from __future__ import annotations

import math
import os
import time
import uuid
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
    """Where a specialist's costly estimate stands at the end of a decision."""

    SEALED = "sealed"  # it could have been bought and was not
    OPENED = "opened"  # it was bought and arrived
    EXCLUDED = "not a candidate"  # the caller did not let it be chosen
    LOST = "lost"  # it was bought and did not arrive: the money counts, the box stays worth its mean
    UNAVAILABLE = "not for sale"  # the estimator needs a context of this specialist and none was given
    LATE = "too late"  # the time of the decision was over before it could be bought


class PurchaseStatus(StrEnum):
    """What became of one purchase."""

    ARRIVED = "arrived"  # a number for every specialist asked about
    PARTLY = "partly arrived"  # for some of them
    FAILED = "failed"  # for none: the estimator failed, or sent no finite number
    LATE = "too late"  # for none: the time of the decision was over first


@dataclass(frozen=True)
class Purchase:
    """One purchase of costly estimates.

    `estimates` and `values` have an entry per specialist of `specialists`: the estimate g as it came and the
    value of its box, None where nothing came. `worth` is why it was bought: by how much opening these boxes
    was expected to improve the choice, before its cost. `cost` is in units of reward, `fee` what an upstream
    charged for it in money where that is known. `note` says what went wrong, for people to read. `means` are
    those of all specialists afterwards, where estimates depend on all that was opened; empty otherwise.
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
        """The purchase that `to_dict` wrote."""
        lists = {name: tuple(row[name]) for name in ("specialists", "estimates", "values")}
        means = tuple(row.get("means", ()))
        return cls(**{**row, **lists, "means": means, "status": PurchaseStatus(row["status"])})


@dataclass(frozen=True, eq=False)
class Estimates:
    """What was known of each specialist before any purchase: f, and mean and standard deviation of its box.

    `status` says where its costly estimate stands at the end. Everything is (M,), in the order of
    `specialists`; NaN if the router declined.
    """

    specialists: tuple[str, ...]
    cheap: Vector
    mean: Vector
    std: Vector
    status: tuple[BoxStatus, ...]


@dataclass(frozen=True, eq=False)
class Prices:
    """Reservation and backup price and inspection cost of each box before any inspection; each (M,).

    `refund` is the part of the cost that comes back if the specialist is chosen after it was inspected.
    `shared` (G,) are the parts of costs that are paid once for a group, and `group` (M,) is the group of each
    specialist (-1: none); both are empty where no cost is shared.
    """

    reservation: Vector
    backup: Vector
    inspection_cost: Vector
    refund: Vector
    shared: Vector = field(default_factory=lambda: np.zeros(0))
    group: Positions = field(default_factory=lambda: np.zeros(0, dtype=np.intp))

    def costs(self) -> Costs:
        """The costs that the decision was made at."""
        if not len(self.shared):
            return Costs(self.inspection_cost, refund=self.refund)
        own = self.inspection_cost - np.where(self.group >= 0, self.shared[self.group], 0.0)
        return Costs(np.maximum(own, self.refund), self.shared, self.group, self.refund)


@dataclass(frozen=True, eq=False)
class Decision:
    """Who answers, what was bought on the way, and why.

    `declined_because` is None for a decision that was searched for. Otherwise the router could not judge
    the prompt and names the default that was chosen beforehand, with the reason. `at` is when the decision
    was made (UTC) and `id` sorts by that time. `seconds` is how long it took, waiting included. `worth` is
    what each candidate was worth at the end, so that the runner-up is the next by worth; empty if declined.
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
        """The value of the chosen box if it was opened, else the mean it had before; None if declined.

        Purchases of other specialists may have moved the mean of a sealed box since: `explain` has that.
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
        """Plain values, ready for JSON.

        A price is null where it is infinite (reservation price +inf, backup price -inf: a free inspection);
        in a declined decision every number of a specialist is null, since none is known. `spent` is net of
        `refunded`, so that spent + refunded was paid before the choice.
        """
        known, prices = self.estimates, self.prices
        specialists = {
            name: {
                "cheap": plain(known.cheap[j]),
                "mean": plain(known.mean[j]),
                "std": plain(known.std[j]),
                "reservation_price": plain(prices.reservation[j]),
                "backup_price": plain(prices.backup[j]),
                "inspection_cost": plain(prices.inspection_cost[j]),
                "refund": plain(prices.refund[j]),
                **({"group": int(prices.group[j])} if len(prices.shared) else {}),
                "status": known.status[j].value,
            }
            for j, name in enumerate(known.specialists)
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
        """The decision that `to_dict` wrote; `UsageError` for a row of another schema or a broken one."""
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
        lines, because, shared = row["specialists"], row["declined_because"], row.get("shared_costs", [])
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
            row.get("refunded", 0.0),
        )

        def column(key: str, missing: float = math.nan) -> Vector:
            other = missing if because is None else math.nan
            return np.array([other if line[key] is None else float(line[key]) for line in lines.values()])

        before = all("refund" not in line for line in lines.values())  # a row older than refunds

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
                np.zeros(len(names)) if before else column("refund"),
                np.array(shared, dtype=np.float64),
                np.array([line["group"] for line in lines.values()] if shared else [], dtype=np.intp),
            ),
            row["policy"],
            row["artifact"],
            row["seconds"],
            because,
            {str(name): float(value) for name, value in row["worth"].items()},
        )


def plain(number: float) -> float | None:
    """A number as JSON has it: None where it is infinite or NaN."""
    return float(number) if math.isfinite(number) else None


def stamp() -> tuple[str, datetime]:
    """A new id and its time. Ids are UUIDs of version 7 (RFC 9562): as text they sort by time.

    The first 48 bits are milliseconds, the next 12 the fraction of the millisecond, 62 are random.
    """
    nanoseconds = time.time_ns()
    milliseconds, rest = divmod(nanoseconds, 1_000_000)
    fraction = rest * 4096 // 1_000_000
    chance = int.from_bytes(os.urandom(8)) >> 2
    number = (milliseconds << 80) | (7 << 76) | (fraction << 64) | (2 << 62) | chance
    return str(uuid.UUID(int=number)), datetime.fromtimestamp(nanoseconds // 1000 / 1e6, UTC)


def declined(
    specialists: Sequence[str], default: str, because: str, *, policy: str, artifact: str, seconds: float
) -> Decision:
    """The decision not to decide: the default answers, nothing was bought, and the reason is given."""
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

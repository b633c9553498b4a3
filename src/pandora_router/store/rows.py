"""The records of the store, as frozen dataclasses. Times are Unix seconds; money is nanodollars."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["answer", "inspection", "retry", "loser"]
"""Why a specialist was called: to answer, to look before deciding, again, or a look that lost."""

Status = Literal["open", "ok", "error", "cancelled", "lost"]
"""How an attempt ended. `lost` means that its worker died before it could say."""


@dataclass(frozen=True)
class Key:
    """An API key. Only its hash is stored; `budget` None means unlimited, `per_minute` None unmetered.

    A key with `admin` also opens the dashboard, which shows the traffic of all keys.
    """

    id: str
    name: str
    created_at: float
    budget: int | None = None
    period: str = "month"
    per_minute: int | None = None
    revoked_at: float | None = None
    admin: bool = False


@dataclass(frozen=True)
class DecisionRow:
    """One decision when its answer begins: what was known, what was chosen, what was reserved for it.

    `proposed` is what the router chose, `specialist` is who is asked; they differ in observe mode and
    where the choice was explored. `propensity` is the probability with which `specialist` was picked.
    `detail` is the whole decision as JSON values (`Decision.to_dict` and the gateway's exclusions).
    """

    id: str
    at: float
    key: str | None
    wire: str
    mode: str
    policy: str
    artifact: str
    generation: int
    specialist: str
    proposed: str
    propensity: float = 1.0
    session: str | None = None
    declined: str | None = None
    inspected: int = 0
    inspection_cost: int = 0
    baseline: int | None = None
    """What the best single specialist would have cost, estimated, for the saving; None if unknown."""
    overhead: float = 0.0
    """Seconds between the arrival of the request and the call of the specialist, looks included."""
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Usage:
    """Token counts of one attempt in disjoint buckets: input = fresh + cached + written to the cache."""

    fresh: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    reasoning: int = 0
    complete: bool = True
    """Whether the provider reported them; otherwise the cost is the larger of measured and estimated."""


@dataclass(frozen=True)
class Attempt:
    """One call to a specialist, written before it is made; `estimate` is its expected cost."""

    id: str
    decision: str
    kind: Kind
    specialist: str
    at: float
    estimate: int


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended: its status, cost, token counts and latencies in seconds."""

    status: Status
    cost: int
    usage: Usage = field(default_factory=Usage)
    first_token: float | None = None
    seconds: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Settlement:
    """The end of the attempt `id` at the Unix time `at`.

    `kind` replaces the kind it was written with, if it is not None: a look has become the answer, or a loser.
    """

    id: str
    outcome: Outcome
    at: float
    kind: Kind | None = None


@dataclass(frozen=True)
class Feedback:
    """What a client says about an answer. The last feedback of a decision and metric counts."""

    id: str
    decision: str
    at: float
    metric: str
    value: float
    source: str = "client"
    observed_at: float | None = None


@dataclass(frozen=True)
class Refusal:
    """Why a request may not spend. `retry_after` is in seconds; None if waiting does not help."""

    reason: Literal["unknown key", "revoked key", "rate", "budget"]
    message: str
    retry_after: float | None = None

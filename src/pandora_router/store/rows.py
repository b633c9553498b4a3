"""The records of the store, as frozen dataclasses. Times are Unix seconds; money is nanodollars."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pandora_router.wires.usage import Usage as Usage

Kind = Literal["answer", "inspection", "retry", "loser"]
"""Why a specialist was called: for the answer, for a look before the decision, as a retry after a failure, or
for a look after which another specialist was chosen (loser)."""

Status = Literal["open", "ok", "error", "cancelled", "lost"]
"""How an attempt ended. `lost` means that its worker process died before it recorded the end."""


@dataclass(frozen=True)
class SharedBudget:
    """A budget that many requests share: those of a group of keys, of a profile, or all.

    id: of its rows in the store. budget: nanodollars per `period`; None means unlimited. paced: whether its
    requests are also counted by the hour, for `learn.pace`.
    """

    kind: Literal["group", "profile", "all"]
    id: str
    name: str
    budget: int | None
    period: str
    paced: bool = False

    @classmethod
    def named(
        cls, kind: Literal["group", "profile", "all"], name: str, budget: int | None, period: str
    ) -> SharedBudget:
        """The budget of the group or profile `name`, or of all requests; its id follows from the name."""
        mark = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return cls(kind, f"{kind}-{mark}", name, budget, period, paced=kind != "group")

    def __str__(self) -> str:
        return "all requests" if self.kind == "all" else f"the {self.kind} {self.name}"


@dataclass(frozen=True)
class Key:
    """An API key; only its hash is stored.

    budget: nanodollars per `period`; None means unlimited.
    per_minute: requests per minute; None means unlimited.
    admin: the key may also open the dashboard, which shows the traffic of all keys.
    group: the budget that it shares with other keys; None if it is in no group.
    """

    id: str
    name: str
    created_at: float
    budget: int | None = None
    period: str = "month"
    per_minute: int | None = None
    revoked_at: float | None = None
    admin: bool = False
    group: SharedBudget | None = None


@dataclass(frozen=True)
class Session:
    """The specialist of a conversation, and what is known of it after its last complete answer.

    at: when that came. tokens: of the conversation, answers included. held: those of them that the cache of
    the specialist's provider was expected to hold then.
    """

    specialist: str
    at: float = 0.0
    tokens: int = 0
    held: int = 0


@dataclass(frozen=True)
class Version:
    """A router that is served instead of the one that the configuration file names.

    parent: the number of the version to go back to. basis: the artifact that the file named; a version counts
    only as long as the file names that one.
    """

    number: int
    at: float
    path: str
    artifact: str
    parent: int | None
    why: str
    basis: str


@dataclass(frozen=True)
class LiveTrial:
    """A candidate router (`path`, `artifact`) beside the serving one (`against_path`, `against`).

    share: of the requests where they may differ, the part that the candidate decides. watch: the candidate is
    the router of before a promotion. basis: as in `Version`.
    """

    id: str
    path: str
    artifact: str
    against_path: str
    against: str
    basis: str
    rule: Literal["veto", "proof"]
    share: float
    watch: bool
    started: float


@dataclass(frozen=True)
class Draw:
    """The coin of a trial in one request, tossed before anything was bought.

    candidate: whether it fell on the candidate, which happens with probability `share`. choices: of the
    serving router and of the candidate, None for one that depends on estimates which it would buy. expected:
    the rewards that the two expected. right_answer: dollars that a score of 1 is worth; None if money does
    not count.
    """

    trial: str
    candidate: bool
    share: float
    choices: tuple[str | None, str | None]
    expected: tuple[float, float]
    right_answer: float | None


@dataclass(frozen=True)
class DecisionRow:
    """One decision, written before the specialist is called.

    proposed: the router's choice.
    asked: who was picked; not `proposed` in observe mode, or if another one is explored at random. None
        stands for `specialist`.
    specialist: who is called, and later who answered; not `asked` if that one failed.
    propensity: probability with which `asked` was picked.
    randomised: whether a coin picked `asked` with that probability, and it answered. False for requests that
        name a specialist, continue a session, are only observed or failed over to another specialist.
    worth: expected reward of `asked` at the end of the decision; None if no router decided.
    detail: the whole decision as JSON values (`Decision.to_dict` and the gateway's exclusions).
    draw: the coin of a running trial, None if it was not tossed.
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
    asked: str | None = None
    randomised: bool = False
    worth: float | None = None
    session: str | None = None
    declined: str | None = None
    inspected: int = 0
    inspection_cost: int = 0
    baseline: int | None = None
    """Estimated cost of the answer by the best single specialist, to compute savings; None if unknown."""
    overhead: float = 0.0
    """Seconds between the arrival of the request and the call of the specialist, looks included."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    draw: Draw | None = None


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

    `kind`, if not None, replaces the kind of the attempt: a look has become the answer, or a loser.
    """

    id: str
    outcome: Outcome
    at: float
    kind: Kind | None = None


@dataclass(frozen=True)
class Feedback:
    """A client's rating of an answer. A later rating of the same decision and metric replaces it.

    comment: what the client says about the answer. correction: the answer that would have been right.
    """

    id: str
    decision: str
    at: float
    metric: str
    value: float
    source: str = "client"
    observed_at: float | None = None
    comment: str | None = None
    correction: str | None = None


@dataclass(frozen=True)
class Refusal:
    """Why a key may not make a request. `retry_after` is in seconds; None if waiting does not help."""

    reason: Literal["unknown key", "revoked key", "rate", "budget"]
    message: str
    retry_after: float | None = None


class Sums(dict[tuple[str, tuple[Any, ...]], tuple[Any, ...]]):
    """Rows that are written at the end of a transaction, by statement and key; see `Transaction.grow`."""

    def __init__(self, parts: Iterable[Sums] = ()) -> None:
        """The rows of several operations as one."""
        super().__init__()
        self._replaced: set[str] = set()
        for part in parts:
            for (sql, key), values in part.items():
                (self.replace if sql in part._replaced else self.add)(sql, key, values)

    def add(self, sql: str, key: Sequence[Any], amounts: Sequence[float]) -> None:
        """Add to what `sql` will write for `key`."""
        name = sql, tuple(key)
        before = self.get(name)
        self[name] = tuple(amounts) if before is None else tuple(map(operator.add, before, amounts))

    def replace(self, sql: str, key: Sequence[Any], values: Sequence[Any]) -> None:
        """Set what `sql` will write for `key`."""
        self._replaced.add(sql)
        self[sql, tuple(key)] = tuple(values)

    def taken(self, sql: str | None = None) -> list[tuple[Any, ...]]:
        """Remove and return the statements that write the rows, or those of `sql`, sorted by key.

        Concurrent writers lock rows in this order.
        """
        names = sorted(name for name in self if sql is None or name[0] == sql)
        return [(name[0], *name[1], *self.pop(name)) for name in names]

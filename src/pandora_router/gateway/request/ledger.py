"""The rows of one request in the store: begun with a reservation, revised after looks, closed.

In every case the decision is closed once and its reservation released. A request whose decision cannot be
written is refused (503). With `on_failure: serve` it is answered all the same if its key has no budget: its
rows are kept in memory, in order, and written when the store is back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pandora_router.errors import UpstreamError
from pandora_router.gateway.generation import Settings
from pandora_router.gateway.request.attempts import RunningAttempt
from pandora_router.router.decision import new_id
from pandora_router.store import accounts, budgets, log
from pandora_router.store.database import Transaction
from pandora_router.store.rows import (
    Attempt,
    DecisionRow,
    Key,
    Outcome,
    Refusal,
    Session,
    Settlement,
    SharedBudget,
)
from pandora_router.store.worker import Store
from pandora_router.transport.asgi import Refused, bearer

NO_KEY = (
    "This gateway needs an API key, and the request has none. Send the header Authorization: Bearer KEY (or "
    "x-api-key: KEY); the operator makes keys with: pandora keys add NAME"
)
STATUS = {"unknown key": 401, "revoked key": 401, "rate": 429, "budget": 429}
JUDGE = "judge"
"""Name in the row of estimates that were bought from a judge."""


@dataclass
class Ledger:
    """The rows of one request; `touched` once something may have been written.

    shared: the budgets of its profile and of all requests, besides those of its key.
    """

    id: str
    store: Store
    settings: Settings
    begun: float
    worker: str | None = None
    key: Key | None = None
    shared: tuple[SharedBudget, ...] = ()
    session: str | None = None
    known: Session | None = None
    opened: bool = False
    touched: bool = False
    admitted: bool = False

    @property
    def counted(self) -> bool:
        """Whether the request counts against any budget."""
        return self.key is not None or bool(self.shared)

    @property
    def limited(self) -> bool:
        """Whether a budget binds the request."""
        return limited(self.key, self.shared)

    @property
    def owner(self) -> str | None:
        """The id of the client's key; None where keys are not needed."""
        return None if self.key is None else self.key.id

    async def begin(
        self,
        decision: DecisionRow,
        attempts: Sequence[RunningAttempt],
        worst: int,
        *,
        least: int = 0,
        own: int = 0,
        judged: int = 0,
        prompt: str | None = None,
        request: str | None = None,
    ) -> Refusal | None:
        """Reserve `worst` and write the decision with its attempts; returns None, or why it was refused.

        `least`, if given, is reserved where a budget does not leave `worst`: it is enough for these attempts,
        and `add` asks again for more. `own` is the cost of estimates by this process, `judged` of estimates
        from outside.
        """
        key, rows, estimates = self.key, [attempt.row for attempt in attempts], new_id()

        def write(open_: Transaction) -> Refusal | None:
            refused = None
            if key is not None and not self.admitted:
                refused = accounts.admit(open_, key, self.begun)
            if self.counted and refused is None:
                lease = self.settings.lease
                refused = budgets.reserve(open_, key, self.id, worst + judged, self.begun, lease, self.shared)
            if refused is None:
                log.begin(open_, decision, rows, prompt=prompt, request=request, cost=own, worker=self.worker)
                self._judged(open_, estimates, judged)
                self._pin(open_, decision)
            return refused

        self.touched = True
        refused = await self._stored(write, takes=True)
        self.admitted = self.admitted or refused is None or refused.reason != "rate"
        self.opened = refused is None
        if refused is not None and refused.reason == "budget" and 0 < least < worst:
            return await self.begin(
                decision, attempts, least, own=own, judged=judged, prompt=prompt, request=request
            )
        return refused

    async def add(self, attempts: Sequence[RunningAttempt], worst: int = 0) -> None:
        """Write attempts of a decision that was begun, before they are made.

        Raises `Refused` if the budget does not leave `worst` for them, after what was charged so far.
        """
        rows, key = [attempt.row for attempt in attempts], self.key

        def write(open_: Transaction) -> Refusal | None:
            refused = budgets.extend(open_, key, self.id, worst, self.shared) if self.counted else None
            for row in rows if refused is None else ():
                log.attempt(open_, row)
            return refused

        refused = await self._stored(write, takes=True)
        if refused is not None:
            raise refusal(refused)

    async def revise(self, decision: DecisionRow, attempts: Sequence[RunningAttempt], worst: int) -> None:
        """Write the final decision, and attempts that are about to be made.

        Raises `Refused` if the budget does not leave `worst` for them, after what was charged so far.
        """
        rows, key = [attempt.row for attempt in attempts], self.key

        def write(open_: Transaction) -> Refusal | None:
            refused = None
            if self.counted and worst:
                refused = budgets.extend(open_, key, self.id, worst, self.shared)
            if refused is None:
                log.revise(open_, decision)
                for row in rows:
                    log.attempt(open_, row)
                self._pin(open_, decision)
            return refused

        refused = await self._stored(write, takes=True)
        if refused is not None:
            raise refusal(refused)

    async def close(
        self,
        status: str,
        attempt: RunningAttempt,
        last: Settlement,
        *,
        renamed: bool,
        baseline: int | None,
        response: str | None,
        pins: Mapping[str, Session],
        auction: Callable[[Transaction], object] | None = None,
    ) -> None:
        """Settle the attempt that answered and close the decision; `pins`: what is now known of sessions.

        `renamed`: whether a specialist other than that of the decision answered. `auction` is the write that
        ends the auction of the request, if there was one. Raises `Refused` if the
        store is unavailable; the decision is then closed when it is back.
        """
        now, first = time.time(), attempt.first_token
        since = None if first is None else first + attempt.begun - self.begun
        name = attempt.backend.name

        def write(open_: Transaction) -> None:
            log.close(
                open_,
                self.id,
                now,
                status=status,
                specialist=name if renamed else None,
                first_token=since,
                seconds=now - self.begun,
                response=response,
                baseline=baseline,
                last=last,
            )
            for session, known in pins.items():
                log.pin(open_, session, known, now, self.settings.session)
            if auction is not None:
                auction(open_)

        self.touched = False  # nothing is left to abandon
        await self._stored(write, kept=True)

    def abandon(self, status: str) -> None:
        """Close the decision in all other cases; does not wait and raises nothing.

        The client may disconnect while the decision is being written. Operations are committed in the order
        of the queue, so closing comes later, and has no effect if no row was written.
        """
        if self.touched:
            now = time.time()
            self.store.keep(
                lambda open_: log.close(open_, self.id, now, status=status, seconds=now - self.begun),
                short=True,
                of=self.id,
            )

    async def pinned(self, sessions: Sequence[str]) -> Session | None:
        """What is known of the first of these sessions that is known, or None; remembered as `known`."""

        def find(open_: Transaction) -> Session | None:
            return next((known for s in sessions if (known := log.pinned(open_, s, self.begun))), None)

        self.known = await self._stored(find, reads=True)
        return self.known

    def _judged(self, open_: Transaction, id_: str, cost: int) -> None:
        """Write the row and the charge of estimates from outside."""
        if cost:
            log.attempt(open_, Attempt(id_, self.id, "inspection", JUDGE, self.begun, cost))
            log.settle(open_, Settlement(id_, Outcome("ok", cost), self.begun))

    def _pin(self, open_: Transaction, decision: DecisionRow) -> None:
        if self.session is not None:
            known = self.known or Session(decision.specialist)
            if known.specialist != decision.specialist:
                known = replace(known, specialist=decision.specialist, held=0)
            log.pin(open_, self.session, known, self.begun, self.settings.session)

    @property
    def _serves(self) -> bool:
        """Whether the request is answered even if the store fails: budgets stay hard."""
        return self.settings.on_failure == "serve" and not self.limited

    async def _stored(
        self,
        operation: Callable[[Transaction], Any],
        *,
        kept: bool = False,
        reads: bool = False,
        takes: bool = False,
    ) -> Any:
        """Run an operation; None if the store failed and the request is served without it.

        Such an operation is done when the store is back, unless it only `reads`. Raises `Refused` otherwise.
        `takes`: it takes from the budget of the key.
        """
        taken = budgets.taking(self.key, self.begun, self.shared) if takes else ()
        kept = kept or (self._serves and not reads)
        try:
            return await self.store.run(operation, kept=kept, short=True, of=self.id, budgets=taken)
        except UpstreamError as error:
            if self._serves:
                return None
            raise Refused(503, f"The decision could not be recorded: {error}.", "store_failed") from error


def limited(key: Key | None, shared: Sequence[SharedBudget]) -> bool:
    """Whether a budget binds a request: that of its key or its group, or one of those that it shares."""
    own = None if key is None else key.budget
    above = [level.budget for level in (*budgets.above(key), *shared)]
    return any(budget is not None for budget in (own, *above))


def secret_of(headers: Mapping[str, str]) -> str:
    """The API key that a request states, "" if there is none."""
    return headers.get("x-api-key") or bearer(headers.get("authorization", ""))


async def identify(
    store: Store,
    headers: Mapping[str, str],
    now: float,
    shared: Sequence[SharedBudget] = (),
    *,
    keys: bool = True,
) -> tuple[Key | None, int | None]:
    """The key in the headers of a request, and what is left of its budgets in nanodollars, None if unlimited.

    shared: other budgets that bind the request. keys: whether a key is needed; without, it is None. Raises
    `Refused`: 401 if there is no such key or it was revoked, 503 if the store does not answer.
    """
    secret = secret_of(headers)
    if keys and not secret:
        raise Refused(401, NO_KEY, "invalid_api_key")

    def find(open_: Transaction) -> tuple[Key | Refusal | None, int | None]:
        if not keys:
            return None, budgets.left(open_, shared, now)
        return accounts.identify_with_budget(open_, secret, now, shared)

    try:
        identified, left = await store.run(find, short=True)
    except UpstreamError as error:
        raise Refused(503, f"The key could not be checked: {error}.", "store_failed") from error
    if isinstance(identified, Refusal):
        raise Refused(401, identified.message, "invalid_api_key")
    return identified, left


def refusal(refused: Refusal) -> Refused:
    """The error for a client whose request may not spend."""
    headers = {"x-should-retry": "false"} if refused.reason == "budget" else {}
    if refused.retry_after is not None:
        headers["retry-after"] = str(int(refused.retry_after) + 1)
    code = "insufficient_quota" if refused.reason == "budget" else "rate_limit_exceeded"
    return Refused(STATUS[refused.reason], refused.message, code, headers)

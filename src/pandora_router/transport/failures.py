"""A call to an endpoint that brought no usable reply."""

from __future__ import annotations

from typing import Literal

from pandora_router.errors import UpstreamError

Failure = Literal[
    "status",
    "timeout",
    "busy",
    "connection",
    "cut",
    "broken json",
    "content type",
    "not as agreed",
    "unpriced",
    "overcharged",
]
"""Why a call brought no usable reply. `overcharged`: the fee is above the worst case reserved for the call.
`busy`: no place under the rate limit became free in time."""


class Failed(UpstreamError):
    """One call that brought no usable reply.

    what: the message, in our own words; it never repeats text of the server.
    failure: the kind of failure, for statistics and for control flow.
    again: the same call may succeed later.
    charged: the server may have done the work, so the call may be on the bill.
    busy: the server has too much to do; other calls to the same endpoint should wait too.
    dead: no call to this model of this endpoint will ever succeed (wrong key, unknown model).
    wait: how many seconds the server asked to wait, None if it did not say.
    bill: what the server says it charged, where that is known; None if it is not.
    status: the HTTP status, where that is the failure.
    """

    def __init__(
        self,
        what: str,
        failure: Failure,
        *,
        again: bool,
        charged: bool = False,
        busy: bool = False,
        dead: bool = False,
        wait: float | None = None,
        bill: float | None = None,
        status: int | None = None,
    ) -> None:
        self.failure: Failure = failure
        self.again, self.charged, self.busy, self.dead = again, charged, busy, dead
        self.wait, self.bill, self.status = wait, bill, status
        super().__init__(what)

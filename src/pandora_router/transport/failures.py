"""A failed call to an endpoint: no usable reply."""

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
    "invalid reply",
    "unpriced",
    "overcharged",
]
"""Why a call failed. `overcharged`: the fee exceeds the worst case that was reserved for the call. `busy`: no
place under the rate limit became free in time."""


class Failed(UpstreamError):
    """One call without a usable reply.

    what: the message; it never repeats text of the server.
    failure: the kind of failure, for statistics and control flow.
    again: whether the same call may succeed later.
    charged: whether the call may be charged, because the server may have done the work.
    busy: whether the server is overloaded, so that other calls to the same endpoint should wait too.
    dead: whether no call to this model of this endpoint can succeed (wrong key, unknown model).
    wait: seconds that the server asked to wait, None if it did not say.
    bill: what the server says it charged, None if unknown.
    status: the HTTP status, if that is the failure.
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

    @property
    def brief(self) -> str:
        """The failure for a client of the gateway, without the address that the message has."""
        return f"status {self.status}" if self.status else self.failure

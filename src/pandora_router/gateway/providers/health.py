"""Circuit breakers: a specialist that keeps failing is not called for a while, then tried once.

    closed     calls go through; `FAILURES` failures in a row open it
    open       no calls for a pause that doubles each time, up to `LONGEST`
    half-open  the pause is over: one call goes through; its outcome closes or opens the circuit

The clock is passed in, so behaviour can be tested without waiting. Each worker has circuits of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

FAILURES = 5
SHORTEST = 5.0
LONGEST = 300.0


@dataclass
class Circuit:
    """The circuit of one specialist."""

    failures: int = 0
    pause: float = SHORTEST
    opened_at: float | None = None
    probing: bool = False

    def state(self, now: float) -> str:
        """`closed`, `open` or `half-open`."""
        if self.opened_at is None:
            return "closed"
        return "half-open" if now >= self.opened_at + self.pause else "open"

    def lets_through(self, now: float) -> bool:
        """Whether a call may be made now; does not change the state."""
        state = self.state(now)
        return state == "closed" or (state == "half-open" and not self.probing)

    def begin(self, now: float) -> None:
        """A call is being made; in a half-open circuit it is the only one."""
        if self.state(now) == "half-open":
            self.probing = True

    def succeed(self) -> None:
        """A call went well: close the circuit."""
        self.failures, self.pause, self.opened_at, self.probing = 0, SHORTEST, None, False

    def fail(self, now: float) -> bool:
        """A call failed: open the circuit after too many in a row, for longer if it was the probe.

        Returns whether this opened it.
        """
        before = self.opened_at
        self.failures += 1
        if self.probing:
            self.pause = min(2.0 * self.pause, LONGEST)
            self.opened_at, self.probing = now, False
        elif self.opened_at is None and self.failures >= FAILURES:
            self.opened_at = now
        return self.opened_at != before

    def abandon(self) -> None:
        """A call ended without information on the specialist, for example because the client disconnected."""
        self.probing = False

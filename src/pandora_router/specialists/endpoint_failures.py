"""One try at an endpoint that brought nothing, and what it says about the next."""

from __future__ import annotations

from ..errors import UpstreamError
from .answer import Failure


class Failed(UpstreamError):
    """One try that brought nothing.

    `again`: the same question may succeed later, not before `wait` seconds if that is given. `charged`: the
    other side may have done the work, so it may be on the bill. `busy`: it has too much to do, whatever the
    question. `dead`: no question will ever succeed.
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
    ) -> None:
        self.failure, self.again, self.charged, self.wait = failure, again, charged, wait
        self.busy, self.dead = busy, dead
        super().__init__(what)

"""The result of asking a specialist: an `Answer` with its fee, or `Unanswered` with the reason.

Token counts are those of the provider, or None; they are never estimated. `fee` is the price of the answer.
`lost` is an upper bound of what failed calls on the way to it may have cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pandora_router.errors import UpstreamError
from pandora_router.transport.failures import Failure

Finish = Literal["stop", "truncated", "empty", "refusal"]
"""How an answer ended. All four count as answers: they cost money and are graded as they are."""


@dataclass(frozen=True)
class Answer:
    """One answer.

    text: the answer.
    tokens_in, tokens_out: the provider's counts, None if it sent none.
    seconds: time until it was complete, measured here.
    fee: its price.
    context: what an estimator may read before the answer is bought: its first tokens, or passages.
    finish: how it ended.
    lost: upper bound of what failed calls before it may have cost.
    logprobs: log-probabilities of the first tokens, if requested and sent.
    context_seconds: seconds until the context was complete, None if not measured.
    bytes_in: length of the request, None if there was none.
    """

    text: str
    tokens_in: int | None
    tokens_out: int | None
    seconds: float
    fee: float
    context: str | None = None
    finish: Finish = "stop"
    lost: float = 0.0
    logprobs: tuple[float, ...] | None = None
    context_seconds: float | None = None
    bytes_in: int | None = None

    def __post_init__(self) -> None:
        """Replace unpaired surrogates, which cannot be written to files, by question marks."""
        object.__setattr__(self, "text", _whole(self.text))
        if self.context is not None:
            object.__setattr__(self, "context", _whole(self.context))


def _whole(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


class Unanswered(UpstreamError):
    """No answer after all retries.

    failure: the reason. dead: every other request to this specialist will fail too. lost: upper bound of
    what the calls may have cost.
    """

    def __init__(self, what: str, *, failure: Failure, dead: bool = False, lost: float = 0.0) -> None:
        self.failure: Failure = failure
        self.dead = dead
        self.lost = lost
        super().__init__(what)

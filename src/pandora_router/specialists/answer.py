"""What a specialist gives: an answer with its fee, or the reason why there is none.

Token counts are those of the provider, or None; they are never guessed. `fee` is what an answer costs. `lost`
is the most that may have been charged for calls that brought nothing on the way to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pandora_router.errors import UpstreamError
from pandora_router.transport.failures import Failure

Finish = Literal["stop", "truncated", "empty", "refusal"]
"""How an answer ended. All four are answers: they cost money and are graded as they are."""


@dataclass(frozen=True)
class Answer:
    """One answer.

    text: what was said.
    tokens_in, tokens_out: the provider's counts, None if it gave none.
    seconds: how long it took, as measured here.
    fee: what it costs.
    context: what an estimator may look at before the answer is bought: its first tokens, or passages.
    finish: how it ended.
    lost: the most that calls before it may have cost that brought nothing.
    logprobs: log-probabilities of the first tokens, where they were asked for and given.
    context_seconds: after how many seconds the context was there, None if that was not measured.
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

    def __post_init__(self) -> None:
        """Replace halves of surrogate pairs, which files cannot hold, by question marks."""
        object.__setattr__(self, "text", _whole(self.text))
        if self.context is not None:
            object.__setattr__(self, "context", _whole(self.context))


def _whole(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


class Unanswered(UpstreamError):
    """No answer, after all tries.

    failure: why. dead: every other request to this specialist will fail too. lost: the most that the tries
    may have cost.
    """

    def __init__(self, what: str, *, failure: Failure, dead: bool = False, lost: float = 0.0) -> None:
        self.failure: Failure = failure
        self.dead = dead
        self.lost = lost
        super().__init__(what)

"""What a specialist is and what it gives: an answer with its fee, or the reason why there is none.

Token counts come from whoever answered or are None; they are never guessed. Money is exact where it can be:
`fee` is what this answer costs, `lost` is the most that may have been charged on the way for tries that
brought nothing (a hang, a cut body). It refuses to know HTTP, budgets and grades.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from ..errors import UpstreamError, UsageError

Finish = Literal["stop", "truncated", "empty", "refusal"]
"""How an answer ended. All four are answers: they cost money and are graded as they are."""

Failure = Literal[
    "status", "timeout", "connection", "cut", "broken json", "content type", "not as agreed", "unpriced"
]
"""Why there is no answer."""


@dataclass(frozen=True)
class Answer:
    """One answer. `seconds` is measured; `context` is what an estimator may look at before judging.

    `logprobs` belong to the first tokens of the context, where they were asked for and given;
    `context_seconds` are those of the seconds after which the context was there: what a look takes.
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
        """Halves of surrogate pairs, which some providers send, become question marks: files refuse them."""
        object.__setattr__(self, "text", _whole(self.text))
        if self.context is not None:
            object.__setattr__(self, "context", _whole(self.context))


def _whole(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


class Unanswered(UpstreamError):
    """No answer after all tries. `dead`: asking the same specialist anything else is pointless."""

    def __init__(self, what: str, *, failure: Failure, dead: bool = False, lost: float = 0.0) -> None:
        self.failure = failure
        self.dead = dead
        self.lost = lost
        super().__init__(what)


@runtime_checkable
class Specialist(Protocol):
    """Anybody who answers prompts at a known price."""

    @property
    def name(self) -> str:
        """As in the routing table."""
        ...

    @property
    def identity(self) -> str:
        """Everything that decides the answers, as text without keys: the same text, the same specialist."""
        ...

    @property
    def at_once(self) -> int:
        """How many answers it can usefully be asked for at the same time."""
        ...

    def most(self, prompt: str) -> float:
        """An upper bound on what one `answer` can cost, fee and losses together."""
        ...

    async def answer(self, prompt: str) -> Answer:
        """One answer; raises `Unanswered` when there is none."""
        ...


@dataclass(frozen=True)
class Prices:
    """What is charged: by tokens, by seconds and by call, all added up.

    fee = (tokens_in * per_million_in + tokens_out * per_million_out) / 1e6 + seconds * per_second + per_call

    Every price must be stated: zero is said, never assumed, so there is no default for tokens.
    """

    per_million_in: float
    per_million_out: float
    per_second: float = 0.0
    per_call: float = 0.0

    def __post_init__(self) -> None:
        stated = (self.per_million_in, self.per_million_out, self.per_second, self.per_call)
        if not all(isinstance(one, int | float) and math.isfinite(one) and one >= 0 for one in stated):
            raise UsageError(
                "the prices of a specialist",
                expected="finite numbers, zero or more, per million tokens in and out",
                came=str(stated),
                do="State them; if answers really cost nothing, say 0.",
            )

    @property
    def by_token(self) -> bool:
        """Whether a fee needs token counts."""
        return self.per_million_in > 0 or self.per_million_out > 0

    def fee(self, tokens_in: int | None, tokens_out: int | None, seconds: float) -> float | None:
        """The fee in the unit of the prices, None if token counts are needed and missing."""
        if self.by_token and (tokens_in is None or tokens_out is None):
            return None
        tokens = (tokens_in or 0) * self.per_million_in + (tokens_out or 0) * self.per_million_out
        return tokens / 1e6 + seconds * self.per_second + self.per_call

    def most(self, texts: str, tokens_out: int, seconds: float) -> float:
        """An upper bound before the call: no tokenizer makes more tokens than bytes, plus 64 for markers."""
        bound = self.fee(len(texts.encode("utf-8", "replace")) + 64, tokens_out, seconds)
        assert bound is not None
        return bound


FREE = Prices(0.0, 0.0)
"""Answers cost nothing, and somebody said so."""

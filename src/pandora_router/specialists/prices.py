"""Prices of specialists: by tokens, by seconds and by call, and the worst case before a call."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pandora_router.errors import UsageError

CHARACTERS_PER_TOKEN = 4.0
"""Characters per token: an assumption, the usual rule of thumb for English text."""

MARKERS = 64
"""Tokens that a provider may add to a request: separators between messages, its own system prompt."""


@dataclass(frozen=True)
class Tariff:
    """Prices by tokens, by seconds and by call; a fee is their sum.

    fee = (tokens_in * per_million_in + tokens_out * per_million_out) / 1e6 + seconds * per_second + per_call

    Token prices have no default: a free specialist must state 0. Raises `UsageError` unless all four are
    finite and not negative.
    """

    per_million_in: float
    per_million_out: float
    per_second: float = 0.0
    per_call: float = 0.0

    def __post_init__(self) -> None:
        stated = (self.per_million_in, self.per_million_out, self.per_second, self.per_call)
        if not all(
            isinstance(price, int | float) and math.isfinite(price) and price >= 0 for price in stated
        ):
            raise UsageError(
                "the prices of a specialist",
                expected="finite numbers, zero or more, per million tokens in and out",
                came=str(stated),
                do="State them; if answers really cost nothing, say 0.",
            )

    @property
    def by_token(self) -> bool:
        """Whether the fee depends on token counts."""
        return self.per_million_in > 0 or self.per_million_out > 0

    def fee(self, tokens_in: int | None, tokens_out: int | None, seconds: float) -> float | None:
        """The fee in the unit of the prices; None if token counts are needed and missing."""
        if self.by_token and (tokens_in is None or tokens_out is None):
            return None
        tokens = (tokens_in or 0) * self.per_million_in + (tokens_out or 0) * self.per_million_out
        return tokens / 1e6 + seconds * self.per_second + self.per_call

    def most(self, bytes_in: int, tokens_out: int, seconds: float) -> float:
        """Upper bound of the fee of one call that sends `bytes_in` bytes.

        No tokenizer makes more tokens than there are bytes; `MARKERS` tokens are added for what the provider
        may add. `tokens_out` and `seconds` are the limits of the call.
        """
        bound = self.fee(bytes_in + MARKERS, tokens_out, seconds)
        assert bound is not None
        return bound


FREE = Tariff(0.0, 0.0)
"""Answers cost nothing; must be stated explicitly."""

"""What estimates cost in USD, from token prices: the paper's derivation (its appendix on monetary costs).

A cheap estimate embeds the prompt; a costly one reads it (where that is priced), writes some tokens, and may
pay a fixed price per call, such as a retrieval. With T tokens in a prompt and prices per million tokens:

    c_f = T embed / 1e6                  c_g = (T read + written write) / 1e6 + call

and a prompt over M specialists costs M c_f + queries c_g; inspecting everything needs no cheap estimates and
costs M c_g. That is how the points of the paper's figure come out (43 tokens, two specialists: 17 and 100 USD
per million prompts). The paper does not share one embedding among specialists, so neither does this. It
refuses to know what a mistake costs: USD stand beside regret, they are not added to it.
"""

from __future__ import annotations

from dataclasses import dataclass

CHARACTERS_PER_TOKEN = 4.0


@dataclass(frozen=True)
class Prices:
    """USD per million tokens embedded, read and written; USD per call; tokens written by an inspection.

    `tokens` in a prompt: left at 0 they are measured, at four characters a token.
    """

    embed: float = 0.20
    read: float = 0.25
    write: float = 2.50
    written: float = 1.0
    call: float = 0.0
    tokens: float = 0.0

    def cheap(self, characters: float) -> float:
        """c_f: one cheap estimate of a prompt of so many characters."""
        return self._tokens(characters) * self.embed / 1e6

    def costly(self, characters: float) -> float:
        """c_g: one inspection."""
        return (self._tokens(characters) * self.read + self.written * self.write) / 1e6 + self.call

    def prompt(self, characters: float, specialists: int, queries: float, *, cheap: bool = True) -> float:
        """One prompt with so many inspections; `cheap` is whether the way of routing looks at f at all."""
        looked = specialists * self.cheap(characters) if cheap else 0.0
        return looked + queries * self.costly(characters)

    def _tokens(self, characters: float) -> float:
        return self.tokens or characters / CHARACTERS_PER_TOKEN

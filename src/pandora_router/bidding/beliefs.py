"""The platform's own estimates for a prompt: from the cheap estimates of a router, or the same for all.

They set reserves and posted prices, and are the bids of plain endpoints. A bidder that the router does not
know gets the average of those it knows; nothing is refitted when a bidder joins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pandora_router.boxes import Boxes, Independent
from pandora_router.errors import UpstreamError
from pandora_router.router import Router
from pandora_router.router.opening import judged


class Beliefs(Protocol):
    """The platform's own estimates."""

    async def boxes(self, prompt: str, names: Sequence[str]) -> Boxes:
        """One box per name, in this order; raises `UpstreamError` for a prompt that cannot be judged."""
        ...


@dataclass(frozen=True)
class Even:
    """No router: all bidders have the same box."""

    mean: float = 0.5
    std: float = 0.25
    inspection_cost: float = 0.01

    async def boxes(self, prompt: str, names: Sequence[str]) -> Boxes:
        """The same box for every name."""
        size = len(names)
        return Independent(np.full(size, self.mean), np.full(size, self.std), self.inspection_cost)


@dataclass(frozen=True)
class RouterBeliefs:
    """The cheap estimates of a fitted router, through its signal model; nothing is inspected."""

    router: Router

    async def boxes(self, prompt: str, names: Sequence[str]) -> Boxes:
        """The router's own boxes as independent ones, with an average box for names it does not know."""
        return await self.router.worker(self._boxes, prompt, names)

    def _boxes(self, prompt: str, names: Sequence[str]) -> Boxes:
        cheap = judged(self.router.cheap, [prompt])[0]
        if cheap.row is None:
            raise UpstreamError(f"the prompt cannot be judged: {cheap.because}")
        known = self.router.signal.prior(cheap.row, self.router.costs).boxes
        columns = (known.mean, known.std, known.inspection_cost)
        place = {name: j for j, name in enumerate(self.router.specialists)}
        mean, std, cost = (
            np.array([column[place[name]] if name in place else column.mean() for name in names])
            for column in columns
        )
        return Independent(mean, std, cost)

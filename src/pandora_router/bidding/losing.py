"""Notices to bidders that lost an auction, so that they cancel the answers they began.

Notices to one bidder are collected for `PAUSE` seconds and sent together, so that there are a few requests
per second under load, not one per auction. Nothing waits for them. A bidder that misses one cancels its
beginnings when the time `keep` of the auction has passed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from pandora_router.bidding.seats import Seat

PAUSE = 0.05
SECONDS = 2.0
"""Seconds that a bidder may take to acknowledge."""


@dataclass
class LossNotices:
    """Sends notices of lost auctions; `add` returns at once."""

    _waiting: dict[str, tuple[Seat, list[str]]] = field(default_factory=dict)
    _task: asyncio.Task[None] | None = None

    def add(self, seat: Seat, auction: str) -> None:
        """Have `seat` told that it lost `auction`."""
        self._waiting.setdefault(seat.name, (seat, []))[1].append(auction)
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._send())

    async def _send(self) -> None:
        while self._waiting:
            await asyncio.sleep(PAUSE)
            batch, self._waiting = self._waiting, {}
            await asyncio.gather(*(seat.lost(auctions, SECONDS) for seat, auctions in batch.values()))

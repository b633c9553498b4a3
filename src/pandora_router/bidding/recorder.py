"""A `Recorder` that writes to the ledger: each step of an auction is on disk before the next one."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pandora_router.bidding.platform import Sale
from pandora_router.bidding.seats import Heard, Terms
from pandora_router.market import Bid, Wait
from pandora_router.store import auctions
from pandora_router.store.worker import Store


@dataclass(frozen=True)
class StoreRecorder:
    """Writes to `store`; a winner that stalls forfeits `forfeit` of its deposit."""

    store: Store
    forfeit: float = 0.1

    async def awarded(self, sale: Sale, terms: Terms, kind: str, heard: Sequence[Heard]) -> bool:
        """Record the calls so far and an award; the price moves to the platform.

        False if `sale.funded` and the winner's deposit and earnings do not cover the price.
        """
        now = time.time()
        row = auctions.AuctionRow(
            sale.auction,
            now,
            terms.mechanism,
            kind,
            "awarded",
            sale.turn,
            sale.bidder,
            sale.price,
            sale.claim,
            None,
        )
        asked = [asked_row(call) for call in heard]
        return await self.store.run(
            lambda open_: auctions.award(open_, row, asked, now, funded=sale.funded, proxy=sale.proxy)
        )

    async def delivered(self, sale: Sale) -> None:
        """Record that the winner answered."""
        await self.store.run(lambda open_: auctions.deliver(open_, sale.auction, sale.turn))

    async def stalled(self, sale: Sale) -> None:
        """Record that the winner did not: its money comes back, its deposit is forfeited."""
        await self.store.run(
            lambda open_: auctions.stall(open_, sale.auction, sale.turn, time.time(), forfeit=self.forfeit)
        )


def asked_row(heard: Heard) -> auctions.AskedRow:
    """A reply in the form of the ledger."""
    answer = heard.answer
    action = "bid" if isinstance(answer, Bid) else "wait" if isinstance(answer, Wait) else "leave"
    amount = answer.limit if isinstance(answer, Bid) else answer.until if isinstance(answer, Wait) else None
    shown = heard.price if math.isfinite(heard.price) else None
    return auctions.AskedRow(
        heard.bidder,
        heard.turn,
        shown,
        action,
        amount,
        heard.looks,
        heard.spent,
        heard.seconds,
        heard.fault,
    )

"""The private side of a bidder: its estimate for a prompt, its look, its answer.

`BidderSide` is the protocol; `RouterSide` is a specialist with its own artifact, whose look is the beginning
of its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from pandora_router.bidding.participants import Terms
from pandora_router.bidding.wire import Delivery, Offer
from pandora_router.boxes import Boxes
from pandora_router.calibrate.signals import Prior
from pandora_router.errors import UpstreamError, UsageError
from pandora_router.estimators.estimator import Query
from pandora_router.estimators.looking import Looking
from pandora_router.router import Router
from pandora_router.router.driver import judged
from pandora_router.specialists.specialist import Message, Request, Specialist


class BidderSide(Protocol):
    """The private side of one bidder. A `PandoraError` of any method means that it cannot take part."""

    async def box(self, offer: Offer) -> Boxes:
        """One box: the bidder's belief about the offered prompt before it inspects."""
        ...

    async def look(self, offer: Offer) -> float:
        """Pay for a look and return the value that it showed."""
        ...

    async def answer(self, delivery: Delivery) -> str:
        """Answer the prompt; continues the answer begun by a look."""
        ...

    def drop(self, auction: str) -> None:
        """Cancel what is held for a lost auction; may be called repeatedly."""
        ...


@dataclass
class RouterSide:
    """The specialist `name` of a fitted router: its f and g, its inspection cost, its own answers.

    Looks that need a context begin the specialist's answer; if the auction is won, the answer is continued.
    """

    router: Router
    specialist: Specialist
    held: dict[str, Looking] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.specialist.name not in self.router.specialists:
            raise UsageError(
                f"the bidder {self.specialist.name}",
                expected=f"one of {', '.join(self.router.specialists)}, for whom the router was fitted",
                came=repr(self.specialist.name),
                do="Fit a router with this specialist in its table.",
            )

    @property
    def at(self) -> int:
        """The column of this specialist."""
        return self.router.specialists.index(self.specialist.name)

    async def box(self, offer: Offer) -> Boxes:
        """The specialist's own box, from the cheap estimates of the prompt.

        Raises `UsageError` for messages that the specialist could not answer.
        """
        request_of(offer)
        prior = await self.router.worker(self._prior, offer.prompt)
        return prior.boxes.only(np.array([self.at]))

    def _prior(self, prompt: str) -> Prior:
        cheap = judged(self.router.cheap, [prompt])[0]
        if cheap.row is None:
            raise UpstreamError(f"the prompt cannot be judged: {cheap.because}")
        return self.router.signal.prior(cheap.row, self.router.costs)

    async def look(self, offer: Offer) -> float:
        """The costly estimate as a value; begins the answer if the estimate reads it."""
        name, predictor = self.specialist.name, self.router.predictor
        if predictor is None:
            raise UpstreamError("the costly estimate is not computed by this process")
        looking = self.held.get(offer.auction)
        if looking is None:
            # the predictor knows other specialists too; only this one is ever asked for
            everyone: Mapping[str, Specialist] = dict.fromkeys(predictor.needs, self.specialist)
            looking = Looking(request_of(offer), predictor, everyone, work=self.router.worker)
            self.held[offer.auction] = looking
        estimates = await looking.estimate_all(Query(offer.prompt), [name])
        if not np.isfinite(estimates[self.at]):
            raise UpstreamError("the look showed nothing")
        prior = await self.router.worker(self._prior, offer.prompt)
        means = prior.means(np.arange(len(estimates)) == self.at, estimates)
        return prior.value(self.at, float(estimates[self.at])) if means is None else means[self.at]

    async def answer(self, delivery: Delivery) -> str:
        """Continue the beginning, or answer from the start."""
        looking = self.held.pop(delivery.auction, None)
        if looking is None:
            return (await self.specialist.answer(request_of(delivery))).text
        with looking:
            return (await looking.answer(self.specialist.name)).text

    def drop(self, auction: str) -> None:
        """Cancel the beginning."""
        looking = self.held.pop(auction, None)
        if looking is not None:
            looking.close()


def request_of(message: Offer | Delivery | Terms) -> Request:
    """The conversation of a message, or its prompt alone.

    Raises `UsageError` if a role is unknown or no message is by the user.
    """
    if not message.messages:
        return Request.of(message.prompt)
    return Request(tuple(Message(turn.role, turn.content) for turn in message.messages))


async def looked(private: BidderSide, offer: Offer) -> float | None:
    """The value that a look shows within the deadline of the offer; None if it fails or takes longer."""
    try:
        async with asyncio.timeout(0.9 * offer.deadline):
            return await private.look(offer)
    except (UpstreamError, TimeoutError, OSError):
        return None

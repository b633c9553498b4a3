"""A judge that reads looks during a request, and what it charged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from pandora_router.estimators.judge import Judge
from pandora_router.estimators.looking import Judged
from pandora_router.gateway.site import Site
from pandora_router.router import Router
from pandora_router.specialists.answer import Unanswered
from pandora_router.specialists.beginning import told_to_judge, with_verdict
from pandora_router.store.money import nanodollars

WIDEST = "\N{MUSICAL SYMBOL G CLEF}"
"""A character that takes most bytes, twelve, when it is quoted for a judge."""
Charge = Callable[[int], Awaitable[None]]
"""Writes a cost in nanodollars."""


@dataclass
class Judging:
    """The verdicts of one request on the first `characters` of looks, and what they cost in dollars."""

    judge: Judge
    characters: int
    charge: Charge
    spent: float = 0.0

    def most(self, prompt: str, name: str) -> int:
        """The most that a verdict can cost, in nanodollars."""
        longest = self.judge.asked_before(prompt, name, WIDEST * self.characters)
        return nanodollars(self.judge.most(longest))

    async def read(self, prompt: str, contexts: Mapping[str, str], until: float) -> dict[str, str]:
        """The contexts with a verdict, of those on which one came before `until` (`time.monotonic`).

        What the judge charged is written before this ends: also for verdicts that did not come in time, and
        if the client has gone.
        """
        if not contexts:
            return {}
        before = self.spent
        calls = {
            name: asyncio.ensure_future(self._verdict(prompt, name, text)) for name, text in contexts.items()
        }
        try:
            await asyncio.wait(calls.values(), timeout=max(until - time.monotonic(), 0.0))
        finally:
            for call in calls.values():
                call.cancel()
            said = await asyncio.gather(*calls.values(), return_exceptions=True)
            await self.charge(nanodollars(self.spent - before))
        pairs = zip(contexts.items(), said, strict=True)
        return {name: with_verdict(text, score) for (name, text), score in pairs if isinstance(score, float)}

    async def _verdict(self, prompt: str, name: str, context: str) -> float | None:
        request = self.judge.asked_before(prompt, name, told_to_judge(context, self.characters))
        try:
            score, answer = await self.judge.verdict(request)
        except Unanswered as error:
            self.spent += error.lost
            return None
        except asyncio.CancelledError:
            self.spent += self.judge.most(request)
            raise
        self.spent += answer.fee + answer.lost
        return score


def judging_of(site: Site, router: Router, charge: Charge) -> Judging | None:
    """The judge of the site, if there is one and the router was fitted with its verdicts."""
    reader: object = router.predictor
    if site.judge is None or router.costs.tiers == 1 or not isinstance(reader, Judged):
        return None
    return Judging(site.judge, reader.peek, charge)

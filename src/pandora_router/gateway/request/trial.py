"""A trial in one request: which of two routers decides, by a coin that is tossed before anything is bought.

Both routers begin to decide. Where neither buys an estimate and both choose the same specialist, nothing is
at stake and no coin is tossed. Otherwise the candidate decides with the probability of the trial, else the
serving router: looks, judges and their cost included, as it would if it served alone.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pandora_router.gateway.generation import AUTO, Challenger, Site
from pandora_router.gateway.request.looks import LiveLooks
from pandora_router.prices import Lengths
from pandora_router.router import Decision, Router
from pandora_router.router.deciding import Deciding, Looks, deciding
from pandora_router.router.driver import drive, judged
from pandora_router.router.purchases import Ask
from pandora_router.router.revalue import weighed
from pandora_router.store.rows import Draw


@dataclass
class Opening:
    """A decision that has begun: it has ended, or it asks for estimates that nobody has bought yet.

    expected: the reward expected so far. draw: the coin by which this router decides; None if there is none.
    """

    router: Router
    looks: LiveLooks | None
    choosing: Deciding
    ask: Ask | None
    decision: Decision | None
    expected: float
    draw: Draw | None = None

    @property
    def choice(self) -> str | None:
        """The specialist that was chosen; None if that depends on estimates."""
        return None if self.decision is None else self.decision.specialist

    @property
    def declined(self) -> bool:
        """Whether the prompt could not be judged."""
        return self.decision is not None and self.decision.declined_because is not None

    async def decide(self, deadline: float) -> Decision:
        """Go on to the end of the decision, buying estimates for at most `deadline` seconds."""
        if self.decision is not None:
            return self.decision
        until, pay = time.monotonic() + deadline, None if self.looks is None else self.looks.pay
        return (await drive(self.router, [self._rest()], self.router.worker, until, pay))[0]

    def _rest(self) -> Deciding:
        asked = self.ask
        assert asked is not None
        while True:
            paid = yield asked
            try:
                asked = self.choosing.send(paid)
            except StopIteration as end:
                decision: Decision = end.value
                return decision


def _opening(
    router: Router, looks: LiveLooks | None, prompt: str, known: Sequence[str], costs: Looks | None
) -> Opening:
    cheap = judged(router.cheap, [prompt])[0]
    choosing = deciding(router, prompt, cheap, None, known, costs)
    try:
        ask = next(choosing)
    except StopIteration as end:
        decision: Decision = end.value
        expected = decision.worth.get(decision.specialist, 0.0)
        return Opening(router, looks, choosing, None, decision, expected)
    inside = [j for j, name in enumerate(router.specialists) if name in known]
    assert cheap.row is not None
    return Opening(router, looks, choosing, ask, None, float(cheap.row[inside].max()))


def on_trial(site: Site, model: str, measured: Mapping[str, Lengths]) -> Router | None:
    """The candidate of the running trial, for a request that names `model`; None if it is none of a trial."""
    candidate = site.candidate
    if candidate is None or site.router is None or model != AUTO or site.settings.mode == "observe":
        return None
    router, weight = candidate.router, site.router.fee_weight
    if router.fee_weight != weight:  # the worth follows a budget
        router = weighed(router, weight)
    return site.current(router, site.second, measured, site.until)


async def toss(
    sides: Sequence[tuple[Router, LiveLooks | None]],
    candidate: Challenger | None,
    prompt: str,
    offered: Sequence[str],
    rng: random.Random,
) -> Opening | None:
    """The decision that goes on: of the serving router or of the candidate, which are `sides` in this order.

    None if no specialist that both know is offered.
    """
    known = [name for name in sides[0][0].specialists if name in offered]
    if candidate is None or not known or set(known) - set(sides[1][0].specialists):
        return None
    costs = [None if looks is None else looks.looks() for _, looks in sides]

    def both() -> list[Opening]:
        return [
            _opening(router, looks, prompt, known, cost)
            for (router, looks), cost in zip(sides, costs, strict=True)
        ]

    serving, other = await sides[0][0].worker(both)
    same = serving.choice is not None and serving.choice == other.choice
    if same or serving.declined or other.declined:
        return serving
    fell = rng.random() < candidate.share
    weight = sides[0][0].fee_weight
    drawn = Draw(
        candidate.trial,
        fell,
        candidate.share,
        (serving.choice, other.choice),
        (serving.expected, other.expected),
        1.0 / weight if weight > 0.0 else None,
    )
    return replace(other if fell else serving, draw=drawn)

"""Ways to cheat as strategies, and their damage: for tests, simulations and docs/market-network.md.

Each is compared with the same auctions with truthful bidders. `Damage` has the gain of the cheats (their
surplus: rewards minus prices minus inspection costs), and the change for the market (welfare: the reward of
the winner minus all inspection costs; revenue: payments to the platform). All are means per prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.bidding_network import SimulatedMarket, Strategies
from pandora_router.bidding.participants import RemoteParticipant
from pandora_router.bidding.platform import AuctionResult
from pandora_router.bidding.rules import Reputation
from pandora_router.bidding.service import TRUTHFUL
from pandora_router.market import Answer, Bid, Call, Leave, Strategy, Wait
from pandora_router.search import OUTSIDE, Inspect, State
from pandora_router.store.auctions import Score
from pandora_router.types import Matrix, Vector


@dataclass(frozen=True)
class Inflated:
    """Claims `by` more than its value (below 0: shading). With `blind` it never inspects."""

    base: Strategy
    by: float
    blind: bool = False

    def next(self, call: Call, state: State) -> Inspect | Answer:
        """The base's answer, raised; a posted price is judged as if it were lower by as much."""
        me = call.bidder
        if self.blind:
            return Bid(float(state.boxes.mean[me]) + self.by)
        said = self.base.next(replace(call, price=call.price - self.by), state)
        if isinstance(said, Wait) and said.until + self.by == call.price:  # it is there, but for rounding
            said = self.base.next(replace(call, price=said.until), state)
        if isinstance(said, Bid):
            return Bid(said.limit + self.by)
        return Wait(said.until + self.by) if isinstance(said, Wait) else said


@dataclass(frozen=True)
class Absent:
    """Leaves every auction: the partner in a ring of bidders that lowers the price for the other."""

    def next(self, call: Call, state: State) -> Inspect | Answer:
        """Leave."""
        return Leave()


def everywhere(strategy: Strategy) -> Strategies:
    """The same strategy for every mechanism."""
    return dict.fromkeys(TRUTHFUL, strategy)


def inflated(by: float, *, blind: bool = False) -> Strategies:
    """Truthful strategies that say `by` more."""
    return {name: Inflated(base, by, blind) for name, base in TRUTHFUL.items()}


@dataclass(frozen=True)
class Damage:
    """Means per prompt with standard errors: the cheats' gain, the market's change in welfare and revenue."""

    gain: float
    gain_error: float
    welfare: float
    welfare_error: float
    revenue: float


def with_cheats(town: SimulatedMarket, cheats: Mapping[int, Strategies]) -> SimulatedMarket:
    """The same market in which some bidders cheat."""
    honest: Sequence[Strategies] = town.strategies or [TRUTHFUL] * len(town.names)
    return replace(town, strategies=[cheats.get(j, own) for j, own in enumerate(honest)])


def outcomes(town: SimulatedMarket, rows: Sequence[int]) -> tuple[Matrix, Vector, Vector]:
    """Surplus of each bidder (N, M), welfare (N,) and revenue (N,) of the auctions, held in this process."""
    surplus = np.zeros((len(rows), len(town.names)))
    welfare, revenue = np.zeros(len(rows)), np.zeros(len(rows))
    for at, row in enumerate(rows):
        record = town.record(row)
        order = town.rules.order(town.auction(row), len(town.names))
        rewards = town.instance.rewards[row]
        surplus[at, order] = record.surplus(rewards[order])
        welfare[at] = record.welfare(rewards[order])
        if record.winner == OUTSIDE:  # the default is the platform's best guess
            welfare[at] += float(rewards[int(town.instance.mean[row].argmax())])
        revenue[at] = record.revenue
    return surplus, welfare, revenue


def damage(town: SimulatedMarket, cheats: Mapping[int, Strategies], rows: Sequence[int]) -> Damage:
    """The total gain of the cheats, and the damage to the market."""
    before, after = outcomes(town, rows), outcomes(with_cheats(town, cheats), rows)
    who = list(cheats)
    gain = (after[0] - before[0])[:, who].sum(axis=1)
    welfare = after[1] - before[1]
    root = np.sqrt(len(rows))
    return Damage(
        float(gain.mean()),
        float(gain.std(ddof=1) / root),
        float(welfare.mean()),
        float(welfare.std(ddof=1) / root),
        float((after[2] - before[2]).mean()),
    )


@dataclass
class Graded:
    """A platform that learns: every answer is graded at once, and handicaps follow (`reputation`)."""

    town: SimulatedMarket
    participants: Sequence[RemoteParticipant]
    reputation: Reputation
    scores: dict[str, Score] = field(default_factory=dict)

    async def play(self, rows: Sequence[int]) -> list[AuctionResult]:
        """Hold the auctions one after the other."""
        platform, results = self.town.platform(), []
        for row in rows:
            participants = [
                replace(participant, handicap=self.reputation.handicap(self.scores.get(participant.name)))
                for participant in self.participants
            ]
            result = await self.town.play(platform, participants, row)
            self.grade(result, row)
            results.append(result)
        return results

    def grade(self, result: AuctionResult, row: int) -> None:
        """Compare the winner's claim with the realised reward."""
        claims = [
            call.stated for call in result.heard if call.bidder == result.bidder and call.stated is not None
        ]
        if result.bidder is None or not claims:
            return
        miss = claims[-1] - float(self.town.instance.rewards[row, self.town.names.index(result.bidder)])
        old = self.scores.get(result.bidder, Score(result.bidder, "", 0, 0.0, 0.0))
        self.scores[result.bidder] = Score(
            old.bidder, old.kind, old.graded + 1, old.total + miss, old.squares + miss * miss
        )

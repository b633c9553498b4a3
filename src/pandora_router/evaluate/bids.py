"""Markets on real routing tables: the paper's bidding experiment and every mechanism, over fresh splits.

Signal model: the paper's independent normal one, N(h(f), s^2) around G, fitted on calibration prompts. Each
specialist in turn is held out and answers a posted price on the test prompts (`market.LeaveOneOut`), against
strong opponents (price from G) and weak ones (price from raw f). The mechanisms in which all take part come
from `market.outcomes`, with realised rewards as welfare. Every bidder that inspects pays a shared inspection
cost. Numbers have two standard errors, over prompts and over splits (`statistics`). Differences between
conducts are taken prompt by prompt, so oracle and opponents' costs cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar, get_args

import numpy as np

from pandora_router import market
from pandora_router.boxes import Costs
from pandora_router.calibrate import Calibrated, GaussianIndependent
from pandora_router.evaluate.arms import Shipped
from pandora_router.evaluate.estimates import estimates, table_of
from pandora_router.evaluate.experiments import Experiment, cheap_name
from pandora_router.evaluate.outcomes import CostsAt
from pandora_router.evaluate.statistics import Clusters, Estimate, Split, compare
from pandora_router.evaluate.trials import Trial, trial_of
from pandora_router.market.posted import Bidding, Conduct, Measure, Opponents, Reference
from pandora_router.run import InPlace, Runner
from pandora_router.search import kernels
from pandora_router.types import Progress, Vector, silent

COSTS = (0.0001, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
TRADED = (0.001, 0.01, 0.03)  # the costs of the mechanism table
ROUNDING = 1e-12  # smaller differences are rounding errors
PLAIN: Conduct = "never inspect"  # the non-strategic conduct, "f-only" in the paper's figures
CENTRAL = "router: rollout"
DEFAULT = "router: default, correlated boxes"
OPPONENTS: tuple[Opponents, ...] = get_args(Opponents)
CONDUCTS: tuple[Conduct, ...] = get_args(Conduct)
Kind = tuple[Measure, Reference, bool]  # measure, reference, whether opponents' inspections are counted
KINDS: tuple[Kind, ...] = (
    ("surplus", "value", False),
    ("surplus", "hindsight", False),
    ("efficiency", "value", False),
    ("efficiency", "hindsight", False),
    ("efficiency", "value", True),
    ("efficiency", "hindsight", True),
)
K = TypeVar("K")
Setting = tuple[Opponents, Conduct, float]


@dataclass(frozen=True, eq=False)
class Played:
    """One split: the results of every conduct and every mechanism on its test prompts."""

    specialists: int
    prompt: Clusters
    cluster: Clusters
    bids: Mapping[Setting, Bidding]
    trades: Mapping[tuple[str, float], market.PromptResults]


@dataclass(frozen=True, eq=False)
class Bids:
    """An experiment where f uses k neighbours, over splits."""

    name: str
    title: str
    domain: str
    specialists: int
    neighbours: int
    costs: tuple[float, ...]
    traded: tuple[float, ...]
    splits: Sequence[Played]

    @cached_property
    def regrets(self) -> dict[tuple[Setting, Kind], Estimate]:
        """Every regret of every conduct; a star means only that it is not 0."""
        keys = [(setting, kind) for setting in self.splits[0].bids for kind in KINDS]
        return self._estimates(keys, _regret)

    @cached_property
    def gaps(self) -> dict[tuple[Setting, Measure], Estimate]:
        """How much more surplus and efficiency a conduct has than never inspecting, all else equal."""
        measures: tuple[Measure, ...] = get_args(Measure)
        keys = [(setting, m) for setting in self.splits[0].bids for m in measures]
        return self._estimates(keys, _gap)

    @cached_property
    def welfare(self) -> dict[tuple[str, float], tuple[Estimate, Estimate]]:
        """The welfare regret of every mechanism, and its difference to the central router's."""
        keys = list(self.splits[0].trades)
        level = self._estimates(keys, _welfare)
        above = self._estimates(keys, _above)
        return {key: (level[key], above[key]) for key in keys}

    def looks(self, setting: Setting) -> float:
        """How often the held-out specialist inspects."""
        return float(np.mean([split.bids[setting].inspections.mean() for split in self.splits]))

    def trade_looks(self, mechanism: str, cost: float) -> float:
        """Inspections a prompt in a mechanism."""
        return float(np.mean([split.trades[mechanism, cost].inspections.mean() for split in self.splits]))

    def _estimates(self, keys: Sequence[K], of: Callable[[Played, K], Vector]) -> dict[K, Estimate]:
        if not keys:
            return {}
        splits = []
        for split in self.splits:
            columns = np.stack([of(split, key) for key in keys], axis=1)
            splits.append(
                Split(np.where(np.abs(columns) < ROUNDING, 0.0, columns), split.prompt, split.cluster)
            )
        gaps = compare(splits)
        numbers = zip(gaps.mean, gaps.error, gaps.split_error, gaps.star, strict=True)
        values = [Estimate(float(m), float(e), float(s), bool(star)) for m, e, s, star in numbers]
        return dict(zip(keys, values, strict=True))


def _regret(split: Played, key: tuple[Setting, Kind]) -> Vector:
    setting, (measure, against, counted) = key
    return split.bids[setting].regret(measure, against=against, counted=counted)


def _gap(split: Played, key: tuple[Setting, Measure]) -> Vector:
    setting, measure = key
    mine, plain = split.bids[setting], split.bids[setting[0], PLAIN, setting[2]]
    return mine.surplus - plain.surplus if measure == "surplus" else mine.efficiency - plain.efficiency


def _welfare(split: Played, key: tuple[str, float]) -> Vector:
    return split.trades[key].regret


def _above(split: Played, key: tuple[str, float]) -> Vector:
    return split.trades[key].regret - split.trades[CENTRAL, key[1]].regret


def market_of(trial: Trial) -> market.Instance:
    """The test prompts as a market: f, mean, standard deviation, G and realised rewards."""
    test, signal = trial.test, trial.signal(GaussianIndependent())
    mean, std = signal.expected(test.cheap), signal.spread(test.cheap)
    return market.Instance(test.cheap, mean, std, test.costly, test.reward)


def shipped_market(trial: Trial) -> market.Instance:
    """The test prompts as a market of bidders that each have the default signal model, as `pandora bid` does.

    A bidder sees its own box alone: its mean, spread and law are those of the default router, and what it
    sees is shrunk by the same slope. How its values depend on those of others is left out.
    """
    test, signal = trial.test, trial.signal(Calibrated())
    boxes = signal.batch(test.cheap, 0.0)
    values = signal.values(test.cheap, test.costly)
    return market.Instance(
        test.cheap, boxes.mean, boxes.std, values, test.reward, boxes.quantiles, boxes.rank
    )


def play(trial: Trial, costs: Sequence[float], costs_at: CostsAt, *, traded: Sequence[float] = ()) -> Played:
    """Run every conduct at every cost, and every mechanism at the costs `traded`, on one split."""
    table = market_of(trial)
    bids = {
        (opponents, conduct, cost): market_.play(conduct, costs_at(cost))
        for opponents in OPPONENTS
        for market_ in (market.leave_one_out(table, opponents),)
        for conduct in CONDUCTS
        for cost in costs
    }
    trades = {
        (name, cost): outcome
        for cost in traded
        for name, outcome in (
            *market.outcomes(table, costs_at(cost)).items(),
            (DEFAULT, default_router(trial, costs_at(cost))),
        )
    }
    return Played(trial.test.cheap.shape[1], trial.prompt, trial.test.cluster, bids, trades)


def default_router(trial: Trial, costs: Costs) -> market.PromptResults:
    """The default router on its own signal model; there is no trade, since nobody owns an estimate."""
    test = trial.test
    routed = Shipped().route(trial, costs, 0, np.random.default_rng(0))
    nothing = np.full(len(test), np.nan)
    return market.PromptResults(routed.total(test), routed.inspections, nothing, nothing)


@dataclass(frozen=True)
class Game:
    """An experiment with k neighbours at these costs, with mechanisms at the costs `traded`."""

    experiment: Experiment
    root: Path
    neighbours: int
    seeds: tuple[int, ...]
    costs: tuple[float, ...] = COSTS
    traded: tuple[float, ...] = TRADED
    cache: Path | None = None  # where estimates are kept (numbers, no texts)


def run(games: Sequence[Game], runner: Runner | None = None, progress: Progress | None = None) -> list[Bids]:
    """Run games over their fresh splits; a shard is one split."""
    say = progress or silent
    shards = [(game, seed) for game in games for seed in game.seeds]
    kernels.warm(say)  # once for all workers
    coming = (runner or InPlace()).map(_split, shards)
    done, bids = 0, []
    for game in games:
        splits = []
        for seed in game.seeds:
            say(f"{game.experiment.name}: seed {seed}, {cheap_name(game.neighbours)}", done, len(shards))
            splits.append(next(coming))
            done += 1
        about = game.experiment.name, game.experiment.title or game.experiment.name, game.experiment.domain
        size = splits[0].specialists
        bids.append(Bids(*about, size, game.neighbours, game.costs, game.traded, splits))
    return bids


def _split(shard: tuple[Game, int]) -> Played:
    """One game on one split."""
    game, seed = shard
    table = table_of(game.experiment, game.root)
    arrays = estimates(game.experiment, table, seed, game.cache)
    costs_at = partial(_each_alone, game.experiment, table.specialists, bool(arrays["together"]))
    trial = trial_of(arrays, game.neighbours)
    return play(trial, game.costs, costs_at, traded=game.traded)


def _each_alone(experiment: Experiment, specialists: tuple[str, ...], together: bool, cost: float) -> Costs:
    """Costs of bidders that inspect separately: each pays the shared part; refunds are kept."""
    costs = experiment.costs_at(cost, specialists, together=together)
    return Costs(costs.marginal, refund=costs.refund)

r"""Evidence for and against a candidate router B beside the serving router A, valid however often it is read.

Where A and B choose different specialists, B's choice is asked with probability delta. With reward r of the
answer, and q_A, q_B the rewards that were expected of the two choices before the trial,

    D = q_B - q_A + [B] (r - q_B) / delta - [A] (r - q_A) / (1 - delta)

has the expectation of B's reward minus A's, whatever q is. Where both agree, D = 0 and nothing is recorded.
While B is not better, each product over answers of 1 + lam D, with lam fixed before D is seen and 1 + lam D
never negative, is a supermartingale that starts at 1. So is the mean over the bets

    lam = LARGEST / bound * logspace(-1.5, 0, 8),        bound >= |D|,

and by Ville's inequality the chance that it ever reaches `CERTAIN` is at most 1 / CERTAIN = 5 %. The same
with -D is evidence against B. The state is a few floats, so that a store can keep it as JSON.

Where a router may buy estimates before it chooses, its choice is not known without buying them. The coin then
decides which of the two routers serves the whole request, estimates and their cost included, and r is what
remains of the score after all of that cost. D has the same expectation, because q was fixed before the coin.

Keep out what was not randomised (fail-over, requests pinned to a session, calls by name). If the chance that
an answer is rated depends on its score, divide the *whole* D by that chance and the bound by the smallest.
`counted` adds rated requests of a log: those of one session depend on each other, so a session counts once.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from pandora_router.errors import UsageError

LARGEST = 0.5
"""The largest share of its wealth that a bet can lose by one answer."""
GRID = tuple((LARGEST * np.logspace(-1.5, 0.0, 8)).tolist())
"""The bets, for a bound of 1."""
CERTAIN = 20.0
"""Evidence at which something is proven: a wrong proof has a chance of at most 1 / CERTAIN."""
LEAST = 2000
"""Rated disagreements before a candidate is promoted without proof."""

WORST = -0.5
"""Rewards and expectations of a trial are cut to [WORST, 1]: a request that costs more counts as this."""
UNBOUNDED = 20
"""Sessions of one key that count whatever its share is: at the start there is nothing to be a share of."""

Rule = Literal["veto", "proof"]
Verdict = Literal["promote", "drop", "go on"]


@dataclass(frozen=True)
class Evidence:
    """A running trial. `after` returns the state after one more rated disagreement.

    rated: number of D so far. total, squares: sums of D and of D^2. for_, against: logarithm of the wealth of
    each bet on "B is better" and on "B is worse". least: the number of D at which the mean is asked for a
    veto. vetoed: its answer, None before that.

    >>> trial = Evidence.start().after(0.5).after(-0.25)
    >>> trial.rated, trial.mean
    (2, 0.125)
    """

    rated: int
    total: float
    squares: float
    for_: tuple[float, ...]
    against: tuple[float, ...]
    least: int = LEAST
    vetoed: bool | None = None

    @classmethod
    def start(cls, least: int = LEAST) -> Evidence:
        """The state before any answer was rated: evidence 1 on both sides."""
        return cls(0, 0.0, 0.0, (0.0,) * len(GRID), (0.0,) * len(GRID), least)

    def after(self, d: float, bound: float = 2.0) -> Evidence:
        """The state after the difference `d`; `bound` is known before the answer, as by `largest(delta)`.

        A difference beyond the bound is cut to it; both sides stay valid where `bound` is a true bound.
        Raises `UsageError` if `d` is not finite or `bound` not a positive number.
        """
        if not (math.isfinite(d) and math.isfinite(bound) and bound > 0.0):
            raise UsageError(
                "evidence of a trial",
                expected="a finite difference and a positive bound",
                came=f"difference {d}, bound {bound}",
                do="Leave answers without a finite reward out of the trial.",
            )
        cut = min(max(d, -bound), bound)
        bets = [bet / bound for bet in GRID]
        made = Evidence(
            self.rated + 1,
            self.total + cut,
            self.squares + cut * cut,
            tuple(wealth + math.log1p(bet * cut) for wealth, bet in zip(self.for_, bets, strict=True)),
            tuple(wealth + math.log1p(-bet * cut) for wealth, bet in zip(self.against, bets, strict=True)),
            self.least,
            self.vetoed,
        )
        return made if made.rated != self.least else replace(made, vetoed=made.mean < -made.standard_error)

    @property
    def mean(self) -> float:
        """Mean difference on rated disagreements: B's reward minus A's; 0 before the first."""
        return self.total / self.rated if self.rated else 0.0

    @property
    def standard_error(self) -> float:
        """Standard error of `mean`; infinite before the second answer."""
        if self.rated < 2:
            return math.inf
        spread = max(self.squares - self.rated * self.mean**2, 0.0) / (self.rated - 1)
        return math.sqrt(spread / self.rated)

    @property
    def promote(self) -> float:
        """Evidence against "B is not better than A"."""
        return _mean_wealth(self.for_)

    @property
    def drop(self) -> float:
        """Evidence against "B is not worse than A"."""
        return _mean_wealth(self.against)

    def to_dict(self) -> dict[str, Any]:
        """The state as JSON values."""
        return {
            "rated": self.rated,
            "total": self.total,
            "squares": self.squares,
            "for": list(self.for_),
            "against": list(self.against),
            "least": self.least,
            "vetoed": self.vetoed,
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Evidence:
        """The state that `to_dict` wrote."""
        for_, against = tuple(map(float, state["for"])), tuple(map(float, state["against"]))
        if len(for_) != len(GRID) or len(against) != len(GRID):
            raise UsageError(
                "state of a trial",
                expected=f"{len(GRID)} bets for and against",
                came=f"{len(for_)} and {len(against)}",
                do="End this trial and start another: its state is of another version.",
            )
        sums = int(state["rated"]), float(state["total"]), float(state["squares"])
        made = cls(*sums, for_, against, int(state.get("least", LEAST)), state.get("vetoed"))
        if made.vetoed is None and made.rated >= made.least:  # written before the answer was kept
            return replace(made, vetoed=made.mean < -made.standard_error)
        return made


def difference(reward: float, picked_b: bool, delta: float, q_a: float, q_b: float) -> float:
    """D: the estimate of B's reward minus A's from one rated disagreement.

    picked_b: the choice of B was asked, which had probability `delta`. q_a, q_b: rewards expected of the two
    choices, which must not depend on what was rated during the trial.

    >>> difference(1.0, True, 0.5, q_a=0.5, q_b=0.75)
    0.75
    """
    if not 0.0 < delta < 1.0:
        raise UsageError(
            "a trial", expected="a share between 0 and 1", came=f"{delta}", do="Set delta to 0.5, as usual."
        )
    correction = (reward - q_b) / delta if picked_b else -(reward - q_a) / (1.0 - delta)
    return q_b - q_a + correction


def largest(delta: float, width: float = 1.0) -> float:
    """The bound of |D| if rewards and q lie in one interval of `width`: width / min(delta, 1 - delta)."""
    return width / min(delta, 1.0 - delta)


@dataclass(frozen=True)
class Rated:
    """One rated request of a trial: the coin fell on the candidate, which had probability `share`, or not.

    score: the rating. fee: what the request cost, in units of reward. expected_a, expected_b: the rewards
    that the serving router and the candidate expected before the coin.
    """

    decision: str
    session: str
    key: str | None
    candidate: bool
    share: float
    expected_a: float
    expected_b: float
    score: float
    fee: float

    @property
    def difference(self) -> float:
        """D of this request."""
        reward, q_a, q_b = (
            min(max(value, WORST), 1.0) for value in (self.score - self.fee, self.expected_a, self.expected_b)
        )
        return difference(reward, self.candidate, self.share, q_a, q_b)


def counted(
    evidence: Evidence,
    rows: Iterable[Rated],
    before: Collection[str],
    keys: Mapping[str | None, int],
    per_key: float = 1.0,
) -> tuple[Evidence, dict[str, float | None]]:
    """The evidence after more rated requests, and the difference that was counted for each decision.

    A session counts once, with the mean of its differences among `rows`; the first of its decisions gets that
    mean, the others and those of a session that was counted `before` get None. `keys` is how many sessions of
    each key were counted. A key counts at most the share `per_key` of all sessions, or an equal share if that
    is more; sessions beyond it are not in the result and wait until others have caught up.
    """
    sessions: dict[str, list[Rated]] = {}
    for row in rows:
        sessions.setdefault(row.session, []).append(row)
    differences: dict[str, float | None] = {}
    mine = dict(keys) | {row[0].key: keys.get(row[0].key, 0) for row in sessions.values()}
    share = max(per_key, 1.0 / max(len(mine), 1))
    for name, together in sessions.items():
        key = together[0].key
        beyond = mine[key] + 1 > max(share * (sum(mine.values()) + 1), UNBOUNDED)
        if name in before or (share < 1.0 and beyond):
            differences |= {row.decision: None for row in together}
            continue
        mean = sum(row.difference for row in together) / len(together)
        evidence = evidence.after(mean, largest(together[0].share, 1.0 - WORST))
        differences |= {row.decision: None for row in together} | {together[0].decision: mean}
        mine[key] += 1
    return evidence, differences


def allowance(ratings: Mapping[str | None, int], per_key: float) -> int:
    """How many ratings of one key count, if no key may have more than its share of those that count.

    ratings: how many each key gave. Its share is `per_key`, or an equal share of the keys if that is more;
    `UNBOUNDED` ratings of a key always count.

    >>> allowance({"flood": 1000, "a": 40, "b": 40, "c": 40, "d": 40}, 0.25)
    53
    """
    most = max(ratings.values(), default=0)
    share = max(per_key, 1.0 / max(len(ratings), 1))
    low, high = min(UNBOUNDED, most), most
    while low < high:
        middle = (low + high + 1) // 2
        fits = middle <= share * sum(min(count, middle) for count in ratings.values())
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def verdict(evidence: Evidence, rule: Rule) -> Verdict:
    """What to do with the candidate now.

    Either rule drops it once the evidence against it reaches `CERTAIN`, and promotes it once the evidence for
    it does. "veto" also promotes it at `evidence.least` rated disagreements, unless the mean difference is
    below minus one standard error there: it gives up the guarantee against a slightly worse candidate for the
    sake of most of what there is to learn. The mean is asked once, and a candidate that was vetoed has to be
    proven: a mean that is read again and again crosses any line by chance.
    """
    if evidence.drop >= CERTAIN:
        return "drop"
    if evidence.promote >= CERTAIN:
        return "promote"
    return "promote" if rule == "veto" and evidence.vetoed is False else "go on"


def _mean_wealth(logs: tuple[float, ...]) -> float:
    """Mean of exp(logs), as large as a float can be where it would overflow."""
    top = min(max(logs), 700.0)
    return math.exp(top) * sum(math.exp(min(log - top, 0.0)) for log in logs) / len(logs)

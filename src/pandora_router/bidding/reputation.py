r"""Reputation: bids count for less if a bidder's claims exceed its realised rewards.

A claim is the limit with which a bidder won; its miss is claim - realised reward. For a bidder with n graded
wins of one kind of prompt, mean miss d and standard error e, the handicap is

    h = n / (n + k) max(0, d - e) + k / (n + k) h_0.

h_0 is the handicap of a bidder without graded wins of this kind: reputation does not carry over between kinds
of prompts, and a new name starts at h_0. k is the number of graded wins that outweighs it. The standard error
protects honest bidders, whose misses are noisy: rewards of 0 and 1 deviate by up to 1/2. Claims below the
reward are not rewarded, because a bidder that accepts a posted price does not reveal its value above it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from pandora_router.store.auctions import Score


@dataclass(frozen=True)
class Reputation:
    """Parameters of the handicap; `newcomer` is h_0 and `evidence` is k."""

    newcomer: float = 0.0
    evidence: float = 20.0

    def handicap(self, score: Score | None) -> float:
        """The handicap for one bidder and kind of prompt; None: nothing was graded there.

        >>> round(Reputation().handicap(Score("small", "mathematics", 80, 24.0, 9.0)), 4)
        0.2265
        """
        if score is None or score.graded == 0:
            return self.newcomer
        n = score.graded
        mean = score.total / n
        spread = math.sqrt(max(score.squares / n - mean * mean, 0.0) / max(n - 1, 1)) if n > 1 else math.inf
        weight = n / (n + self.evidence)
        return weight * max(0.0, mean - spread) + (1.0 - weight) * self.newcomer

    def handicaps(self, scores: Iterable[Score], kind: str) -> dict[str, float]:
        """The handicaps of all bidders with graded wins of this kind; others have `newcomer`."""
        return {score.bidder: self.handicap(score) for score in scores if score.kind == kind}

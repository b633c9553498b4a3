"""Whether the promises of goals hold on live requests: from decisions and their feedback, with intervals.

A promise about time counts the requests that were answered within it. A promise to keep a share of a
specialist's score compares the ratings of routed requests with what the router expected of that specialist
on the same requests, before it looked: nobody knows what it would have answered. How far such expectations
can be trusted is shown beside it, by the requests that this specialist answered and somebody rated.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pandora_router.store.database import Transaction

if TYPE_CHECKING:  # types needs numpy: `pandora log --help` does without
    from pandora_router.types import Until

AUTO = "auto"
NEWEST = 5000
"""Requests that are read, the newest."""
FEWEST = 20
"""Requests below which nothing is said."""
SURE = 1.96


@dataclass(frozen=True)
class Promise:
    """What a goal promises of requests for `auto`, or for `auto@profile`.

    Either at least the share `share` of the score of `of`, or that the share `share` of all requests is
    answered within `seconds`, to the last byte or `until` the first token.
    """

    profile: str
    share: float
    of: str = ""
    seconds: float | None = None
    until: Until = "last_byte"

    @property
    def text(self) -> str:
        """For people."""
        who = f" ({AUTO}@{self.profile})" if self.profile else ""
        if self.seconds is None:
            return f"keep {self.share:.0%} of {self.of}{who}"
        what = "" if self.until == "last_byte" else " to the first token"
        return f"{self.share:.0%} within {self.seconds:g} s{what}{who}"


@dataclass(frozen=True)
class Watched:
    """A promise on so many live requests: the share that was reached, and its 95 % interval.

    own, expected: mean rating of the answers of the specialist whose score is kept, and what was expected of
    them, over `own_requests`.
    """

    promise: Promise
    requests: int
    reached: float | None = None
    low: float | None = None
    high: float | None = None
    own_requests: int = 0
    own: float | None = None
    expected: float | None = None

    @property
    def verdict(self) -> str:
        """Whether the promise holds: with 95 % confidence, or not to be said yet."""
        if self.reached is None or self.low is None or self.high is None:
            kind = "rated requests" if self.promise.of else "requests"
            return f"not known: {self.requests} of {FEWEST} {kind}"
        if self.low >= self.promise.share:
            return "holds"
        if self.high < self.promise.share:
            return "broken"
        return "not sure yet" if self.reached >= self.promise.share else "below, not sure yet"

    @property
    def basis(self) -> str:
        """What the score of the specialist whose score is kept was taken from."""
        if not self.promise.of:
            return ""
        said = f"{self.promise.of} as the router expected it"
        if self.own is None or self.expected is None:
            return f"{said}; none of its own answers is rated"
        return (
            f"{said}: {self.expected:.2f} on its own {self.own_requests} rated answers, rated {self.own:.2f}"
        )


def watched(
    open_: Transaction, promises: Sequence[Promise], metric: str, since: float
) -> tuple[Watched, ...]:
    """How each promise holds on the newest `NEWEST` requests that a router decided since a time.

    Requests that failed, name a specialist or stay in a conversation are left out. `metric` is the feedback
    that is the score; the last rating of a request counts.
    """
    if not promises:
        return ()
    rows = open_.rows(
        "SELECT d.specialist, d.seconds, d.first_token, d.detail, "
        "(SELECT f.value FROM feedback f WHERE f.decision = d.id "
        "AND f.metric = ? ORDER BY f.at DESC, f.id DESC LIMIT 1) FROM decisions d "
        "WHERE d.at >= ? AND d.status = 'ok' AND d.worth IS NOT NULL ORDER BY d.at DESC LIMIT ?",
        *(metric, since, NEWEST),
    )
    read = [
        (str(name), {"last_byte": last, "first_token": first}, json.loads(str(detail)), rating)
        for name, last, first, detail, rating in rows
    ]
    found = []
    for promise in promises:
        mine = [row for row in read if _profile(row[2]) == promise.profile]
        if promise.seconds is None:
            found.append(_kept(promise, mine))
        else:
            taken = [float(at) for _, times, _, _ in mine if (at := times[promise.until]) is not None]
            found.append(_in_time(promise, taken, promise.seconds))
    return tuple(found)


def _profile(detail: Mapping[str, Any]) -> str:
    """The profile that a request asked for; other names of `auto` mean no profile."""
    name, _, profile = str(detail.get("model") or "").partition("@")
    return profile if name == AUTO else ""


def _in_time(promise: Promise, taken: Sequence[float], most: float) -> Watched:
    """The share within `most` seconds, with Wilson's interval."""
    n = len(taken)
    if n < FEWEST:
        return Watched(promise, n)
    share, z = sum(seconds <= most for seconds in taken) / n, SURE
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return Watched(promise, n, share, max(0.0, middle - half), min(1.0, middle + half))


def _kept(promise: Promise, rows: Iterable[tuple[str, Any, Mapping[str, Any], Any]]) -> Watched:
    """The ratings as a share of what was expected of `of`: a ratio of means, error by the delta method.

    As in the interval of Agresti and Coull, two ratings of 1 and two of 0 are added for the interval, so that
    a few dozen equal ratings are not taken for certainty.
    """
    pairs, own = [], []
    for name, _, detail, rating in rows:
        expected = expected_at_first(detail, promise.of)
        if rating is None or expected is None:
            continue
        pairs.append((float(rating), expected))
        if name == promise.of:
            own.append((float(rating), expected))
    n = len(pairs)
    level = sum(expected for _, expected in pairs) / n if n else 0.0
    if n < FEWEST or level <= 0.0:
        return Watched(promise, n)
    total = sum(rating for rating, _ in pairs)
    more = [*pairs, *((rating, level) for rating in (0.0, 0.0, 1.0, 1.0))]
    middle = (total + 2.0) / len(more) / level
    off = sum((rating - middle * expected) ** 2 for rating, expected in more)
    half = SURE * math.sqrt(off / (n - 1) / len(more)) / level
    means = [sum(part) / len(own) for part in zip(*own, strict=True)] if own else [None, None]
    low, high = max(middle - half, 0.0), middle + half
    return Watched(promise, n, total / n / level, low, high, len(own), means[0], means[1])


def expected_at_first(detail: Mapping[str, Any], specialist: str) -> float | None:
    """The score that was expected of a specialist before any look; None if it was no candidate."""
    line = ((detail.get("decision") or {}).get("specialists") or {}).get(specialist) or {}
    deducted = ((detail.get("value") or {}).get("deducted") or {}).get(specialist)
    mean = line.get("mean")
    return None if mean is None or deducted is None else float(mean + deducted)

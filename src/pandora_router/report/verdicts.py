"""Compares the router with static arms: with each one, with the best in hindsight, and as a short verdict.

The envelope at an inspection cost is the static arm (never inspect, always inspect, margin; on f or on the
mean) that is best at this cost on the test prompts themselves. It is chosen in hindsight, so no static router
could be sure to reach it. `chosen_elsewhere` compares with the arm that was best on the other splits instead.
"Standard error" means the larger of that over prompts and that over splits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from pandora_router.evaluate.arms import DEFAULT, STATIC
from pandora_router.evaluate.results import Results
from pandora_router.evaluate.statistics import Comparison, Estimate
from pandora_router.report import paired


@dataclass(frozen=True)
class Gap(Estimate):
    """Regret + cost of the router minus that of the static arm `static`; positive: the router is worse.

    cost: the inspection cost; NaN for the average over all.
    """

    cost: float
    static: str

    @property
    def behind(self) -> bool:
        """Whether the router is worse by more than one standard error."""
        return self.mean > self.doubt

    @property
    def ahead(self) -> bool:
        """Whether the router is significantly better."""
        return self.star and self.mean < 0.0

    @property
    def errors_behind(self) -> float:
        """The difference in standard errors; 0 if both made the same decisions everywhere."""
        return self.mean / self.doubt if self.doubt > 0.0 else 0.0

    def __str__(self) -> str:
        errors = f"{1e3 * self.error:.1f}; {1e3 * self.split_error:.1f}"
        return f"{1e3 * self.mean:+.1f} ({errors}){'*' if self.star else ''}"


def statics(results: Results, k: int, arm: str = DEFAULT) -> tuple[str, ...]:
    """The names of the static arms that were run, without `arm`."""
    return tuple(name for name in STATIC if name != arm and paired.has(results, k, name))


@lru_cache(maxsize=256)
def against(results: Results, k: int, arm: str = DEFAULT) -> dict[float, tuple[Gap, ...]]:
    """By inspection cost: the difference between `arm` and each static arm."""
    names = statics(results, k, arm)
    pairs = [((k, c, arm), (k, c, s)) for c in results.costs for s in names]
    every = _gaps([(c, s) for c in results.costs for s in names], results.compare(pairs))
    return {c: tuple(gap for gap in every if gap.cost == c) for c in results.costs}


@lru_cache(maxsize=256)
def gaps(results: Results, k: int, arm: str = DEFAULT) -> tuple[Gap, ...]:
    """The difference between `arm` and the envelope at every cost."""
    return tuple(max(each, key=lambda gap: gap.mean) for each in against(results, k, arm).values())


@lru_cache(maxsize=256)
def averaged(results: Results, k: int, arm: str = DEFAULT) -> tuple[Gap, ...]:
    """The difference between `arm` and each static arm, averaged over costs; the best static arm first."""
    names = statics(results, k, arm)
    averages = paired.averages(results, tuple(((k, arm), (k, s)) for s in names))
    found = _gaps([(float("nan"), s) for s in names], averages)
    return tuple(sorted(found, key=lambda gap: -gap.mean))


def chosen_elsewhere(results: Results, k: int, arm: str = DEFAULT) -> tuple[Gap, ...]:
    """The difference, at every cost, to the static arm that was best on the other splits.

    Empty if there is only one split.
    """
    compared = paired.elsewhere(results, k, arm, statics(results, k, arm))
    return () if compared is None else _gaps([(c, "best elsewhere") for c in results.costs], compared)


@dataclass(frozen=True)
class Verdict:
    """The comparison of one arm with all static arms, in an experiment.

    better_than_all: costs at which it is significantly better than every static arm.
    worst: the gap to the envelope that is largest in standard errors.
    behind: costs at which it is worse than the envelope by more than one standard error.
    behind_elsewhere: the same against the arm that was best on the other splits.
    average: the gap to the best static arm, averaged over costs.
    average_beats: static arms that are significantly worse on average.
    rivals: number of static arms.
    """

    better_than_all: tuple[float, ...]
    worst: Gap
    behind: tuple[float, ...]
    behind_elsewhere: tuple[float, ...]
    average: Gap
    average_beats: tuple[str, ...]
    rivals: int

    @property
    def words(self) -> str:
        """The verdict in a few words, for tables."""
        beats = len(self.average_beats) == self.rivals
        good = (
            "better than every static arm" if beats else "ahead at some costs" if self.better_than_all else ""
        )
        bad = f"worse at {len(self.behind)} costs" if len(self.behind) > 1 else "worse at one cost"
        if self.behind:
            return f"{good}, but {bad}" if good else bad
        return f"{good}, never worse" if good else "never worse"


@lru_cache(maxsize=256)
def verdict_on(results: Results, k: int) -> Verdict:
    """Compare the router with all static arms (see `Verdict` for what counts as better and worse)."""
    every, best = against(results, k), gaps(results, k)
    mean = averaged(results, k)
    return Verdict(
        better_than_all=tuple(c for c, each in every.items() if all(gap.ahead for gap in each)),
        worst=max(best, key=lambda gap: gap.errors_behind),
        behind=tuple(gap.cost for gap in best if gap.behind),
        behind_elsewhere=tuple(gap.cost for gap in chosen_elsewhere(results, k) if gap.behind),
        average=mean[0],
        average_beats=tuple(gap.static for gap in mean if gap.ahead),
        rivals=len(mean),
    )


def _gaps(names: list[tuple[float, str]], compared: Comparison) -> tuple[Gap, ...]:
    numbers = zip(names, compared.mean, compared.error, compared.split_error, compared.star, strict=True)
    return tuple(Gap(float(m), float(e), float(p), bool(x), c, s) for (c, s), m, e, p, x in numbers)

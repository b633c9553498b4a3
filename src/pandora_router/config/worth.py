"""What a right answer and a second are worth by the file: stated, or as its goal asks. Its promises, too."""

from __future__ import annotations

import logging
import math

from pandora_router.config.file import Config, curve_of
from pandora_router.config.services import LatencySettings
from pandora_router.router import Router
from pandora_router.router.latency import LEVELS, InTime, timings_of
from pandora_router.router.revalue import weighed
from pandora_router.store.money import nanodollars
from pandora_router.store.promises import Promise
from pandora_router.store.rows import SharedBudget

logger = logging.getLogger("pandora_router.config")


def revalued(router: Router, right_answer: float | None) -> Router:
    """The router at the worth of a right answer that the file states now; it may be fitted at another.

    `right_answer` None keeps the worth of the fit. See `router.revalue` for what differs from a new fit.
    """
    if right_answer is None or math.isclose(1.0 / right_answer, router.fee_weight, rel_tol=1e-9):
        return router
    fitted = 1.0 / router.fee_weight if router.fee_weight else math.inf
    logger.warning(
        "a right answer is worth %g by the file and was worth %g in the fit: decisions use %g; fit "
        "again to re-fit the estimates too",
        *(right_answer, fitted, right_answer),
    )
    return weighed(router, 1.0 / right_answer, name=f"{right_answer:g}")


def stated_worth(config: Config, router: Router) -> float | None:
    """What a right answer is worth by the file: stated, or by its goal; None keeps the worth of the fit.

    A goal that the router was fitted for is met by the worth of the fit. Another one is looked up on the
    curve that the fit measured.
    """
    if config.goal is None or config.goal.keep is None or config.goal.of is None:
        return config.value.right_answer
    fitted = router.record.goal
    if (fitted.get("share"), fitted.get("of")) == (config.goal.keep, config.goal.of):
        return None
    return goal_worth(router, config.goal.keep, config.goal.of)


def goal_worth(router: Router, keep: float, of: str) -> float:
    """The worth that keeps the share `keep` of the score of `of`; if none does, the best and a warning."""
    kept = curve_of(router).keep(keep, of)
    if not kept.sure:
        logger.warning(
            "no worth of a right answer surely keeps %g of the score of %s: the best is served", keep, of
        )
    assert kept.point.worth is not None
    return kept.point.worth


def price_of_second(router: Router, wanted: LatencySettings) -> float:
    """The price of a second, in right answers, at which requests take no longer than `wanted`.

    A goal that the router was fitted for has the price of the fit. Another one is looked up among the times
    that the fit measured; if no price meets it, the best is used and a warning is logged. Raises `UsageError`
    if the fit measured no times.
    """
    fitted = router.record.goal.get("latency")
    met = None if fitted is None else InTime.from_dict(fitted)
    if met is None or (met.level, met.seconds, met.until) != (wanted.level, wanted.seconds, wanted.until):
        met = timings_of(router.record.report, wanted.until).within(wanted.level, wanted.seconds)
    if not met.sure:
        took = met.timing.quantiles[met.level].seconds
        logger.warning(
            "goal.latency: no price of a second surely answers %s of 100 requests within %g s: the fastest "
            "way is served (%.3g s in the fit)",
            *(met.level[1:], met.seconds, took),
        )
    return met.timing.price


def promises(config: Config) -> tuple[Promise, ...]:
    """What the goals of the file and of its profiles promise of live requests."""
    made = []
    for profile, goal in config.goals.items():
        if goal.keep is not None and goal.of is not None:
            made.append(Promise(profile, goal.keep, goal.of))
        if goal.latency is not None:
            level, until = LEVELS[goal.latency.level], goal.latency.until
            made.append(Promise(profile, level, seconds=goal.latency.seconds, until=until))
    return tuple(made)


def worth_of(router: Router | None) -> float | None:
    """What a score of 1 is worth in dollars; None if there is no router, or money does not count for it."""
    return None if router is None or router.fee_weight <= 0.0 else 1.0 / router.fee_weight


def shared_budget(profile: str, budget: float, per: str | None) -> SharedBudget:
    """The budget of a profile, or of all requests if the name is empty."""
    assert per is not None
    return SharedBudget.named("profile" if profile else "all", profile, nanodollars(budget), per)


def stated_budgets(config: Config) -> dict[str, SharedBudget]:
    """The budgets of goal and profiles, by profile; that of all requests under ""."""
    return {
        name: shared_budget(name, goal.budget, goal.per)
        for name, goal in config.goals.items()
        if goal.budget is not None
    }

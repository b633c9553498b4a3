"""Add a specialist to a router; estimates and parameters of the others do not change.

`add_specialist`: from a few dozen scored prompts. f and g of the newcomer are ridge regressions on the
estimates for the other specialists (`estimators.extended`). The signal model gets one more row
(`calibrate.extend`), fitted on out-of-fold estimates, because estimates on the prompts they were fitted on
would be too good.

`add_unscored`: from its fee alone. The newcomer is taken for an average colleague that costs this much. Live
requests then show what it is worth, where lessons are asked for (`learn.exploration`) and answers rated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.boxes import Costs
from pandora_router.calibrate import FittedSignal, extend, extend_unscored
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.set_signal import SetSignal
from pandora_router.errors import UsageError
from pandora_router.estimators.estimator import Estimator, Predictor, Query, unseen
from pandora_router.estimators.extended import Extended, Unscored
from pandora_router.estimators.linear import grouped_folds
from pandora_router.estimators.set_layer import SetEstimate
from pandora_router.router.driver import finish
from pandora_router.text import lone_surrogate, unfit_for_name
from pandora_router.types import Matrix, Vector

if TYPE_CHECKING:
    from pandora_router.router.router import Router

FEWEST = 16
FOLDS = 8


def add_specialist(
    router: Router,
    name: str,
    prompts: Sequence[str],
    score: ArrayLike,
    *,
    fee: ArrayLike,
    inspection_cost: float | None = None,
    seed: int = 0,
) -> Router:
    """The router with `name` as last specialist, from its `score` (n,) and `fee`: (n,), or one for all.

    A router with estimates from everything opened goes back to estimates from each specialist's own
    beginning, because nothing is known of how the newcomer's answers agree with others. Prompts that the
    costly estimate was not fitted on are best. Without `inspection_cost` the newcomer joins the cost group of
    the others, or costs what they cost on average. Raises `UsageError` for a known or an unfit name, a
    negative fee, too few prompts, or a signal model that cannot be extended.
    """
    _check(router, name, prompts)
    router = _own_beginnings(router)
    reward = _reward(router, name, prompts, score, fee)
    fees = np.broadcast_to(np.asarray(fee, dtype=np.float64), reward.shape)
    signal = _calibrated(router)
    cheap = Extended.fit(router.cheap, name, prompts, reward, seed=seed)
    f = np.column_stack([unseen(router.cheap, prompts), _outside(router.cheap, name, prompts, reward, seed)])
    costly: Predictor | Estimator
    if isinstance(router.costly, Estimator):
        costly = router.costly
        g = finish(_ask(costly, prompts, (*router.specialists, name)), waits=True)
    else:
        costly = Extended.fit(router.costly, name, prompts, reward, seed=seed)
        known = router.costly.predict(prompts)
        g = np.column_stack([known, _outside(router.costly, name, prompts, reward, seed)])
    scored = np.isfinite(reward)
    note = {"specialist": name, "prompts": int(scored.sum()), "mean_reward": float(reward[scored].mean())}
    identity = hashlib.sha256(f"{router.id} {note} {reward.tobytes().hex()}".encode()).hexdigest()[:16]
    return replace(
        router,
        specialists=(*router.specialists, name),
        cheap=cheap,
        costly=costly,
        signal=extend(signal, Readings(f[scored], g[scored])),
        costs=_costs(router.costs, inspection_cost),
        fees=np.append(router.fees, float(fees[scored].mean())),
        id=identity,
        record=replace(router.record, added=(*router.record.added, note)),
    )


def add_unscored(router: Router, name: str, fee: float, *, inspection_cost: float | None = None) -> Router:
    """The router with `name` as last specialist, of which only the mean `fee` is known.

    Its expected score is the mean of the others'. Raises `UsageError` for a known or an unfit name, for a
    negative fee, and if the cheap estimate is not made of neighbours or the signal model cannot be extended.
    """
    _check(router, name, ())
    _checked_fee(fee)
    router = _own_beginnings(router)
    above = router.fee_weight * (float(router.fees.mean()) - fee)
    costly = router.costly
    if not isinstance(costly, Estimator):
        costly = Extended.like_colleagues(costly, name, above)
    note = {"specialist": name, "prompts": 0, "fee": fee}
    return replace(
        router,
        specialists=(*router.specialists, name),
        cheap=Unscored.of(router.cheap, name, above),
        costly=costly,
        signal=extend_unscored(_calibrated(router)),
        costs=_costs(router.costs, inspection_cost),
        fees=np.append(router.fees, fee),
        id=hashlib.sha256(f"{router.id} {note}".encode()).hexdigest()[:16],
        record=replace(router.record, added=(*router.record.added, note)),
    )


def _calibrated(router: Router) -> FittedSignal:
    """The signal model, which must be one that can grow."""
    if not isinstance(router.signal, FittedSignal):
        raise UsageError(
            "the signal model",
            expected="a calibrated one, which can grow",
            came=type(router.signal).__name__,
            do="Fit the router anew with all specialists.",
        )
    return router.signal


def _own_beginnings(router: Router) -> Router:
    """The router with the estimates and the signal model that read each specialist's own beginning."""
    if isinstance(router.costly, SetEstimate) and isinstance(router.signal, SetSignal):
        return replace(router, costly=router.costly.first, signal=router.signal.base)
    return router


def _check(router: Router, name: str, prompts: Sequence[str]) -> None:
    """Raise `UsageError` for a name or a prompt that no routing table could have."""
    if name in router.specialists:
        raise UsageError(
            "a new specialist", expected="a new name", came=repr(name), do="Fit the router anew to change it."
        )
    if fault := "no character" if not name else unfit_for_name(name):
        raise UsageError(
            f"the new specialist {name!r}",
            expected="a name of visible characters, without white space at its ends",
            came=fault,
            do="Name it otherwise: nobody could see or type the difference.",
        )
    for number, prompt in enumerate(prompts, start=1):
        if lone_surrogate(prompt) is not None:
            raise UsageError(
                f"prompt {number:,}",
                expected="whole characters",
                came="half of a surrogate pair",
                do="The text was cut inside a character: correct it or leave the row out.",
            )


def _reward(router: Router, name: str, prompts: Sequence[str], score: ArrayLike, fee: ArrayLike) -> Vector:
    column = np.asarray(score, dtype=np.float64)
    if column.shape != (len(prompts),):
        raise UsageError(
            "score", expected=f"{len(prompts)} numbers", came=f"shape {column.shape}", do="One per prompt."
        )
    fees = np.broadcast_to(np.asarray(fee, dtype=np.float64), column.shape)
    _checked_fee(float(np.min(fees, initial=0.0)))
    reward: Vector = column - router.fee_weight * fees
    if np.isfinite(reward).sum() < FEWEST:
        raise UsageError(
            f"scored prompts of {name!r}",
            expected=f"{FEWEST} or more with a score and a fee; a few dozen is better",
            came=f"{int(np.isfinite(reward).sum())}",
            do="Score more prompts; if its answers cost nothing, say fee=0.",
        )
    return reward


def _checked_fee(least: float) -> None:
    if not least >= 0.0:
        raise UsageError(
            "the fee", expected="zero or more", came=f"{least}", do="A fee is what the answer costs."
        )


def _outside(base: Predictor, name: str, prompts: Sequence[str], reward: Vector, seed: int) -> Vector:
    """The newcomer's estimates (n,), each by a ridge fitted without the prompt."""
    folds = grouped_folds(list(prompts), FOLDS, seed)
    out = np.full(len(prompts), np.nan)
    for fold in range(int(folds.max()) + 1):
        held = np.flatnonzero(folds == fold)
        learnt = np.where(folds == fold, np.nan, reward)
        head = Extended.fit(base, name, prompts, learnt, seed=seed)
        out[held] = head.predict_unseen([prompts[int(i)] for i in held])[:, -1]
    return out


async def _ask(costly: Estimator, prompts: Sequence[str], names: tuple[str, ...]) -> Matrix:
    return np.array([await costly.estimate(Query(prompt), names) for prompt in prompts], dtype=np.float64)


def _costs(costs: Costs, own: float | None) -> Costs:
    """The costs with one box more."""
    group: Any = ()
    if len(costs.shared):
        joins = int(costs.group[-1]) if own is None else -1
        group = np.append(costs.group, joins)
    price = float(costs.own.mean()) if own is None else own
    share = costs.refund.sum() / max(float(costs.own.sum()), 5e-324)  # as much as of the others comes back
    wait: Any = 0.0
    if len(costs.wait):
        wait = np.append(costs.wait, float(costs.wait.mean()) if own is None else 0.0)
    refund = np.append(costs.refund, share * price)
    return Costs(np.append(costs.own, price), costs.shared, group, refund, wait)

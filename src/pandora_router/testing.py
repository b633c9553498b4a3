"""Contract tests for authors of plug-ins: boxes, policies, estimators, specialists, bidders.

Each function takes an implementation and some test data, returns None if every law holds, and raises
`BrokenContract` with the law that does not. They need no test framework:

    from pandora_router.testing import check_policy
    check_policy(MyPolicy())

The laws are those on which the rest of the library relies. Statistical ones allow five standard errors, with
fixed seeds. Implementations are used only through their protocols.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from pandora_router.bidding.contract import check_bidder as check_bidder
from pandora_router.boxes import Boxes, Draws, Independent, Joint
from pandora_router.errors import BrokenContract as BrokenContract
from pandora_router.errors import UpstreamError, UsageError
from pandora_router.estimators.estimator import Estimator, Predictor, Query
from pandora_router.folders.saved import Saved
from pandora_router.search import OUTSIDE, Inspect, Policy, Select, State, adrive, drive, replay, reveal
from pandora_router.search.drive import Shown
from pandora_router.specialists.specialist import Answer, Beginning, Request, Specialist, Unanswered
from pandora_router.types import Contexts

DRAWS = 4000
FINISHES = frozenset({"stop", "truncated", "empty", "refusal"})


def _law(holds: bool | np.bool_, words: str) -> None:
    if not holds:
        raise BrokenContract(words)


def _refused(call: Callable[[], object], words: str) -> None:
    try:
        call()
    except (UsageError, ValueError, IndexError):
        return
    raise BrokenContract(words)


# --- boxes ------------------------------------------------------------------------------------------------


def check_boxes(boxes: Boxes, *, rng: np.random.Generator | None = None, draws: int = DRAWS) -> None:
    """Laws of boxes with one inspection each: shapes, prices, conditioning, sampling, total expectation.

    Pass new boxes, all sealed, with costs above zero and a law that can be sampled.
    """
    rng = rng or np.random.default_rng(0)
    _law(isinstance(boxes, Boxes), "boxes have all that the protocol names")
    size = len(boxes.mean)
    _law(bool(np.all(boxes.sealed)), "fresh boxes are sealed")
    for name, part in (
        ("mean", boxes.mean),
        ("inspection_cost", boxes.inspection_cost),
        ("reservation_price", boxes.reservation_price()),
        ("backup_price", boxes.backup_price()),
        ("gain", boxes.gain(0.0)),
    ):
        _law(np.shape(part) == (size,), f"{name} is one number per box")
    _prices(boxes)
    shown = boxes.sample(1, rng)[0]
    _conditioning(boxes, shown)
    _sampling(boxes, rng, draws)


def _prices(boxes: Boxes) -> None:
    mean, cost = np.asarray(boxes.mean), np.asarray(boxes.inspection_cost)
    _law(
        (boxes.gain(float(mean.min()) - 0.3) >= mean - float(mean.min()) + 0.3 - 1e-9).all(),
        "gain >= mean - u",
    )
    levels = [boxes.gain(float(level)) for level in np.linspace(mean.min() - 1.0, mean.max() + 1.0, 9)]
    _law(
        all((low >= high - 1e-12).all() for low, high in pairwise(levels)),
        "gain falls in u",
    )
    above = np.asarray(boxes.reservation_price())
    for j in np.flatnonzero(np.isfinite(above)):
        gap = abs(float(boxes.gain(float(above[j]))[j]) - float(cost[j]))
        _law(gap <= 1e-6 * max(1.0, float(cost[j])), "at the reservation price the gain is the cost")


def _conditioning(boxes: Boxes, shown: np.ndarray) -> None:
    before = np.array(boxes.mean), np.array(boxes.sealed), np.array(boxes.inspection_cost)
    value = float(shown[0])
    after, lost = boxes.given(0, value), boxes.without(0)
    now = np.array(boxes.mean), np.array(boxes.sealed), np.array(boxes.inspection_cost)
    same = all(np.array_equal(first, second) for first, second in zip(before, now, strict=True))
    _law(same, "conditioning leaves the original alone")
    _law(type(after) is type(boxes) and type(lost) is type(boxes), "conditioning returns the same type")
    _law(after.mean[0] == value, "an opened box is worth its value")
    _law(not after.sealed[0] and bool(np.all(after.sealed[1:])), "opening unseals that box and no other")
    _law(
        after.reservation_price()[0] == after.backup_price()[0] == value,
        "prices of an opened box are its value",
    )
    _law(
        not lost.sealed[0] and lost.mean[0] == boxes.mean[0], "a lost box is worth its mean and not for sale"
    )
    closed = boxes.shut(np.arange(len(before[0])) == 0)
    _law(
        not closed.sealed[0] and closed.mean[0] == boxes.mean[0],
        "a shut box is worth its mean and not for sale",
    )
    _refused(lambda: after.given(0, value), "an opened box cannot be opened again")
    _refused(lambda: boxes.given(0, math.nan), "NaN is not a value")
    if len(before[0]) > 1:
        forwards = after.given(1, float(shown[1]))
        backwards = boxes.given(1, float(shown[1])).given(0, value)
        _law(
            np.allclose(forwards.mean, backwards.mean, rtol=1e-8, atol=1e-8),
            "the order of conditioning is irrelevant",
        )


def _sampling(boxes: Boxes, rng: np.random.Generator, draws: int) -> None:
    sample = boxes.sample(draws, rng)
    _law(sample.shape == (draws, len(boxes.mean)), "sample(n) has n rows and a column per box")
    error = 5.0 * sample.std(axis=0) / np.sqrt(draws) + 1e-9
    _law((np.abs(sample.mean(axis=0) - boxes.mean) <= error).all(), "samples have the mean")
    level = float(np.mean(boxes.mean))
    over = np.maximum(sample - level, 0.0)
    slack = 5.0 * over.std(axis=0) / np.sqrt(draws) + 1e-9
    _law((np.abs(over.mean(axis=0) - boxes.gain(level)) <= slack).all(), "samples have the gain")
    later = np.stack([boxes.given(0, float(value)).mean for value in sample[: draws // 4, 0]])
    error = 5.0 * later.std(axis=0) / np.sqrt(len(later)) + 1e-9
    _law(
        (np.abs(later.mean(axis=0) - boxes.mean) <= error).all(), "posterior means average to the prior mean"
    )


# --- policies ---------------------------------------------------------------------------------------------


def check_policy(policy: Policy, states: Sequence[State] = (), *, seed: int = 0) -> None:
    """Laws of a policy: it ends, opens only sealed boxes, selects an existing box, depends only on the state.

    Without `states` it is tested on independent, correlated and drawn boxes of several sizes and costs.
    """
    rng = np.random.default_rng(seed)
    for state in states or _states(rng):
        values = state.boxes.sample(1, rng)[0]
        trace = _driven(policy, state, values)
        _law(_driven(policy, state, values) == trace, "the same search twice is the same")
        _law(replay(policy, state, trace) == trace, "a trace can be replayed")

        async def waiting(now: State, inspect: Inspect, values: Any = values) -> list[float | None]:
            await asyncio.sleep(0)
            return [float(values[box]) for box in inspect.boxes]

        _law(asyncio.run(adrive(policy, state, waiting)) == trace, "waiting changes nothing")
        _failing(policy, state)


def _states(rng: np.random.Generator) -> list[State]:
    states = []
    for size in (1, 2, 5):
        for cost in (1e-4, 0.02, 0.5):
            mean, std = rng.normal(0.5, 0.15, size), rng.uniform(0.05, 0.4, size)
            loading = rng.normal(0.0, 0.1, (size, 2))
            states += [
                State(Independent(mean, std, cost)),
                State(Joint(mean, np.diag(std**2) + loading @ loading.T, cost), 0.4),
                State(Draws(np.sort(mean[:, None] + rng.normal(0, 0.2, (size, 7)), axis=1), cost)),
            ]
    return states


def _driven(policy: Policy, state: State, values: np.ndarray) -> Any:
    bought: list[int] = []
    opener = reveal(values)

    def opening(now: State, inspect: Inspect) -> Shown:
        _law(len(inspect.boxes) > 0, "a purchase names a box")
        for box in inspect.boxes:
            _law(0 <= box < len(values) and bool(now.boxes.sealed[box]), "only sealed boxes are bought")
            bought.append(box)
        _law(len(bought) <= len(values), "no box is bought twice")
        return opener(now, inspect)

    try:
        trace = drive(policy, state, opening)
    except BrokenContract:
        raise
    except (UsageError, IndexError, RecursionError) as error:
        raise BrokenContract(f"the search goes through: {error}") from error
    _law(isinstance(trace.actions[-1], Select), "a search ends with a choice")
    _law(OUTSIDE <= trace.selected < len(values), "what is taken exists")
    _law(
        trace.selected != OUTSIDE or np.isfinite(state.outside),
        "only an outside option that is there is taken",
    )
    return trace


def _failing(policy: Policy, state: State) -> None:
    """Check that the search ends, with all costs counted, if every inspection fails."""
    bought: list[int] = []

    def nothing(now: State, inspect: Inspect) -> list[float | None]:
        bought.extend(inspect.boxes)
        _law(len(bought) <= len(now.boxes.mean), "what failed is not asked for again")
        return [None] * len(inspect.boxes)

    trace = drive(policy, state, nothing)
    paid = state
    for box in bought:
        paid = paid.lose(box)
    _law(math.isclose(trace.spent, paid.spent, abs_tol=1e-12), "failed inspections are on the bill")


# --- estimators -------------------------------------------------------------------------------------------


def check_estimator(
    estimator: Estimator, queries: Sequence[Query], specialists: Sequence[str], *, same: bool = True
) -> None:
    """Laws of an estimator: one number per specialist, in the given order, NaN where there is none.

    `same`: whether equal queries give equal numbers (pass False for a sampled judge). Specialists in
    `estimator.needs` are estimated only in queries that have their context.
    """
    _law(isinstance(estimator, Estimator), "an estimator has `needs`, `together` and `estimate`")
    _declared(estimator.needs, estimator.together, specialists)
    for query in queries:
        available = [name for name in specialists if name not in estimator.needs or name in query.contexts]
        everybody = _estimates(estimator, query, available)
        if not same or not available:
            continue
        again = _estimates(estimator, query, available)
        _law(np.array_equal(everybody, again, equal_nan=True), "the same question gives the same numbers")
        turned = _estimates(estimator, query, available[::-1])
        _law(np.allclose(everybody, turned[::-1], equal_nan=True), "numbers come in the order asked")
        alone = np.concatenate([_estimates(estimator, query, [name]) for name in available])
        _law(np.allclose(everybody, alone, equal_nan=True), "who else is asked about does not matter")


def check_predictor(predictor: Predictor, prompts: Sequence[str], contexts: Contexts | None = None) -> None:
    """Laws of a fitted estimator: declared columns, one finite number per cell, each prompt independent.

    `contexts` (prompts, specialists) of str or None are read if the predictor reads contexts at all.
    """
    _law(isinstance(predictor, Predictor), "a predictor has all that the protocol names")
    names = predictor.specialists
    _law(
        isinstance(names, tuple) and len(set(names)) == len(names), "specialists is a tuple of distinct names"
    )
    _declared(predictor.needs, predictor.together, names)
    _law(isinstance(predictor.state(), Saved), "state() is a Saved")
    blind = np.full((len(prompts), len(names)), None, dtype=object)
    for seen in (None, blind, contexts):
        predicted = predictor.predict(prompts, seen)
        _law(predicted.shape == blind.shape, "predict has a row per prompt and a column per specialist")
        _law(bool(np.isfinite(predicted).all()), "a prediction is a finite number")
        each = [
            predictor.predict([prompt], None if seen is None else seen[i : i + 1])
            for i, prompt in enumerate(prompts)
        ]
        _law(np.allclose(predicted, np.concatenate(each), atol=1e-6), "each prompt is predicted on its own")
    same = np.array_equal(predictor.predict(prompts), predictor.predict(prompts, blind))
    _law(same, "contexts of None are no contexts")


def _declared(needs: object, together: object, specialists: Sequence[str]) -> None:
    _law(isinstance(needs, frozenset), "needs is a frozenset of names")
    _law(isinstance(needs, frozenset) and needs <= set(specialists), "needs names specialists that are known")
    _law(isinstance(together, bool), "together is true or false")


def _estimates(estimator: Estimator, query: Query, names: Sequence[str]) -> np.ndarray:
    try:
        estimates = np.asarray(asyncio.run(estimator.estimate(query, list(names))), dtype=np.float64)
    except (UsageError, UpstreamError, TypeError, ValueError) as error:
        raise BrokenContract(f"what cannot be had is NaN, not {type(error).__name__}: {error}") from error
    _law(estimates.shape == (len(names),), "one number per specialist asked for")
    _law(not np.isinf(estimates).any(), "an estimate is a finite number or NaN")
    return estimates


# --- specialists ------------------------------------------------------------------------------------------


def check_specialist(specialist: Specialist, prompts: Sequence[str], *, same: bool = True) -> None:
    """Laws of a specialist: a stable identity, a valid bound of cost, answers with fees or `Unanswered`.

    A beginning leads to the same answer as without it, is paid for once, and can be cancelled at any time.
    `same`: whether equal prompts give equal answers (pass False for a sampled one). Every prompt is answered,
    begun and answered, and begun and cancelled, so the test costs these fees.
    """
    _law(isinstance(specialist, Specialist), "a specialist has all that the protocol names")
    _law(isinstance(specialist.name, str) and bool(specialist.name), "a specialist has a name")
    _law(isinstance(specialist.at_once, int) and specialist.at_once >= 1, "at_once is at least 1")
    identity = specialist.identity
    _law(isinstance(identity, str) and specialist.identity == identity, "the identity does not change")
    for prompt in prompts:
        request = Request.of(prompt)
        most = specialist.most(request)
        _law(math.isfinite(most) and most >= 0, "the bound is a finite number, zero or more")
        answer = _asked(specialist, request, most, _plainly)
        begun = _asked(specialist, request, most, _after_beginning)
        if same and answer is not None and begun is not None:
            _law(begun.text == answer.text, "what was begun goes on to the same answer")
        _asked(specialist, request, most, _cancelled)
    _law(specialist.identity == identity, "answering does not change the identity")


Way = Callable[[Specialist, Request, float], Coroutine[Any, Any, Answer | None]]


def _asked(specialist: Specialist, request: Request, most: float, way: Way) -> Answer | None:
    """The answer that was had in this way, its bill checked; None if there is none."""
    try:
        answer = asyncio.run(way(specialist, request, most))
    except Unanswered as error:
        _law(0.0 <= error.lost <= most * (1 + 1e-9), "what is lost stays below the bound")
        return None
    except BrokenContract:
        raise
    except Exception as error:
        raise BrokenContract(f"no answer is `Unanswered`, not {type(error).__name__}") from error
    if answer is not None:
        _answer(answer, most)
    return answer


async def _plainly(specialist: Specialist, request: Request, most: float) -> Answer:
    return await specialist.answer(request)


async def _after_beginning(specialist: Specialist, request: Request, most: float) -> Answer:
    begun = await specialist.begin(request)
    _begun(begun, most)
    answer = await specialist.answer(request, begun)
    _law(not begun.held and begun.lost == 0.0, "what an answer used is not owed again")
    begun.cancel()
    _law(begun.lost == 0.0, "cancelling what was used costs nothing")
    _law(answer.context == begun.context, "the context of an answer is what its beginning showed")
    try:
        await specialist.answer(request, begun)
    except UsageError:
        return answer
    raise BrokenContract("a beginning is used once")


async def _cancelled(specialist: Specialist, request: Request, most: float) -> None:
    begun = await specialist.begin(request)
    _begun(begun, most)
    cost = begun.cost
    begun.cancel()
    begun.cancel()
    _law(not begun.held and begun.lost == cost, "a cancelled beginning costs what it said, once")
    try:
        await specialist.answer(request, begun)
    except UsageError:
        return
    raise BrokenContract("a cancelled beginning does not go on")


def _begun(begun: Beginning, most: float) -> None:
    _law(isinstance(begun, Beginning) and begun.held, "what is begun is held")
    _law(0.0 <= begun.cost <= most * (1 + 1e-9), "a beginning costs at most the bound")
    _law(0.0 <= begun.seconds < math.inf, "seconds of a beginning are measured")
    _law(begun.context is None or bool(begun.context), "there is a context, or None")
    _law(all(map(math.isfinite, begun.logprobs or ())), "log-probabilities are finite")


def _answer(answer: Answer, most: float) -> None:
    _law(isinstance(answer, Answer), "what comes is an Answer")
    _law(answer.finish in FINISHES, "an answer says how it ended")
    _law(bool(answer.text.strip()) or answer.finish != "stop", "an answer without words is not a plain stop")
    _law(0.0 <= answer.fee < math.inf and 0.0 <= answer.lost < math.inf, "fee and losses are zero or more")
    _law(answer.fee + answer.lost <= most * (1 + 1e-9), "fee and losses stay below the bound")
    _law(0.0 <= answer.seconds < math.inf, "seconds are measured")
    for count in (answer.tokens_in, answer.tokens_out):
        _law(count is None or (isinstance(count, int) and count >= 0), "token counts are counts or None")
    seen = answer.context_seconds
    _law(seen is None or 0.0 <= seen <= answer.seconds + 1e-9, "a look takes no longer than the answer")

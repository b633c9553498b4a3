"""Buy what decisions ask for: the only place where a decision meets estimators, time limits and failures.

`drive` runs one or many `deciding` generators to their ends. A failure (a timeout, an `UpstreamError`, an
`OSError`, NaN) is sent to the decision, which counts the cost and continues; any other exception is a bug in
the estimator and is raised. After its deadline, `until`, nothing more is bought for a decision.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import numpy as np

from pandora_router.errors import UpstreamError, UsageError
from pandora_router.estimators.estimator import Estimator, Predictor, Query, Rereading
from pandora_router.router.deciding import Cheap, Deciding
from pandora_router.router.decision import Decision
from pandora_router.router.purchases import Ask, Paid
from pandora_router.specialists.threads import Work

if TYPE_CHECKING:
    from pandora_router.router.router import Router

T = TypeVar("T")
P = ParamSpec("P")
FAILURES = (UpstreamError, TimeoutError, OSError)
LONGEST_PROMPT = 1_000_000
"""Characters; longer prompts are declined, because their estimates would take too long."""
GIVE_UP = 3  # after this many failures in a row of single cheap estimates the other prompts are not tried


async def here(function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Call the function in this thread, without suspending."""
    return function(*args, **options)


async def drive(
    router: Router,
    decisions: Sequence[Deciding],
    work: Work,
    until: float = math.inf,
    pay: Callable[[Ask, float], Awaitable[Paid]] | None = None,
) -> list[Decision]:
    """Run decisions concurrently to their ends; each round buys what all of them ask for next.

    A predictor is called once per round for all prompts, an estimator once for each, concurrently. `work`
    runs computations; `until` is in seconds of `time.monotonic`. `pay` answers one ask until then in place of
    the router's estimates (live looks of the gateway); its failures are results, not exceptions.
    """
    predictor = router.predictor
    done: dict[int, Decision] = {}
    replies: Mapping[int, Paid | None] = dict.fromkeys(range(len(decisions)))
    while asks := await work(_advance, decisions, replies, done):
        if pay is None and predictor is not None:
            replies = await work(pay_here, predictor, asks, until)
        else:
            one = pay or partial(pay_outside, cast(Estimator, router.costly))
            paid = await asyncio.gather(*(one(ask, until) for ask in asks.values()))
            replies = dict(zip(asks, paid, strict=True))
    return [done[i] for i in range(len(decisions))]


def _advance(
    decisions: Sequence[Deciding], replies: Mapping[int, Paid | None], done: dict[int, Decision]
) -> dict[int, Ask]:
    """Send each decision what was paid (None: start it); returns what they ask for next."""
    asks: dict[int, Ask] = {}
    for i, paid in replies.items():
        try:
            asks[i] = next(decisions[i]) if paid is None else decisions[i].send(paid)
        except StopIteration as end:
            done[i] = end.value
    return asks


def pay_here(predictor: Predictor, asks: Mapping[int, Ask], until: float = math.inf) -> dict[int, Paid]:
    """Answer asks by one call of a predictor; if that fails upstream, by one call each."""
    if time.monotonic() >= until:
        return dict.fromkeys(asks, Paid.too_late())
    begun = time.perf_counter()
    try:
        bought = estimated(predictor, list(asks.values()))
    except FAILURES as error:
        if len(asks) == 1:
            seconds = time.perf_counter() - begun
            return {i: Paid.nothing(ask, reason(error), seconds) for i, ask in asks.items()}
        return {i: pay_here(predictor, {i: ask}, until)[i] for i, ask in asks.items()}
    seconds = (time.perf_counter() - begun) / len(asks)
    return {i: replace(paid, seconds=seconds) for i, paid in zip(asks, bought, strict=True)}


def estimated(predictor: Predictor, asks: Sequence[Ask]) -> list[Paid]:
    """Results of a predictor for asks, in one call, from the contexts in the asks.

    A driver that looks at specialists during a decision calls this with `replace(ask,
    contexts={**ask.contexts, **seen})` and adds seconds, fee and `contexts=seen` to the result; `missed`
    marks looks that failed. Raises what the predictor raises.
    """
    column = {name: j for j, name in enumerate(predictor.specialists)}
    contexts = np.full((len(asks), len(column)), None, dtype=object)
    for row, ask in enumerate(asks):
        for name, text in ask.contexts.items():
            contexts[row, column[name]] = text
    estimates = predictor.predict([ask.prompt for ask in asks], contexts)
    return [
        Paid(estimates[row, [column[name] for name in ask.specialists]], everyone=estimates[row])
        for row, ask in enumerate(asks)
    ]


def missed(ask: Ask, paid: Paid, lost: Collection[str], why: str) -> Paid:
    """`paid` without the estimates of the specialists `lost`, whose looks failed for the reason `why`."""
    pairs = zip(ask.specialists, paid.estimates, strict=True)
    estimates = [math.nan if name in lost else float(g) for name, g in pairs]
    return replace(paid, estimates=estimates, failure=why) if lost else paid


async def pay_outside(estimator: Estimator, ask: Ask, until: float = math.inf) -> Paid:
    """Answer one ask by awaiting an estimator, at most until `until`."""
    left = until - time.monotonic()
    if left <= 0.0:
        return Paid.too_late()
    begun = time.perf_counter()
    clock = asyncio.timeout(left if math.isfinite(left) else None)
    query, everyone = Query(ask.prompt, ask.contexts), None
    try:
        async with clock:
            if isinstance(estimator, Rereading):
                everyone = await estimator.estimate_all(query, ask.specialists)
                estimates = everyone[[estimator.columns.index(name) for name in ask.specialists]]
            else:
                estimates = await estimator.estimate(query, ask.specialists)
    except FAILURES as error:
        late = clock.expired()
        why = "the deadline of the decision had passed" if late else reason(error)
        return Paid.nothing(ask, why, time.perf_counter() - begun, late=late)
    return Paid(estimates, time.perf_counter() - begun, everyone=everyone)


def reason(error: BaseException) -> str:
    """What went wrong, in one line."""
    return f"{type(error).__name__}: {error}".rstrip(": ")


def finish(work: Coroutine[Any, Any, T], *, waits: bool) -> T:
    """Run a coroutine from synchronous code: step by step if it never waits, else on a new event loop.

    Raises `UsageError` if it waits and an event loop is already running in this thread.
    """
    if waits:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(work)
        work.close()
        raise UsageError(
            "route",
            expected="no event loop running in this thread, since costly estimates are awaited",
            came="a running one",
            do="Use `await router.aroute(...)`.",
        )
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise RuntimeError("an estimator of this process waited for something")


def judged(cheap: Predictor, prompts: Sequence[str]) -> list[Cheap]:
    """The cheap estimates of each prompt, or the reason why there are none.

    A prompt that is empty, too long or not valid text is declined without affecting the others. If the
    estimator fails on all together (a remote embedder), they are tried one by one. Raises `UsageError` if a
    prompt is not a str.
    """
    begun = time.perf_counter()
    judgements = [Cheap(None, refusal(prompt)) for prompt in prompts]
    good = [i for i, judgement in enumerate(judgements) if judgement.because is None]
    for i, judgement in zip(good, _predicted(cheap, [prompts[i] for i in good]), strict=True):
        judgements[i] = judgement
    seconds = (time.perf_counter() - begun) / max(len(prompts), 1)
    return [replace(judgement, seconds=seconds) for judgement in judgements]


def refusal(prompt: str) -> str | None:
    """Why a prompt cannot be judged by any estimator, or None if it can."""
    if not isinstance(prompt, str):
        raise UsageError("a prompt", expected="a text", came=type(prompt).__name__, do="Pass a str.")
    if len(prompt) > LONGEST_PROMPT:
        return f"the prompt has {len(prompt):,} characters, more than {LONGEST_PROMPT:,}"
    if not prompt.strip():
        return "the prompt is empty"
    if not prompt.isascii():
        try:
            prompt.encode("utf-8")
        except UnicodeEncodeError as error:
            return f"the prompt is not valid text: half of a surrogate pair at character {error.start}"
    return None


def _predicted(cheap: Predictor, prompts: list[str]) -> list[Cheap]:
    if not prompts:
        return []
    try:
        return [_finite(row) for row in cheap.predict(prompts)]
    except FAILURES as error:
        if len(prompts) == 1:
            return [Cheap(None, f"the cheap estimate could not be had: {error}")]
    judgements: list[Cheap] = []
    failed = 0
    for prompt in prompts:
        judgement = _predicted(cheap, [prompt])[0] if failed < GIVE_UP else judgements[-1]
        failed = failed + 1 if judgement.row is None else 0
        judgements.append(judgement)
    return judgements


def _finite(row: np.ndarray) -> Cheap:
    return Cheap(row) if np.isfinite(row).all() else Cheap(None, "the cheap estimate is not a finite number")

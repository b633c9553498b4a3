"""From a prompt to a `Decision`: a generator that yields requests for costly estimates and is sent results.

    cheap estimates -> boxes -> search -> Ask -> (the driver buys) -> Paid -> ... -> Decision

`deciding` works like `search.drive.search`: it yields an `Ask`, is sent a `Paid`, and returns the decision.
It waits for nothing, calls no estimator and raises no upstream error; its driver (`opening`, `batch`, a
gateway) handles time, money and failures. Therefore all drivers take the same decisions, action for action.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from pandora_router.boxes import Costs
from pandora_router.boxes.moving import News
from pandora_router.calibrate.signals import Prior
from pandora_router.errors import UsageError
from pandora_router.router.decision import (
    BoxStatus,
    Decision,
    Estimates,
    Prices,
    Purchase,
    declined,
    stamp,
)
from pandora_router.router.purchases import LONGEST_CONTEXT, Ask, Offered, Paid, status_of, worth
from pandora_router.search import Inspect, Policy, Select, State, Trace
from pandora_router.search.drive import explore, search
from pandora_router.types import Mask, Positions, Vector

if TYPE_CHECKING:
    from pandora_router.router.router import Router

Deciding = Generator[Ask, Paid, Decision]


@dataclass(frozen=True)
class Looks:
    """Looks that the driver can make while the decision is taken.

    names: the specialists that can be looked at; they can be inspected even without an offered context.
    costs: inspection costs of this request, in units of reward, in the order of the router's specialists.
    """

    names: frozenset[str]
    costs: Costs


@dataclass(frozen=True, eq=False)
class Cheap:
    """The cheap estimates of a prompt (M,), or the reason why there are none and the router declines.

    `seconds` is the time they took; it is part of the decision's time.
    """

    row: Vector | None
    because: str | None = None
    seconds: float = 0.0


@dataclass
class Bought:
    """The purchases of one decision so far: records, actions and values."""

    specialists: tuple[str, ...]
    prior: Prior
    purchases: list[Purchase] = field(default_factory=list)
    actions: list[Inspect] = field(default_factory=list)
    values: list[tuple[float | None, ...]] = field(default_factory=list)

    def ask(self, prompt: str, given: Offered, at: Inspect) -> Ask:
        """The next request; it has the contexts of everything paid for, including `at`."""
        wanted = tuple(self.specialists[box] for box in at.boxes)
        paid = {*wanted, *(name for purchase in self.purchases for name in purchase.specialists)}
        shown = {name: text for name, text in given.items() if name in paid}
        return Ask(prompt, wanted, shown, self.opened)

    @property
    def opened(self) -> tuple[str, ...]:
        """The specialists whose estimates were bought and arrived, in order."""
        pairs = (zip(paid.specialists, paid.values, strict=True) for paid in self.purchases)
        return tuple(name for purchase in pairs for name, value in purchase if value is not None)

    def settle(self, state: State, inspect: Inspect, at: Inspect, paid: Paid) -> tuple[float, ...] | None:
        """Record a purchase made in `state`, with the values of its boxes, None where nothing arrived.

        `inspect` has box numbers of the search, `at` the same boxes among all specialists. Returns the new
        means of all specialists if these depend on everything opened, else None.
        """
        names = tuple(self.specialists[box] for box in at.boxes)
        if len(paid.estimates) != len(names):
            raise UsageError(
                "costly estimates",
                expected=f"{len(names)} numbers, one per specialist asked for",
                came=f"{len(paid.estimates)}",
                do="Return them in the order asked, NaN where there is none.",
            )
        estimates = tuple(float(g) if np.isfinite(g) else None for g in paid.estimates)
        arrived = {box: g for box, g in zip(at.boxes, estimates, strict=True) if g is not None}
        means = self._means(arrived, paid)
        values = tuple(
            None
            if box not in arrived
            else self.prior.value(box, arrived[box])
            if means is None
            else means[box]
            for box in at.boxes
        )
        note = paid.failure
        if note is None and None in estimates:
            note = "no finite number came back"
        self.purchases.append(
            Purchase(
                names,
                estimates,
                values,
                worth(state, inspect),
                state.bill(inspect.boxes),
                paid.seconds,
                status_of(estimates, paid.late),
                paid.fee,
                note,
                () if means is None else means,
            )
        )
        self.actions.append(at)
        self.values.append(values)
        return means

    def _means(self, arrived: Mapping[int, float], paid: Paid) -> tuple[float, ...] | None:
        """The present means of all specialists, if the router's estimates depend on everything opened."""
        if paid.everyone is None or not arrived:
            return None
        names = {*self.opened, *(self.specialists[box] for box in arrived)}
        opened = np.array([name in names for name in self.specialists])
        return self.prior.means(opened, np.asarray(paid.everyone, dtype=np.float64))


def deciding(
    router: Router,
    prompt: str,
    cheap: Cheap,
    offered: Offered | None = None,
    among: Collection[str] | None = None,
    looks: Looks | None = None,
) -> Deciding:
    """Decide for one prompt: yields what to buy, is sent what arrived, returns the decision.

    cheap: from `judged`.
    offered: contexts by specialist. A specialist whose costly estimate needs a context that is not offered
        cannot be inspected.
    among: only these specialists may be inspected or chosen.
    looks: looks that the driver can make during the decision, at the costs of this request instead of the
        router's.
    """
    begun = time.perf_counter() - cheap.seconds
    if cheap.row is None:
        return decline(router, str(cheap.because), cheap.seconds, among)
    given = checked_contexts(offered, router.specialists)
    shut = unavailable(router, given if looks is None else {*given, *looks.names})
    costs = router.costs if looks is None else looks.costs
    inside = candidates(router.specialists, among)
    prior = router.signal.prior(cheap.row, costs)
    boxes = prior.boxes.shut(shut) if shut.any() else prior.boxes
    priced = boxes.reservation_price(), boxes.backup_price(), costs.marginal
    prices = Prices(*priced, costs.refund, costs.shared, costs.group, costs.wait)
    std = boxes.std
    bought, late = Bought(router.specialists, prior), False
    searching = explore(router.policy, State(boxes if among is None else boxes.only(inside)))
    try:
        state, inspect = next(searching)
        while not late:
            at = Inspect(tuple(int(inside[box]) for box in inspect.boxes))
            paid = yield bought.ask(prompt, given, at)
            late = paid.late
            if not paid.begun:
                break
            given |= checked_contexts(paid.contexts, router.specialists)
            means = bought.settle(state, inspect, at, paid)
            news = news_of(bought.values[-1], None if means is None else tuple(means[j] for j in inside))
            state, inspect = searching.send(news)
        trace, last = _cut_short(router.policy, state), state
    except StopIteration as end:
        trace, last = end.value
        late = False
    taken = int(inside[trace.selected])
    whole = Trace((*bought.actions, Select(taken)), tuple(bought.values), trace.spent, trace.refunded)
    status = statuses(router.specialists, bought.purchases, shut, late=late, inside=inside)
    known = Estimates(router.specialists, cheap.row, boxes.mean, std, status)
    final = last.boxes.mean - comes_back(costs.refund[inside], [status[j] for j in inside])
    worth = {router.specialists[j]: mean for j, mean in zip(inside, final.tolist(), strict=True)}
    seconds = time.perf_counter() - begun
    return conclude(router, known, prices, whole, taken, bought.purchases, seconds, worth)


def candidates(specialists: tuple[str, ...], among: Collection[str] | None) -> Positions:
    """Positions of the specialists that may be chosen; raises `UsageError` for an unknown name."""
    if among is None:
        return np.arange(len(specialists))
    strangers = sorted(set(among) - set(specialists))
    if strangers or not among:
        raise UsageError(
            "the candidates of a decision",
            expected=f"one or more of {', '.join(specialists)}",
            came=repr(strangers[0]) if strangers else "none",
            do="Name specialists that the router knows.",
        )
    return np.array([j for j, name in enumerate(specialists) if name in among], dtype=np.intp)


def news_of(values: Sequence[float | None], means: tuple[float, ...] | None) -> list[News | None]:
    """The result of a purchase for the search: a value per box, or the means of all boxes for each."""
    return [value if value is None or means is None else means for value in values]


def decline(router: Router, because: str, seconds: float, among: Collection[str] | None = None) -> Decision:
    """The decision for the router's default, with the reason why the prompt could not be judged.

    If the default is not `among` the candidates, it is for the candidate with the lowest mean fee.
    """
    inside = candidates(router.specialists, among)
    cheapest = router.specialists[min(inside.tolist(), key=lambda j: float(router.fees[j]))]
    return declined(
        router.specialists,
        router.default if among is None or router.default in among else cheapest,
        because,
        policy=router.policy_text,
        artifact=router.id,
        seconds=seconds,
    )


def conclude(
    router: Router,
    known: Estimates,
    prices: Prices,
    trace: Trace,
    taken: int,
    purchases: Sequence[Purchase],
    seconds: float,
    worth: Mapping[str, float],
) -> Decision:
    """The decision at the end of a search that took the box `taken`."""
    name, at = stamp()
    return Decision(
        name,
        at,
        router.specialists[taken],
        trace,
        tuple(purchases),
        known,
        prices,
        router.policy_text,
        router.id,
        seconds,
        worth=worth,
    )


def comes_back(refund: Vector, status: Sequence[BoxStatus]) -> Vector:
    """What of the paid costs comes back if a specialist is chosen: the search has it in the mean of its box.

    It is no part of what an answer is worth.
    """
    return np.where([one is BoxStatus.OPENED for one in status], refund, 0.0)


def unavailable(router: Router, given: Collection[str]) -> Mask:
    """Mask (M,) of specialists whose costly estimate needs a context that is not in `given`."""
    return np.array([name in router.needs and name not in given for name in router.specialists])


def statuses(
    specialists: tuple[str, ...], purchases: Sequence[Purchase], shut: Mask, *, late: bool, inside: Positions
) -> tuple[BoxStatus, ...]:
    """The status of each costly estimate; `late`: the search ended at its deadline."""
    rest = BoxStatus.LATE if late else BoxStatus.SEALED
    status = [BoxStatus.EXCLUDED] * len(specialists)
    for j in inside:
        status[j] = BoxStatus.UNAVAILABLE if shut[j] else rest
    place = {name: j for j, name in enumerate(specialists)}
    for purchase in purchases:
        for name, value in zip(purchase.specialists, purchase.values, strict=True):
            status[place[name]] = BoxStatus.LOST if value is None else BoxStatus.OPENED
    return tuple(status)


def checked_contexts(contexts: Offered | None, specialists: tuple[str, ...]) -> dict[str, str]:
    """Contexts by specialist, each at most `LONGEST_CONTEXT` characters of valid text.

    Unpaired surrogates are replaced, because contexts are written by others. Raises `UsageError` for an
    unknown specialist and for values that are not text.
    """
    given = dict(contexts or {})
    for name, text in given.items():
        if name not in specialists or not isinstance(text, str):
            raise UsageError(
                f"the context of {name!r}",
                expected=f"a text for one of {', '.join(specialists[:8])}" + " ..." * (len(specialists) > 8),
                came="no such specialist" if name not in specialists else type(text).__name__,
                do="Check the spelling: names are compared exactly.",
            )
        given[name] = text[:LONGEST_CONTEXT].encode("utf-8", "replace").decode("utf-8")
    return given


def _cut_short(policy: Policy, state: State) -> Trace:
    """End a search at its deadline: sealed boxes stay sealed, and the policy selects a box."""
    last = replace(state, boxes=state.boxes.shut(state.boxes.sealed))
    try:
        next(search(policy, last))
    except StopIteration as end:
        trace: Trace = end.value
        return trace
    raise AssertionError("a policy asked for a box that is not for sale")

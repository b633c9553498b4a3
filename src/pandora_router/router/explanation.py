"""A decision step by step: what was known, what was bought and why, the runner-up, and the alternatives.

It is rebuilt from the decision and the router that made it, with the same boxes and values; nothing is
bought. The worth of a purchase (`Purchase.worth`) is the expected improvement of the best choice by opening
its boxes, before its cost. `news` is the same for one box alone. A policy that looks further ahead may make a
purchase that does not pay by itself, and the explanation says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pandora_router.estimators.stack.agreement import said_alike
from pandora_router.router.deciding import comes_back, news_of
from pandora_router.router.decision import BoxStatus, Decision, Purchase, plain
from pandora_router.router.purchases import worth
from pandora_router.search import Inspect, State
from pandora_router.search.drive import learnt
from pandora_router.search.gradient import gradient
from pandora_router.types import Vector

if TYPE_CHECKING:
    from pandora_router.router.router import Router


@dataclass(frozen=True)
class Line:
    """One specialist before a step; if it cannot be inspected, `news` is 0 and prices are None.

    `refund` is the part of `inspection_cost` that comes back if the specialist is inspected and chosen.
    """

    specialist: str
    status: BoxStatus
    mean: float
    std: float
    reservation_price: float | None
    backup_price: float | None
    inspection_cost: float
    refund: float
    news: float


@dataclass(frozen=True)
class Step:
    """What was known and spent, the action and its reason; `purchase` is None for the last step.

    `seen` says what a purchase changed, if estimates depend on everything opened; else empty.
    """

    spent: float
    lines: tuple[Line, ...]
    action: str
    why: str
    purchase: Purchase | None
    seen: str = ""


@dataclass(frozen=True)
class Alternative:
    """The choice of one specialist: its chance to be right, its mean fee, its worth, what it gives up.

    `score` is the expected score at the end (for scores of 0 and 1 the chance to be right). `worth` is that
    score minus the weighted fee. `gives_up` is what the choice would lose with it: the worth of the chosen
    specialist minus this one, each with what comes back of a look at it.
    """

    specialist: str
    score: float
    worth: float
    gives_up: float
    mean_fee: float
    status: BoxStatus


@dataclass(frozen=True)
class Explanation:
    """Everything that `pandora explain` prints. `held`: specialists that could still have been opened.

    `right_answer` is the money that a score of 1 is worth, None if the router was fitted without fees; a
    worth or an inspection cost times it is money. `chosen` is the choice that was made. `bills` are total
    inspection costs: of this decision, net of refunds and before them, and of inspecting nothing and
    everything.
    """

    decision: Decision
    steps: tuple[Step, ...]
    runner_up: str | None
    held: tuple[str, ...]
    alternatives: tuple[Alternative, ...]
    bills: Mapping[str, float]
    chosen: Alternative | None = None
    right_answer: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "chosen": None if self.chosen is None else asdict(self.chosen),
            "right_answer": self.right_answer,
            "decision": self.decision.to_dict(),
            "steps": [asdict(step) for step in self.steps],
            "runner_up": self.runner_up,
            "held": list(self.held),
            "alternatives": [asdict(alternative) for alternative in self.alternatives],
            "inspection_bills": dict(self.bills),
        }


def explain(router: Router, decision: Decision, contexts: Mapping[str, str] | None = None) -> Explanation:
    """Explain a decision of this router.

    `contexts` are the beginnings of answers, by specialist, if they are still known: if estimates depend on
    everything opened, the explanation can then say which specialists agree.
    """
    if decision.declined_because is not None:
        return Explanation(decision, (), None, (), (), {"this decision": 0.0})
    whole_status = decision.estimates.status
    inside = np.flatnonzero([box_status is not BoxStatus.EXCLUDED for box_status in whole_status])
    place = {int(j): i for i, j in enumerate(inside)}
    names = tuple(decision.estimates.specialists[j] for j in inside)
    status = [whole_status[j] for j in inside]
    fees = router.fees[inside]
    boxes = router.signal.boxes(decision.estimates.cheap, decision.prices.costs()).only(inside)
    shut = np.array([box_status is BoxStatus.UNAVAILABLE for box_status in status])
    state = State(boxes.shut(shut) if shut.any() else boxes)
    now = [BoxStatus.UNAVAILABLE if closed else BoxStatus.SEALED for closed in shut]
    steps = []
    for action, purchase in zip(decision.trace.actions[:-1], decision.purchases, strict=True):
        assert isinstance(action, Inspect)
        bought = ", ".join(purchase.specialists)
        lines = _lines(state, names, now)
        at_once = state.boxes.costs.spared([place[j] for j in action.boxes])
        why = _why_buy(purchase, {line.specialist: line.refund for line in lines}, at_once)
        before, spent = state.boxes.mean, state.spent
        means = tuple(purchase.means[j] for j in inside) if purchase.means else None
        here = Inspect(tuple(place[j] for j in action.boxes))
        state = learnt(state, here, news_of(purchase.values, means))
        for box in here.boxes:
            now[box] = status[box]
        opened = [name for name, box_status in zip(names, now, strict=True) if box_status is BoxStatus.OPENED]
        texts = {name: contexts[name] for name in opened if contexts and name in contexts}
        seen = _seen(names, before, state.boxes.mean, texts) if means else ""
        steps.append(Step(spent, lines, f"inspect {bought}", why, purchase, seen))
    late = BoxStatus.LATE in status
    last = _lines(state, names, status)
    stop = "the deadline of the decision had passed" if late else _why_stop(state, names, decision.policy)
    stop += _came_back(decision)
    steps.append(Step(state.spent, last, f"take {decision.specialist}", stop, None))
    taken, mean = place[decision.trace.selected], state.boxes.mean
    worths = mean - comes_back(boxes.costs.refund, status)
    score, gives_up = worths + router.deducted[inside], mean[taken] - mean
    choices = {
        j: Alternative(
            names[j],
            float(score[j]),
            float(worths[j]),
            float(gives_up[j]),
            float(fees[j]),
            status[j],
        )
        for j in np.argsort(-mean, kind="stable").tolist()
    }
    alternatives = tuple(choice for j, choice in choices.items() if j != taken)
    whole = boxes.costs.own.sum() + boxes.costs.shared.sum() - boxes.costs.spared(range(len(names)))
    back = decision.trace.refunded
    bills = {"this decision": decision.trace.spent}
    if back > 0.0:
        bills |= {"paid before the refund": decision.trace.spent + back, "refunded": back}
    return Explanation(
        decision,
        tuple(steps),
        alternatives[0].specialist if alternatives else None,
        tuple(name for name, box_status in zip(names, status, strict=True) if box_status is BoxStatus.SEALED),
        alternatives,
        bills | {"inspect nothing": 0.0, "inspect everything": float(whole)},
        choices[taken],
        1.0 / router.fee_weight if router.fee_weight > 0.0 else None,
    )


def amount(number: float) -> str:
    """A reward or a cost for people: no exponents, no rounding noise.

    >>> amount(0.00213), amount(3.331e-16), amount(0.0000256), amount(-0.4)
    ('0.0021', '0', '0.000026', '-0.4000')
    """
    if abs(number) < 1e-7:
        return "0"
    if abs(number) >= 0.01:
        return f"{number:.4f}"
    return np.format_float_positional(number, precision=2, fractional=False, trim="-")


def _lines(state: State, names: tuple[str, ...], status: list[BoxStatus]) -> tuple[Line, ...]:
    boxes = state.boxes
    above, below, news = boxes.reservation_price(), boxes.backup_price(), gradient(boxes, state.outside)
    std, lines = boxes.std, []
    for j, name in enumerate(names):
        sold = bool(boxes.sealed[j])
        lines.append(
            Line(
                name,
                status[j],
                float(boxes.mean[j]),
                0.0 if status[j] is BoxStatus.OPENED else float(std[j]),
                plain(above[j]) if sold else None,
                plain(below[j]) if sold else None,
                float(boxes.inspection_cost[j]),
                float(boxes.refund[j]) if sold else 0.0,
                float(news[j]) if sold else 0.0,
            )
        )
    return tuple(lines)


def _seen(names: tuple[str, ...], before: Vector, after: Vector, texts: Mapping[str, str]) -> str:
    """What a purchase changed: which specialists agree, and the new worth of each."""
    alike = "; ".join(said_alike(texts))
    worth = ", ".join(
        f"{name} is now worth {amount(float(b))} ({amount(float(a))} before)"
        for name, a, b in zip(names, before, after, strict=True)
    )
    return f"{alike}: {worth}" if alike else worth


def _came_back(decision: Decision) -> str:
    """The refund for the chosen specialist, in words; empty without one."""
    back, paid = decision.trace.refunded, decision.trace.spent + decision.trace.refunded
    if back <= 0.0:
        return ""
    return (
        f"; {amount(back)} of the {amount(paid)} paid is refunded, because {decision.specialist} continues "
        f"the answer that it began; {amount(paid - back)} remains as cost"
    )


def _why_buy(purchase: Purchase, refunds: Mapping[str, float], at_once: float = 0.0) -> str:
    """Why a purchase was made; `at_once` is what is saved by waiting for its looks side by side."""
    count = len(purchase.specialists)
    gain, cost = amount(purchase.worth), amount(purchase.cost)
    most = max(refunds[name] for name in purchase.specialists)
    if most > 0.0:
        who = "it" if count == 1 else "one of them"
        cost += f" (of which {amount(most)} is refunded if {who} is chosen)"
    if at_once > 0.0:
        cost += f" (their looks wait side by side: one after the other {amount(purchase.cost + at_once)})"
    what = "its estimate is" if count == 1 else f"one purchase opens {count} specialists and is"
    if purchase.worth > purchase.cost:
        return f"{what} expected to improve the choice by {gain} and costs {cost}"
    return (
        f"{what} expected to improve the choice by {gain}, less than its cost of {cost}; the policy also "
        "counts later purchases that this one makes possible, or it buys always"
    )


def _why_stop(state: State, names: tuple[str, ...], policy: str) -> str:
    """Why nothing more was bought: the remaining purchase that comes closest to paying."""
    boxes = state.boxes
    if not boxes.sealed.any():
        return "no estimate is left to buy; it has the highest mean"
    choices = [Inspect((int(j),)) for j in np.flatnonzero(boxes.sealed)]
    for group in np.flatnonzero(boxes.costs.shared > 0.0):
        members = np.flatnonzero((boxes.costs.group == group) & boxes.sealed)
        if len(members) > 1:
            choices.append(Inspect(tuple(members.tolist())))
    gain, cost, best = max(
        ((worth(state, action), state.bill(action.boxes), action) for action in choices),
        key=lambda option: option[0] - option[1],
    )
    what = names[best.boxes[0]] if len(best.boxes) == 1 else f"{len(best.boxes)} specialists together"
    closest = f"the best is {what}: expected improvement {amount(gain)}, cost {amount(cost)}"
    if gain > cost:
        return f"the policy {policy} buys nothing more ({closest})"
    return f"no further estimate is worth its cost ({closest}); it has the highest mean"

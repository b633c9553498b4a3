"""A decision told step by step: what was known, what was bought and why, who came second, what else it cost.

Rebuilt from the decision and the router that made it: the same boxes, the same values, nothing new bought.
`news` is what opening a box is expected to add to the best choice (the one-step knowledge gradient), before
its cost; a policy that looks further ahead may buy news that seems too dear on its own, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pandora_router.router.decision import Decision, plain, std_of
from pandora_router.search import Inspect, Select, State
from pandora_router.search.gradient import gradient

if TYPE_CHECKING:
    from pandora_router.router.router import Router


@dataclass(frozen=True)
class Line:
    """One specialist before a step. `status` is sealed, opened, lost, or not for sale."""

    specialist: str
    status: str
    mean: float
    std: float
    reservation_price: float | None
    backup_price: float | None
    inspection_cost: float
    news: float


@dataclass(frozen=True)
class Step:
    """What was known, what was done about it, and why."""

    spent: float
    lines: tuple[Line, ...]
    action: str
    why: str


@dataclass(frozen=True)
class Alternative:
    """Taking this specialist instead: its worth at the end, what that gives up, its fee."""

    specialist: str
    worth: float
    gives_up: float
    mean_fee: float
    status: str


@dataclass(frozen=True)
class Explanation:
    """Everything `pandora explain` says."""

    decision: Decision
    steps: tuple[Step, ...]
    runner_up: str | None
    held: tuple[str, ...]
    alternatives: tuple[Alternative, ...]
    bills: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "decision": self.decision.to_dict(),
            "steps": [asdict(step) for step in self.steps],
            "runner_up": self.runner_up,
            "held": list(self.held),
            "alternatives": [asdict(one) for one in self.alternatives],
            "inspection_bills": dict(self.bills),
        }


def explain(router: Router, decision: Decision) -> Explanation:
    """Tell how a decision of this router came about."""
    names, trace = decision.estimates.specialists, decision.trace
    if decision.declined_because is not None:
        return Explanation(decision, (), None, (), (), {"this decision": 0.0})
    boxes = router.signal.boxes(decision.estimates.cheap, router.costs)
    unsold = np.array(["cannot be inspected" in decision.estimates.notes.get(name, "") for name in names])
    state = State(boxes.shut(unsold) if unsold.any() else boxes)
    steps, lost = [], set[int]()
    for action, shown in zip(trace.actions, (*trace.values, ()), strict=True):
        lines = _lines(state, names, unsold, lost)
        if isinstance(action, Select):
            steps.append(Step(state.spent, lines, f"take {names[action.box]}", _why_stop(lines)))
            break
        bought = ", ".join(names[box] for box in action.boxes)
        steps.append(Step(state.spent, lines, f"inspect {bought}", _why_buy(lines, action, state)))
        for box, value in zip(action.boxes, shown, strict=True):
            lost |= {box} if value is None else set()
            state = state.lose(box) if value is None else state.observe(box, value)
    taken = trace.selected
    worth = state.boxes.mean
    order = [int(j) for j in np.argsort(-worth, kind="stable") if j != taken]
    last = steps[-1].lines
    alternatives = tuple(
        Alternative(
            names[j],
            float(worth[j]),
            float(worth[taken] - worth[j]),
            float(router.fees[j]),
            last[j].status,
        )
        for j in order
    )
    held = tuple(line.specialist for line in last if line.status == "sealed")
    whole = router.costs.own.sum() + router.costs.shared.sum()
    bills = {"this decision": trace.spent, "inspect nothing": 0.0, "inspect everything": float(whole)}
    runner = alternatives[0].specialist if alternatives else None
    return Explanation(decision, tuple(steps), runner, held, alternatives, bills)


def _lines(state: State, names: tuple[str, ...], unsold: np.ndarray, lost: set[int]) -> tuple[Line, ...]:
    boxes = state.boxes
    opened = {worth.box for worth in state.opened}
    above, below, news = boxes.reservation_price(), boxes.backup_price(), gradient(boxes, state.outside)
    std, lines = std_of(boxes), []
    for j, name in enumerate(names):
        status = (
            "opened" if j in opened else "lost" if j in lost else "not for sale" if unsold[j] else "sealed"
        )
        sold = status == "sealed"
        lines.append(
            Line(
                name,
                status,
                float(boxes.mean[j]),
                0.0 if status == "opened" else float(std[j]),
                plain(above[j]) if sold else None,
                plain(below[j]) if sold else None,
                float(boxes.inspection_cost[j]),
                float(news[j]) if sold else 0.0,
            )
        )
    return tuple(lines)


def _why_buy(lines: tuple[Line, ...], action: Inspect, state: State) -> str:
    cost = 0.0
    for box in action.boxes:
        cost += float(state.boxes.inspection_cost[box])
        state = state.lose(box)
    best = max(lines[box].news for box in action.boxes)
    if len(action.boxes) > 1:
        shown = len(action.boxes)
        return f"one purchase of {cost:.4g} shows {shown} of them; the best single news is worth {best:.4g}"
    if best > cost:
        return f"its news is worth {best:.4g} and costs {cost:.4g}"
    return f"its news alone is worth {best:.4g} of {cost:.4g}, but it pays with what may be bought next"


def _why_stop(lines: tuple[Line, ...]) -> str:
    left = [line for line in lines if line.status == "sealed"]
    if not left:
        return "nothing is left to inspect: the highest mean is taken"
    best = max(left, key=lambda line: line.news - line.inspection_cost)
    return (
        f"no inspection is worth its cost any more (the closest, {best.specialist}: "
        f"{best.news:.4g} for {best.inspection_cost:.4g}); the highest mean is taken"
    )

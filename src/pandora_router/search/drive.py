"""One search loop, driven in three ways: blocking, async, and from a record.

`search` is a generator that asks for purchases and is sent what they showed; it knows nothing of clocks,
money transfers or failures beyond `None`. The drivers differ only in how they answer it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.boxes import Ladder
from pandora_router.boxes.checks import sealed_box
from pandora_router.boxes.moving import Moving, News
from pandora_router.errors import UsageError
from pandora_router.search.state import OUTSIDE, Action, Inspect, Policy, Select, State, Trace
from pandora_router.types import Mask

Shown = Sequence[News | None] | Mapping[int, News | None]
"""What opened boxes showed: values in the order asked, or by box; None where an inspection failed."""
Opener = Callable[[State, Inspect], Shown]
AsyncOpener = Callable[[State, Inspect], Awaitable[Shown]]


def search(policy: Policy, state: State) -> Generator[tuple[State, Inspect], Shown, Trace]:
    """Run `policy`: yield each purchase, receive one value (or None) per box, return the trace."""
    return (yield from explore(policy, state))[0]


def explore(policy: Policy, state: State) -> Generator[tuple[State, Inspect], Shown, tuple[Trace, State]]:
    """As `search`, but also return the state in which the policy stopped."""
    policy = policy.start(state)
    actions: list[Action] = []
    values: list[tuple[News | None, ...]] = []
    while isinstance(action := policy.next(state), Inspect):
        check(action, state, policy)  # before anyone pays
        shown = in_order(action, (yield state, action))
        state = learnt(state, action, shown)
        actions.append(action)
        values.append(shown)
    check(action, state, policy)
    back = state.refund(action.box)
    return Trace((*actions, action), tuple(values), state.spent - back, back), state


def in_order(inspect: Inspect, shown: Shown) -> tuple[News | None, ...]:
    """What an opener returned, as one value per box in the order asked; `UsageError` if it is not that."""
    if isinstance(shown, Mapping):
        if set(shown) == set(inspect.boxes):
            return tuple(shown[box] for box in inspect.boxes)
        came = f"values for boxes {tuple(shown)}"
    elif isinstance(shown, str | bytes) or not isinstance(shown, Iterable):
        came = repr(shown)
    else:
        values = tuple(shown)
        if len(values) == len(inspect.boxes):
            return values
        came = f"{len(values)}"
    raise UsageError(
        "the values of opened boxes",
        expected=f"{len(inspect.boxes)} values for boxes {inspect.boxes}",
        came=came,
        do="Return one value per box in the order asked, or a dict by box; None where the inspection failed.",
    )


def learnt(state: State, inspect: Inspect, values: Sequence[News | None]) -> State:
    """The state after these boxes have shown these values together, None where an inspection failed."""
    spared = state.boxes.costs.spared(inspect.boxes)
    for box, value in zip(inspect.boxes, values, strict=True):
        state = state.lose(box) if value is None else state.observe(box, value)
    return replace(state, spent=state.spent - spared) if spared else state


def check(action: Action, state: State, policy: Policy) -> None:
    """Refuse what a policy must not say: nothing at all, the same box twice, a box that is not there."""
    sealed = state.boxes.sealed
    if isinstance(action, Inspect) and action.boxes and len(set(action.boxes)) == len(action.boxes):
        for box in action.boxes:
            sealed_box(sealed, box, 0.0)
    elif not isinstance(action, Select) or not OUTSIDE <= action.box < len(sealed):
        raise UsageError(
            "the action of a policy",
            expected=f"Inspect with one or more different boxes, or Select from -1 to {len(sealed) - 1}",
            came=f"{action!r}",
            do=f"Repair the policy {policy!r}.",
        )


def drive(policy: Policy, state: State, open: Opener | Mapping[int, News | None]) -> Trace:
    """Search, calling `open(state, inspect)` for each purchase.

    `open` pays for `inspect.boxes` (positions of boxes, never the same twice) and returns what they showed:
    one value per box in the order of `inspect.boxes`, or a dict by box. None says that an inspection failed:
    its cost is counted and the box keeps its mean. If all values are known in advance, `open` may also be a
    dict of them by box. Raises `UsageError` if values are missing, too many or not numbers.

    >>> from pandora_router import Independent, KnowledgeGradient, State
    >>> boxes = Independent(mean=[0.62, 0.55], std=[0.1, 0.3], inspection_cost=0.01)
    >>> drive(KnowledgeGradient(), State(boxes), {0: 0.58, 1: 0.95}).selected
    1
    """
    if isinstance(open, Mapping):
        open = _known(open)
    asking = search(policy, state)
    try:
        now, inspect = next(asking)
        while True:
            now, inspect = asking.send(open(now, inspect))
    except StopIteration as done:
        trace: Trace = done.value
        return trace


def _known(values: Mapping[int, News | None]) -> Opener:
    """An opener for values by box; a box that is not among them is refused by `in_order`."""
    return lambda _, inspect: {box: values[box] for box in inspect.boxes if box in values}


async def adrive(policy: Policy, state: State, open: AsyncOpener) -> Trace:
    """As `drive`, awaiting `open(state, inspect)` for each purchase."""
    asking = search(policy, state)
    try:
        now, inspect = next(asking)
        while True:
            now, inspect = asking.send(await open(now, inspect))
    except StopIteration as done:
        trace: Trace = done.value
        return trace


def replay(policy: Policy, state: State, trace: Trace) -> Trace:
    """Search with the values a trace holds: what would `policy` have done?

    The policy may open boxes in another order, but a box the trace never opened is a `UsageError`.
    """
    record: dict[int, list[News | None]] = {}
    for action, shown in zip(trace.actions, trace.values, strict=False):
        assert isinstance(action, Inspect)
        for box, value in zip(action.boxes, shown, strict=True):
            record.setdefault(box, []).append(value)

    def look_up(now: State, inspect: Inspect) -> Shown:
        missing = [box for box in inspect.boxes if not record.get(box)]
        if missing:
            raise UsageError(
                "replay",
                expected=f"recorded values for the boxes the policy opens, {inspect.boxes}",
                came=f"a trace that opened only {trace.inspected}",
                do="Replay against a trace that opened every box, or route the prompt again.",
            )
        return [record[box].pop(0) for box in inspect.boxes]

    return drive(policy, state, look_up)


def reveal(values: ArrayLike) -> Opener:
    """Return an opener for values known in advance: (M,), or (M, T) for ladders of T tiers."""
    table = np.asarray(values, dtype=np.float64)

    def open(state: State, inspect: Inspect) -> Shown:
        if table.shape[:1] != state.boxes.mean.shape or table.ndim > 1 + isinstance(state.boxes, Ladder):
            raise UsageError(
                "values to reveal",
                expected=f"{len(state.boxes.mean)} values, one per box (ladders: or a column per tier)",
                came=f"shape {table.shape}",
                do="Align them with the boxes.",
            )
        if isinstance(state.boxes, Ladder) and table.ndim == 2:
            return [float(table[box, state.boxes.next_tier[box] - 1]) for box in inspect.boxes]
        return [float(table[box]) for box in inspect.boxes]

    return open


def reveal_means(means: Callable[[Mask], ArrayLike]) -> Opener:
    """Return an opener for `Moving` boxes: `means(opened)` are those of all boxes (M,) for what is open."""

    def open(state: State, inspect: Inspect) -> Shown:
        assert isinstance(state.boxes, Moving)
        opened = state.boxes.opened.copy()
        opened[list(inspect.boxes)] = True
        news = tuple(np.asarray(means(opened), dtype=np.float64).tolist())
        return [news] * len(inspect.boxes)

    return open

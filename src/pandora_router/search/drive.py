"""One search loop, driven in three ways: blocking, async, and from a record.

`search` is a generator that asks for purchases and is sent what they showed; it knows nothing of clocks,
money transfers or failures beyond `None`. The drivers differ only in how they answer it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from pandora_router.boxes import Ladder
from pandora_router.boxes.checks import sealed_box
from pandora_router.boxes.moving import Moving, News
from pandora_router.errors import UsageError
from pandora_router.search.state import OUTSIDE, Action, Inspect, Policy, Select, State, Trace
from pandora_router.types import Positions

Shown = Sequence[News | None]
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
        shown = tuple((yield state, action))
        if len(shown) != len(action.boxes):
            raise UsageError(
                "the values of opened boxes",
                expected=f"{len(action.boxes)} values for boxes {action.boxes}",
                came=f"{len(shown)}",
                do="Return one value per box in the order asked, None where the inspection failed.",
            )
        state = learnt(state, action, shown)
        actions.append(action)
        values.append(shown)
    check(action, state, policy)
    back = state.refund(action.box)
    return Trace((*actions, action), tuple(values), state.spent - back, back), state


def learnt(state: State, inspect: Inspect, values: Shown) -> State:
    """The state after these boxes have shown these values, None where an inspection failed."""
    for box, value in zip(inspect.boxes, values, strict=True):
        state = state.lose(box) if value is None else state.observe(box, value)
    return state


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


def drive(policy: Policy, state: State, open: Opener) -> Trace:
    """Search, calling `open(state, inspect)` for each purchase."""
    asking = search(policy, state)
    try:
        now, inspect = next(asking)
        while True:
            now, inspect = asking.send(open(now, inspect))
    except StopIteration as done:
        trace: Trace = done.value
        return trace


async def adrive(policy: Policy, state: State, open: AsyncOpener) -> Trace:
    """Search, awaiting `open(state, inspect)` for each purchase."""
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


def reveal_means(means: Callable[[Positions], ArrayLike]) -> Opener:
    """Return an opener for `Moving` boxes: `means(tier)` are those of all boxes (M,) inspected so often."""

    def open(state: State, inspect: Inspect) -> Shown:
        assert isinstance(state.boxes, Moving)
        tier = state.boxes.tier.copy()
        tier[list(inspect.boxes)] += 1
        news = tuple(np.asarray(means(tier), dtype=np.float64).tolist())
        return [news] * len(inspect.boxes)

    return open

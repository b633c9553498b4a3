"""Join routing tables: side by side (more specialists), one below the other (more prompts), or merged.

What both tables state must agree; otherwise the join raises `UsageError`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pandora_router.data.table import Table, normalise
from pandora_router.errors import UsageError
from pandora_router.types import Contexts, Mask, Matrix, Positions


def beside(left: Table, right: Table, *, shared: bool = False) -> Table:
    """The specialists of both tables over the same prompts, matched by id; order and tasks of the left table.

    Both must have the same prompts, unless `shared` restricts them to the common ones. Texts (apart from
    white space), splits and fee weight must agree, otherwise `UsageError`. A specialist may end up without
    any
    score: `joined.only(joined.answered)` removes such specialists.
    """
    twice = sorted(set(left.specialists) & set(right.specialists))
    if twice:
        raise _clash(
            "specialists", "different names in the two tables", repr(twice[0]), "Rename one of them."
        )
    if left.fee_weight != right.fee_weight:
        came = f"{left.fee_weight} and {right.fee_weight}"
        raise _clash("fee_weight", "one value", came, "Call `with_fee_weight` on one of them first.")
    left, right = _aligned(left, right, shared)
    for i, (a, b) in enumerate(zip(left.prompts, right.prompts, strict=True)):
        if a != b and normalise(a) != normalise(b):
            place = f"prompt {left.prompt_ids[i]!r}"
            raise _clash(
                place, "the same text in both tables", f"{a[:60]!r} and {b[:60]!r}", "Are the ids the same?"
            )
    if (left.split != right.split).any():
        i = int(np.flatnonzero(left.split != right.split)[0])
        came = f"{str(left.split[i])!r} and {str(right.split[i])!r} for prompt {left.prompt_ids[i]!r}"
        raise _clash("split", "the same in both tables", came, "Call `with_split` on one of them first.")
    return replace(
        left,
        specialists=left.specialists + right.specialists,
        score=np.hstack([left.score, right.score]),
        fee=np.hstack([left.fee, right.fee]),
        contexts=_both_contexts([left, right], axis=1),
        lengths={**left.lengths, **right.lengths},
    )


def stack(tables: Sequence[Table]) -> Table:
    """The prompts of all tables, one below the other, over the same specialists; order of the first."""
    if not tables:
        raise _clash("tables to stack", "at least one", "none", "Check the list of files.")
    first = tables[0]
    for table in tables[1:]:
        odd = sorted(set(table.specialists) ^ set(first.specialists))
        if odd:
            came = f"{odd[0]!r} in some tables only"
            raise _clash("specialists", "the same in every table", came, "Use `only` to bring them in line.")
        if table.fee_weight != first.fee_weight:
            came = f"{first.fee_weight} and {table.fee_weight}"
            raise _clash("fee_weight", "one value", came, "Call `with_fee_weight` first.")
    tables = [table.only(first.specialists) for table in tables]
    return replace(
        first,
        prompt_ids=tuple(name for table in tables for name in table.prompt_ids),
        prompts=tuple(text for table in tables for text in table.prompts),
        tasks=tuple(task for table in tables for task in table.tasks),
        split=np.concatenate([table.split for table in tables]),
        score=np.vstack([table.score for table in tables]),
        fee=np.vstack([table.fee for table in tables]),
        contexts=_both_contexts(tables, axis=0),
    )


def _aligned(left: Table, right: Table, shared: bool) -> tuple[Table, Table]:
    where = {name: i for i, name in enumerate(right.prompt_ids)}
    common = [i for i, name in enumerate(left.prompt_ids) if name in where]
    if not shared and not (len(common) == len(left) == len(right)):
        came = f"{len(left)} and {len(right)} prompts, {len(common)} in common"
        raise _clash(
            "prompts", "the same ids in both tables", came, "Pass shared=True to keep the common ones."
        )
    if shared and not common:
        raise _clash("prompts", "ids in common", "none", "Are these two tables over the same prompts?")
    index: Positions = np.array(common, dtype=np.intp)
    return left.rows(index), right.rows(np.array([where[left.prompt_ids[i]] for i in common], dtype=np.intp))


def _both_contexts(tables: Sequence[Table], axis: int) -> Contexts | None:
    if all(table.contexts is None for table in tables):
        return None
    blank = [np.full(table.shape, None, dtype=object) for table in tables]
    parts = [b if table.contexts is None else table.contexts for table, b in zip(tables, blank, strict=True)]
    return np.concatenate(parts, axis=axis)


def _clash(what: str, expected: str, came: str, do: str) -> UsageError:
    return UsageError(what, expected=expected, came=came, do=do)


@dataclass(frozen=True)
class Merged:
    """A merged table; `shared` prompts were in several tables, which state `conflicts` cells differently."""

    table: Table
    shared: int
    conflicts: int


def merge(tables: Sequence[Table], *, prefer: Literal["first", "last"] | None = None) -> Merged:
    """All prompts and all specialists of the tables; a cell that no table states stays missing.

    Two prompts are the same if their texts are, apart from white space; a text that one table has k times is
    matched k times. The first table that has a prompt gives its id, task and split, and later prompts of the
    same text take that split. An id that stands for another text already gets a number at its end. A conflict
    is a cell with another score or fee in two tables: `UsageError`, unless `prefer` says whose cell stays.
    Context and times come with the cell, or from another table if that one has none.
    """
    if not tables:
        raise _clash("tables to merge", "at least one", "none", "Name them.")
    if len({table.fee_weight for table in tables}) > 1:
        came = " and ".join(dict.fromkeys(f"{table.fee_weight:g}" for table in tables))
        raise _clash("fee_weight", "one value", came, "Give all tables one: --fee-weight, `with_fee_weight`.")
    names = tuple(dict.fromkeys(name for table in tables for name in table.specialists))
    prompts = _Prompts()
    rows = [prompts.add(table) for table in tables]
    shape = (len(prompts.ids), len(names))
    score, fee = np.full(shape, np.nan), np.full(shape, np.nan)
    times = {name: np.full(shape, np.nan) for table in tables for name in table.times}
    contexts, conflicts = np.full(shape, None, dtype=object), 0
    for table, places in zip(tables, rows, strict=True):
        cells = np.ix_(places, np.array([names.index(name) for name in table.specialists], dtype=np.intp))
        before, stated = ~np.isnan(score[cells]), ~table.missing
        differs = (score[cells] != table.score) | (fee[cells] != table.fee)
        clash = before & stated & differs
        conflicts += int(clash.sum())
        if clash.any() and prefer is None:
            raise _stated_twice(table, clash, score[cells])
        taken = stated & ~before if prefer != "last" else stated
        score[cells] = np.where(taken, table.score, score[cells])
        fee[cells] = np.where(taken | np.isnan(fee[cells]), table.fee, fee[cells])
        for name, values in table.times.items():
            fresh = (taken | np.isnan(times[name][cells])) & ~np.isnan(values)
            times[name][cells] = np.where(fresh, values, times[name][cells])
        if table.contexts is not None:
            better = (taken | _blank(contexts[cells])) & ~_blank(table.contexts)
            contexts[cells] = np.where(better, table.contexts, contexts[cells])
    table = Table(
        prompt_ids=tuple(prompts.ids),
        prompts=tuple(prompts.texts),
        tasks=tuple(prompts.tasks),
        split=np.array(prompts.split, dtype=np.str_),
        specialists=names,
        score=score,
        fee=fee,
        contexts=None if all(table.contexts is None for table in tables) else contexts,
        fee_weight=tables[0].fee_weight,
        lengths=_mean_lengths(tables),
        **times,
    )
    return Merged(table, sum(map(len, tables)) - len(table), conflicts)


def _blank(contexts: Contexts) -> Mask:
    """Mask of the cells without a context."""
    blank = [text is None for text in contexts.ravel().tolist()]
    return np.array(blank, dtype=np.bool_).reshape(contexts.shape)


class _Prompts:
    """The distinct prompts of the tables added so far, in the order of their first appearance."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.texts: list[str] = []
        self.tasks: list[str] = []
        self.split: list[str] = []
        self._places: dict[tuple[str, int], int] = {}
        self._taken: set[str] = set()

    def add(self, table: Table) -> Positions:
        """The row of each prompt of `table`; prompts that are new get one."""
        times: Counter[str] = Counter()
        earlier = {text: self.split[place] for (text, k), place in self._places.items() if k == 0}
        places = []
        for i, prompt in enumerate(table.prompts):
            text = normalise(prompt)
            key = (text, times[text])
            times[text] += 1
            if key not in self._places:
                self._places[key] = len(self.ids)
                self.ids.append(self._free(table.prompt_ids[i]))
                self.texts.append(prompt)
                self.tasks.append(table.tasks[i])
                self.split.append(earlier.get(text, str(table.split[i])))
            places.append(self._places[key])
        return np.array(places, dtype=np.intp)

    def _free(self, name: str) -> str:
        """`name`, or the first of name-2, name-3, ... that no prompt has yet."""
        number, free = 1, name
        while free in self._taken:
            number += 1
            free = f"{name}-{number}"
        self._taken.add(free)
        return free


def _stated_twice(table: Table, clash: Mask, before: Matrix) -> UsageError:
    i, j = (int(k) for k in np.argwhere(clash)[0])
    return _clash(
        f"the cell of {table.specialists[j]!r} on prompt {table.prompts[i][:60]!r}",
        "the same score and fee in every table that has it",
        f"scores {before[i, j]:g} and {table.score[i, j]:g}, or other fees ({int(clash.sum())} such cells)",
        "Say whose cells to keep: --prefer first or --prefer last (`prefer=` in Python).",
    )


def _mean_lengths(tables: Sequence[Table]) -> dict[str, dict[str, float]]:
    """Means over the answers of all tables: those of each table, weighted by its number of scores."""
    sums: dict[str, dict[str, tuple[float, float]]] = {}
    for table in tables:
        for name, means in table.lengths.items():
            weight = float((~table.missing[:, table.specialists.index(name)]).sum())
            for kind, mean in means.items():
                total, weights = sums.setdefault(name, {}).get(kind, (0.0, 0.0))
                sums[name][kind] = (total + weight * mean, weights + weight)
    return {
        name: {kind: total / weight for kind, (total, weight) in kinds.items() if weight}
        for name, kinds in sums.items()
    }

"""Join routing tables: side by side (more specialists) or one below the other (more prompts).

What both tables state must agree; otherwise the join raises `UsageError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pandora_router.data.table import Table, normalise
from pandora_router.errors import UsageError
from pandora_router.types import Contexts, Positions


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

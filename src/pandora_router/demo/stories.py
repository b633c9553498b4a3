"""Three held-out questions: nothing is bought, a look pays, a look does not help."""

from __future__ import annotations

import numpy as np

from ..router import Decision
from .study import Study


def stories(found: Study) -> list[tuple[str, Decision]]:
    """Headings with decisions, made again with the recorded contexts; fewer than three if there are none."""
    table, routed = found.held_out, found.routed
    right = table.score[np.arange(len(table)), routed.choice] > 0
    single = table.specialists.index(found.router.default)
    saved = right & (table.score[:, single] == 0)
    kinds = {
        "Nothing is worth buying": (routed.queries == 0) & right,
        "A look pays: the usual choice would have been wrong": (routed.queries > 0) & saved,
        "A look, and wrong all the same": (routed.queries > 0) & ~right,
    }
    told = []
    for heading, which in kinds.items():
        rows = np.flatnonzero(which)
        if len(rows):
            i = int(rows[np.argmin(routed.queries[rows])])
            assert table.contexts is not None
            contexts = {name: str(table.contexts[i, j]) for j, name in enumerate(table.specialists)}
            told.append((f"{heading}: {table.prompts[i]}", found.router.route(table.prompts[i], contexts)))
    return told

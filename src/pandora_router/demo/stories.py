"""Held-out questions worth telling: a look saves money, a look saves the answer, no look, a look in vain."""

from __future__ import annotations

import numpy as np

from pandora_router.demo.study import Study
from pandora_router.router import Decision


def stories(result: Study) -> list[tuple[str, Decision]]:
    """Headings with decisions, made again from the recorded contexts; kinds that never occur are left out.

    Of each kind the decision with the fewest looks is told, of those the one with the shortest question.
    """
    table, routed = result.held_out, result.routed
    rows = np.arange(len(table))
    right = table.score[rows, routed.choice] > 0
    changed = (routed.queries > 0) & right & (routed.choice != result.unlooked)
    otherwise = table.score[rows, result.unlooked] > 0
    dearer = table.fee[rows, result.unlooked] > 2 * table.fee[rows, routed.choice]
    kinds = {
        "A look saves money": changed & otherwise & dearer,
        "A look saves the answer": changed & ~otherwise,
        "Nothing is worth buying": (routed.queries == 0) & right,
        "A look, and wrong all the same": (routed.queries > 0) & ~right,
    }
    examples = []
    for heading, which in kinds.items():
        there = np.flatnonzero(which)
        if len(there):
            i = min(there.tolist(), key=lambda i: (routed.queries[i], len(table.prompts[i])))
            assert table.contexts is not None
            contexts = {name: str(table.contexts[i, j]) for j, name in enumerate(table.specialists)}
            examples.append(
                (f"{heading}: {table.prompts[i]}", result.router.route(table.prompts[i], contexts))
            )
    return examples

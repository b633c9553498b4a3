"""How soon a change of the mix of prompts is noticed: `python -m benchmarks.mix [--page docs/learn.md]`.

Of each table a third of the tasks, drawn at random, is kept away. 200 prompts of the other tasks are known.
A stream has `QUIET` fresh prompts of those, then a share of prompts of the tasks that were kept away
(`learn.mix`). Streams draw prompts with replacement. The table says how many streams of each share raised an
alarm within `LONGEST` requests after the change, and after how many at the median; and how many raised one
before it.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from tools.pages import put

from benchmarks import learn
from benchmarks.folders import DATA
from pandora_router.data import Table
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.learn.mix import Mix, MixState
from pandora_router.types import Matrix

TABLES = ("routerdc7", "openllm_pool", "mmlupro_cot")
SHARES = (0.05, 0.1, 0.3, 1.0)
QUIET, LONGEST, KNOWN, SOME = 800, 2000, 200, 600


def ranks(table: Table, seed: int) -> tuple[Matrix, Matrix]:
    """Ranks of fresh prompts of the known tasks, and of prompts of the other ones."""
    rng = np.random.default_rng([seed, 16])
    tasks = np.unique(table.tasks)
    away = rng.permutation(tasks)[: max(len(tasks) // 3, 1)]
    new = np.isin(table.tasks, away)
    old, other = (rng.permutation(np.flatnonzero(part)) for part in (~new, new))
    known = table.rows(np.sort(old[:KNOWN]))
    mix = Mix.of(Neighbours.fit(known.prompts, known.reward, table.specialists))
    assert mix is not None
    parts = (old[KNOWN : KNOWN + SOME], other[:SOME])
    return tuple(np.array([mix.ranks(table.prompts[i]) for i in part]) for part in parts)  # type: ignore[return-value]


def stream(old: Matrix, new: Matrix, share: float, rng: np.random.Generator) -> int:
    """Requests from the change to the alarm; 0 for an alarm before it, -1 for none."""
    state = MixState()
    for i in range(QUIET + LONGEST):
        drawn = new if i >= QUIET and rng.random() < share else old
        state = state.after(drawn[rng.integers(len(drawn))])
        if state.raises:
            return max(i + 1 - QUIET, 0)
    return -1


def line(name: str, seeds: int) -> str:
    """The row of one table."""
    table = learn.table_named(name, DATA)
    drawn = [ranks(replace(table, contexts=None), seed) for seed in range(seeds)]
    cells, early = [], 0
    for share in SHARES:
        ends = [stream(*drawn[seed], share, np.random.default_rng([seed, 17])) for seed in range(seeds)]
        early += sum(end == 0 for end in ends)
        noticed = [end for end in ends if end > 0]
        cells.append(f"{len(noticed)} of {seeds}" + (f" ({np.median(noticed):,.0f})" if noticed else ""))
    return f"| {name} | {early} of {seeds * len(SHARES)} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table, and write it to a page if one is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    head = [f"{asked.seeds} streams a cell; in brackets the requests until the alarm, at the median.", ""]
    head += [f"| | alarm before the change | {' | '.join(f'{share:.0%} new' for share in SHARES)} |"]
    text = "\n".join([*head, "|---" * (len(SHARES) + 2) + "|", *(line(name, asked.seeds) for name in TABLES)])
    print(text)
    if asked.page is not None:
        put(text + "\n", asked.page, "mix")


if __name__ == "__main__":
    main()

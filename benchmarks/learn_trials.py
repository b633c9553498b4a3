"""How often a trial promotes a candidate that is worse, and how soon one that is better.

Two routers are fitted on different samples of a table. On the prompts where they disagree, the truth is the
mean difference of reward over all of them. A trial draws such prompts with replacement, serves one of the two
by a coin, and reads the evidence after each (`learn.evidence`). Differences are those of every specialist's
score, so that the reward of whoever is served is known exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.learn_stream import DELTA, worths
from pandora_router import Never, Router
from pandora_router.data import Table, resplit
from pandora_router.learn.evidence import CERTAIN, GRID, LEAST, largest

RUNS = 400
LONGEST = 8000
HEAD = (
    "**Trials**, read after each rated disagreement, "
    f"{RUNS} a cell, at most {LONGEST:,} disagreements each; the truth in thousandths per disagreement.",
    "",
    "| | truth | worse, promoted by proof | worse, promoted by veto "
    "| better, promoted by proof (median after) | better, promoted by veto |",
    "|---|---|---|---|---|---|",
)


def line(name: str, table: Table, scored: int) -> str:
    """The row of a table: shares of trials that promoted."""
    a, b, reward = disagreements(table, scored)
    gain = float((reward[:, 1] - reward[:, 0]).mean())
    better = (a, b, reward) if gain > 0.0 else (b, a, reward[:, ::-1])
    worse = (better[1], better[0], better[2][:, ::-1])
    cells = []
    for case in (worse, better):
        ends = [trial(*case, seed) for seed in range(RUNS)]
        proven = [end for end, _ in ends if end]
        cells.append(f"{len(proven) / RUNS:.0%}" + (f" ({np.median(proven):,.0f})" if proven else ""))
        cells.append(f"{np.mean([veto for _, veto in ends]):.0%}")
    return f"| {name} | {1e3 * abs(gain):.1f} | {' | '.join(cells)} |"


def disagreements(table: Table, scored: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Expected rewards of the choices of two routers and both rewards (n, 2), where they disagree."""
    rng = np.random.default_rng(14)
    order = rng.permutation(np.flatnonzero(np.isfinite(table.score).all(axis=1)))
    parts = (order[:scored], order[scored : 3 * scored])
    said = []
    held = table.rows(order[3 * scored : 3 * scored + 4000])
    for part in parts:
        router = Router.fit(resplit(table.rows(part), seed=0), policy=Never())
        said.append(worths(router, held.prompts))
    first, second = (worth.argmax(axis=1) for worth in said)
    rows = np.flatnonzero(first != second)
    q = said[0]  # expected by the serving router, fixed before the trial
    reward = np.column_stack([held.reward[rows, first[rows]], held.reward[rows, second[rows]]])
    return q[rows, first[rows]], q[rows, second[rows]], reward


def trial(q_a: NDArray[Any], q_b: NDArray[Any], reward: NDArray[Any], seed: int) -> tuple[int, bool]:
    """After how many answers B was proven (0: never), and whether the rule "veto" promoted it."""
    rng = np.random.default_rng([seed, 2])
    rows, picked = rng.integers(len(q_a), size=LONGEST), rng.random(LONGEST) < DELTA
    got = reward[rows, picked.astype(np.intp)]
    d = (
        np.where(picked, (got - q_b[rows]) / DELTA, -(got - q_a[rows]) / (1.0 - DELTA))
        + q_b[rows]
        - q_a[rows]
    )
    return ends(d, largest(DELTA, float(np.ptp(reward))))


def ends(d: NDArray[Any], bound: float) -> tuple[int, bool]:
    """What `verdict` says of `Evidence` read after each difference, for all of them at once.

    After how many it is promoted by proof (0: never), and whether the rule "veto" promotes it in the end.
    """
    cut = np.clip(d, -bound, bound)
    bets = np.array(GRID)[:, None] / bound
    better, worse = (np.exp(np.log1p(sign * bets * cut).cumsum(axis=1)).mean(axis=0) for sign in (1.0, -1.0))
    count = np.arange(1, len(d) + 1)
    mean = cut.cumsum() / count
    error = np.sqrt(np.maximum((cut**2).cumsum() - count * mean**2, 0.0) / np.maximum(count - 1, 1) / count)
    dropped, proven = _first(worse >= CERTAIN), _first(better >= CERTAIN)
    unless = _first((count == LEAST) & (mean >= -error))
    by_proof = proven + 1 if proven < dropped else 0
    return by_proof, min(proven, unless) < dropped


def _first(reached: NDArray[Any]) -> int:
    """Where the first is true; the length if none is."""
    return int(reached.argmax()) if reached.any() else len(reached)

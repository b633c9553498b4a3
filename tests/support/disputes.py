"""Two routers that dispute some prompts: for the trials of a candidate."""

from __future__ import annotations

from functools import cache

import numpy as np

from pandora_router import Never, Router
from pandora_router.data import Table, resplit
from tests.support.routers import QUICK

NAMES = ("small", "large", "echo")
WORDS = ("kings", "rivers", "poems", "planets", "genes", "angles")


def prompt(kind: str, number: int) -> str:
    """A prompt that both routers give to echo (`tell`), or that they dispute (`count`)."""
    return f"{kind} the {WORDS[number % len(WORDS)]} of case {number}"


def believer(in_: str, n: int = 160, seed: int = 0) -> Table:
    """A table in which `in_` is right about all prompts that count, and echo about all that tell."""
    rng = np.random.default_rng(seed)
    counts = rng.random(n) < 0.5
    score = np.zeros((n, 3))
    score[counts, NAMES.index(in_)] = rng.random(int(counts.sum())) < 0.9
    score[~counts, 2] = rng.random(int((~counts).sum())) < 0.9
    table = Table(
        prompt_ids=tuple(f"p{i}" for i in range(n)),
        prompts=tuple(prompt("count" if count else "tell", i) for i, count in enumerate(counts)),
        tasks=("",) * n,
        split=np.full(n, ""),
        specialists=NAMES,
        score=score,
        fee=np.zeros((n, 3)),
    )
    return resplit(table, seed=seed)


@cache
def router(in_: str) -> Router:
    """The router that asks `in_` to count, and echo to tell; it buys no estimates."""
    return Router.fit(believer(in_), costly=QUICK, policy=Never())

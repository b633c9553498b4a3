"""Small generated routing tables: two kinds of prompts, specialists that are good at one of them."""

from __future__ import annotations

import numpy as np

from pandora_router.data import Table, resplit

WORDS = ("sum", "product", "river", "king", "gene", "poem", "angle", "price", "planet", "code")
NAMES = ("small", "large", "lawyer", "poet", "cook")


def generate(
    n: int = 300, m: int = 3, *, contexts: bool = False, seed: int = 0, missing: float = 0.0
) -> Table:
    rng = np.random.default_rng(seed)
    kind = rng.integers(2, size=n)
    prompts, told = [], np.full((n, m), None, dtype=object)
    skill = 0.3 + 0.4 * np.array([[1, 0, 0.5, 0.2, 0.7][:m], [0, 1, 0.5, 0.6, 0.4][:m]])
    chance = np.clip(skill[kind] + 0.15 * rng.standard_normal((n, 1)), 0.02, 0.98)
    score = (rng.random((n, m)) < chance).astype(float)
    for i in range(n):
        words = " ".join(rng.choice(WORDS, 4))
        prompts.append(f"{'count the' if kind[i] else 'tell about the'} {words} number {i}")
        for j in range(m):
            sure = rng.random() < 0.8
            right = bool(score[i, j]) if sure else rng.random() < 0.5
            told[i, j] = f"{'clearly it is' if right else 'hmm not sure maybe'} {rng.choice(WORDS)}"
    score = np.where(rng.random((n, m)) < missing, np.nan, score)
    table = Table(
        prompt_ids=tuple(f"p{i}" for i in range(n)),
        prompts=tuple(prompts),
        tasks=tuple("count" if k else "tell" for k in kind),
        split=np.full(n, ""),
        specialists=NAMES[:m],
        score=score,
        fee=np.broadcast_to(np.array([0.01, 0.05, 0.02, 0.03, 0.04])[:m], (n, m)),
        contexts=told if contexts else None,
    )
    return resplit(table, seed=0)


def row_contexts(table: Table, i: int) -> dict[str, str]:
    assert table.contexts is not None
    return dict(zip(table.specialists, table.contexts[i].tolist(), strict=True))


def small_and_large(score: np.ndarray, contexts: np.ndarray, rng: np.random.Generator, seed: int) -> Table:
    """A table of two specialists with beginnings, small for free and large at a fee of .45, with a split."""
    n = len(score)
    made = Table(
        prompt_ids=tuple(f"p{i}" for i in range(n)),
        prompts=tuple(f"count the {rng.choice(['kings', 'rivers', 'poems'])} of case {i}" for i in range(n)),
        tasks=("count",) * n,
        split=np.full(n, ""),
        specialists=("small", "large"),
        score=score,
        fee=np.broadcast_to(np.array([0.0, 0.45]), (n, 2)),
        contexts=contexts,
    )
    return resplit(made, seed=seed)

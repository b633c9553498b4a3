"""Routers fitted on small generated tables; each is fitted once per process and shared by all tests."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

from pandora_router.router import Router, StackRecipe
from tests.support.tables import generate

QUICK = StackRecipe(rounds=20, folds=2)  # a boosted stack, too small to be good but fast to fit
CHEAP_TO_INSPECT = 0.002


@cache
def fitted(*, contexts: bool = False, specialists: int = 3) -> Router:
    """A router over `generate(m=specialists, contexts=contexts)`: neighbours as f, a small stack as g."""
    table = generate(m=specialists, contexts=contexts)
    return Router.fit(table, costly=QUICK, inspection_cost=CHEAP_TO_INSPECT)


def saved(folder: Path) -> Path:
    """Write the router `fitted()` to `folder/router`, unless it is there, and return that path."""
    path = folder / "router"
    if not path.exists():
        fitted().save(path)
    return path


if __name__ == "__main__":
    print(saved(Path(sys.argv[1])))

"""How long an event loop stands still while routers decide on it: `python -m benchmarks.loop`.

50 decisions are under way at a time; meanwhile a task on the same loop asks every millisecond how much later
than that it was woken. p50, p99 and maximum of that delay, and the decisions per second. Three routers over
2,000 generated prompts: nothing bought, a costly estimate computed here, one awaited from outside. The delays
of a loop without decisions are printed first: the machine may be shared.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import numpy as np

from pandora_router.data import Table, resplit
from pandora_router.estimators.estimator import Query, Scorer
from pandora_router.router import Router
from pandora_router.search import Always, Never

WORDS = ("sum", "product", "river", "king", "gene", "poem", "angle", "price", "planet", "code")
CONCURRENT = 50
DECISIONS = 400
TICK = 0.001


def table(prompts: int, specialists: int = 7, seed: int = 0) -> Table:
    rng = np.random.default_rng(seed)
    texts = tuple(f"{' '.join(rng.choice(WORDS, 30))} number {i}" for i in range(prompts))
    chance = rng.random((prompts, 1)) * 0.6 + rng.random((1, specialists)) * 0.4
    plain = Table(
        prompt_ids=tuple(f"p{i}" for i in range(prompts)),
        prompts=texts,
        tasks=("all",) * prompts,
        split=np.full(prompts, ""),
        specialists=tuple(f"model {j}" for j in range(specialists)),
        score=(rng.random((prompts, specialists)) < chance).astype(float),
        fee=np.zeros((prompts, specialists)),
        contexts=None,
    )
    return resplit(plain, seed=seed)


async def stalls(router: Router | None, prompts: list[str]) -> tuple[np.ndarray, float]:
    """Delays of a ticking task in ms, and decisions per second (0 without a router)."""
    late: list[float] = []
    going = True

    async def tick() -> None:
        while going:
            asked = time.perf_counter()
            await asyncio.sleep(TICK)
            late.append(1e3 * (time.perf_counter() - asked - TICK))

    async def client(first: int) -> None:
        for i in range(first, len(prompts), CONCURRENT):
            assert router is not None
            await router.aroute(prompts[i])

    clock = asyncio.ensure_future(tick())
    begun = time.perf_counter()
    if router is None:
        await asyncio.sleep(0.5)
    else:
        await asyncio.gather(*(client(first) for first in range(CONCURRENT)))
    seconds = time.perf_counter() - begun
    going = False
    await clock
    return np.array(late), len(prompts) / seconds


async def answered(query: Query, name: str) -> float:
    await asyncio.sleep(0.005)
    return len(name) / 10


def rows() -> list[dict[str, object]]:
    """p50, p99 and maximum of the delays in ms, and decisions per second, of each router."""
    known = table(2000)
    router = Router.fit(known, inspection_cost=0.002)
    fresh = list(table(DECISIONS, seed=1).prompts)
    ways = {
        "no decisions": None,
        "nothing bought": router.with_policy(Never()),
        "bought, computed here": router.with_policy(Always()),
        "bought, awaited": replace(router, costly=Scorer(answered, at_once=50), policy=Always()),
    }
    found: list[dict[str, object]] = []
    for name, one in ways.items():
        if one is not None:
            one.warm()
        delays, rate = asyncio.run(stalls(one, fresh))
        p50, p99 = np.quantile(delays, [0.5, 0.99])
        pace = {} if one is None else {"decisions_per_second": round(rate, 1)}
        found.append({"event loop": name, "p50_ms": p50, "p99_ms": p99, "max_ms": delays.max(), **pace})
    return found


def main() -> None:
    for row in rows():
        print(", ".join(f"{k} {v:.2f}" if isinstance(v, float) else f"{k}: {v}" for k, v in row.items()))


if __name__ == "__main__":
    main()

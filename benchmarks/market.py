"""Leave-one-out posted prices at the paper's size, against the same experiment as a plain Python loop."""

from __future__ import annotations

import math
import time

import numpy as np

from pandora_router.market import LeaveOneOut

PROMPTS, SPECIALISTS = 2436, 110
COSTS = np.geomspace(1e-4, 0.3, 9)
CONDUCTS = ("f-only", "never inspect", "always inspect", "bidder")
SUBSET = 4  # prompts the loop is given


def _table() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shape = (PROMPTS, SPECIALISTS)
    mean, std = rng.uniform(0.2, 0.8, shape), rng.uniform(0.1, 0.3, SPECIALISTS)
    values = mean + std * rng.standard_normal(shape)
    rewards = (rng.random(shape) < values).astype(float)
    return {
        "scores": mean + 0.1 * rng.standard_normal(shape),
        "mean": mean,
        "std": std,
        "values": values,
        "rewards": rewards,
    }


def _loop(table: dict[str, np.ndarray], prompts: int, cost: float) -> float:
    """The bidder against strong opponents from the definitions: returns the summed efficiency."""
    mean, std, values, rewards = (table[k].tolist() for k in ("mean", "std", "values", "rewards"))
    total = 0.0
    for i in range(prompts):
        for m in range(SPECIALISTS):
            price, rival = max((values[i][j], -j) for j in range(SPECIALISTS) if j != m)
            z = (mean[i][m] - price) / std[m]
            excess = std[m] * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
            excess += (mean[i][m] - price) * math.erfc(-z / math.sqrt(2)) / 2
            looks = excess - max(mean[i][m] - price, 0.0) >= cost
            known = values[i][m] if looks else mean[i][m]
            total += (rewards[i][m] if known > price else rewards[i][-rival]) - cost * looks
    return total


def rows() -> list[dict[str, object]]:
    """One row for the whole experiment on one core, one for the loop with the ratio per play."""
    table = _table()
    start = time.process_time()
    for opponents in ("strong", "weak"):
        posted = LeaveOneOut(**table, opponents=opponents)  # type: ignore[arg-type]
        for cost in COSTS:
            for conduct in CONDUCTS:
                posted.play(conduct, cost)  # type: ignore[arg-type]
    everything = time.process_time() - start

    start = time.process_time()
    posted = LeaveOneOut(**table)  # type: ignore[arg-type]
    played = [posted.play("bidder", cost) for cost in COSTS]
    sweep = time.process_time() - start

    start = time.process_time()
    naive = [_loop(table, SUBSET, float(cost)) for cost in COSTS]
    loop = (time.process_time() - start) * PROMPTS / SUBSET
    for total, one in zip(naive, played, strict=True):
        assert abs(total - float(one.efficiency[:SUBSET].sum()) * SPECIALISTS) < 1e-8
    size = f"{PROMPTS} prompts x {SPECIALISTS} specialists x {len(COSTS)} costs"
    return [
        {
            "name": "leave-one-out, 4 conducts, strong and weak opponents",
            "size": size,
            "seconds": everything,
            "goal": "under 10 s on one core",
        },
        {
            "name": "leave-one-out, bidder against strong opponents",
            "size": size,
            "seconds": sweep,
            "reference": f"plain Python loop on {SUBSET} prompts, scaled",
            "reference_seconds": loop,
            "ratio": loop / sweep,
        },
    ]


if __name__ == "__main__":
    for row in rows():
        print(row)

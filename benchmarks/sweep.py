"""One sweep of the paper's EmbedLLM size on a generated instance: 2,436 prompts x 110 specialists x 9 costs.

    OMP_NUM_THREADS=1 python -m benchmarks.sweep [--prompts 2436] [--paper-prompts 2436] [--threads 1]

Prints seconds for `KnowledgeGradient` and for the paper's policy (backup price, Monte Carlo with S=100,
reconditioned inside every sample). Where fewer prompts are run than the paper has, the seconds measured and
those they stand for are both printed. Seconds of CPU are what a quiet machine with one thread would take.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np

from benchmarks.speed import batch
from pandora_router.search import Batch, Committing, KnowledgeGradient, Policy, run

PROMPTS, SPECIALISTS = 2436, 110
COSTS = tuple(np.logspace(-4, -1, 9))


def rows(whole: Batch, count: int, cost: float) -> Batch:
    return Batch(whole.mean[:count], whole.std[:count], cost, correlation=whole.correlation)


def measure(name: str, policy: Policy, whole: Batch, values: np.ndarray, count: int, threads: int) -> None:
    run(policy, rows(whole, 2, COSTS[0]), values[:2], threads=1)  # compiled before the clock starts
    spent, busy, opened = 0.0, 0.0, []
    for cost in COSTS:
        made = rows(whole, count, cost)
        start, begun = time.perf_counter(), time.process_time()
        done = run(policy, made, values[:count], threads=threads)
        spent += time.perf_counter() - start
        busy += time.process_time() - begun
        opened.append(float(done.inspections.mean()))
    size = f"{values.shape[1]} x {len(COSTS)} costs"
    times = len(values) / count
    note = "" if times == 1.0 else f"; for {len(values)}: {spent * times:.1f} s, {busy * times:.1f} s of CPU"
    print(f"{name}: {spent:.1f} s, {busy:.1f} s of CPU for {count} prompts x {size}{note}")
    print("  inspections per prompt: " + " ".join(f"{n:.2f}" for n in opened), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--prompts", type=int, default=PROMPTS)
    parser.add_argument("--paper-prompts", type=int, default=PROMPTS)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    made, values = batch(PROMPTS, SPECIALISTS, 0.01, np.random.default_rng(0))
    load = os.getloadavg()[0]
    print(f"{args.threads} threads on {os.cpu_count()} cores, load {load:.1f} before the start", flush=True)
    measure("knowledge gradient", KnowledgeGradient(), made, values, args.prompts, args.threads)
    measure("committing (paper), S=100", Committing(), made, values, args.paper_prompts, args.threads)


if __name__ == "__main__":
    main()

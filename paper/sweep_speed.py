"""One sweep of the paper's EmbedLLM size on a generated instance: 2,436 prompts x 110 specialists x 9 costs.

    OMP_NUM_THREADS=1 python -m paper.sweep_speed          # a part of the prompts, and what it stands for
    OMP_NUM_THREADS=1 python -m paper.sweep_speed --full   # all of them: nothing is extrapolated

Prints seconds for `KnowledgeGradient` (goal: under 60) and for the paper's policy (backup price, Monte Carlo
with S=100, reconditioned inside every sample; goal: under 600), on all cores unless told otherwise. Where
fewer prompts are run than the paper has, the seconds measured and those they stand for are both printed.
Seconds of CPU are what one quiet core would take. The load before the start is printed: on a busy machine
the wall clock says little.
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
    """The first `count` queries of a batch at another inspection cost."""
    return Batch(whole.mean[:count], whole.std[:count], cost, correlation=whole.correlation)


def measure(
    name: str, policy: Policy, whole: Batch, values: np.ndarray, count: int, threads: int, goal: float
) -> None:
    """Print the seconds that a policy takes over `count` prompts at all costs, and its inspections."""
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
    if times == 1.0:
        print(f"  goal of {goal:.0f} s {'met' if spent < goal else 'MISSED'}")
    print("  inspections per prompt: " + " ".join(f"{n:.2f}" for n in opened), flush=True)


def main() -> None:
    """Measure the knowledge gradient and the paper's policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--full", action="store_true", help="all prompts for both")
    parser.add_argument("--prompts", type=int, default=600, help="for the knowledge gradient")
    parser.add_argument("--paper-prompts", type=int, default=60, help="for the paper's policy")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    counts = (PROMPTS, PROMPTS) if args.full else (args.prompts, args.paper_prompts)
    made, values = batch(PROMPTS, SPECIALISTS, 0.01, np.random.default_rng(0))
    load = os.getloadavg()[0]
    print(f"{args.threads} threads on {os.cpu_count()} cores, load {load:.1f} before the start", flush=True)
    measure("knowledge gradient", KnowledgeGradient(), made, values, counts[0], args.threads, 60.0)
    measure("committing (paper), S=100", Committing(), made, values, counts[1], args.threads, 600.0)


if __name__ == "__main__":
    main()

"""How fast the core is, as ratios against `naive` measured in the same run."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks import naive
from pandora_router.boxes import Independent, Joint
from pandora_router.index import unit_loss_inverse
from pandora_router.search import (
    Batch,
    Committing,
    KnowledgeGradient,
    Policy,
    Rollout,
    committing_payoffs,
    drive,
    kernels,
    reveal,
    run,
    stream,
)

Row = dict[str, object]


def seconds(work: Callable[[], object], least: float = 0.2) -> float:
    """Median time of one call, over at least `least` seconds and 3 calls after one to warm up."""
    work()
    times: list[float] = []
    while len(times) < 3 or sum(times) < least:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def batch(queries: int, boxes: int, cost: float, rng: np.random.Generator) -> tuple[Batch, np.ndarray]:
    """A generated instance: residuals correlate .9 across specialists, as on real data.

    See docs/method.md, section 8.
    """
    correlation = 0.9 + 0.1 * np.eye(boxes)
    std = rng.uniform(0.1, 0.3, (queries, boxes))
    made = Batch(rng.normal(0.5, 0.1, (queries, boxes)), std, cost, correlation=correlation)
    common = rng.standard_normal((queries, 1))
    own = rng.standard_normal((queries, boxes))
    return made, made.mean + std * (np.sqrt(0.9) * common + np.sqrt(0.1) * own)


def inverse(rng: np.random.Generator) -> Iterator[Row]:
    y = 10.0 ** rng.uniform(-6, 0.5, 100_000)
    slow = seconds(lambda: [naive.unit_loss_inverse(v) for v in y[:50]]) / 50
    out = np.empty_like(y)
    for name, work in {
        "numpy": lambda: unit_loss_inverse(y),
        "compiled": lambda: kernels.load().unit_loss_inverse(y, out),
    }.items():
        fast = seconds(work) / len(y)
        yield {"what": f"unit_loss_inverse, {name}", "fast": fast, "naive": slow}


def payoffs(rng: np.random.Generator) -> Iterator[Row]:
    boxes = 110
    mean, std = rng.normal(0.5, 0.1, boxes), rng.uniform(0.1, 0.3, boxes)
    cost = np.full(boxes, 0.01)
    made = Independent(mean, std, cost)
    sample = [-1, 0]  # two of the 111 policies stand for all
    start = time.perf_counter()
    slow = [naive.committing_payoff(mean, std, cost, m) for m in sample]
    naive_time = (time.perf_counter() - start) / len(sample) * (boxes + 1)
    exact = committing_payoffs(made)
    worst = max(abs(exact[m + 1] - v) for m, v in zip(sample, slow, strict=True))
    fast = seconds(lambda: committing_payoffs(made))
    yield {
        "what": f"all 111 exact payoffs, M=110, c=.01 (naive from 2 of 111; differ by {worst:.0e})",
        "fast": fast,
        "naive": naive_time,
    }


def decisions(rng: np.random.Generator) -> Iterator[Row]:
    for boxes in (3, 110):
        made, values = batch(400 if boxes == 3 else 100, boxes, 0.01, rng)
        states = [made.state(i) for i in range(len(made))]
        policies: list[Policy] = [Rollout(), KnowledgeGradient()]
        for policy in policies:
            times, opened = [], 0
            for state, value in zip(states, values, strict=True):
                start = time.perf_counter()
                trace = drive(policy, state, reveal(value))
                times.append(time.perf_counter() - start)
                opened += len(trace.inspected)
            yield {
                "what": f"one {type(policy).__name__} decision from Python, joint, M={boxes}, c=.01, p50 "
                f"({opened / len(states):.1f} openings)",
                "fast": statistics.median(times),
            }


def monte_carlo(rng: np.random.Generator) -> Iterator[Row]:
    boxes, samples = 110, 100
    made, values = batch(200, boxes, 0.01, rng)
    run(Committing(samples=samples), made, values, threads=1)
    start = time.perf_counter()
    run(Committing(samples=samples), made, values, threads=1)
    fast = (time.perf_counter() - start) / len(made)
    joint = made.state(0).boxes
    assert isinstance(joint, Joint)
    outcomes = joint.sample(3, rng)
    held = [-1, 0, 1]
    start = time.perf_counter()
    for m in held:
        at = float(joint.backup_price()[m]) if m >= 0 else -np.inf
        for outcome in outcomes:
            naive.simulate_once(joint.mean, joint.covariance, joint.inspection_cost, outcome, m, at)
    slow = (time.perf_counter() - start) / (len(held) * len(outcomes)) * (boxes + 1) * samples
    yield {
        "what": "the paper's router, M=110, S=100, c=.01, one core (naive from 9 of 11,100 simulations)",
        "fast": fast,
        "naive": slow,
    }


def batches(rng: np.random.Generator) -> Iterator[Row]:
    made, values = batch(50_000, 3, 0.01, rng)
    policies: list[Policy] = [KnowledgeGradient(), Rollout(), Committing("mean", "exact")]
    for policy in policies:
        each = seconds(lambda policy=policy: run(policy, made, values)) / len(made)
        yield {
            "what": f"batch of 50,000 queries, M=3, {type(policy).__name__}, all cores",
            "fast": each,
        }


def start_up() -> Iterator[Row]:
    """Import time, and the first decision in a new process once kernels are cached."""
    first = (
        "import time; t = time.perf_counter(); import pandora_router as pr; a = time.perf_counter() - t;"
        "b = pr.Joint([.6, .5, .55], [[.04, .01, .01], [.01, .05, .01], [.01, .01, .03]], .01);"
        "pr.drive(pr.KnowledgeGradient(), pr.State(b), pr.reveal([.5, .6, .7]));"
        "print(a, time.perf_counter() - t)"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", first], capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(5)
    ]
    for k, what in enumerate(("import pandora_router", "first decision, import included")):
        yield {"what": what, "fast": statistics.median(float(r[k]) for r in runs)}


def growth(rng: np.random.Generator) -> Iterator[Row]:
    """How time grows with M, S and the number of queries."""
    for boxes in (2, 3, 10, 30, 110, 300, 1000):
        queries = max(4, 2000 // boxes)
        made, values = batch(queries, boxes, 0.01, rng)
        row: Row = {"boxes": boxes}
        policies: list[Policy] = [KnowledgeGradient(), Rollout(), Committing(samples=100)]
        for policy in policies:
            each = seconds(lambda policy=policy: run(policy, made, values, threads=1), least=0.05)
            row[type(policy).__name__] = each / queries
        yield row
    for samples in (10, 30, 100, 300, 1000):
        made, values = batch(40, 110, 0.01, rng)
        each = seconds(lambda: run(Committing(samples=samples), made, values, threads=1), least=0.05)
        yield {"samples": samples, "Committing, M=110": each / 40}
    for queries in (100, 1_000, 10_000, 100_000):
        made, values = batch(queries, 3, 0.01, rng)
        each = seconds(lambda: run(KnowledgeGradient(), made, values), least=0.05)
        yield {"queries": queries, "KnowledgeGradient, M=3, whole batch": each}


def million() -> Row:
    """Stream a million queries of 110 boxes in a process of its own and report its peak memory."""
    code = "import json; from benchmarks.speed import stream_million; print(json.dumps(stream_million()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    import json

    row: Row = json.loads(done.stdout)
    return row


def stream_million(queries: int = 1_000_000, chunk: int = 5_000) -> Row:
    rng = np.random.default_rng(3)
    parts = (batch(chunk, 110, 0.1, rng) for _ in range(queries // chunk))
    start = time.perf_counter()
    count = sum(len(done.choice) for done in stream(KnowledgeGradient(), parts))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"queries": count, "gib": peak, "seconds": time.perf_counter() - start}

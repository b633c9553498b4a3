"""How long fitting and routing take: `python -m benchmarks.router [folder] [--cost C] [--peek N]`.

Fit: CPU-seconds and peak memory with default f, g, signal model and policy. Load: in a process of its own,
with its peak memory. Estimate: CPU time of one costly estimate of a new prompt. Route: median of one prompt
at a time, split by whether anything was bought; the same with f only (nothing is ever bought). Batch: prompts
per second with f only and with purchases. CPU time is shown beside wall time: the machine may be shared. The
router remembers train and calibration prompts; those that are routed are new to it.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.folders import DATA
from pandora_router.data import Free, Table, resplit
from pandora_router.data.importers import read_folder
from pandora_router.estimators.embedders.embedder import Joined, default_embedder
from pandora_router.estimators.estimator import Predictor
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.router import Decision, Router, StackRecipe
from pandora_router.search import Never


def forget(router: Router) -> None:
    """Drop remembered vectors: prompts are new to a router."""
    default_embedder().forget()
    if isinstance(router.cheap, Neighbours) and isinstance(router.cheap.embedder, Joined):
        router.cheap.embedder.forget()


def timed(router: Router, prompts: list[str]) -> tuple[np.ndarray, np.ndarray, list[Decision]]:
    wall, cpu, decisions = [], [], []
    for prompt in prompts:
        start, spent = time.perf_counter(), time.process_time()
        decisions.append(router.route(prompt))
        wall.append(1e3 * (time.perf_counter() - start))
        cpu.append(1e3 * (time.process_time() - spent))
    return np.array(wall), np.array(cpu), decisions


def one_by_one(name: str, router: Router, prompts: list[str]) -> None:
    timed(router, prompts[:20])
    forget(router)
    wall, cpu, decisions = timed(router, prompts)
    bought = np.array([bool(d.inspected) for d in decisions])
    for what, rows in (("nothing bought", ~bought), ("something bought", bought)):
        if rows.any():
            quantiles = np.quantile(wall[rows], [0.5, 0.95])
            print(
                f"route, {name}, {what} ({rows.mean():.0%} of prompts): p50 {quantiles[0]:.2f} ms, p95 "
                f"{quantiles[1]:.2f} ms wall; p50 {np.median(cpu[rows]):.2f} ms CPU"
            )


def estimating(router: Router, table: Table) -> None:
    """Print the processor time of one costly estimate of a prompt that is new to the router."""
    assert isinstance(router.costly, Predictor)
    router.costly.predict(table.prompts[:1], None if table.contexts is None else table.contexts[:1])
    forget(router)
    spent = []
    for i, prompt in enumerate(table.prompts):
        seen = None if table.contexts is None else table.contexts[i : i + 1]
        start = time.process_time()
        router.costly.predict([prompt], seen)
        spent.append(1e3 * (time.process_time() - start))
    low, middle, high = np.quantile(spent, [0.05, 0.5, 0.95])
    print(f"one costly estimate of a prompt: p5 {low:.1f} ms, p50 {middle:.1f} ms, p95 {high:.1f} ms CPU")


def in_batches(name: str, router: Router, prompts: list[str]) -> None:
    router.route_batch(prompts[:64])
    forget(router)
    start, spent = time.perf_counter(), time.process_time()
    router.route_batch(prompts)
    wall, cpu = time.perf_counter() - start, time.process_time() - spent
    print(
        f"batch, {name}: {len(prompts) / wall:,.0f} prompts/s wall, {len(prompts) / cpu:,.0f} per CPU-second"
    )


LOAD = """
import sys, time
from pathlib import Path
from pandora_router.router import Router

def peak():  # of this program; ru_maxrss is that of the program that started it, if that was larger
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**10

before, imported, start = peak(), time.process_time(), time.perf_counter()
Router.load(Path(sys.argv[1]))
wall, cpu = time.perf_counter() - start, time.process_time() - imported
print(f"imports {imported:.2f} CPU-s, load {cpu:.2f} CPU-s ({wall:.2f} s wall), "
      f"peak {peak() - before:.0f} MiB above the {before:.0f} MiB of imports")
"""


def loading(path: Path) -> None:
    """Print the size of an artifact, and what loading it takes in a process of its own."""
    size = sum(p.stat().st_size for p in path.rglob("*") if p.is_file()) / 2**20
    done = subprocess.run([sys.executable, "-c", LOAD, str(path)], capture_output=True, text=True, check=True)
    print(f"artifact: {size:.0f} MiB; {done.stdout.strip()}")


def measure(table: Table, cost: float, peek: int | None) -> None:
    start, spent = time.perf_counter(), time.process_time()
    router = Router.fit(table, inspection_cost=cost, costly=StackRecipe(peek=peek), remember_test=False)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    cpu, wall = time.process_time() - spent, time.perf_counter() - start
    print(f"fit: {cpu:.0f} CPU-s, {wall:.0f} s wall, peak {peak:.2f} GiB (data included)")
    report = router.record.report
    print("mse on test: " + ", ".join(f"{name} {error:.4f}" for name, error in report["mse"].items()))
    for one in router.record.evidence["evidence"]:
        print(
            f"  {one['name']}: loss {one['loss']:.4f}, behind {one['behind']:.4f} ({one['behind_error']:.4f})"
        )
    with tempfile.TemporaryDirectory() as folder:
        router.save(Path(folder) / "router")
        loading(Path(folder) / "router")
        router = Router.load(Path(folder) / "router")
    estimating(router, table.in_split("test").rows(slice(400)))
    prompts = list(table.in_split("test").prompts)
    free = router.with_policy(Never())
    one_by_one("default policy", router, prompts[:400])
    one_by_one("f only", free, prompts[:400])
    in_batches("f only", free, prompts)
    in_batches("default policy", router, prompts[:1000])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", nargs="?", default="openllm_pool")
    parser.add_argument("--cost", type=float, default=0.01, help="what one purchase costs")
    parser.add_argument("--peek", type=int, help="characters of contexts that g reads; 0: the prompt alone")
    chosen = parser.parse_args()
    table = resplit(read_folder(DATA / chosen.folder, fees=Free()), seed=0)
    print(f"{chosen.folder}: {len(table):,} prompts x {len(table.specialists)} specialists")
    measure(table, chosen.cost, chosen.peek)


if __name__ == "__main__":
    main()

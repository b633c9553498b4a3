"""Speed and memory of a streamed sweep at two sizes, on generated estimates: does memory grow with the rows?

    python -m benchmarks.stream [--rows 1000000 10000000] [--workers 2] [--arm "never inspect"] [--cost 0.01]

Every size runs in a process of its own. Printed are rows per second, the peak memory of that process and of
its largest worker, what the arms lost, and how long a billion rows would take at that speed: a figure that is
extrapolated, not measured.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pandora_router.evaluate import stream
from pandora_router.run import InPlace, Pool

GROUP = 1 << 17
SPECIALISTS = 3


def block(n: int, rng: np.random.Generator) -> pa.Table:
    shape = (n, SPECIALISTS)
    chance = np.clip(rng.random((n, 1)) + 0.2 * rng.standard_normal(shape), 0, 1)
    f, g = (chance + s * rng.standard_normal(shape) for s in (0.2, 0.1))
    reward = (rng.random(shape) < chance) - 0.05 * np.arange(SPECIALISTS)
    columns = {"f": f, "g": g, "reward": reward}
    lists = {
        name: pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), SPECIALISTS)
        for name, values in columns.items()
    }
    return pa.table(lists)


def write(path: Path, rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    first = block(min(GROUP, rows), rng)
    with pq.ParquetWriter(path, first.schema) as sink:
        sink.write_table(first, row_group_size=GROUP)
        for done in range(GROUP, rows, GROUP):
            sink.write_table(block(min(GROUP, rows - done), rng), row_group_size=GROUP)


def measure(folder: Path, rows: int, workers: int, arms: list[str], cost: float) -> None:
    runner = InPlace() if workers == 1 else Pool(workers)
    start = time.perf_counter()
    found = stream.sweep(
        [folder / f"{rows}.parquet"], folder / "known.parquet", [cost], arms=arms, runner=runner
    )
    spent = time.perf_counter() - start
    peaks = [
        resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    totals = {arm: outcomes.means()["total"] for (_, arm), outcomes in found.items()}
    print(json.dumps({"rows": rows, "seconds": spent, "mib": peaks, "totals": totals}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--arm", dest="arms", action="append")
    parser.add_argument("--cost", type=float, default=0.01)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    arms = args.arms or ["never inspect", "always inspect, raw g"]
    if args.folder:
        measure(args.folder, args.rows[0], args.workers, arms, args.cost)
        return
    load = f"load {os.getloadavg()[0]:.1f} before the start"
    print(f"{args.workers} workers on {os.cpu_count()} cores, {load}; {', '.join(arms)}", flush=True)
    with tempfile.TemporaryDirectory() as home:
        write(Path(home) / "known.parquet", 5_000, 1)
        for rows in args.rows:
            write(Path(home) / f"{rows}.parquet", rows, 2)
            words = [
                "--rows",
                str(rows),
                "--workers",
                str(args.workers),
                "--cost",
                str(args.cost),
                "--folder",
                home,
            ]
            words += [word for arm in arms for word in ("--arm", arm)]
            command = [sys.executable, "-m", "benchmarks.stream", *words]
            one = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            rate, (own, worker) = one["rows"] / one["seconds"], one["mib"]
            told = ", ".join(f"{arm} {total:.5f}" for arm, total in one["totals"].items())
            size = (Path(home) / f"{rows}.parquet").stat().st_size / 2**20
            print(
                f"{rows:,} rows ({size:,.0f} MiB): {one['seconds']:.1f} s, {rate:,.0f} rows/s; peak "
                f"{own:.0f} MiB here, {worker:.0f} MiB in the largest worker; regret + cost: {told}"
            )
            print(
                f"  extrapolated: a billion rows would take {1e9 / rate / 3600:.1f} h at this speed",
                flush=True,
            )
            (Path(home) / f"{rows}.parquet").unlink()


if __name__ == "__main__":
    main()

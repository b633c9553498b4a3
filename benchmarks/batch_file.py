"""How many prompts a second `pandora route --batch` routes: `python -m benchmarks.batch_file [ROWS]`.

A router that never buys an estimate is fitted on the recorded answers of the demo; the prompts to route are
pairs of its questions with a number, so that none repeats. Each form of file goes through the command itself,
in a process of its own, from reading the input to the complete output. Processor time of all processes is
shown beside the clock: the machine may be shared. What starting costs is measured with one chunk of prompts.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from pandora_router.cli.row_files import Row, write_rows
from pandora_router.data import Table
from pandora_router.demo import records
from pandora_router.demo.study import PRICE, WEIGHT, in_dollars
from pandora_router.router import Router
from pandora_router.search import Never, kernels

FORMS = ("jsonl", "csv", "parquet")
START = 1024


def prompts(table: Table, count: int, rng: np.random.Generator) -> list[Row]:
    """`count` rows with a number and a prompt: two questions of the demo, and the number."""
    pairs = rng.integers(len(table.prompts), size=(count, 2))
    return [
        {"number": str(i), "prompt": f"{table.prompts[a]} {table.prompts[b]} ({i})"}
        for i, (a, b) in enumerate(pairs.tolist())
    ]


def routed(folder: Path, name: str, form: str, workers: int) -> tuple[float, float]:
    """Seconds by the clock and of processors that one batch takes."""
    before, begun = os.times(), time.perf_counter()
    files = ["--batch", folder / f"{name}.{form}", "-o", folder / f"{name}-out.{form}"]
    command = [sys.executable, "-m", "pandora_router", "route", "-r", folder / "router", *files]
    subprocess.run([*command, "--workers", str(workers)], check=True, capture_output=True)
    after, clock = os.times(), time.perf_counter() - begun
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return clock, spent


def main() -> None:
    """Make the files, route each, print one line per form of file."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("rows", nargs="?", type=int, default=10_000)
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--form", choices=FORMS, action="append")
    given = options.parse_args()
    kernels.warm()
    table = in_dollars(records.Recorded.read(records.FILE), WEIGHT, PRICE)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        Router.fit(table, policy=Never(), inspection_cost=0.0).save(folder / "router")
        rows = prompts(table, given.rows, np.random.default_rng(0))
        for form in given.form or FORMS:
            for name, some in (("all", rows), ("few", rows[:START])):
                write_rows(folder / f"{name}.{form}", {"number": "text", "prompt": "text"}, some)
            clock, spent = routed(folder, "all", form, given.workers)
            start, start_spent = routed(folder, "few", form, given.workers)
            print(
                f"{form}: {given.rows:,} prompts in {clock:.1f} s, {given.rows / clock:,.0f} a second; "
                f"{spent:.1f} CPU-s, of which {start_spent:.1f} to start ({start:.1f} s)"
            )


if __name__ == "__main__":
    main()

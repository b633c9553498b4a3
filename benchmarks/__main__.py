"""`make bench`: distance to the optimum and speed, as tables for people and bench.json for machines.

python -m benchmarks                    what `make bench` does
python -m benchmarks --list             all other benchmarks, a line each
python -m benchmarks NAME [ARGUMENTS]   one of them
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import platform
import runpy
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks import gaps, loop, market, speed
from pandora_router.folders import replace_text
from pandora_router.report.tables import grid

FOLDER = Path(__file__).parent
HEAD = """# How fast decisions are, and how near to the optimum

`python -m benchmarks {command}` measured and wrote everything on this page. `python -m benchmarks --list`
names the other benchmarks, `python -m benchmarks NAME` runs one of them.
"""


@dataclass(frozen=True)
class Printout:
    """What a run says: printed as it is found, and kept as the parts of a Markdown page."""

    console: Console
    parts: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        """Add a paragraph."""
        self.console.print(text)
        self.parts.append(text)

    def show(self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a table of these rows under a title."""
        table = Table(title=title)
        for i, heading in enumerate(head):
            table.add_column(heading, justify="right" if i else "left")
        for row in rows:
            table.add_row(*row)
        self.console.print(table)
        self.parts.extend([f"## {title}", grid(head, rows)])

    def page(self, command: str) -> str:
        """The Markdown page of everything said so far; `command` are the arguments of this run."""
        return "\n\n".join([HEAD.format(command=command).strip(), *self.parts]) + "\n"


def measure_gaps(console: Console, count: int, n: int) -> list[dict[str, object]]:
    settings = [(0.0, 2), (0.0, 3), (0.0, 4), (0.4, 3), (0.8, 3)]
    rows: list[dict[str, object]] = []
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("distance to the optimum", total=len(settings))
        for rho, boxes in settings:
            rows += gaps.table(rho, boxes, count, n)
            progress.advance(task)
    return rows


def print_gaps(printout: Printout, rows: list[dict[str, object]]) -> list[dict[str, object]]:
    for boxes, rho in dict.fromkeys((r["boxes"], r["rho"]) for r in rows):
        own = [r for r in rows if (r["boxes"], r["rho"]) == (boxes, rho)]
        law = f"correlation {rho}" if rho else "independent"
        lines = [
            [name, *(f"{1e4 * r['gap']:.1f} ({1e4 * r['se']:.1f})" for r in own if r["policy"] == name)]  # type: ignore[operator]
            for name in gaps.POLICIES
        ]
        title = f"Gap to the optimum, 1e-4 of reward (standard error): M={boxes}, {law}"
        printout.show(title, ["policy", *(f"c={cost}" for cost in gaps.COSTS)], lines)
    claims = []
    for name, chosen in (
        ("Rollout", [r for r in rows if not r["rho"]]),
        ("KnowledgeGradient", [r for r in rows if r["boxes"] == 3]),
    ):
        cells = [r for r in chosen if r["policy"] == name]
        mean = float(np.mean([r["gap"] for r in cells]))  # type: ignore[arg-type]
        worst = max(float(r["gap"]) for r in cells)  # type: ignore[arg-type]
        where = "independent, M=2..4" if name == "Rollout" else "equicorrelated grid, M=3, rho=0/.4/.8"
        claims.append({"policy": name, "where": where, "mean": mean, "worst_cell": worst})
        printout.say(f"{name}, {where}: mean gap {1e4 * mean:.1f}e-4, worst cell {1e4 * worst:.1f}e-4")
    return claims


def duration(seconds: object) -> str:
    value = float(seconds)  # type: ignore[arg-type]
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def measure_speed(printout: Printout) -> list[dict[str, object]]:
    rng = np.random.default_rng(1)
    parts = (speed.inverse, speed.payoffs, speed.decisions, speed.monte_carlo, speed.batches)
    rows: list[dict[str, object]] = []
    with Progress(console=printout.console, transient=True) as progress:
        task = progress.add_task("speed", total=len(parts) + 1)
        for part in parts:
            rows += part(rng)
            progress.advance(task)
        rows += speed.start_up()
    cells = []
    for row in rows:
        ratio = float(row["naive"]) / float(row["fast"]) if "naive" in row else None  # type: ignore[arg-type]
        row["ratio"] = ratio
        slow = [duration(row["naive"]), f"{ratio:,.0f}x"] if ratio else ["", ""]
        cells.append([str(row["what"]), duration(row["fast"]), *slow])
    head = ["what", "time", "naive", "ratio"]
    printout.show("Speed (naive: benchmarks/naive.py, same run)", head, cells)
    return rows


def measure_growth(printout: Printout) -> list[dict[str, object]]:
    with printout.console.status("growth with boxes, samples and queries"):
        rows = list(speed.growth(np.random.default_rng(2)))
    for key in ("boxes", "samples", "queries"):
        own = [r for r in rows if key in r]
        cells = [[f"{v:,}" if k == key else duration(v) for k, v in row.items()] for row in own]
        printout.show(f"Time by number of {key} (joint, correlation .9, c=.01)", list(own[0]), cells)
    return rows


def measure_market(printout: Printout) -> list[dict[str, object]]:
    with printout.console.status("leave-one-out markets"):
        rows = market.rows()
    for row in rows:
        printout.say(", ".join(f"{k}: {v:.3g}" if isinstance(v, float) else f"{v}" for k, v in row.items()))
    return rows


def measure_loop(printout: Printout) -> list[dict[str, object]]:
    with printout.console.status("decisions on an event loop"):
        rows = loop.rows()
    title = f"Delays of an event loop, {loop.CONCURRENT} decisions under way (ms)"
    cells = [
        [
            str(row["event loop"]),
            *(f"{row[key]:.2f}" for key in ("p50_ms", "p99_ms", "max_ms")),
            str(row.get("decisions_per_second", "")),
        ]
        for row in rows
    ]
    printout.show(title, ["decisions", "p50", "p99", "max", "decisions/s"], cells)
    return rows


def measure_million(printout: Printout) -> dict[str, object]:
    with printout.console.status("a million queries of 110 boxes"):
        row = speed.million()
    printout.say(
        f"{row['queries']:,} queries of 110 boxes, KnowledgeGradient, c=.1, streamed: "
        f"{row['seconds']:.0f} s, most memory {row['gib']:.2f} GiB"
    )
    return row


def others() -> dict[str, str]:
    """The benchmarks that are run by name, with the first sentence of what they say about themselves."""
    found = {}
    own = Path(__file__)
    for file in {*FOLDER.glob("*.py"), *FOLDER.glob("*/__main__.py")} - {own}:
        text = file.read_text(encoding="utf-8")
        if '__name__ == "__main__"' in text:
            name = file.parent.name if file.stem == "__main__" else file.stem
            found[name] = (ast.get_docstring(ast.parse(text)) or "").split("\n")[0]
    return dict(sorted(found.items()))


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] in others():
        name = sys.argv.pop(1)
        runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)
        return
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--list", action="store_true", help="name all other benchmarks and end")
    parser.add_argument("--instances", type=int, default=16, help="instances per cell of the gap table")
    parser.add_argument("--outcomes", type=int, default=150, help="outcomes per instance")
    parser.add_argument("--skip-million", action="store_true", help="leave out the memory measurement")
    parser.add_argument("--out", type=Path, default=Path("bench.json"))
    parser.add_argument("--page", type=Path, help="also write what is printed to this Markdown page")
    options = parser.parse_args()
    if options.list:
        for name, about in others().items():
            print(f"{name:<12} {about}")
        return
    printout = Printout(Console(width=120))
    printout.console.print("Takes 3 to 10 minutes on two cores; the last lines say how long it took.")
    report: dict[str, object] = {"machine": platform.processor() or platform.machine()}
    printout.say(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} at the start.")
    begun = time.process_time(), time.monotonic()
    report["speed"] = measure_speed(printout)
    report["growth"] = measure_growth(printout)
    if not options.skip_million:
        report["million"] = measure_million(printout)
    report["market"] = measure_market(printout)
    report["event_loop"] = measure_loop(printout)
    rows = measure_gaps(printout.console, options.instances, options.outcomes)
    report["gaps"] = rows
    report["gap_claims"] = print_gaps(printout, rows)
    worked, waited = time.process_time() - begun[0], time.monotonic() - begun[1]
    printout.say(f"Took {waited / 60:.1f} minutes, {worked / 60:.1f} of them processor time of this process.")
    printout.say(f"Load average {os.getloadavg()[0]:.1f} at the end.")
    replace_text(options.out, json.dumps(report, indent=1))
    if options.page:
        replace_text(options.page, printout.page(" ".join(sys.argv[1:])))
    printout.console.print(f"written to {options.out}")


if __name__ == "__main__":
    main()

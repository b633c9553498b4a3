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
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks import gaps, loop, market, speed
from pandora_router.folders import replace_text

FOLDER = Path(__file__).parent
PAGE = """# What `make bench` printed

Every number of this page comes from one command: `python -m benchmarks {command}`.
`python -m benchmarks --list` names the other benchmarks, `python -m benchmarks NAME` runs one of them.

```
{printed}```
"""


def measure_gaps(console: Console, count: int, n: int) -> list[dict[str, object]]:
    settings = [(0.0, 2), (0.0, 3), (0.0, 4), (0.4, 3), (0.8, 3)]
    rows: list[dict[str, object]] = []
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("distance to the optimum", total=len(settings))
        for rho, boxes in settings:
            rows += gaps.table(rho, boxes, count, n)
            progress.advance(task)
    return rows


def print_gaps(console: Console, rows: list[dict[str, object]]) -> list[dict[str, object]]:
    for boxes, rho in dict.fromkeys((r["boxes"], r["rho"]) for r in rows):
        own = [r for r in rows if (r["boxes"], r["rho"]) == (boxes, rho)]
        law = f"correlation {rho}" if rho else "independent"
        table = Table(title=f"Gap to the optimum, 1e-4 of reward (standard error): M={boxes}, {law}")
        table.add_column("policy")
        for cost in gaps.COSTS:
            table.add_column(f"c={cost}", justify="right")
        for name in gaps.POLICIES:
            cells = [r for r in own if r["policy"] == name]
            table.add_row(name, *(f"{1e4 * r['gap']:.1f} ({1e4 * r['se']:.1f})" for r in cells))  # type: ignore[operator]
        console.print(table)
    claims = []
    for name, wanted, chosen in (
        ("Rollout", 3e-4, [r for r in rows if not r["rho"]]),
        ("Relative", 6e-4, [r for r in rows if r["boxes"] == 3]),
        ("KnowledgeGradient", 6e-4, [r for r in rows if r["boxes"] == 3]),
    ):
        cells = [r for r in chosen if r["policy"] == name]
        mean = float(np.mean([r["gap"] for r in cells]))  # type: ignore[arg-type]
        worst = max(float(r["gap"]) for r in cells)  # type: ignore[arg-type]
        where = "independent, M=2..4" if name == "Rollout" else "equicorrelated grid, M=3, rho=0/.4/.8"
        claims.append({"policy": name, "where": where, "mean": mean, "worst_cell": worst, "wanted": wanted})
        verdict = "met" if mean <= wanted else "MISSED"
        console.print(
            f"{name}, {where}: mean gap {1e4 * mean:.1f}e-4, worst cell {1e4 * worst:.1f}e-4; "
            f"wanted {1e4 * wanted:.0f}e-4: {verdict}"
        )
    return claims


def duration(seconds: object) -> str:
    value = float(seconds)  # type: ignore[arg-type]
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def measure_speed(console: Console) -> list[dict[str, object]]:
    rng = np.random.default_rng(1)
    parts = (speed.inverse, speed.payoffs, speed.decisions, speed.monte_carlo, speed.batches)
    rows: list[dict[str, object]] = []
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("speed", total=len(parts) + 1)
        for part in parts:
            rows += part(rng)
            progress.advance(task)
        rows += speed.start_up()
    table = Table(title="Speed (naive: benchmarks/naive.py, same run)")
    for heading in ("what", "time", "naive", "ratio", "wanted"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for row in rows:
        ratio = float(row["naive"]) / float(row["fast"]) if "naive" in row else None  # type: ignore[arg-type]
        wishes = [f">= {row['wanted']}x"] if "wanted" in row else []
        if row.get("ceiling"):
            wishes.append(f"< {duration(row['ceiling'])}")
        row["ratio"] = ratio
        table.add_row(
            str(row["what"]),
            duration(row["fast"]),
            duration(row["naive"]) if ratio else "",
            f"{ratio:,.0f}x" if ratio else "",
            ", ".join(wishes),
        )
    console.print(table)
    return rows


def measure_growth(console: Console) -> list[dict[str, object]]:
    with console.status("growth with boxes, samples and queries"):
        rows = list(speed.growth(np.random.default_rng(2)))
    for key in ("boxes", "samples", "queries"):
        own = [r for r in rows if key in r]
        table = Table(title=f"Time by number of {key} (joint, correlation .9, c=.01)")
        for name in own[0]:
            table.add_column(name, justify="right")
        for row in own:
            table.add_row(*(f"{v:,}" if k == key else duration(v) for k, v in row.items()))
        console.print(table)
    return rows


def measure_market(console: Console) -> list[dict[str, object]]:
    with console.status("leave-one-out markets"):
        rows = market.rows()
    for row in rows:
        console.print(", ".join(f"{k}: {v:.3g}" if isinstance(v, float) else f"{v}" for k, v in row.items()))
    return rows


def measure_loop(console: Console) -> list[dict[str, object]]:
    with console.status("decisions on an event loop"):
        rows = loop.rows()
    table = Table(title=f"Delays of an event loop, {loop.CONCURRENT} decisions under way (ms; p99 under 20)")
    for heading in ("decisions", "p50", "p99", "max", "decisions/s"):
        table.add_column(heading, justify="left" if heading == "decisions" else "right")
    for row in rows:
        delays = [f"{row[key]:.2f}" for key in ("p50_ms", "p99_ms", "max_ms")]
        table.add_row(str(row["event loop"]), *delays, str(row.get("decisions_per_second", "")))
    console.print(table)
    return rows


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
    parser.add_argument("--instances", type=int, default=40, help="instances per cell of the gap table")
    parser.add_argument("--outcomes", type=int, default=300, help="outcomes per instance")
    parser.add_argument("--skip-million", action="store_true", help="leave out the memory measurement")
    parser.add_argument("--out", type=Path, default=Path("bench.json"))
    parser.add_argument("--page", type=Path, help="also write what is printed to this Markdown page")
    options = parser.parse_args()
    if options.list:
        for name, about in others().items():
            print(f"{name:<12} {about}")
        return
    console = Console(width=120, record=True)
    report: dict[str, object] = {"machine": platform.processor() or platform.machine()}
    console.print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} at the start")
    report["speed"] = measure_speed(console)
    report["growth"] = measure_growth(console)
    if not options.skip_million:
        with console.status("a million queries of 110 boxes"):
            report["million"] = speed.million()
        console.print("A million queries of 110 boxes, KnowledgeGradient, c=.1, streamed:", report["million"])
    report["market"] = measure_market(console)
    report["event_loop"] = measure_loop(console)
    rows = measure_gaps(console, options.instances, options.outcomes)
    report["gaps"] = rows
    report["gap_claims"] = print_gaps(console, rows)
    console.print(f"load average {os.getloadavg()[0]:.1f} at the end")
    replace_text(options.out, json.dumps(report, indent=1))
    if options.page:
        replace_text(options.page, PAGE.format(command=" ".join(sys.argv[1:]), printed=console.export_text()))
    console.print(f"written to {options.out}")


if __name__ == "__main__":
    main()

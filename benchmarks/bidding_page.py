"""The measured part of docs/market-network.md, from results/bidding.json (`... benchmarks.bidding page`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.pages import put

Row = Mapping[str, Any]
Report = Mapping[str, Sequence[Row]]
MECHANISMS = ("sequential", "descending", "ascending", "second price", "leave one out")
GOAL = 200


def write(report: Report, page: Path) -> None:
    """Replace what stands between the marks of `page`; raises `UsageError` if it has none."""
    parts = [section(report[name]) for name, section in SECTIONS.items() if report.get(name)]
    put("\n".join(parts), page)


def grid(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def number(value: float | None, digits: int = 3) -> str:
    """A number without its leading zero, a dash where there is none."""
    if value is None or math.isnan(value):
        return ""
    return f"{value:.{digits}f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.{digits}f}"


def thousandths(row: Row, name: str, error: str) -> str:
    """A change in thousandths with its standard error."""
    if name not in row:
        return ""
    return f"{1e3 * row[name]:+.1f} ({1e3 * row[error]:.1f})" if error in row else f"{1e3 * row[name]:+.1f}"


def law(rows: Sequence[Row]) -> str:
    """Awards over HTTP against those in one process, and what decentralisation costs in reward."""
    tables = list(dict.fromkeys(row["table"] for row in rows))
    lines = []
    for row in rows:
        numbers = [number(row.get(name)) for name in ("regret", "error", "revenue", "surplus")]
        counts = [
            f"{row[name]:.1f}" if name in row else "" for name in ("inspections", "calls", "milliseconds")
        ]
        lines.append([row["table"], row["mechanism"], str(row.get("same", "")), *numbers, *counts])
    same = sum(int(row.get("same", 0)) for row in rows)
    words = (
        f"**Over HTTP as in one process.** {same:,} auctions on {len(tables)} "
        f"tables ({', '.join(tables)}): every "
        "one ended with the same winner, price and looks as the same auction "
        "in one process (a run stops at the "
        "first difference). The routers decide centrally, with the same boxes. "
        "All numbers are per prompt; regret "
        "counts all looks; ms is the median time to the award, with four auctions at a time.\n\n"
    )
    columns = ["table", "mechanism", "same", "regret", "error", "revenue", "surplus", "looks", "calls", "ms"]
    return words + grid(columns, lines)


def chaos(rows: Sequence[Row]) -> str:
    """What happened while services were harmed."""
    lines = [
        [
            row["table"],
            row["mechanism"],
            str(row["auctions"]),
            ", ".join(f"{n} {kind}" for kind, n in row["done"].items()),
            ", ".join(f"{n} {kind}" for kind, n in row["faults"].items()),
            str(row["stalled"]),
            str(row["default answered"]),
            str(row["as in process"]),
        ]
        for row in rows
    ]
    total = sum(int(row["auctions"]) for row in rows)
    words = (
        f"\n**Faults.** {total:,} auctions while services were killed, stopped "
        "(as behind a partition), delayed "
        "and started again at random. Every prompt was answered once, nothing "
        "was awarded twice and the ledger "
        "summed to zero; auctions without a fault ended as in one process. A run stops if one of these is "
        "not so.\n\n"
    )
    columns = [
        "table",
        "mechanism",
        "auctions",
        "harm",
        "replies that did not count",
        "stalled",
        "default",
        "calm",
    ]
    return words + grid(columns, lines)


def speed(rows: Sequence[Row]) -> str:
    """Auctions a second."""
    lines = [
        [
            str(row["bidders"]),
            row["mechanism"],
            f"{row['calls']:.1f}",
            f"{row['auctions a second, wall clock']:.0f}",
            f"{row['auctions a second, two whole cores']:.0f}",
            f"{row['processor ms an auction']:.1f}",
            f"{row['deciding alone, ms']:.1f}",
            f"{row['in process, ms']:.2f}",
            f"{row['load']:.1f}",
        ]
        for row in rows
    ]
    five = [row for row in rows if row["bidders"] == 5]
    met = [row["mechanism"] for row in five if row["auctions a second, wall clock"] >= GOAL]
    missed = [row["mechanism"] for row in five if row["mechanism"] not in met]
    verdict = f"The goal of {GOAL} a second with 5 bidders is met by {', '.join(met) or 'none'}"
    words = (
        "\n**Speed.** One process per bidder and one for the platform, on two cores; 16 auctions at a time. "
        f"{verdict}{'' if not missed else f', missed by {chr(44).join(missed)}'}, on the clock.\n\n"
    )
    columns = [
        *("bidders", "mechanism", "calls", "auctions/s, clock", "auctions/s, processor time"),
        *("processor ms", "ms to an award, alone", "ms in one process", "load"),
    ]
    return words + grid(columns, lines)


def cheating(rows: Sequence[Row]) -> str:
    """Attacks and their price."""
    lines = [
        [
            row["attack"],
            row["mechanism"],
            thousandths(row, "gain", "gain_error"),
            thousandths(row, "welfare", "welfare_error"),
            thousandths(row, "revenue", "revenue_error"),
            "; ".join(f"{name} {row[name]:.3f}" for name in ("deposit lost", "handicap") if name in row),
        ]
        for row in rows
    ]
    words = (
        "\n**Attacks**, in 1e-3 of reward per prompt against the same auctions "
        "with everybody honest (standard "
        "error). Gain: of the attacker, or of both partners. Forged, replayed "
        "and re-used messages are refused "
        "and change nothing (tests/bidding/test_attacks.py).\n\n"
    )
    return words + grid(["attack", "mechanism", "its gain", "welfare", "revenue", "and"], lines)


def voi(rows: Sequence[Row]) -> str:
    """Whether looking by the value of information helps."""
    lines = [
        [
            row["table"],
            row["opponents"],
            row["conduct"],
            thousandths(row, "surplus", "surplus error"),
            thousandths(row, "efficiency", "efficiency error"),
            f"{row['looks']:.0%}",
        ]
        for row in rows
    ]
    clear = {
        name: sum(abs(row[name]) > 2 * row[f"{name} error"] for row in rows if row["conduct"] == "voi")
        for name in ("surplus", "efficiency")
    }
    cells = sum(row["conduct"] == "voi" for row in rows)
    words = (
        "\n**Does value-of-information bidding help the bidder, the market, or "
        "both?** One specialist faces the "
        "best of the others, over HTTP; all specialists take that part in "
        "turn. It looks iff b <= p <= u (`voi`) "
        "or always, against never; change in 1e-3 per prompt (standard error). Strong opponents look before "
        f"they quote, weak ones do not. Of {cells} cells {clear['surplus']} "
        "differ by two standard errors in the "
        f"bidder's surplus and {clear['efficiency']} in efficiency.\n\n"
    )
    return words + grid(["table", "opponents", "conduct", "its surplus", "efficiency", "looks"], lines)


SECTIONS = {"law": law, "speed": speed, "attacks": cheating, "chaos": chaos, "voi": voi}

"""The measured part of docs/market-network.md, from results/bidding.json (`... benchmarks.bidding page`)."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.pages import put

Row = Mapping[str, Any]
Report = Mapping[str, Sequence[Row]]
HARM = ("killed", "stopped", "delayed", "partitioned", "silenced")


def write(report: Report, page: Path) -> None:
    """Replace what stands between the marks of `page`; raises `UsageError` if it has none."""
    parts = [summary(report)]
    parts += [section(report[name]) for name, section in SECTIONS.items() if report.get(name)]
    put("\n".join(parts), page)


def grid(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def words(*sentences: str) -> str:
    """A paragraph, and an empty line."""
    return textwrap.fill(" ".join(sentences), 118) + "\n\n"


def number(value: float | None, digits: int = 3) -> str:
    """A number without its leading zero, nothing where there is none."""
    if value is None or math.isnan(value):
        return ""
    return f"{value:.{digits}f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.{digits}f}"


def thousandths(row: Row, name: str, error: str) -> str:
    """A change in thousandths with its standard error."""
    if name not in row:
        return ""
    return f"{1e3 * row[name]:+.1f} ({1e3 * row[error]:.1f})" if error in row else f"{1e3 * row[name]:+.1f}"


def names(items: Sequence[str]) -> str:
    """A list in words."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else "none"


def summary(report: Report) -> str:
    """The main results, a line each."""
    lines = []
    if rows := report.get("law"):
        lines.append(
            f"{sum(int(row.get('same', 0)) for row in rows):,} auctions over HTTP ended as in one process."
        )
        costs = [
            f"{thousandths(row, 'above', 'above error')} on {row['table']}"
            for row in rows
            if (row["model"], row["mechanism"]) == ("default", "sequential")
        ]
        lines.append(f"Reward lost to the default router, in 1e-3 (standard error): {names(costs)}.")
    if rows := report.get("delay"):
        times = [row["milliseconds"] for row in rows if row["mechanism"] == "sequential"]
        lines.append(f"Time to the award on one machine: {min(times):.1f} to {max(times):.1f} ms.")
    if rows := report.get("speed"):
        rates = [
            f"{row['auctions a second']:.0f}, best {row['best']:.0f} ({row['mechanism']})"
            for row in rows
            if row["bidders"] == 5
        ]
        lines.append(f"Auctions a second with 5 bidders on two cores: {names(rates)}.")
    if rows := report.get("chaos"):
        count = sum(int(row["auctions"]) for row in rows)
        lines.append(f"{count:,} auctions under faults: all answered once, no double award, ledger at zero.")
    return "".join(f"- {line}\n" for line in lines)


def law(rows: Sequence[Row]) -> str:
    """Awards over HTTP against those in one process, and what decentralisation costs in reward."""
    tables = list(dict.fromkeys(row["table"] for row in rows))
    same = sum(int(row.get("same", 0)) for row in rows)
    default = [row for row in rows if row["model"] == "default"]
    lines = [
        [
            row["table"],
            row["mechanism"],
            number(row["regret"]),
            thousandths(row, "above", "above error"),
            *(number(row.get(name)) for name in ("revenue", "surplus")),
            *(f"{row[name]:.1f}" if name in row else "" for name in ("inspections", "calls")),
        ]
        for row in default
    ]
    asked = [row for row in default if row["mechanism"] == "sequential"]
    behind = [row["table"] for row in asked if row["above"] > 2 * row["above error"]]
    columns = ["table", "mechanism", "regret", "above the default router, 1e-3"]
    columns += ["revenue", "surplus", "looks", "calls"]
    return (
        words(
            f"**Over HTTP as in one process.** {same:,} auctions on {len(tables)} tables ({names(tables)}):",
            "every one ended with the same winner, price and looks as the same auction in one process; a",
            "run stops at the first difference.",
        )
        + words(
            "**What decentralisation costs in reward.** All numbers are per prompt. Regret is the best",
            "reward of the prompt minus the reward of the answer and all looks. The default router is what",
            "`pandora fit` ships: it knows all boxes and how they depend on each other. Rollout and",
            "obligatory know all boxes and take them for independent, as bidders must. The default",
            "mechanism, sequential posted prices, is more than two standard errors behind the default",
            f"router on {len(behind)} of {len(asked)} tables. The descending clock is the obligatory router,",
            "prompt by prompt.",
        )
        + grid(columns, lines)
        + "\n"
        + _models(rows, tables)
    )


def _models(rows: Sequence[Row], tables: Sequence[str]) -> str:
    """Regret of mechanisms by the bidders' model of their own box."""
    kept = ("sequential", "descending", "second price", "router: never inspect")
    cell = {(row["table"], row["model"], row["mechanism"]): number(row["regret"]) for row in rows}
    lines = [
        [name, *(cell.get((table, model, name), "") for table in tables for model in ("default", "paper"))]
        for name in kept
    ]
    columns = ["regret", *(f"{table}, {model}" for table in tables for model in ("default", "paper"))]
    return words(
        "**What a bidder believes of its own box matters.** `pandora bid` takes mean, spread,",
        "slope and law of its box from the artifact of `pandora fit` (default); the paper's model is",
        "normal, and believes a look without shrinking it (paper). Never inspecting stays hard to beat: a",
        "bidder that sees only its own box cannot know that the others' values move with it, and so looks",
        "too often.",
    ) + grid(columns, lines)


def delay(rows: Sequence[Row]) -> str:
    """What decentralisation costs in time."""
    lines = [
        [
            row["table"],
            row["mechanism"],
            *(f"{row[name]:.1f}" for name in ("milliseconds", "quickest tenth")),
            f"{row['in process']:.2f}",
        ]
        for row in rows
    ]
    asked = [row["milliseconds"] for row in rows if row["mechanism"] == "sequential"]
    loads = [row["load"] for row in rows]
    columns = ["table", "mechanism", "ms to the award", "quickest tenth", "ms in one process"]
    return (
        "\n"
        + words(
            "**What it costs in milliseconds.** 200 auctions one after the other, services on the same",
            "machine: from the first call to the award, the median and what the quickest tenth stays below,",
            "beside the same auction in one process. Sequential posted prices take",
            f"{min(asked):.1f} to {max(asked):.1f} ms at the median, at a load of",
            f"{min(loads):.1f} to {max(loads):.1f} on two cores. A network adds one round trip per round.",
        )
        + grid(columns, lines)
    )


def speed(rows: Sequence[Row]) -> str:
    """Auctions a second."""
    kinds = list(dict.fromkeys(row["mechanism"] for row in rows))
    sizes = list(dict.fromkeys(row["bidders"] for row in rows))
    cell = {
        (row["bidders"], row["mechanism"]): f"{row['auctions a second']:.0f}, best {row['best']:.0f}; "
        f"{row['processor ms']:.1f} ms, {row['calls']:.1f} calls"
        for row in rows
    }
    lines = [[str(size), *(cell.get((size, kind), "") for kind in kinds)] for size in sizes]
    loads = [row["load"] for row in rows]
    return (
        "\n"
        + words(
            "**Speed.** Auctions a second by the clock, on two cores that carry everything: one process per",
            "bidder, the platform, and its ledger on disk; 16 auctions at a time. The median of ten batches",
            "and the best of them, then the processor time of an auction in all processes together, and its",
            f"calls. The load was {min(loads):.1f} to {max(loads):.1f}, the benchmark itself included.",
            f"{max(row['auctions'] for row in rows):,} auctions per cell.",
        )
        + grid(["bidders", *kinds], lines)
    )


def cheating(rows: Sequence[Row]) -> str:
    """Attacks and their price."""
    more = {
        "deposit lost": "{:.2f} of its deposit lost",
        "handicap": "handicap {:.2f} at the end",
        "taken": "{} taken",
        "microseconds": "{:.0f} µs to refuse one",
    }
    lines = [
        [
            row["attack"],
            row["mechanism"],
            thousandths(row, "gain", "gain_error"),
            thousandths(row, "welfare", "welfare_error"),
            thousandths(row, "revenue", "revenue_error"),
            "; ".join(form.format(row[name]) for name, form in more.items() if name in row),
        ]
        for row in rows
    ]
    return (
        "\n"
        + words(
            "**Attacks**, in 1e-3 of reward per prompt against the same auctions with everybody honest",
            "(standard error). Gain: of the attacker, or of both partners; welfare: of everybody; revenue:",
            "of the platform. Each attack is also a test (tests/bidding/test_attacks.py).",
        )
        + grid(["attack", "mechanism", "its gain", "welfare", "revenue", "and"], lines)
    )


def chaos(rows: Sequence[Row]) -> str:
    """What happened while services were harmed."""
    total = sum(int(row["auctions"]) for row in rows)
    kinds = {row["mechanism"] for row in rows}
    lines = []
    for table in dict.fromkeys(row["table"] for row in rows):
        own = [row for row in rows if row["table"] == table]
        harm = [str(sum(row["done"].get(kind, 0) for row in own)) for kind in HARM]
        lost = sum(sum(row["faults"].values()) for row in own)
        sums = [
            sum(int(row[name]) for row in own) for name in ("auctions", "stalled", "default answered", "calm")
        ]
        lines.append([table, str(sums[0]), *harm, str(lost), *(str(one) for one in sums[1:])])
    columns = ["table", "auctions", *HARM, "replies lost", "winners that stalled", "default answered"]
    return (
        "\n"
        + words(
            f"**Faults.** {total:,} auctions by {len(kinds)} mechanisms while services were killed, stopped,",
            "delayed by up to a second, partitioned (each is in a network namespace; no packet passes) and",
            "silenced (it hears the platform, its replies are lost), and came back. Every prompt was",
            "answered once, nothing was awarded twice, the ledger summed to zero, and auctions in which",
            "nothing went wrong (without a fault) ended as in one process. A run stops if one of these is",
            "not so.",
        )
        + grid([*columns, "without a fault"], lines)
    )


def voi(rows: Sequence[Row]) -> str:
    """Whether looking by the value of information helps."""
    lines = [
        [
            row["table"],
            row["model"],
            row["opponents"],
            *(thousandths(row, name, f"{name} error") for name in ("surplus", "efficiency")),
            f"{row['looks']:.0%}",
        ]
        for row in rows
    ]
    kinds = [(model, kind) for model in ("default", "paper") for kind in ("strong", "weak")]
    cells = {kind: [row for row in rows if (row["model"], row["opponents"]) == kind] for kind in kinds}
    return (
        "\n"
        + words(
            "**Does value-of-information bidding help the bidder, the market, or both?** Over services: one",
            "specialist is posted the best quote of the others, and all take that part. It looks iff b <= p",
            "<= u, against never looking. Strong opponents look before they quote, weak ones quote their",
            "means. Efficiency is the reward of the answer less the looks of that specialist. Change in",
            f"1e-3 per prompt (standard error), {rows[0]['prompts']:,} prompts a table.",
            *(_verdict(found, *kind) for kind, found in cells.items() if found),
        )
        + grid(["table", "bidders' model", "opponents", "its surplus", "efficiency", "it looks at"], lines)
    )


def _verdict(cells: Sequence[Row], model: str, opponents: str) -> str:
    """On how many tables bidder and market gain or lose by two standard errors."""

    def beyond(name: str, sign: int) -> int:
        return sum(sign * row[name] > 2 * row[f"{name} error"] for row in cells)

    parts = [
        f"{who} gains on {beyond(name, 1)} and loses on {beyond(name, -1)}"
        for who, name in (("the bidder", "surplus"), ("the market", "efficiency"))
    ]
    return f"Model {model}, {opponents} opponents, {len(cells)} tables: {parts[0]}, {parts[1]}."


SECTIONS = {"law": law, "delay": delay, "speed": speed, "attacks": cheating, "chaos": chaos, "voi": voi}

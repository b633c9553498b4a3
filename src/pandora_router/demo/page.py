"""The demo as one HTML page that loads nothing: table, bars, three decisions, the live questions."""

from __future__ import annotations

import html
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from ..evaluate.arms import DEFAULT
from ..folders import replace_text
from ..router import Explanation
from .live import Routed
from .study import Study, Way

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'"
Stories = Sequence[tuple[str, Explanation]]
MORE = """
svg{max-width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:var(--ink)}ol{padding-left:1.2rem}
svg .bar{fill:#9aa5b1}svg .mine{fill:#0072b2}svg .error{stroke:var(--ink);stroke-width:1.5}
.live td,.live th{white-space:normal;text-align:left}
"""


def write(path: Path, found: Study, told: Stories, routed: Sequence[Routed]) -> None:
    """Write the page, whole or not at all."""
    replace_text(path, render(found, told, routed))


def render(found: Study, told: Stories, routed: Sequence[Routed]) -> str:
    """The page as text."""
    count, weight = found.questions["test"], found.weight
    parts = [
        "<h1>Routing among five specialists on one machine</h1>",
        f"<p>{count:,} held-out questions. Net reward: 1 for a right answer, less {weight:g} per processor "
        "second of answers and looks. Bars: one standard error.</p>",
        _bars(found.ways),
        _table(
            ("way", "right", "answer s", "looks", "look s", "net", "s.e.", "router earns more by", "s.e."),
            [_row(way) for way in found.ways],
        ),
        "<h2>Three decisions</h2>",
        *(_story(heading, one) for heading, one in told),
    ]
    if routed:
        parts += ["<h2>Questions routed at the end</h2>", _live(routed)]
    style = files("pandora_router.evaluate").joinpath("page.css").read_text("utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>pandora-router demo</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f'<meta name="viewport" content="width=device-width"><style>\n{style}{MORE}</style></head><body>\n'
        f"<main>{chr(10).join(parts)}</main></body></html>\n"
    )


def _row(way: Way) -> list[str]:
    means = (way.right, way.seconds, way.looks, way.look_seconds, way.net, way.net_error)
    more = ["", ""] if way.name == DEFAULT else [f"{way.behind:+.4f}", f"{way.error:.4f}"]
    return [way.name, *(f"{one:.4f}" for one in means), *more]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    body = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows)
    filled = "".join(f"<tr>{row}</tr>" for row in body)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{filled}</tbody></table>"


def _bars(ways: Sequence[Way]) -> str:
    """Net reward of each way as a bar with one standard error; the scale begins at zero."""
    most = max(way.net + way.net_error for way in ways)
    least = min(0.0, *(way.net - way.net_error for way in ways))
    scale = 480.0 / (most - least)
    zero = 160.0 - least * scale
    lines = []
    for i, way in enumerate(ways):
        y, end = 24 * i, zero + way.net * scale
        kind = "mine" if way.name == DEFAULT else "bar"
        low, high = (zero + (way.net + sign * way.net_error) * scale for sign in (-1.0, 1.0))
        left, width = min(zero, end), abs(end - zero)
        lines += [
            f'<text x="150" y="{y + 15}" text-anchor="end">{html.escape(way.name)}</text>',
            f'<rect x="{left:.1f}" y="{y + 3}" width="{width:.1f}" height="17" class="{kind}"/>',
            f'<path d="M{low:.1f} {y + 11.5}H{high:.1f}" class="error"/>',
            f'<text x="{high + 6:.1f}" y="{y + 15}">{way.net:.3f}</text>',
        ]
    return f'<svg viewBox="0 0 720 {24 * len(ways) + 4}" width="720" role="img">{"".join(lines)}</svg>'


def _story(heading: str, told: Explanation) -> str:
    steps = []
    for step in told.steps:
        lines = ((line.specialist, line.status, f"{line.mean:.3f}", f"{line.std:.3f}") for line in step.lines)
        prices = [f"{line.inspection_cost:.5f}" if line.status == "sealed" else "" for line in step.lines]
        news = [f"{line.news:.5f}" if line.status == "sealed" else "" for line in step.lines]
        rows = [[*line, cost, new] for line, cost, new in zip(lines, prices, news, strict=True)]
        head = ("specialist", "status", "mean", "std", "a look costs", "is worth")
        said = f"{html.escape(step.action)}: {html.escape(step.why)}"
        steps.append(f"<li>{_table(head, rows)}<p>{said}</p></li>")
    return f"<h3>{html.escape(heading)}</h3><ol>{''.join(steps)}</ol>"


def _live(routed: Sequence[Routed]) -> str:
    rows = []
    for one in routed:
        looks = ", ".join(one.decision.inspected) or "none"
        said = one.answer.text.strip() or "(no answer)"
        verdict = "right" if one.right else f"wrong: {one.question.references[0]}"
        bill = f"{one.answer.seconds:.4f} + {one.look_seconds:.4f}"
        rows.append([one.question.text, looks, one.decision.specialist, said, verdict, bill])
    table = _table(("question", "looks", "who answers", "answer", "verdict", "seconds"), rows)
    return f'<div class="live">{table}</div>'

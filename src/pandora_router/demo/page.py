"""The demo as one HTML page that loads nothing: headline, table, one decision, then the details."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np

from pandora_router.calibrate.ways import ORACLE, ROUTER
from pandora_router.demo import study
from pandora_router.demo.live_route import RoutedQuestion
from pandora_router.demo.study import Study, Way
from pandora_router.errors import UsageError
from pandora_router.folders import replace_text
from pandora_router.router import Decision
from pandora_router.router.picture import Unit, decision_svg

TITLE = "<title>pandora-router demo</title>"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'"
Stories = Sequence[tuple[str, Decision]]
MORE = """
.drawing{overflow-x:auto}.drawing svg{max-width:100%;min-width:36rem;height:auto}
.lead{font-size:1.15rem}.live td,.live th{white-space:normal;text-align:left}dt{font-weight:600}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem;font-size:13px}dd{margin:0}
"""
LEFT, WIDE, TOP, HIGH = 60.0, 560.0, 16.0, 260.0  # the plot inside the drawing of ways to route
STYLE = (
    ".ways text{font:13px system-ui,sans-serif;fill:var(--ink,#1c2733)}.ways .paper{fill:var(--paper,#fff)}"
    ".ways .dot{fill:#9aa5b1}.ways .mine{fill:var(--router,#0072b2)}.ways .error{stroke:var(--dim,#5b6875)}"
    ".ways .limit{fill:none;stroke:#9aa5b1;stroke-width:2}.ways .axis{stroke:var(--line,#d5dade)}"
    ".ways .mine-name{font-weight:600}"
)
"""Rules inside the drawing of ways to route, so that it can also stand alone in a file."""


def check(path: Path) -> None:
    """Raise `UsageError` if `path` exists and is not a page of this demo, or if its folder does not exist.

    Called before the work whose result is written there.
    """
    if path.exists():
        with path.open("rb") as file:
            if TITLE.encode() not in file.read(1000):
                raise UsageError(
                    str(path),
                    expected="a new file, or a page that an earlier demo wrote",
                    came="another file",
                    do="Name another file with --html, or remove this one.",
                )
    elif not path.parent.is_dir():
        raise UsageError(
            str(path), expected="a file in an existing folder", came="no such folder", do="Make the folder."
        )


def write(
    path: Path, result: Study, examples: Stories, routed: Sequence[RoutedQuestion], price: float
) -> None:
    """Write the page to `path`, atomically."""
    replace_text(path, render(result, examples, routed, price))


def render(
    result: Study, examples: Stories, routed: Sequence[RoutedQuestion], price: float = study.PRICE
) -> str:
    """The page as text. `examples` are decisions with headings, `routed` the questions routed at the end."""
    parts = [
        "<h1>What routing earns: three kinds of specialists on one machine</h1>",
        *(f'<p class="lead">{html.escape(sentence)}</p>' for sentence in study.sentences(result, price)),
        _drawing(scatter([result.way(name) for name in study.SHOWN])),
        _table(study.COLUMNS, study.rows(result, price=price)),
        _legend(),
        f"<p>{html.escape(study.recorded(result))}</p>",
        "<h2>How a decision looks</h2>",
        "<p>Bars: what was believed before any look. Hollow: the mean of a sealed box. Filled: the value "
        "that the look showed. Green: who answers.</p>",
    ]
    unit = Unit("s", 1.0 / result.weight, 3)
    for heading, decision in examples:
        picture = _drawing(decision_svg(decision.to_dict(), unit=unit))
        parts.append(f"<h3>{html.escape(heading)}</h3>{picture}")
    if routed:
        parts += ["<h2>Questions routed at the end</h2>", _live(routed)]
    parts += [f"<details><summary>All ways to route</summary>{_all(result)}</details>"]
    style = files("pandora_router.report").joinpath("page.css").read_text("utf-8")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">{TITLE}\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f'<meta name="viewport" content="width=device-width"><style>\n{style}{MORE}</style></head><body>\n'
        f"<main>{chr(10).join(parts)}</main></body></html>\n"
    )


def _drawing(svg: str) -> str:
    """A drawing as wide as the page; it scrolls where that would make its words too small to read."""
    return f'<div class="drawing">{svg}</div>'


def scatter(ways: Sequence[Way]) -> str:
    """Fraction of right answers against seconds per question, a dot per way with one standard error."""
    far = max(way.all_seconds for way in ways) * 1.1

    def x(seconds: float) -> float:
        return LEFT + WIDE * seconds / far

    def y(right: float) -> float:
        return TOP + HIGH * (1.0 - right)

    lines = _axes(x, y, int(far))
    for way in sorted(ways, key=lambda way: way.name == ROUTER):  # the router last, on top of the others
        at, up = x(way.all_seconds), y(way.right)
        kind = "mine" if way.name == ROUTER else "limit" if way.name == ORACLE else "dot"
        low, tall = y(way.right - way.right_error), y(way.right + way.right_error)
        named = ' class="mine-name"' if kind == "mine" else ""
        lines.append(f'<path class="error" d="M{at:.1f} {low:.1f}V{tall:.1f}"/>')
        lines.append(f'<circle class="{kind}" cx="{at:.1f}" cy="{up:.1f}" r="7"/>')
        side, anchor = (-11, "end") if kind == "mine" else (11, "start")  # "never inspect" is often close by
        label = f'text-anchor="{anchor}">{html.escape(way.name)}</text>'
        lines.append(f'<text{named} x="{at + side:.1f}" y="{up + 4:.1f}" {label}')
    box = f"0 0 {LEFT + WIDE + 120:.0f} {TOP + HIGH + 46:.0f}"
    about = "part of right answers against seconds per question"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="ways" viewBox="{box}"'
    size = f'width="{LEFT + WIDE + 120:.0f}" role="img" aria-label="{about}"'
    paper = '<rect class="paper" width="100%" height="100%" rx="8"/>'
    return f"{head} {size}><style>{STYLE}</style>{paper}{''.join(lines)}</svg>"


def _axes(x: Callable[[float], float], y: Callable[[float], float], last: int) -> list[str]:
    """Lines at every quarter of right answers, a number at every second up to `last`."""
    lines = []
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        lines.append(f'<path class="axis" d="M{LEFT} {y(part):.1f}h{WIDE}"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{y(part) + 4:.1f}" text-anchor="end">{part:.0%}</text>')
    below, middle = y(0.0) + 18, LEFT + WIDE / 2
    lines += [
        f'<text x="{x(second):.1f}" y="{below}" text-anchor="middle">{second}</text>'
        for second in range(last + 1)
    ]
    label = "processor seconds per question"
    lines.append(f'<text x="{middle}" y="{below + 20}" text-anchor="middle">{label}</text>')
    return lines


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    body = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows)
    filled = "".join(f"<tr>{row}</tr>" for row in body)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{filled}</tbody></table>"


def _legend() -> str:
    words = (f"<dt>{html.escape(word)}</dt><dd>{html.escape(meaning)}</dd>" for word, meaning in study.LEGEND)
    return f"<dl>{''.join(words)}</dl>"


def _all(result: Study) -> str:
    head = ("way", "right", "answer s", "looks", "look s", "net", "s.e.", "router earns more by", "s.e.")
    rows = []
    for way in result.ways:
        means = (way.right, way.seconds, way.looks, way.look_seconds, way.net, way.net_error)
        more = ["", ""] if way.name == ROUTER else [f"{way.behind:+.4f}", f"{way.error:.4f}"]
        rows.append([way.name, *(f"{mean:.4f}" for mean in means), *more])
    return _table(head, rows)


def _live(routed: Sequence[RoutedQuestion]) -> str:
    rows = []
    for outcome in routed:
        looks = ", ".join(outcome.decision.inspected) or "none"
        text = outcome.answer.text.strip() or "(no answer)"
        verdict = "right" if outcome.right else f"wrong: {outcome.question.references[0]}"
        bill = f"{outcome.answer.seconds:.4f} + {outcome.lost_seconds:.4f}"
        rows.append([outcome.question.text, looks, outcome.decision.specialist, text, verdict, bill])
    table = _table(
        ("question", "looks", "who answers", "answer", "verdict", "seconds of answer + other looks"), rows
    )
    return f'<div class="live">{table}</div>'


def stories(result: Study) -> list[tuple[str, Decision]]:
    """Headings with decisions, repeated from the recorded contexts; kinds that do not occur are left out.

    Of each kind the decision with the fewest looks is shown, of those the one with the shortest question.
    """
    table, routed = result.held_out, result.routed
    rows = np.arange(len(table))
    right = table.score[rows, routed.choice] > 0
    changed = (routed.inspections > 0) & right & (routed.choice != result.unlooked)
    otherwise = table.score[rows, result.unlooked] > 0
    dearer = table.fee[rows, result.unlooked] > 2 * table.fee[rows, routed.choice]
    kinds = {
        "A look saves money": changed & otherwise & dearer,
        "A look saves the answer": changed & ~otherwise,
        "Nothing is worth buying": (routed.inspections == 0) & right,
        "A look, and wrong all the same": (routed.inspections > 0) & ~right,
    }
    examples = []
    for heading, which in kinds.items():
        there = np.flatnonzero(which)
        if len(there):
            i = min(there.tolist(), key=lambda i: (routed.inspections[i], len(table.prompts[i])))
            assert table.contexts is not None
            contexts = {name: str(table.contexts[i, j]) for j, name in enumerate(table.specialists)}
            examples.append(
                (f"{heading}: {table.prompts[i]}", result.router.route(table.prompts[i], contexts))
            )
    return examples

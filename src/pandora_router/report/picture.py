"""One decision as a picture: a row per specialist, what was believed, what was opened, who answers.

Both drawings are made from the plain row of a decision (`Decision.to_dict()`), so that a command, a page and
a dashboard that only has the stored row draw the same thing. On every row a bar from mean - std to mean + std
says what was believed before anything was bought; a filled dot is the value that opening the box showed.
Boxes that stayed sealed keep a hollow dot at their mean.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

MOST = 12
COLUMNS = 30
LEFT, WIDTH, RIGHT, ROW, TOP = 130.0, 360.0, 260.0, 30.0, 42.0
STYLE = {
    "text": "font:13px system-ui,sans-serif;fill:#1c2733",
    ".paper": "fill:#fff",
    ".dim": "fill:#5b6875",
    ".name": "font-weight:600",
    ".axis": "stroke:#c5ccd3",
    ".belief": "stroke:#b9cbe4;stroke-width:8;stroke-linecap:round",
    ".sealed": "fill:#fff;stroke:#4d6f9f;stroke-width:2",
    ".opened": "fill:#b06a00",
    ".move": "stroke:#b06a00;stroke-width:1.5;stroke-dasharray:3 3",
    ".chosen": "fill:#e5f4e8",
}
"""Rules that hold inside a drawing only: each selector is put behind the class of the drawing."""


@dataclass(frozen=True)
class Unit:
    """How inspection costs are shown: cost in reward times `rate`, with `digits` decimals, then `name`.

    >>> Unit("s", 10.0, 2).text(0.03)
    '0.30 s'
    """

    name: str = "of reward"
    rate: float = 1.0
    digits: int = 4

    def text(self, cost: float) -> str:
        """The cost in words; a cost too small for the digits is shown as less than the last of them."""
        shown, least = cost * self.rate, 10.0**-self.digits
        number = f"<{least:.{self.digits}f}" if 0 < shown < least else f"{shown:.{self.digits}f}"
        return f"{number} {self.name}"


REWARD = Unit()


@dataclass(frozen=True)
class _Box:
    """One row of the picture. `order` counts purchases from 1, None if no estimate of it was bought."""

    name: str
    status: str
    mean: float
    std: float
    cost: float
    order: int | None
    shown: float | None
    chosen: bool

    def story(self, unit: Unit) -> str:
        """What happened to the box, in words."""
        price = unit.text(self.cost)
        if self.order is None:
            text = f"sealed (a look: {price})" if self.status == "sealed" else self.status
        elif self.shown is None:
            text = f"look {self.order} failed ({price})"
        else:
            text = f"look {self.order} ({price}): {self.shown:.2f}"
        return f"{text}, answers" if self.chosen else text


def decision_text(row: Mapping[str, Any], unit: Unit = REWARD, columns: int = COLUMNS) -> str:
    """Draw a decision with plain characters; `row` comes from `Decision.to_dict()`.

    `-` spans mean - std to mean + std, `o` is the mean of a sealed box, `#` the value an opened box showed,
    `>` marks who answers.
    """
    if row.get("declined_because"):
        return (
            f"{row['specialist']} answers, the default: the router declined because {row['declined_because']}"
        )
    boxes = _boxes(row)
    low, high = _range(boxes)
    wide = max(len(box.name) for box in boxes)

    def place(x: float) -> int:
        return round((min(max(x, low), high) - low) / (high - low) * (columns - 1))

    lines = []
    for box in boxes:
        cells = [" "] * columns
        for at in range(place(box.mean - box.std), place(box.mean + box.std) + 1):
            cells[at] = "-"
        cells[place(box.mean)] = "o" if box.shown is None else "|"
        if box.shown is not None:
            cells[place(box.shown)] = "#"
        mark = ">" if box.chosen else " "
        lines.append(f"{mark} {box.name:<{wide}} [{''.join(cells)}] {box.story(unit)}")
    ends = f"{round(low, 2) + 0.0:.2f}".ljust(columns - 4) + f"{high:.2f}"
    return "\n".join([" " * (wide + 4) + ends, *lines])


def decision_svg(row: Mapping[str, Any], title: str = "", unit: Unit = REWARD) -> str:
    """Draw a decision as an SVG element that loads nothing and can stand inside a page or in a file.

    `row` comes from `Decision.to_dict()`; `title` (the prompt, say) is escaped, as are all names.
    """
    if row.get("declined_because"):
        said = f"{row['specialist']} answers, the default: declined because {row['declined_because']}"
        return _element([_text(8, 30, said)], 60.0, title or said)
    boxes = _boxes(row)
    low, high = _range(boxes)
    scale = WIDTH / (high - low)

    def place(x: float) -> float:
        return LEFT + (min(max(x, low), high) - low) * scale

    top = TOP if title else 12.0
    height = top + ROW * len(boxes) + 52
    parts = [_text(8, 20, title, "name")] if title else []
    for tick in (0.0, 0.5, 1.0):
        x = place(tick)
        parts.append(f'<path class="axis" d="M{x:.1f} {top - 8:.1f}V{height - 46:.1f}"/>')
        parts.append(_text(x, height - 30, f"{tick:.1f}", "dim", "middle"))
    parts.append(_text(LEFT + WIDTH / 2, height - 10, "expected reward", "dim", "middle"))
    for i, box in enumerate(boxes):
        parts += _row(box, top + ROW * i, place, unit)
    return _element(parts, height, title or f"{row['specialist']} answers")


def _row(box: _Box, y: float, place: Callable[[float], float], unit: Unit) -> list[str]:
    middle, parts = y + ROW / 2, []
    if box.chosen:
        wide = LEFT + WIDTH + RIGHT - 8
        parts.append(
            f'<rect class="chosen" x="4" y="{y + 1:.1f}" width="{wide:.1f}" height="{ROW - 2}" rx="6"/>'
        )
    parts.append(_text(LEFT - 12, middle + 4, box.name, "name" if box.chosen else "", "end"))
    left, right = place(box.mean - box.std), place(box.mean + box.std)
    parts.append(f'<path class="belief" d="M{left:.1f} {middle:.1f}H{right:.1f}"/>')
    parts.append(f'<circle class="sealed" cx="{place(box.mean):.1f}" cy="{middle:.1f}" r="5"/>')
    if box.shown is not None:
        start, end = place(box.mean), place(box.shown)
        parts.append(f'<path class="move" d="M{start:.1f} {middle:.1f}H{end:.1f}"/>')
        parts.append(f'<circle class="opened" cx="{end:.1f}" cy="{middle:.1f}" r="6"/>')
    parts.append(
        _text(LEFT + WIDTH + 16, middle + 4, box.story(unit), "" if box.order or box.chosen else "dim")
    )
    return parts


def _boxes(row: Mapping[str, Any]) -> list[_Box]:
    """The rows of the picture, highest mean first: the first `MOST`, every opened box and the chosen one."""
    shown: dict[str, tuple[int, float | None]] = {}
    for number, purchase in enumerate(row["purchases"], 1):
        for name, value in zip(purchase["specialists"], purchase["values"], strict=True):
            shown[name] = number, value
    boxes = []
    for name, known in row["specialists"].items():
        order, value = shown.get(name, (None, None))
        mean, std = known["mean"] or 0.0, known["std"] or 0.0
        cost = known["inspection_cost"] or 0.0
        boxes.append(_Box(name, known["status"], mean, std, cost, order, value, name == row["specialist"]))
    boxes.sort(key=lambda box: -box.mean)
    return [box for i, box in enumerate(boxes) if i < MOST or box.order is not None or box.chosen]


def _range(boxes: list[_Box]) -> tuple[float, float]:
    """The ends of the axis: everything that is drawn, at least 0 to 1."""
    ends = [end for box in boxes for end in (box.mean - box.std, box.mean + box.std, box.shown or 0.0)]
    return min(0.0, *ends), max(1.0, *ends)


def _text(x: float, y: float, said: str, kind: str = "", anchor: str = "start") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{named} text-anchor="{anchor}">{html.escape(said)}</text>'


def _element(parts: list[str], height: float, label: str) -> str:
    wide = LEFT + WIDTH + RIGHT
    rules = "".join(f".decision {selector}{{{rule}}}" for selector, rule in STYLE.items())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {height:.0f}" width="{wide:.0f}" '
        f'class="decision" role="img" aria-label="{html.escape(label)}"><style>{rules}</style>'
        f'<rect class="paper" width="{wide:.0f}" height="{height:.0f}" rx="8"/>{"".join(parts)}</svg>'
    )

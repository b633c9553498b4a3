"""One decision as a picture: a row per specialist with its mean, what was opened, and the choice.

Both drawings are made from the plain row of a decision (`Decision.to_dict()`), so that commands, pages and a
dashboard with only the stored row draw the same. On every row a bar from mean - std to mean + std shows the
belief before any purchase, a hollow dot the mean, a small diamond the reservation price (above that worth of
an alternative a look does not pay), and a filled dot the value that a look showed. Below the rows are the
lead of the chosen specialist and the costs of other ways.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

MOST = 12
COLUMNS = 30
LEFT, WIDTH, RIGHT, ROW, TOP = 130.0, 320.0, 390.0, 30.0, 42.0
STYLE = {
    "text": "font:13px system-ui,sans-serif;fill:var(--ink,#1c2733)",
    ".paper": "fill:var(--paper,#fff)",
    ".dim": "fill:var(--dim,#5b6875)",
    ".name": "font-weight:600",
    ".axis": "stroke:var(--line,#c5ccd3)",
    ".belief": "stroke:var(--belief,#b9cbe4);stroke-width:8;stroke-linecap:round",
    ".sealed": "fill:var(--paper,#fff);stroke:var(--mean,#4d6f9f);stroke-width:2",
    ".price": "fill:var(--paper,#fff);stroke:var(--ink,#1c2733);stroke-width:1.3",
    ".opened": "fill:var(--opened,#b06a00)",
    ".move": "stroke:var(--opened,#b06a00);stroke-width:1.5;stroke-dasharray:3 3",
    ".chosen": "fill:var(--chosen,#e5f4e8)",
}
"""CSS rules of a drawing. A page with a dark mode sets the variables; a file uses the defaults."""
LEGEND = "bar: mean ± standard deviation; ○ mean; ◇ reservation price; ● what a look showed"


def style_sheet() -> str:
    """The CSS rules of the drawing, for a page that forbids styles inside elements."""
    return "".join(f".decision {selector}{{{rule}}}" for selector, rule in STYLE.items())


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
        """The cost with its unit; a cost too small for the digits is shown as less than the last digit."""
        return f"{self.number(cost)} {self.name}"

    def number(self, cost: float) -> str:
        """The cost without its unit."""
        shown, least = cost * self.rate, 10.0**-self.digits
        return f"<{least:.{self.digits}f}" if 0 < shown < least else f"{shown:.{self.digits}f}"


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
    price: float | None = None
    refund: float = 0.0

    def story(self, unit: Unit) -> str:
        """What happened to the box, in words."""
        price = unit.text(self.cost)
        if self.order is None:
            text = f"sealed (a look: {price})" if self.status == "sealed" else self.status
        elif self.shown is None:
            text = f"look {self.order} failed ({price})"
        else:
            text = f"look {self.order} ({price}): {self.shown:.2f}"
        if self.refund > 0.0:
            text += f", {unit.number(self.refund)} back"
        return f"{text}, answers" if self.chosen else text


def decision_text(row: Mapping[str, Any], unit: Unit = REWARD) -> str:
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
        return round((min(max(x, low), high) - low) / (high - low) * (COLUMNS - 1))

    lines = []
    for box in boxes:
        cells = [" "] * COLUMNS
        for at in range(place(box.mean - box.std), place(box.mean + box.std) + 1):
            cells[at] = "-"
        cells[place(box.mean)] = "o" if box.shown is None else "|"
        if box.shown is not None:
            cells[place(box.shown)] = "#"
        mark = ">" if box.chosen else " "
        lines.append(f"{mark} {box.name:<{wide}} [{''.join(cells)}] {box.story(unit)}")
    ends = f"{round(low, 2) + 0.0:.2f}".ljust(COLUMNS - 4) + f"{high:.2f}"
    return "\n".join([" " * (wide + 4) + ends, *lines])


def decision_svg(
    row: Mapping[str, Any],
    title: str = "",
    unit: Unit = REWARD,
    bill: Mapping[str, str] | None = None,
    *,
    styled: bool = True,
) -> str:
    """Draw a decision as an SVG element without external resources, for a page or a file.

    `row` is from `Decision.to_dict()`; `title` (such as the prompt) and all names are escaped. `bill` has
    lines to write below, such as the costs of other ways; by default the costs of looks. Without `styled` the
    element has no CSS rules, and the page must include `style_sheet()`.
    """
    if row.get("declined_because"):
        line = f"{row['specialist']} answers, the default: declined because {row['declined_because']}"
        return _element([_text(8, 30, _cut(line, 110))], 60.0, title or line, styled)
    boxes = _boxes(row)
    low, high = _range(boxes)
    scale = WIDTH / (high - low)

    def place(x: float) -> float:
        return LEFT + (min(max(x, low), high) - low) * scale

    top = TOP if title else 12.0
    end = top + ROW * len(boxes)
    parts = [_text(8, 20, _cut(title, 100), "name")] if title else []
    for tick in (0.0, 0.5, 1.0):
        x = place(tick)
        parts.append(f'<path class="axis" d="M{x:.1f} {top - 8:.1f}V{end + 6:.1f}"/>')
        parts.append(_text(x, end + 22, f"{tick:.1f}", "dim", "middle"))
    parts.append(_text(LEFT + WIDTH + 16, end + 22, "expected score less fee", "dim"))
    for i, box in enumerate(boxes):
        parts += _row(box, top + ROW * i, place, unit)
    below = [_cut(LEGEND, 110), lead(row), _bill(row, unit) if bill is None else _lines(bill)]
    for i, line in enumerate(filter(None, below)):
        parts.append(_text(8, end + 46 + 20 * i, line, "" if i else "dim"))
    return _element(parts, end + 100, title or f"{row['specialist']} answers", styled)


def lead(row: Mapping[str, Any]) -> str:
    """The chosen specialist and its lead, in words; "" for a decision without `worth`."""
    worth = {name: value for name, value in row["worth"].items() if value is not None}
    chosen = row["specialist"]
    others = [(value, name) for name, value in worth.items() if name != chosen]
    if chosen not in worth:
        return ""
    if not others:
        return f"{_cut(chosen, 30)} answers: worth {worth[chosen]:.3f}, the only candidate"
    value, name = max(others)
    gap = worth[chosen] - value
    back = f" (and {row['refunded']:.3f} of its look comes back)" if row["refunded"] >= 0.0005 else ""
    return (
        f"{_cut(chosen, 30)} answers: worth {worth[chosen]:.3f}{back}, {abs(gap):.3f} "
        f"{'above' if gap >= 0 else 'below'} {_cut(name, 30)}"
    )


def _bill(row: Mapping[str, Any], unit: Unit) -> str:
    """What the looks cost, and an upper bound for all looks together."""
    sold = ("sealed", "opened", "lost", "too late")
    everything = sum(
        line["inspection_cost"] or 0.0 for line in row["specialists"].values() if line["status"] in sold
    )
    back = row.get("refunded") or 0.0
    lines = {"looks": unit.text(row["spent"] + back)}
    if back > 0.0:
        lines["of it given back"] = unit.text(back)
    return _lines(
        lines | {"without any look": unit.text(0.0), "all looks": f"at most {unit.text(everything)}"}
    )


def _lines(bill: Mapping[str, str]) -> str:
    return "; ".join(f"{name} {amount}" for name, amount in bill.items())


def _row(box: _Box, y: float, place: Callable[[float], float], unit: Unit) -> list[str]:
    middle, parts = y + ROW / 2, []
    if box.chosen:
        wide = LEFT + WIDTH + RIGHT - 8
        parts.append(
            f'<rect class="chosen" x="4" y="{y + 1:.1f}" width="{wide:.1f}" height="{ROW - 2}" rx="6"/>'
        )
    parts.append(_text(LEFT - 12, middle + 4, _cut(box.name, 17), "name" if box.chosen else "", "end"))
    left, right = place(box.mean - box.std), place(box.mean + box.std)
    parts.append(f'<path class="belief" d="M{left:.1f} {middle:.1f}H{right:.1f}"/>')
    parts.append(f'<circle class="sealed" cx="{place(box.mean):.1f}" cy="{middle:.1f}" r="5"/>')
    if box.price is not None:
        at = place(box.price)
        parts.append(f'<path class="price" d="M{at:.1f} {middle - 6:.1f}l5 6l-5 6l-5 -6z"/>')
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
    for name, line in row["specialists"].items():
        order, value = shown.get(name, (None, None))
        mean, std = line["mean"] or 0.0, line["std"] or 0.0
        cost, chosen = line["inspection_cost"] or 0.0, name == row["specialist"]
        back = row.get("refunded", 0.0) if chosen and order is not None else 0.0
        price = line["reservation_price"] if std > 0.0 else None
        boxes.append(_Box(name, line["status"], mean, std, cost, order, value, chosen, price, back))
    boxes.sort(key=lambda box: -box.mean)
    return [box for i, box in enumerate(boxes) if i < MOST or box.order is not None or box.chosen]


def _range(boxes: list[_Box]) -> tuple[float, float]:
    """The ends of the axis: everything that is drawn, at least 0 to 1."""
    ends = [end for box in boxes for end in (box.mean - box.std, box.mean + box.std, box.shown or 0.0)]
    return min(0.0, *ends), max(1.0, *ends)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _text(x: float, y: float, content: str, kind: str = "", anchor: str = "start") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{named} text-anchor="{anchor}">{html.escape(content)}</text>'


def _element(parts: list[str], height: float, label: str, styled: bool) -> str:
    wide = LEFT + WIDTH + RIGHT
    rules = f"<style>{style_sheet()}</style>" if styled else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {height:.0f}" width="{wide:.0f}" '
        f'class="decision" role="img" aria-label="{html.escape(label)}">{rules}'
        f'<rect class="paper" width="{wide:.0f}" height="{height:.0f}" rx="8"/>{"".join(parts)}</svg>'
    )

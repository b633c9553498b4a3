"""The curve as a drawing: right answers (upwards) against money for 1,000 prompts (to the right).

The line with dots is the router at rising worths of a right answer, the shade around it the band that covers
all of it with probability 0.95. The dashed line is the best random mix of two specialists, the dotted one
the best in hindsight, squares are single specialists, a ring marks where the router is now, and smaller
rings with names where profiles are. Colours are attributes of the elements, so that the drawing needs no
style sheet.
"""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Mapping

from pandora_router.router.curve import Curve, Point
from pandora_router.text import money

WIDTH, HEIGHT = 640.0, 360.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 130.0, 24.0, 48.0
PROMPTS = 1000
LETTER = 6.5
"""About how wide a letter is."""
Box = tuple[float, float, float, float]
INK, LINE, MIX, SINGLE, NOW = "currentColor", "#2f6fb0", "#8a8f98", "#b06a00", "#c0392b"


def curve_svg(
    curve: Curve, sign: str, worth: float | None = None, profiles: Mapping[str, float] | None = None
) -> str:
    """The drawing as an SVG element.

    `worth` is what a right answer is worth now, in money; `profiles` what it is worth to each of them.
    """
    everyone = [*curve.points, *curve.singles.values()]
    most = max(point.money for point in everyone) or 1.0
    edges = [point.score + curve.band * point.score_error * way for point in everyone for way in (-1, 1)]
    edges += [score for _, score in curve.oracle]
    low, high = max(min(edges), 0.0), min(max(edges), 1.0)

    def x(point_money: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * point_money / most

    def y(score: float) -> float:
        height = (min(max(score, low), high) - low) / ((high - low) or 1.0)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * height

    upper = [(x(point.money), y(point.score + curve.band * point.score_error)) for point in curve.points]
    lower = [(x(point.money), y(point.score - curve.band * point.score_error)) for point in curve.points]
    steps = [most * step / 60 for step in range(61)]
    cheapest = min(point.money for point in curve.singles.values())
    mix = [(x(step), y(curve.mix(step))) for step in steps if step >= cheapest]
    parts = [
        *_axes(low, high, most, sign),
        f'<polygon points="{_points([*upper, *lower[::-1]])}" fill="{LINE}" fill-opacity="0.15"/>',
        f'<polyline points="{_points(mix)}" fill="none" stroke="{MIX}" stroke-dasharray="5 4"/>',
        f'<polyline points="{_points([(x(cost), y(score)) for cost, score in curve.oracle])}" fill="none" '
        f'stroke="{MIX}" stroke-dasharray="2 3" stroke-width="1.5"/>',
        _path([(x(point.money), y(point.score)) for point in curve.points]),
    ]
    for point in curve.points:
        title = f"a right answer worth {money(point.worth or 0.0, sign)}: {_told(point, sign)}"
        parts.append(_mark("circle", x(point.money), y(point.score), LINE, title))
    for name, point in curve.singles.items():
        parts.append(_mark("square", x(point.money), y(point.score), SINGLE, f"{name}: {_told(point, sign)}"))
    squares = {name: (x(point.money), y(point.score)) for name, point in curve.singles.items()}
    parts += _names(squares)
    for name, at in (profiles or {}).items():
        place = present(curve, at)
        title = f"{name}: {_told(place, sign)}"
        parts.append(_mark("small ring", x(place.money), y(place.score), NOW, title))
        parts.append(_text(x(place.money) - 8.0, y(place.score) - 8.0, name[:18], "end"))
    if worth is not None:
        here = present(curve, worth)
        title = f"now: {_told(here, sign)}"
        parts.append(_mark("ring", x(here.money), y(here.score), NOW, title))
    label = "Right answers against money: the router, every specialist and the best mix of two"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" '
        f'width="{WIDTH:.0f}" class="curve" role="img" aria-label="{label}" '
        f'font-family="system-ui,sans-serif" font-size="12">{"".join(parts)}</svg>'
    )


def curve_html(curve: Curve, sign: str, worth: float | None, words: str) -> str:
    """A page that works offline: the drawing and the table of `pandora curve` as text."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>What more money buys</title>\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">\n<style>body{font:15px system-ui,sans-serif;max-width:60rem;"
        "margin:2rem auto;padding:0 1rem}svg{max-width:100%;height:auto}pre{overflow-x:auto}</style></head>\n"
        f"<body><h1>What more money buys</h1>{curve_svg(curve, sign, worth)}\n"
        f"<p>{LEGEND}</p><pre>{html.escape(words)}</pre></body></html>\n"
    )


LEGEND = (
    "Dots: the router, as a right answer is worth more; ring: where it is now; squares: one specialist for "
    "everything; dashed: the best random mix of two specialists, which needs no router; dotted: the best in "
    "hindsight, which nobody knows beforehand; shade: where the whole curve lies with 95 % confidence."
)


def present(curve: Curve, worth: float) -> Point:
    """The point of the curve whose worth of a right answer is nearest to `worth`."""
    return min(curve.points, key=lambda point: abs(math.log((point.worth or math.inf) / worth)))


def _told(point: Point, sign: str) -> str:
    return f"{point.score:.3f} right at {money(PROMPTS * point.money, sign)} per {PROMPTS:,}"


def _axes(low: float, high: float, most: float, sign: str) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    return [
        f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="{INK}" stroke-opacity="0.5"/>',
        _text(LEFT - 6.0, TOP + 6.0, f"{high:.2f}", "end"),
        _text(LEFT - 6.0, bottom, f"{low:.2f}", "end"),
        _text(LEFT, bottom + 18.0, "0"),
        _text(right, bottom + 18.0, money(PROMPTS * most, sign), "end"),
        _text((LEFT + right) / 2, bottom + 34.0, f"money for {PROMPTS:,} prompts, looks included", "middle"),
        _text(LEFT, TOP - 8.0, "right answers"),
    ]


def _names(squares: Mapping[str, tuple[float, float]]) -> list[str]:
    """The names beside their squares, each at the first of a few places where it covers nothing else.

    A name that has no such place is left out: the square says it when it is pointed at.
    """
    taken = [(across - 4.0, up - 4.0, across + 4.0, up + 4.0) for across, up in squares.values()]
    written = []
    for name, (across, up) in squares.items():
        shown = name[:18]
        wide = LETTER * len(shown)
        for start, line in itertools.product((7.0, -7.0 - wide), (4.0, -7.0, 15.0, -18.0, 26.0)):
            left, base = across + start, up + line
            box = (left, base - 9.0, left + wide, base + 2.0)
            if left >= 0.0 and base < HEIGHT - BOTTOM and not any(_meet(box, other) for other in taken):
                taken.append(box)
                written.append(_text(left, base, shown))
                break
    return written


def _meet(one: Box, other: Box) -> bool:
    """Whether two rectangles (left, top, right, bottom) overlap."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _points(places: list[tuple[float, float]]) -> str:
    return " ".join(f"{across:.1f},{up:.1f}" for across, up in places)


def _path(places: list[tuple[float, float]]) -> str:
    return f'<polyline points="{_points(places)}" fill="none" stroke="{LINE}" stroke-width="2"/>'


def _mark(kind: str, across: float, up: float, colour: str, title: str) -> str:
    shapes = {
        "circle": f'<circle cx="{across:.1f}" cy="{up:.1f}" r="3.5" fill="{colour}">',
        "ring": f'<circle cx="{across:.1f}" cy="{up:.1f}" r="8" fill="none" stroke="{colour}" '
        'stroke-width="2.5">',
        "small ring": f'<circle cx="{across:.1f}" cy="{up:.1f}" r="6" fill="none" stroke="{colour}" '
        'stroke-dasharray="3 2">',
        "square": f'<rect x="{across - 4:.1f}" y="{up - 4:.1f}" width="8" height="8" fill="{colour}">',
    }
    end = "</rect>" if kind == "square" else "</circle>"
    return f"{shapes[kind]}<title>{html.escape(title)}</title>{end}"


def _text(across: float, up: float, words: str, anchor: str = "start") -> str:
    return (
        f'<text x="{across:.1f}" y="{up:.1f}" text-anchor="{anchor}" fill="{INK}">{html.escape(words)}</text>'
    )

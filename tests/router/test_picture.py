"""Pictures of decisions: what they say is what the row says, and nothing in a name can break a page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from pandora_router import dashboard, report
from pandora_router.router import Decision
from pandora_router.router.picture import REWARD, Unit, decision_svg, decision_text, style_sheet
from tests.support.routers import fitted

SHEETS = [
    Path(report.__file__).parent / "page.css",
    Path(dashboard.__file__).parent / "assets" / "board.css",
]
SVG = "{http://www.w3.org/2000/svg}"


def row(opened: float | None = 0.9) -> dict[str, Any]:
    """A decision among three: b is opened and taken, or lost if `opened` is None."""
    known = {"std": 0.1, "inspection_cost": 0.02, "cheap": 0.5, "status": "sealed", "reservation_price": 0.8}
    return {
        "specialist": "b",
        "declined_because": None,
        "spent": 0.02,
        "refunded": 0.005,
        "worth": {"a": 0.6, "b": 0.5 if opened is None else opened, "c": 0.2},
        "purchases": [{"specialists": ["b"], "values": [opened]}],
        "specialists": {
            "a": {"mean": 0.6, **known},
            "b": {"mean": 0.5, **known},
            "c": {"mean": 0.2, **known},
        },
    }


def circles(drawing: str, kind: str) -> list[float]:
    """Where the circles of a class stand, from left to right as the rows go down."""
    found = ElementTree.fromstring(drawing).iter(f"{SVG}circle")
    return [float(one.get("cx", "nan")) for one in found if one.get("class") == kind]


def test_boxes_stand_where_their_numbers_are() -> None:
    """Positions on the axis are linear in the numbers: recovered from the drawing by two known points."""
    drawing = decision_svg(row())
    a, b, c = circles(drawing, "sealed")
    (seen,) = circles(drawing, "opened")
    scale = (a - c) / (0.6 - 0.2)
    assert b == pytest.approx(c + 0.3 * scale, abs=0.2)
    assert seen == pytest.approx(c + 0.7 * scale, abs=0.2)
    assert drawing.count('class="chosen"') == 1


def test_the_text_says_who_was_opened_what_it_cost_and_who_answers() -> None:
    lines = decision_text(row(), Unit("s", 10.0, 1)).splitlines()
    assert [line.split()[0 if line[0] != ">" else 1] for line in lines[1:]] == ["a", "b", "c"]
    (mine,) = [line for line in lines if line.startswith(">")]
    assert "look 1 (0.2 s): 0.90, <0.1 back, answers" in mine
    assert mine.index("#") - mine.index("[") > mine.index("|") - mine.index("[")
    assert "sealed (a look: 0.2 s)" in lines[1]
    assert len({len(re.split(r"\]", line)[0]) for line in lines[1:]}) == 1
    assert "look 1 failed" in decision_text(row(None))


def test_prices_the_lead_and_the_bill_stand_in_the_drawing() -> None:
    drawing = decision_svg(row())
    (axis, *_, diamond) = re.findall(r'd="M([-0-9.]+) ', re.sub(r"<path class=.belief.*?/>", "", drawing))
    a, _, c = circles(drawing, "sealed")
    assert float(diamond) == pytest.approx(c + 0.6 * (a - c) / 0.4, abs=0.2)
    assert float(axis) == pytest.approx(c - 0.2 * (a - c) / 0.4, abs=0.2)
    said = [one.text for one in ElementTree.fromstring(drawing).iter(f"{SVG}text")]
    assert "b answers: worth 0.900 (and 0.005 of its look comes back), 0.300 above a" in said
    assert any("looks 0.0250 of reward; of it given back 0.0050" in str(text) for text in said)
    assert any("all looks at most 0.0600" in str(text) for text in said)
    plain = decision_svg(row(), bill={"paid": "$0.01", "best single": "$0.05"}, styled=False)
    assert "paid $0.01; best single $0.05" in plain
    assert "<style" not in plain
    assert "style=" not in plain
    assert ".decision .belief{" in style_sheet()


def test_names_and_titles_are_escaped() -> None:
    made = row()
    made["specialists"]["<script>alert(1)</script>"] = made["specialists"].pop("a")
    drawing = decision_svg(made, title='"><script>alert(2)</script>')
    assert "<script>" not in drawing
    said = " ".join("".join(one.itertext()) for one in ElementTree.fromstring(drawing).iter(f"{SVG}text"))
    assert "<script>alert(1)…" in said
    assert "<script>alert(2)</script>" in said


def test_small_costs_are_not_shown_as_zero() -> None:
    assert Unit("s", 1.0, 3).text(0.0001) == "<0.001 s"
    assert Unit("s", 1.0, 3).text(0.0) == "0.000 s"
    assert REWARD.text(0.0123) == "0.0123 of reward"


@pytest.mark.parametrize("prompt", ["What is 3 + 4?", "Name a river in Peru.", ""])
def test_every_decision_of_a_router_can_be_drawn(prompt: str) -> None:
    """Searched and declined ones alike, from the row alone."""
    decision: Decision = fitted().route(prompt)
    made = decision.to_dict()
    ElementTree.fromstring(decision_svg(made, title=prompt))
    assert decision.specialist in decision_text(made)
    if decision.declined_because is not None:
        assert decision.declined_because in decision_text(made)


def test_of_many_specialists_the_leading_and_the_opened_are_drawn() -> None:
    made = row()
    made["specialists"] |= {f"m{i:02d}": {**made["specialists"]["c"], "mean": 0.7} for i in range(20)}
    names = {line.split()[0] for line in decision_text(made).splitlines()[1:] if line[0] == " "}
    assert len(names) == 12
    assert "> b" in decision_text(made)


def colours(css: str) -> list[dict[str, str]]:
    """The variables of each block of rules for the whole page: light and dark."""
    blocks = re.findall(r":root[^{]*\{([^}]*--ink[^}]*)\}", css)
    return [dict(re.findall(r"(--\w+):\s*(#[0-9a-f]+)", block)) for block in blocks]


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda path: path.name)
def test_pictures_can_be_read_on_light_and_dark_pages(sheet: Path) -> None:
    """Every page with a dark mode sets all colours of a drawing; words stand out 4.5 to 1, as WCAG asks."""
    used = set(re.findall(r"var\((--\w+)", style_sheet()))
    blocks = colours(sheet.read_text("utf-8"))
    assert len(blocks) >= 2
    for block in blocks:
        assert used <= block.keys()
        for words in ("--ink", "--dim"):
            for behind in ("--paper", "--chosen"):
                light, dark = sorted((luminance(block[words]), luminance(block[behind])), reverse=True)
                assert (light + 0.05) / (dark + 0.05) >= 4.5, (words, behind, block)

"""Write docs/box.svg (a box and its two prices) and docs/down-payment.svg (a look that comes back).

Run `python -m tools.make_concepts` after a change of the prices or of the style. The prices in the first
picture are those of `Independent` for the box that is drawn.
"""

from __future__ import annotations

import math
from pathlib import Path

from pandora_router import Independent
from pandora_router.folders import replace_text

DOCS = Path(__file__).parent.parent / "docs"
MEAN, STD, COST = 0.55, 0.16, 0.012
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1c2733}.paper{fill:#fff}.dim{fill:#5b6875}"
    ".name{font-weight:600}"
    ".axis{stroke:#8a95a1}.law{fill:#dbe6f4;stroke:#4d6f9f;stroke-width:2}.pays{fill:#fbe9cc}"
    ".price{stroke:#b06a00;stroke-width:2}.mean{stroke:#4d6f9f;stroke-width:2;stroke-dasharray:4 3}"
    ".paid{fill:#4d6f9f}.lost{fill:#b06a00}.saved{fill:#fff;stroke:#4d6f9f;stroke-dasharray:4 3}"
)


def main() -> None:
    """Draw both pictures."""
    replace_text(DOCS / "box.svg", box() + "\n")
    replace_text(DOCS / "down-payment.svg", down_payment() + "\n")


def box() -> str:
    """The law of a box's value on the axis of rewards, with its mean, its two prices and what they mean."""
    one = Independent([MEAN], [STD], COST)
    reservation, backup = float(one.reservation_price()[0]), float(one.backup_price()[0])

    def x(reward: float) -> float:
        return 40 + 620 * reward

    def y(reward: float) -> float:
        return 190 - 120 * math.exp(-0.5 * ((reward - MEAN) / STD) ** 2)

    wide = x(reservation) - x(backup)
    law = "L".join(f"{x(i / 100):.1f} {y(i / 100):.1f}" for i in range(101))
    parts = [
        f'<rect class="pays" x="{x(backup):.1f}" y="40" width="{wide:.1f}" height="150"/>',
        f'<path class="law" d="M{x(0):.1f} 190L{law}L{x(1):.1f} 190Z"/>',
        f'<path class="axis" d="M{x(0):.1f} 190H{x(1):.1f}"/>',
        *(text(x(t), 208, f"{t:g}", "dim") for t in (0, 0.5, 1)),
        text(x(0.5), 228, "what the best alternative is worth", "dim"),
        *(
            f'<path class="{kind}" d="M{x(at):.1f} {top}V190"/>'
            for kind, at, top in (("price", backup, 40), ("mean", MEAN, 70), ("price", reservation, 40))
        ),
        text(x(backup), 32, f"backup price {backup:.2f}", "name", "end"),
        text(x(MEAN), 32, f"mean {MEAN:.2f}", "name"),
        text(x(reservation), 32, f"reservation price {reservation:.2f}", "name", "start"),
        text(x(backup / 2), 60, "take it unopened"),
        text(x(MEAN), 60, "a look pays"),
        text(x((1 + reservation) / 2), 60, "take the other"),
    ]
    return drawn(700, 240, "A box: the law of its value, its mean and its two prices", parts)


def down_payment() -> str:
    """What is paid in three cases: no look, a look at the winner, a look at a loser."""
    rows = (
        ("answered without a look", (("paid", 300, "the answer"),)),
        (
            "looked at, and chosen",
            (("paid", 70, "look"), ("paid", 230, "goes on with the same answer")),
        ),
        ("looked at, another chosen", (("lost", 70, "lost"), ("saved", 230, "cancelled: not paid"))),
    )
    parts = []
    for i, (label, pieces) in enumerate(rows):
        top, left = 24.0 + 52 * i, 200.0
        parts.append(text(190, top + 24, label, anchor="end"))
        for kind, width, words in pieces:
            parts.append(
                f'<rect class="{kind}" x="{left:.0f}" y="{top:.0f}" width="{width - 2}" height="36" rx="4"/>'
            )
            fill = "" if kind == "saved" else ' style="fill:#fff"'
            parts.append(
                f'<text x="{left + width / 2:.0f}" y="{top + 23:.0f}" text-anchor="middle"{fill}>'
                f"{words}</text>"
            )
            left += width
    return drawn(540, 190, "A down-payment: a look that begins the answer", parts)


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> str:
    """One text element."""
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{words}</text>'


def drawn(width: int, height: int, title: str, parts: list[str]) -> str:
    """The picture as SVG."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img" '
        f'aria-label="{title}"><style>{STYLE}</style>'
        f'<rect class="paper" width="{width}" height="{height}" rx="8"/>{"".join(parts)}</svg>'
    )


if __name__ == "__main__":
    main()

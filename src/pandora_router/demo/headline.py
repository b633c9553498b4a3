"""What routing earns in the demo, in sentences and one small table: accuracy, seconds and money.

Terminal, page and README show the same text. Money is processor time at a price per hour; it is proportional
to seconds, so the price does not affect comparisons.
"""

from __future__ import annotations

from collections.abc import Sequence

from pandora_router.calibrate.ways import ALWAYS, NEVER, ORACLE, ROUTER
from pandora_router.demo.specialists import STRONG
from pandora_router.demo.study import ALWAYS_SMALL, ALWAYS_STRONG, SMALL_WAY, Study, Way

PRICE = 0.05
"""Dollars per processor hour: about what one core of a rented machine costs."""
SHOWN = (ROUTER, ALWAYS_STRONG, ALWAYS_SMALL, NEVER, ALWAYS, ORACLE)
COLUMNS = ("way to route", "right (s.e.)", "seconds", "$ / 1,000", "looks", "net (s.e.)")
LEGEND = (
    (ROUTER, "decides question by question which looks to buy and who answers"),
    (ALWAYS_STRONG, "every question to the large model"),
    (ALWAYS_SMALL, f"every question to the small model, asked in its best way ({SMALL_WAY})"),
    (NEVER, "the router without looks: cheap estimates alone"),
    (ALWAYS, "a look at everybody before every answer"),
    (ORACLE, "knows every answer beforehand: the limit"),
    ("look", "the passage found or the first tokens, seen before an answer is bought"),
    ("net", "part of right answers minus the weighted seconds of answers and looks"),
)


def dollars(seconds: float, price: float = PRICE) -> float:
    """Dollars per 1,000 questions of so many processor seconds each, at `price` dollars per hour."""
    return 1000.0 * seconds * price / 3600.0


def sentences(result: Study, price: float = PRICE) -> tuple[str, ...]:
    """The result in two or three sentences, the saving first."""
    mine, strong, small = (result.way(name) for name in (ROUTER, ALWAYS_STRONG, ALWAYS_SMALL))
    part = mine.all_seconds / strong.all_seconds
    points, error = 100.0 * strong.more_right, 100.0 * strong.more_right_error
    return (
        f"The router is right on {mine.right:.1%} of {result.questions['test']:,} held-out questions for "
        f"{_bill(mine, price)}; always the strong model: {strong.right:.1%} for {_bill(strong, price)}.",
        f"That is {points:+.1f} points (s.e. {error:.1f}) at {part:.0%} of the cost. "
        f"Always the small model: {small.right:.1%} for {_bill(small, price)}.",
    )


def _bill(way: Way, price: float) -> str:
    return f"{way.all_seconds:.2f} s each (${dollars(way.all_seconds, price):.3f} per 1,000)"


def rows(result: Study, names: Sequence[str] = SHOWN, price: float = PRICE) -> list[list[str]]:
    """The table of `COLUMNS`, a row per way to route."""
    return [_row(result.way(name), price) for name in names]


def _row(way: Way, price: float) -> list[str]:
    money = dollars(way.all_seconds, price)
    right, net = f"{way.right:.3f} ({way.right_error:.3f})", f"{way.net:.3f} ({way.net_error:.3f})"
    return [way.name, right, f"{way.all_seconds:.2f}", f"{money:.3f}", f"{way.looks:.2f}", net]


def recorded(result: Study) -> str:
    """What was recorded and how it was used, with counts."""
    return (
        f"Measured on recorded answers ({result.answers[STRONG]:,} of them by the strong model): learnt from "
        f"{result.questions['train']:,} questions, calibrated on {result.questions['calibration']:,}, "
        f"held out {result.questions['test']:,}. One second costs {result.weight:g} of a right answer."
    )

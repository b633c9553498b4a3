"""Write src/pandora_router/demo/puzzles.parquet: questions of five families of reasoning-gym for the demo.

Run `python -m tools.make_reasoning` where reasoning-gym 0.1.25 (Apache-2.0) and pyarrow are installed; the
package itself does not need reasoning-gym. The licence is named in src/pandora_router/demo/NOTICE.txt. A row
has a family, a text and an answer.

Every answer is computed a second time, exactly and without reasoning-gym; a question where the two differ is
left out (a division that does not come out even is rounded down there), and so is a fraction that comes out
whole (1 and 1/1 would both be right) or cannot be simplified (to repeat it would be right). Questions of the
same figures in other words or another order count once. Leap years and others come in turn: a guess that is
always No is right half the time.
"""

from __future__ import annotations

import ast
import calendar
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

TARGET = Path(__file__).parent.parent / "src" / "pandora_router" / "demo" / "puzzles.parquet"
EACH, SEED = 120, 2026
DRAWN = 20 * EACH
FAMILIES: dict[str, dict[str, object]] = {
    "basic_arithmetic": {"max_terms": 4, "max_digits": 2},
    "products": {"max_digits": 3},
    "fraction_simplification": {"max_value": 30, "max_factor": 12, "styles": ("plain",)},
    "gcd": {"max_value": 60},
    "calendar_arithmetic": {"tasks": ["is_leap_year"], "leap_year_range": 400},
}
OPERATIONS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
Row = dict[str, str]


def value(tree: ast.expr) -> Fraction:
    """The exact value of an expression of whole numbers, + - * / and brackets."""
    if isinstance(tree, ast.BinOp):
        return OPERATIONS[type(tree.op)](value(tree.left), value(tree.right))
    if isinstance(tree, ast.UnaryOp):
        assert isinstance(tree.op, ast.USub)
        return -value(tree.operand)
    assert isinstance(tree, ast.Constant)
    assert isinstance(tree.value, int)
    return Fraction(tree.value)


def figures(text: str) -> list[int]:
    """The whole numbers in a text, signs apart."""
    return [int(one) for one in re.findall(r"\d+", text)]


def exact(family: str, text: str) -> str:
    """The answer to a question, computed here; no answer where something is divided by zero."""
    if family == "gcd":
        return str(math.gcd(*figures(text)))
    if family == "calendar_arithmetic":
        (year,) = figures(text)
        return "Yes" if calendar.isleap(year) else "No"
    (written,) = re.findall(r"[-(\d][-+*/()\d\s]*[\d)]|\d", text)
    try:
        return str(value(ast.parse(written.strip(), mode="eval").body))
    except ZeroDivisionError:
        return ""


def questions(family: str) -> Iterator[Row]:
    """Different questions of a family whose answers are right."""
    import reasoning_gym

    seen: set[tuple[int, ...]] = set()
    for one in reasoning_gym.create_dataset(family, size=DRAWN, seed=SEED, **FAMILIES[family]):
        text = " ".join(one["question"].split())
        asked = tuple(sorted(figures(text)))
        answer = one["answer"]
        repeated = "/" in answer and answer in text.split()
        if asked not in seen and exact(family, text) == answer and not repeated:
            seen.add(asked)
            yield {"family": family, "text": text, "answer": answer}


def in_turn(rows: Iterator[Row]) -> Iterator[Row]:
    """Yes and No alternating, as long as there are both."""
    by_answer: dict[str, list[Row]] = {"Yes": [], "No": []}
    for row in rows:
        by_answer[row["answer"]].append(row)
    for pair in zip(*by_answer.values(), strict=False):
        yield from pair


def main() -> None:
    """Make the questions and write them, whole or not at all."""
    rows: list[Row] = []
    for family in FAMILIES:
        made = questions(family)
        chosen = list(itertools.islice(in_turn(made) if family == "calendar_arithmetic" else made, EACH))
        if len(chosen) < EACH:
            raise SystemExit(f"{family}: {len(chosen)} different questions with right answers, not {EACH}")
        rows += chosen
    draft = TARGET.with_name(f".{TARGET.name}.draft")
    pq.write_table(pa.Table.from_pylist(rows), draft, compression="zstd")
    draft.replace(TARGET)
    print(f"{len(rows)} questions, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()

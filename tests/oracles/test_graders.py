"""Graders by hand-made cases, and the reader of mathematics against sympy."""

from __future__ import annotations

import importlib.util
import random
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pandora_router.collect import mathematics
from pandora_router.collect.graders import (
    NAMED,
    ReferenceGrader,
    contains,
    exact,
    final,
    letter,
    normalised,
    number,
    numeric,
    symbolic,
)
from pandora_router.collect.mathematics import boxed, equal
from pandora_router.errors import UsageError

CASES: list[tuple[Any, str, str, float]] = [
    (exact, " Paris\n", "Paris", 1),
    (exact, "paris", "Paris", 0),
    (normalised, "The  PARIS.", "paris", 1),
    (normalised, "l’Été", "lÉTÉ", 1),
    (normalised, "Paris, France", "Paris", 0),
    (normalised, "", "", 0),
    (contains, "It is Paris, of course.", "paris", 1),
    (contains, "comparison", "paris", 0),
    (contains, "New and York", "New York", 0),
    (contains, "anything", "", 0),
    (numeric, "so 3 + 4 = 7.", "7", 1),
    (numeric, "The answer is 1,234.50 dollars for 3 of them", "1234.5", 1),
    (numeric, "#### -12", "-12", 1),
    (numeric, r"first 5, then \boxed{6}, not 7", "6", 1),
    (numeric, "3/4", "0.75", 1),
    (numeric, "2e-3", "0.002", 1),
    (numeric, "0.333", "1/3", 0),
    (numeric, "none", "7", 0),
    (numeric, "1/0", "1/0", 0),
    (numeric, "1e99999999", "1e99999999", 0),
    (letter, "B", "B", 1),
    (letter, "(B) because A is wrong", "B", 1),
    (letter, "**C**", "c", 1),
    (letter, "A is tempting, but the answer is (D).", "D", 1),
    (letter, "I think that B", "B", 1),
    (letter, "A or B", "A", 0),
    (letter, "A or B", "B", 0),
    (letter, "A dog, so C", "C", 1),
    (letter, "Because", "B", 0),
    (letter, "I don't know", "D", 0),
    (letter, r"\boxed{E}", "E", 1),
    (symbolic, r"... so \boxed{\frac{1}{2}}", "0.5", 1),
    (symbolic, r"\boxed{\boxed{3}}", "3", 1),
    (symbolic, "Therefore\nx = 4", "4", 1),
    (symbolic, "", "4", 0),
]


@pytest.mark.parametrize(("grade", "answer", "reference", "score"), CASES)
def test_by_hand(grade: Any, answer: str, reference: str, score: float) -> None:
    assert grade(answer, reference) == score


SAME = [
    (r"\dfrac{3}{4}", "3/4"),
    (r"\frac34", "0.75"),
    (r"2\sqrt{3}", r"\sqrt{12}"),
    (r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt 2}"),
    (r"1\frac{1}{2}", "3/2"),
    ("(x+1)^2", "x^2+2x+1"),
    (r"x(x-1)", "x^2 - x"),
    ("-2^2", "-4"),
    ("2^{-1}", "0.5"),
    ("2^3^2", "512"),
    (r"90^\circ", "90"),
    (r"50\%", "50"),
    (r"10\text{ cm}", "10"),
    ("10,000", "10000"),
    (r"\left(1, \frac{1}{2}\right)", "(1, 0.5)"),
    (r"\{1,2,3\}", r"\{3,2,1\}"),
    ("2, -3", "-3,2"),
    ("[0, 1)", "[0,1)"),
    (r"\sqrt[3]{-8}", "-2"),
    (r"\pi r^2", r"r^2\pi"),
    (r"e^{i\pi}", "-1"),
    (r"\sin(x)^2+\cos(x)^2", "1"),
    ("$x=5$.", "5"),
    (r"\sin^2 x", r"(\sin x)^2"),
    (r"\sin 2x", r"\sin(2x)"),
    (r"\sin x\cos x", r"\cos(x)\sin(x)"),
    (r"\text{Monday}", r"\text{Monday}"),
    (r"\ln(x^2) - 2\ln x + 3", r"3 + \ln(x^2) - 2\ln(x)"),
    ("|3-5|", "2"),
    ("a/b/c", r"\frac{a}{bc}"),
]
DIFFERENT = [
    ("1/3", "0.333"),
    ("(1,2)", "(2,1)"),
    ("[0,1)", "[0,1]"),
    (r"\{1,2\}", r"\{1,2,2\}"),
    (r"\sqrt{x^2}", "x"),
    ("x", "y"),
    ("x+1", "x-1"),
    ("1.0000000000001", "1"),
    ("9^{9^{9}}", "9^{9^{8}}"),
    ("1/0", "1"),
    ("__import__('os')", "0"),
    ("(" * 200 + "1" + ")" * 200, "1"),
    ("", ""),
    ("yes", "no"),
    ("10,00", "1000"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_same_results(one: str, other: str) -> None:
    assert equal(one, other)
    assert equal(other, one)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_results(one: str, other: str) -> None:
    assert not equal(one, other)
    assert not equal(other, one)


def test_the_last_whole_box_counts() -> None:
    assert boxed(r"\boxed{1} and \boxed{\frac{1}{2}} and \boxed{broken") == r"\frac{1}{2}"
    assert boxed("none") is None
    assert final("The answer is") == "The answer is"


@given(st.text(max_size=60), st.text(max_size=60))
def test_nothing_anybody_writes_breaks_a_grader(answer: str, reference: str) -> None:
    for name, grade in NAMED.items():
        assert grade(answer, reference) in {0.0, 1.0}, name


@given(st.text(alphabet=r"0123456789xyab+-*/^(){}[]|\,. frcsqtpi$%e", max_size=40))
def test_almost_mathematics_is_read_or_refused_and_equals_itself(text: str) -> None:
    assert equal(text, text) == bool(mathematics.plain(text))


def test_the_best_reference_counts_and_a_strange_grade_is_refused() -> None:
    assert ReferenceGrader(exact).score("b", ("a", "b")) == 1.0
    with pytest.raises(UsageError, match="a grader"):
        ReferenceGrader(exact).score("b", ())
    with pytest.raises(UsageError, match="a grader"):
        ReferenceGrader(lambda *_: float("nan")).score("b", ("a",))


def test_fractions_of_fractions() -> None:
    assert number("6 / 4") == number("1.5")


def _expression(rng: random.Random, depth: int) -> str:
    """A random expression that both readers understand."""
    if depth == 0:
        return rng.choice(["x", "y", str(rng.randint(1, 9)), f"{rng.randint(1, 9)}/{rng.randint(2, 9)}"])
    left, right = (f"({_expression(rng, depth - 1)})" for _ in range(2))
    return rng.choice(
        [f"{left}+{right}", f"{left}-{right}", f"{left}*{right}", f"{left}/{right}", f"{left}^2", f"-{left}"]
    )


@pytest.mark.skipif(
    importlib.util.find_spec("sympy") is None,
    reason="NO ORACLE HERE: sympy is not installed (it wants mpmath<1.4): pip install --no-deps sympy",
)
def test_equality_is_sympys() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import sympy
    rng = random.Random(7)
    agreed = {True: 0, False: 0}
    for _ in range(120):
        text = _expression(rng, 2)
        plain = sympy.sympify(text.replace("^", "**"), rational=True)
        if plain.has(sympy.zoo, sympy.nan):
            continue
        other = (
            sympy.expand(plain) if rng.random() < 0.6 else plain + rng.choice([0, sympy.Rational(1, 1000)])
        )
        same = sympy.simplify(plain - other) == 0
        assert equal(text, sympy.latex(other)) == same, (text, sympy.latex(other))
        agreed[same] += 1
    assert min(agreed.values()) > 10

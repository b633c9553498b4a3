"""A calculator: evaluates the one arithmetic expression in a question with sympy.

An expression consists of digits, points, brackets and + - * / with an operator between numbers. If there is
none, more than one, or one that is too long, there is no answer.
"""

from __future__ import annotations

import re
import tokenize

_STRETCH = re.compile(r"(?:-|\(\s*)*\d[\d\s().+*/×÷x-]*")
_CALCULATION = re.compile(r"\d\s*\)*\s*[-+*/]")
LONGEST = 60


def expression(question: str) -> str | None:
    """The one calculation in a question in Python's notation, None if there is none or several."""
    candidates = []
    for stretch in _STRETCH.findall(question):
        plain = re.sub(r"[x×]", "*", stretch).replace("÷", "/").strip().rstrip(".")
        if _CALCULATION.search(plain) and len(plain) <= LONGEST and "**" not in plain and "//" not in plain:
            candidates.append(plain)
    return candidates[0] if len(candidates) == 1 else None


def calculate(question: str) -> str | None:
    """The exact value of the one calculation in the question, as a whole number, fraction or decimal."""
    import sympy
    from sympy.parsing.sympy_parser import parse_expr

    text = expression(question)
    if text is None:
        return None
    try:
        value = parse_expr(text, evaluate=True)
    except (SyntaxError, TypeError, ValueError, tokenize.TokenError):
        return None
    return str(value) if isinstance(value, sympy.Number) and value.is_finite else None

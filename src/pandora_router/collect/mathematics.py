r"""Are two results equal? Numbers, expressions, tuples, intervals and sets, in LaTeX or plain text.

Both are read by a small parser (nothing is evaluated as code) and compared by value: rationals exactly,
everything else to nine digits. Variables are replaced by fixed numbers, some of them negative; it is very
unlikely that two different expressions agree at all of them. Results that cannot be parsed are compared as
text. Inputs that are too long, too deep or too large to compute are refused. Units are not supported:
\text{...}, degrees and per cent signs are removed.
"""

from __future__ import annotations

import cmath
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

Number = Fraction | complex

BITS = 20_000


def close(a: Number, b: Number) -> bool:
    """Whether two numbers are equal: rationals exactly, others to nine digits.

    Raises `OverflowError` if one of them is not finite.
    """
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a == b
    a, b = complex(a), complex(b)
    if not (cmath.isfinite(a) and cmath.isfinite(b)):
        raise OverflowError
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b), 1e-3)


def magnitude(value: Number) -> Number:
    """The absolute value."""
    return abs(value) if isinstance(value, Fraction) else complex(abs(value))


def power(base: Number, exponent: Number) -> Number:
    """base ** exponent: exact for rational results of moderate size, complex otherwise."""
    if isinstance(base, Fraction) and isinstance(exponent, Fraction):
        size = max(base.numerator.bit_length(), base.denominator.bit_length())
        if exponent.denominator == 1:
            if abs(exponent.numerator) * max(size, 1) > BITS:
                raise OverflowError("too large to compute")
            return base**exponent.numerator
        root = _exact_root(base, exponent.denominator)
        if root is not None:
            return power(root, Fraction(exponent.numerator))
    return complex(base) ** complex(exponent)


def _exact_root(base: Fraction, degree: int) -> Fraction | None:
    """The rational root, or None; negative numbers have one only for odd degrees."""
    if degree > 64 or (base < 0 and degree % 2 == 0) or abs(base) > 10**15:
        return None
    sign, root = (-1 if base < 0 else 1), abs(base)
    top, bottom = (round(part ** (1.0 / degree)) for part in (root.numerator, root.denominator))
    candidate = Fraction(sign * top, max(bottom, 1))
    return candidate if candidate**degree == base else None


Tree = Callable[[Mapping[str, Number]], Number]

LONGEST, DEEPEST = 500, 40
POINTS: tuple[tuple[int, int], ...] = ((7, 5), (-13, 11), (17, 29))
_TOKEN = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+|\\[a-zA-Z]+|[a-zA-Z]|\*\*|[-+*/^(){}\[\]|])")
_DROPPED = re.compile(
    r"\\(?:left|right|displaystyle|,|;|:|!|quad|qquad| )|\\(?:text|mathrm|mbox|textbf)\s*\{[^{}]*\}"
    r"|\^\s*\{?\\circ\}?|\\degree|\\?%|\\?\$|°"
)
FUNCTIONS: Mapping[str, Callable[[complex], complex]] = {
    "sin": cmath.sin,
    "cos": cmath.cos,
    "tan": cmath.tan,
    "ln": cmath.log,
    "log": cmath.log,
    "exp": cmath.exp,
}


def boxed(text: str) -> str | None:
    r"""The content of the last \boxed{...} with balanced braces, or None."""
    for start in reversed([opening.end() for opening in re.finditer(r"\\f?boxed\s*\{", text)]):
        depth = 1
        for at in range(start, len(text)):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            if depth == 0:
                return text[start:at].strip()
    return None


def equal(answer: str, reference: str) -> bool:
    """Whether two results are equal."""
    first, second = plain(answer), plain(reference)
    if not first or not second or max(len(first), len(second)) > LONGEST:
        return first == second != ""
    if first.replace(" ", "") == second.replace(" ", ""):
        return True
    (kind, parts), (kind2, parts2) = _parts(first), _parts(second)
    if kind != kind2 or len(parts) != len(parts2):
        return False
    if kind != "{}":
        return all(_same(a, b) for a, b in zip(parts, parts2, strict=True))
    left = list(parts2)
    for part in parts:
        match = next((i for i, b in enumerate(left) if _same(part, b)), None)
        if match is None:
            return False
        del left[match]
    return True


def plain(text: str) -> str:
    """The result without markup that does not change its value."""
    text = text.strip().strip("$").replace("\\(", "").replace("\\)", "").replace("\\[", "").replace("\\]", "")
    whole = re.fullmatch(r"\\(?:text|mathrm|mbox|textbf)\s*\{([^{}]*)\}", text)
    if whole:
        return whole[1].strip()
    text = _DROPPED.sub("", text).replace("−", "-").replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    text = text.replace("\\cdot", "*").replace("\\times", "*").replace("\\div", "/").replace("π", "\\pi ")
    text = re.sub(r"^\s*[a-zA-Z]\w*\s*(?:=|\\in\b)", "", text).strip().rstrip(".").strip()
    return re.sub(r"(?<![\d.])(\d{1,3})((?:(?:,|\{,\})\d{3})+)(?![\d,])", _ungrouped, text)


def _ungrouped(match: re.Match[str]) -> str:
    return re.sub(r"[,{}]", "", match[0])


def _parts(text: str) -> tuple[str, list[str]]:
    """Kind and elements of a collection: "{}" for sets and bare lists, "(]" and so on, "" for one result."""
    kind, inner = "{}", text
    if text.startswith("\\{") and text.endswith("\\}"):
        return "{}", _split(text[2:-2])
    if text[0] in "([" and text[-1] in ")]" and len(_split(text[1:-1])) > 1:
        kind, inner = text[0] + text[-1], text[1:-1]
    members = _split(inner)
    return (kind, members) if len(members) > 1 else ("", [text])


def _split(text: str) -> list[str]:
    members, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            members.append("")
        else:
            members[-1] += character
    return members


def _same(answer: str, reference: str) -> bool:
    try:
        first, second = parse(answer), parse(reference)
        letters = sorted(first[1] | second[1])
        for numerator, denominator in POINTS if letters else POINTS[:1]:
            at = {x: Fraction(numerator * (k + 2) + k, denominator + k) for k, x in enumerate(letters)}
            if not close(first[0](at), second[0](at)):
                return False
    except (ValueError, ArithmeticError):
        return answer.replace(" ", "") == reference.replace(" ", "")
    return True


def parse(text: str) -> tuple[Tree, set[str]]:
    """A function of the variables, and their names; raises `ValueError` if the text is not an expression."""
    tokens, at = [], 0
    text = text.strip()
    while at < len(text):
        token = _TOKEN.match(text, at)
        if not token:
            raise ValueError(f"no expression at {text[at : at + 10]!r}")
        tokens.append(token[1])
        at = token.end()
    reader = _Reader(tokens)
    tree = reader.sum()
    if reader.at != len(tokens):
        raise ValueError("something follows the expression")
    return tree, reader.letters


@dataclass
class _Reader:
    """Recursive descent parser: sum > product > signed > power > atom."""

    tokens: list[str]
    at: int = 0
    depth: int = 0

    def __post_init__(self) -> None:
        self.letters: set[str] = set()

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, expected: str | None = None) -> str:
        token = self.peek()
        if not token or (expected is not None and token != expected):
            raise ValueError(f"expected {expected or 'more'}")
        self.at += 1
        return token

    def sum(self) -> Tree:
        self.depth += 1
        if self.depth > DEEPEST:
            raise ValueError("too deep")
        tree = self.product()
        while self.peek() in {"+", "-"}:
            sign, left, right = (1 if self.take() == "+" else -1), tree, self.product()
            tree = lambda at, a=left, b=right, s=sign: a(at) + s * b(at)  # type: ignore[misc]  # noqa: E731
        self.depth -= 1
        return tree

    def product(self) -> Tree:
        tree = self.signed()
        while (token := self.peek()) and token not in {"+", "-", ")", "}", "]", "|"}:
            division = token == "/"
            if token in {"*", "/"}:
                self.take()
            left, right = tree, self.signed() if token in {"*", "/"} else self.power()
            tree = (lambda at, a=left, b=right: a(at) / b(at)) if division else _times(left, right)  # type: ignore[misc]
        return tree

    def signed(self) -> Tree:
        if self.peek() in {"-", "+"}:
            sign = -1 if self.take() == "-" else 1
            inner = self.signed()
            return lambda at: sign * inner(at)
        return self.power()

    def power(self) -> Tree:
        base = self.atom()
        if self.peek() not in {"^", "**"}:
            return base
        self.take()
        exponent = self.group() if self.peek() == "{" else self.signed()
        return lambda at: power(base(at), exponent(at))

    def group(self) -> Tree:
        self.take("{")
        tree = self.sum()
        self.take("}")
        return tree

    def argument(self) -> Tree:
        r"""The argument of \frac and \sqrt: a group or one digit."""
        if self.peek() == "{":
            return self.group()
        token = self.take()
        if not token.isdigit():
            return self._named(token)
        self.tokens[self.at - 1 : self.at] = list(token)
        value = Fraction(token[0])
        return lambda _: value

    def atom(self) -> Tree:
        token = self.take()
        if token[0].isdigit() or token[0] == ".":
            return self._numeral(Fraction(token))
        if token in {"(", "{", "[", "|"}:
            tree = self.sum()
            self.take({"(": ")", "{": "}", "[": "]", "|": "|"}[token])
            return tree if token != "|" else lambda at: magnitude(tree(at))
        return self._named(token)

    def _numeral(self, value: Fraction) -> Tree:
        """A number; an integer directly before a fraction of numbers makes a mixed numeral (1 1/2)."""
        if self.peek() == "\\frac" and value.denominator == 1:
            before = len(self.letters)
            fraction = self.atom()
            if len(self.letters) == before:
                return lambda at: value + fraction(at)
            return lambda at: value * fraction(at)
        return lambda _: value

    def _named(self, token: str) -> Tree:
        name = token.lstrip("\\")
        if name == "frac":
            over, under = self.argument(), self.argument()
            return lambda at: over(at) / under(at)
        if name == "sqrt":
            return self._root()
        if name in FUNCTIONS and token != name:
            return self._function(FUNCTIONS[name])
        constant = {"\\pi": complex(math.pi), "e": complex(math.e), "i": 1j}.get(token)
        if constant is not None:
            return lambda _: constant
        if len(token) > 1 and name not in {"alpha", "beta", "theta", "lambda", "mu", "phi", "sigma"}:
            raise ValueError(f"unknown {token}")
        if not name.isalpha():
            raise ValueError(f"unexpected {token}")
        self.letters.add(token)
        return lambda at: at[token]

    def _function(self, function: Callable[[complex], complex]) -> Tree:
        r"""A function and its argument: \sin(x)^2 and \sin^2 x are squares, \sin 2x is the sine of 2x."""
        exponent: Tree | None = None
        if self.peek() == "^":
            self.take()
            exponent = self.group() if self.peek() == "{" else self.atom()
        if self.peek() in {"(", "{"}:
            inner = self.atom()
        else:
            inner = self.power()
            while self.peek()[:1].isalnum() or self.peek() == "\\pi":
                inner = _times(inner, self.power())
        once: Tree = lambda at: function(complex(inner(at)))  # noqa: E731
        return once if exponent is None else lambda at: power(once(at), exponent(at))

    def _root(self) -> Tree:
        degree: Tree = lambda _: Fraction(2)  # noqa: E731
        if self.peek() == "[":
            self.take()
            degree = self.sum()
            self.take("]")
        inner = self.argument() if self.peek() != "(" else self.atom()
        return lambda at: power(inner(at), 1 / degree(at))


def _times(a: Tree, b: Tree) -> Tree:
    return lambda at: a(at) * b(at)

"""Texts: characters that are safe on a terminal or in a name, similar names, values for JSON, money.

Prompts, names of specialists, columns and files, and replies of servers come from outside. A terminal obeys
escape sequences inside them (ESC, the C1 controls) and shows bidirectional overrides in another order than
they are stored; invisible characters make two different names look the same.
"""

from __future__ import annotations

import difflib
import math
import re
import unicodedata
from collections.abc import Collection, Mapping
from typing import Any

_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
SMALLEST = 1e-10
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def printable(text: str) -> str:
    r"""Return `text` with every character a terminal would obey, or not show, written as an escape.

    Newline and tab stay. C0 and C1 controls, zero-width and bidirectional marks, line and paragraph
    separators and lone surrogates become `\x1b`, `\u202e` and so on, as in a Python literal.

    >>> print(printable("red \x1b[31m, hidden \u200b"))
    red \x1b[31m, hidden \u200b
    """
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def lone_surrogate(text: str) -> int | None:
    r"""Return the position of the first half of a surrogate pair in `text`, or None if there is none.

    JSON can spell such a half (`"\ud800"`); it is no character and cannot be written as UTF-8.
    """
    if text.isascii():
        return None
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return error.start
    return None


def unfit_for_name(name: str) -> str | None:
    r"""Say what is wrong with a name of a specialist or a column, or return None.

    A name has no control or invisible characters and no white space at its ends: nobody could see or type
    the difference.

    >>> unfit_for_name("gpt\u200b-4")
    "the invisible character '\\u200b' (ZERO WIDTH SPACE)"
    """
    if name != name.strip():
        return "white space at one end"
    for character in "" if name.isprintable() else name:
        if unicodedata.category(character) in _INVISIBLE:
            label = unicodedata.name(character, "a control character")
            return f"the invisible character {character!a} ({label})"
    return None


def did_you_mean(word: str, words: Collection[str], otherwise: str = "") -> str:
    """Advice for an unknown name: the most similar one among `words`, or `otherwise` if none is similar.

    >>> did_you_mean("polcy", ["policy", "prices"])
    "Did you mean 'policy'?"
    """
    near = difflib.get_close_matches(word, words, 1, 0.5)
    return f"Did you mean {near[0]!r}?" if near else otherwise


def json_values(value: Any) -> Any:
    """Return `value` in types of JSON: NaN and infinities, which JSON does not have, become None.

    >>> json_values({"mean": (0.5, float("nan")), 3: True})
    {'mean': [0.5, None], '3': True}
    """
    if isinstance(value, Mapping):
        return {str(name): json_values(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [json_values(part) for part in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value


def counted(number: int, noun: str) -> str:
    """Return a number of things as people say it.

    >>> counted(1, "prompt"), counted(0, "prompt"), counted(2000, "prompt")
    ('1 prompt', '0 prompts', '2,000 prompts')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def money(amount: float, currency: str = "$", significant: int = 2) -> str:
    """Return an amount of money as people read it, the sign before the currency.

    It has two decimals, or as many as show `significant` digits of a small amount; zeros after the second
    decimal are left out. Amounts below `SMALLEST` are rounding errors of sums and shown as zero. A currency
    of several letters stands behind the number; an empty one is left out.

    >>> [money(x) for x in (1234.5, 0.25, 0.0031, -0.00044, 0.00000271, -1e-17)]
    ['$1,234.50', '$0.25', '$0.0031', '-$0.00044', '$0.0000027', '$0.00']
    >>> money(-2, "USD"), money(0.123456, significant=6), money(0.00004561, "", 4)
    ('-2.00 USD', '$0.123456', '0.00004561')
    """
    size = 0.0 if abs(amount) < SMALLEST else abs(amount)
    digits = max(2, significant - 1 - math.floor(math.log10(size))) if size else 2
    whole, _, cents = f"{size:,.{digits}f}".partition(".")
    text = f"{whole}.{cents.rstrip('0'):0<2}"
    sign = "-" if amount < 0 and size else ""
    return f"{sign}{currency}{text}" if len(currency) <= 1 else f"{sign}{text} {currency}"

"""Values of a YAML file, checked one by one: what is wrong is said with the key it stands under.

It knows kinds of values (numbers, texts, lists), not what an experiment is.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import numpy as np

from pandora_router.errors import UsageError


def mapping(where: str, content: object, allowed: list[str]) -> dict[str, Any]:
    """Keys with values, none but the allowed ones; an unknown key is told with the nearest."""
    if not isinstance(content, dict):
        raise UsageError(
            where, expected="keys with values", came=type(content).__name__, do="See `data: ...`."
        )
    for key in content:
        if key not in allowed:
            near = difflib.get_close_matches(str(key), allowed, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else "Leave it out."
            raise UsageError(
                f"{where}: key {key!r}",
                expected=f"one of {', '.join(allowed)}",
                came="an unknown key",
                do=hint,
            )
    return dict(content)


def number(where: str, value: object, *, least: float = 0.0) -> float:
    """A finite number, `least` or more."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < np.inf:
        raise UsageError(where, expected=f"a number, {least:g} or more", came=repr(value), do="Correct it.")
    return float(value)


def whole(where: str, value: object, *, least: int = 0) -> int:
    """A whole number."""
    found = number(where, value, least=least)
    if found != int(found):
        raise UsageError(where, expected="a whole number", came=repr(value), do="Round it.")
    return int(found)


def text(where: str, value: object) -> str:
    """A text."""
    if not isinstance(value, str):
        raise UsageError(where, expected="a text", came=repr(value), do="Put it in quotes.")
    return value


def truth(where: str, value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise UsageError(where, expected="true or false", came=repr(value), do="Write one of them.")
    return value


def several(where: str, value: object) -> list[Any]:
    """A list with something in it."""
    if not isinstance(value, list) or not value:
        raise UsageError(where, expected="a list, not empty", came=repr(value), do="Write [first, second].")
    return value


def amounts(where: str, value: object) -> Mapping[str, float]:
    """A number, zero or more, per name; a list of names gives each 0."""
    if isinstance(value, list):
        return {text(where, name): 0.0 for name in several(where, value)}
    if not isinstance(value, dict) or not value:
        raise UsageError(where, expected="names, with a fee each", came=repr(value), do="Write {name: fee}.")
    return {text(where, name): number(f"{where}: {name}", fee) for name, fee in value.items()}


def numbers(where: str, value: object, *, least: int = 1) -> tuple[int, ...]:
    """A list of whole numbers, each once, ascending or not."""
    found = tuple(whole(where, one, least=least) for one in several(where, value))
    if len(set(found)) != len(found):
        raise UsageError(where, expected="each number once", came=repr(value), do="Leave the second out.")
    return found

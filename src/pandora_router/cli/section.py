"""A mapping of a YAML file that is read key by key and refuses what nobody asked for.

Errors name the place in the file; a key that nobody knows is answered with the nearest one that is known.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from pandora_router.errors import UsageError


class Section:
    """Part of a configuration: `place` is where it stands, `keys` are all it may hold."""

    def __init__(self, place: str, content: object, keys: Sequence[str] | None = None) -> None:
        self.place = place
        if not isinstance(content, Mapping) or not all(isinstance(key, str) for key in content):
            raise self.refusal("names with values under them", _shown(content), "Mind the indentation.")
        self.content: Mapping[str, Any] = content
        for key in content if keys is not None else ():
            self._know(key, keys or ())

    def _know(self, key: str, keys: Sequence[str]) -> None:
        if key not in keys:
            near = difflib.get_close_matches(key, keys, n=1, cutoff=0.5)
            do = f"Did you mean {near[0]!r}?" if near else "Take it out."
            raise self.refusal(f"keys among {', '.join(keys)}", repr(key), do)

    def refusal(self, expected: str, came: str, do: str) -> UsageError:
        """An error that names the place."""
        return UsageError(self.place, expected=expected, came=came, do=do)

    def text(self, key: str, default: str | None = None) -> str:
        """A text that is not empty, unless the default is."""
        value = self.content.get(key, default)
        if not isinstance(value, str) or (not value and default != ""):
            raise UsageError(
                f"{self.place}.{key}", expected="a text", came=_shown(value), do="Fill it in, with quotes."
            )
        return value

    def number(self, key: str, default: float | None = None, *, least: float = 0.0) -> float:
        """A finite number."""
        value = self.content.get(key, default)
        good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if value is None or not good or value < least:
            expected = f"a number of at least {least:g}"
            raise UsageError(f"{self.place}.{key}", expected=expected, came=_shown(value), do="State it.")
        return float(value)

    def count(self, key: str, default: int, *, least: int = 1) -> int:
        """A whole number."""
        value = self.number(key, default, least=least)
        if value != int(value):
            expected = "a whole number"
            raise UsageError(f"{self.place}.{key}", expected=expected, came=f"{value}", do="Round it.")
        return int(value)

    def flag(self, key: str) -> bool:
        """True or false, false if absent."""
        value = self.content.get(key, False)
        if not isinstance(value, bool):
            expected = "true or false"
            raise UsageError(f"{self.place}.{key}", expected=expected, came=_shown(value), do="Say which.")
        return value

    def section(self, key: str, keys: Sequence[str] | None = None) -> Section:
        """The mapping under a key; an absent one is an error."""
        return Section(f"{self.place}.{key}", self.content.get(key), keys)

    def one_of(self, key: str, names: Sequence[str], default: str | None = None) -> str:
        """One of some names, or an error with the nearest."""
        value = self.text(key, default)
        if value not in names:
            near = difflib.get_close_matches(value, names, n=1, cutoff=0.5)
            do = f"Did you mean {near[0]!r}?" if near else "Name one of them."
            expected = f"one of {', '.join(names)}" if names else "a name that is defined"
            raise UsageError(f"{self.place}.{key}", expected=expected, came=repr(value), do=do)
        return value


class _Strict(yaml.SafeLoader):  # type: ignore[misc]
    """YAML that refuses a key said twice."""


def _mapping(loader: _Strict, node: yaml.MappingNode) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise yaml.YAMLError(f"{key!r} on line {key_node.start_mark.line + 1} is no name")
        if key in found:
            raise yaml.YAMLError(f"{key!r} stands twice (line {key_node.start_mark.line + 1})")
        found[key] = loader.construct_object(value_node, deep=True)
    return found


_Strict.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read_yaml(path: Path) -> object:
    """The content of a YAML file; nothing in it can run code, and no key stands twice."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _Strict)  # a SafeLoader
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        came = " ".join(str(error).split())[:300]
        raise UsageError(path.name, expected="a YAML file", came=came, do="Mend the file.") from error


def _shown(value: object) -> str:
    return "nothing" if value is None else repr(value)[:80]

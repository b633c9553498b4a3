"""HTML elements. Text is escaped by construction: only what `tag` and `markup` return passes as markup.

>>> tag("p", "1 < 2", tag("b", "!"), class_="x", hidden=True)
'<p class="x" hidden>1 &lt; 2<b>!</b></p>'
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import TypeAlias

EMPTY = frozenset({"input", "meta", "link", "br", "hr", "img"})


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


Child: TypeAlias = "str | Html | int | Iterable[Child] | None"


def markup(*children: Child) -> Html:
    """The children one after the other; texts are escaped, None is left out, iterables are flattened."""
    return Html("".join(_parts(children)))


def tag(element: str, /, *children: Child, **attributes: str | int | bool | None) -> Html:
    """An element. `class_` stands for `class`, and `_` inside a name for `-`; None and False are left out."""
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    inside = "" if element in EMPTY else f"{markup(*children)}</{element}>"
    return Html(f"<{element}{written}>{inside}")


def _attribute(key: str, value: str | int | bool | None) -> str:
    named = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {named}" if value is True else f' {named}="{html.escape(str(value))}"'


def _parts(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if child is None:
            continue
        if isinstance(child, Html):
            yield child
        elif isinstance(child, str | int):
            yield html.escape(str(child))
        else:
            yield from _parts(child)

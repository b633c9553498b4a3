"""Formulas of the documentation as MathML, which browsers draw without scripts or fonts of others.

A formula is a block marked `math`, in LaTeX: hosts of Markdown typeset it as it stands. For the site,
mkdocs calls `fence` for each (`mkdocs.yml`, custom_fences), in the environment of `make site`.
"""

from __future__ import annotations

from typing import Any


def fence(source: str, *_: Any, **__: Any) -> str:
    """The HTML of a block `math`. Beside `source`, arguments of superfences are not used."""
    from latex2mathml.converter import convert

    style = "overflow: auto hidden; padding: 0.3em 0"
    return f'<div class="formula" style="{style}">{convert(source, display="block")}</div>'

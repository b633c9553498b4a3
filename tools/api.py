"""Write the reference of the public interface from its docstrings: `python -m tools.api FOLDER`.

One Markdown page with every name in `pandora_router.__all__`: signature, docstring, public methods and
properties. Ends with exit code 1 if a public name, method or property has no docstring.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import pandora_router


def signature(thing: object) -> str:
    """Return the signature of a class or function as written in the source; empty for other things."""
    if not callable(thing):
        return ""
    try:
        return str(inspect.signature(thing)).replace("'", "")
    except ValueError:  # protocols and enumerations written in C
        return "(...)"


def members(kind: type) -> Iterator[tuple[str, object]]:
    """Yield the public methods and properties that `kind` itself defines."""
    for name, member in vars(kind).items():
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if not name.startswith("_") and (inspect.isfunction(function) or isinstance(function, property)):
            yield name, function


def section(name: str, thing: object) -> Iterator[str]:
    """Yield the lines about one public name."""
    yield f"## `{name}{signature(thing) if inspect.isclass(thing) or inspect.isfunction(thing) else ''}`\n"
    if not (inspect.isclass(thing) or inspect.isfunction(thing)):
        yield f"The constant `{thing!r}`.\n"
        return
    yield f"From `{thing.__module__}`.\n\n{documented(name, thing)}\n"
    if inspect.isclass(thing):
        for member, function in members(thing):
            shown = "" if isinstance(function, property) else signature(function)
            yield f"### `{name}.{member}{shown}`\n\n{documented(f'{name}.{member}', function)}\n"


def documented(name: str, thing: object) -> str:
    """Return the docstring of `thing`; ends the program if it has none."""
    text = inspect.getdoc(thing)
    if not text:
        sys.exit(f"{name} has no docstring")
    return text


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["# pandora_router\n", inspect.getdoc(pandora_router) or "", ""]
    for name in pandora_router.__all__:
        lines += section(name, getattr(pandora_router, name))
    (folder / "api.md").write_text("\n".join(lines), encoding="utf-8")
    print(folder / "api.md")


if __name__ == "__main__":
    main()

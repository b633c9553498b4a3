"""Write the reference of the public interface from its docstrings: `python -m tools.api FOLDER`.

One Markdown page with every name in `pandora_router.__all__`: signature, docstring, public methods and
properties. Ends with exit code 1 if a public name, method or property has no docstring.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pandora_router

ARGUMENT = re.compile(r"([a-z_][a-z_0-9, ]*): (.*)", re.DOTALL)
"""A line of a docstring that explains arguments or fields: their names, then what they mean."""


def signature(thing: object) -> str:
    """Return the signature of a class or function as written in the source; empty for other things."""
    if not callable(thing):
        return ""
    try:
        text = str(inspect.signature(thing)).replace("'", "")
        return text.removesuffix(" -> None") if inspect.isclass(thing) else text
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
    yield f"## `{name}`\n"
    if not (inspect.isclass(thing) or inspect.isfunction(thing)):
        yield f"The constant `{thing!r}`.\n"
        return
    yield f"{code(name + signature(thing))}\n\nFrom `{thing.__module__}`.\n\n{documented(name, thing)}\n"
    if inspect.isclass(thing):
        for member, function in members(thing):
            yield f"### `{name}.{member}`\n"
            if not isinstance(function, property):
                yield f"{code(member + signature(function))}\n"
            yield f"{documented(f'{name}.{member}', function)}\n"


def documented(name: str, thing: object) -> str:
    """Return the docstring of `thing` in Markdown; ends the program if it has none."""
    text = inspect.getdoc(thing)
    if not text:
        sys.exit(f"{name} has no docstring")
    return markdown(text)


def code(text: str) -> str:
    """Return a block of Python code."""
    return f"```python\n{text}\n```"


def markdown(text: str) -> str:
    """Return a docstring in Markdown: examples become code, explained arguments a list."""
    parts = []
    for part in re.split(r"\n\s*\n", text):
        entries = [" ".join(entry.split()) for entry in re.split(r"\n(?! )", part)]
        if part.startswith(">>>"):
            part = code(part)
        elif not part.startswith(" ") and all(ARGUMENT.fullmatch(entry) for entry in entries):
            part = "\n".join(ARGUMENT.sub(r"- `\1`: \2", entry) for entry in entries)
        parts.append(part)
    return "\n\n".join(parts)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["# pandora_router\n", documented("pandora_router", pandora_router), ""]
    for name in pandora_router.__all__:
        lines += section(name, getattr(pandora_router, name))
    (folder / "api.md").write_text("\n".join(lines), encoding="utf-8")
    print(folder / "api.md")


if __name__ == "__main__":
    main()

"""Files and lines of each room of `src`: `python -m tools.rooms [REVISION ...] [--page PAGE]`.

Prints a Markdown table with a pair of columns (modules, lines) for each revision of git and for the working
tree; the last column counts the lines of the working tree that are code: neither blank nor a
comment nor inside a docstring. A revision is anything `git rev-parse` knows. `--page` also writes the table
between the marks of a Markdown page.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tools.pages import put

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "src/pandora_router/"


def git(*words: str) -> str:
    """What git prints."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def room_of(path: str) -> str:
    """The package below pandora_router that a file is in; "top level" for a module without one."""
    first, _, rest = path.removeprefix(PACKAGE).partition("/")
    return first if rest else "top level"


def at_revision(revision: str) -> list[tuple[str, str]]:
    """Path and content of each module at a revision."""
    paths = git("ls-tree", "-r", "--name-only", revision, PACKAGE).splitlines()
    return [(path, git("show", f"{revision}:{path}")) for path in paths if path.endswith(".py")]


def here() -> list[tuple[str, str]]:
    """Path and content of each module in the working tree."""
    files = sorted((ROOT / PACKAGE).rglob("*.py"))
    return [(file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")) for file in files]


def code_lines(text: str) -> int:
    """The lines of a module that are neither blank nor comment nor docstring."""
    inside: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            inside.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#") and i not in inside for i, line in lines
    )


def counts(modules: Iterable[tuple[str, str]]) -> tuple[Counter[str], Counter[str]]:
    """Modules and lines by room, with their sums under "all"."""
    files, lines = Counter[str](), Counter[str]()
    for path, text in modules:
        for room in (room_of(path), "all"):
            files[room] += 1
            lines[room] += len(text.splitlines())
    return files, lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revisions", nargs="*")
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    printed = table(asked.revisions)
    print(printed)
    if asked.page is not None:
        put(printed, asked.page)


def table(revisions: list[str]) -> str:
    """The table in Markdown."""
    now = here()
    columns = [counts(at_revision(revision)) for revision in revisions] + [counts(now)]
    code = Counter[str]()
    for path, text in now:
        for room in (room_of(path), "all"):
            code[room] += code_lines(text)
    heads = [f"{kind} {name}" for name in (*revisions, "now") for kind in ("modules", "lines")]
    lines = ["| room | " + " | ".join(heads) + " | code now |", "| --- |" + " ---: |" * (len(heads) + 1)]
    rooms = sorted({room for files, _ in columns for room in files} - {"all"})
    for room in (*rooms, "all"):
        cells = [f"{counter[room]:,}" if counter[room] else "–" for pair in columns for counter in pair]
        lines.append(f"| {room} | " + " | ".join(cells) + f" | {code[room]:,} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()

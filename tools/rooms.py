"""Files and lines of each room of `src`: `python -m tools.rooms [REVISION ...] [--page PAGE]`.

Prints a Markdown table with a pair of columns (modules, lines) for each revision of git and for the working
tree; the last column counts the lines of the working tree that are code: neither blank nor a
comment nor inside a docstring. A revision is anything `git rev-parse` knows. `--page` also writes the table
between the marks of a Markdown page.

`--since` compares with the revision `BASE`, before which the product of today had fewer parts. Its second
table says which modules of today hold what was added since (`ADDED`), and its last line how many modules,
lines and lines of code are left for the product as it was: whatever was added inside other modules is still
in these. The command fails if a module in `ADDED` is gone, was there before, or is one of before renamed.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from tools.pages import put

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "src/pandora_router/"
BASE = "3b6e3d4"
ADDED: dict[str, tuple[str, ...]] = {
    "learning from traffic: refits, trials, exploration, labels, alerts": (
        "learn/__init__", "learn/drift", "learn/evidence", "learn/exploration", "learn/mix", "learn/pace",
        "learn/refit",
        "cli/label", "cli/learn", "dashboard/learnt", "estimators/pooled", "gateway/http/learner",
        "gateway/incumbent", "gateway/lessons", "gateway/request/trial", "store/alerts", "store/explored",
        "store/versions",
    ),
    "goals and the curve: budgets as a tree, looks side by side": (
        "cli/curve", "config/worth", "dashboard/net_value", "router/curve", "router/curve_picture",
        "search/groups", "search/prefixes", "store/budgets",
    ),
    "prices of every part of a call, catalogue of prices, efforts": (
        "cli/price_notes", "config/price_parts", "config/shorthand", "prices/catalogue", "wires/demand",
        "wires/own_members",
    ),
    "agents: connect, wires that meet, MCP, conversations": (
        "cli/connect", "config/callables", "gateway/http/mcp_tools", "router/conversation", "specialists/mcp",
        "wires/translation", "wires/translation_chat", "wires/translation_messages",
        "wires/translation_responses", "wires/translator",
    ),
    "doctor, several hosts on PostgreSQL": (
        "cli/doctor", "cli/probes", "store/pipeline", "store/pipeline_writer",
    ),
    "laws of estimates by likelihood, public benchmarks": ("calibrate/laws", "cli/bench"),
}  # fmt: skip
"""What the product of today does and that of `BASE` did not, and the modules that hold it."""


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
    parser.add_argument("--since", action="store_true", help="what was added, and what is left without it")
    asked = parser.parse_args()
    printed = table([*asked.revisions, *([BASE] if asked.since else [])])
    if asked.since:
        printed += "\n\n" + account(here())
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


def account(now: Sequence[tuple[str, str]]) -> str:
    """What the modules in `ADDED` hold of `now`, and what is left, in Markdown."""
    check(git("diff", "--name-only", "-M", "--diff-filter=A", BASE, "--", PACKAGE).split())
    lines = ["| added since | modules | lines | code |", "| --- | ---: | ---: | ---: |"]
    for what, names in ADDED.items():
        chosen = [text for path, text in now if path.removeprefix(PACKAGE).removesuffix(".py") in names]
        lines.append(f"| {what} | {sizes(chosen)} |")
    every = {f"{PACKAGE}{name}.py" for names in ADDED.values() for name in names}
    lines.append(f"| all of it | {sizes([text for path, text in now if path in every])} |")
    lines.append(f"| what is left | {sizes([text for path, text in now if path not in every])} |")
    return "\n".join(lines)


def check(new: Collection[str]) -> None:
    """End with an error if `ADDED` names a module that is not new since `BASE`."""
    names = [f"{PACKAGE}{name}.py" for names in ADDED.values() for name in names]
    wrong = [name for name in names if name not in new or names.count(name) > 1]
    if wrong:
        sys.exit(f"not new since {BASE}, gone, or named twice: {', '.join(wrong)}")


def sizes(texts: Sequence[str]) -> str:
    """Modules, lines and lines of code as cells of a table."""
    lines = sum(len(text.splitlines()) for text in texts)
    return f"{len(texts):,} | {lines:,} | {sum(map(code_lines, texts)):,}"


if __name__ == "__main__":
    main()

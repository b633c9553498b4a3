"""The pages of the documentation as tests read them: code blocks by the word behind their fence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"))]
PAGES += sorted((ROOT / "docs").glob("*.md"))


@dataclass(frozen=True)
class Block:
    """A fenced block: `info` is what stands behind the opening fence, `fence` that line as it is."""

    info: str
    text: str
    fence: str


def code_blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, in order; raises `ValueError` if the last one has no end."""
    found: list[Block] = []
    fence, lines = "", list[str]()
    for line in text.splitlines():
        if not line.lstrip().startswith("```"):
            lines.append(line)
        elif not fence:
            fence, lines = line, []
        else:
            found.append(Block(fence.strip().strip("`").strip(), "\n".join(lines) + "\n", fence))
            fence = ""
    if fence:
        raise ValueError(f"a block without an end: {fence}")
    return found


def blocks(text: str, info: str) -> list[str]:
    """The texts of the blocks of one kind."""
    return [block.text for block in code_blocks(text) if block.info == info]


def prose(text: str) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^ *```.*?^ *```$", "", text, flags=re.S | re.M)


def commands(text: str) -> list[str]:
    """Every command of a page: the lines of `sh` blocks, continued lines joined, and what is in backticks."""
    script = "\n".join(blocks(text, "sh")).replace("\\\n", " ")
    return script.splitlines() + [
        " ".join(words.split()) for words in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose(text))
    ]

"""No snippet of the documentation is left out: each block has a kind, each kind a test that runs or reads it.

| kind | what happens to it |
|---|---|
| sh | `test_guides.py` runs it with bash |
| zsh, fish | `test_guides.py` runs what they evaluate |
| python | doctests (`make check`), that of litellm in `conformance/suites/litellm_plugin.py` |
| yaml | read by the tests that `READ` names |
| text | output: must hold no command |
| math | formulas in LaTeX, drawn by `make site`: braces and environments must be closed |

Commands between backticks are not run, but their programs, targets, extras and options must exist.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import click
import pytest

from pandora_router.cli.main import main
from tests.docs.test_guides import scripts
from tests.support.pages import PAGES, ROOT, blocks, code_blocks, commands, prose
from tests.support.stand_ins import CHECKS, check_docker

READ = {
    "agents": "docs/test_guides.py",
    "goals": "router/test_goal_cli.py",
    "collect": "cli/test_collect_cli.py",
    "experiments": "docs/test_guides.py",
    "litellm": "conformance/suites/litellm_plugin.py",
    "market-network": "docs/test_guides.py",
    "serve": "docs/test_guides.py",
}
"""Which test reads the YAML blocks of which page."""
PROGRAM = re.compile(r"(pandora|python -m|pip install|make|docker|curl|node) [\w.'\"-]")


@pytest.fixture(params=PAGES, ids=lambda path: path.stem)
def page(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_every_block_is_run_or_read(page: Path) -> None:
    text = page.read_text("utf-8")
    run = {block for one in scripts() for block in one.values[1]}
    for block in code_blocks(text):
        assert block.fence.startswith("```"), f"an indented fence: {block.fence}"
        if block.info == "sh":
            assert block.text in run
            assert "&&" not in block.text, "bash goes on if the first command of such a line fails"
        elif block.info == "python":
            assert ROOT / "docs" in page.parents or page.name == "README.md", (
                "doctest does not read this page"
            )
            assert block.text.startswith(">>> ") or page.stem == "litellm", block.text
        elif block.info == "yaml":
            assert page.stem in READ, "no test reads this block"
            assert re.search(rf'{page.stem}(\.md)?"', (ROOT / "tests" / READ[page.stem]).read_text())
        elif block.info == "text":
            assert not [line for line in block.text.splitlines() if PROGRAM.match(line.strip())], block.text
        elif block.info == "math":
            begun = re.findall(r"\\begin\{(\w+)\}", block.text)
            assert begun == re.findall(r"\\end\{(\w+)\}", block.text)
            assert set(begun) <= {"array"}, "the site draws no other"
            assert block.text.count("{") == block.text.count("}")
            assert len(re.findall(r"\\left\b", block.text)) == len(re.findall(r"\\right\b", block.text))
        else:
            assert (block.info, page.stem) in {("zsh", "command-line"), ("fish", "command-line")}, block.fence


def test_no_command_stands_in_an_indented_block(page: Path) -> None:
    """Four spaces make a block too, which no test would find."""
    indented = [line for line in prose(page.read_text("utf-8")).splitlines() if re.match(r" {4}|\t", line)]
    assert [line for line in indented if PROGRAM.match(line.strip().removeprefix("$ "))] == []


def test_every_yaml_page_is_still_there() -> None:
    assert set(READ) == {page.stem for page in PAGES if blocks(page.read_text("utf-8"), "yaml")}


def options(command: click.Command) -> set[str]:
    found = {name for part in command.params for name in (*part.opts, *part.secondary_opts)}
    return {"--help", "-h", "--version"} | found


def test_every_command_of_pandora_exists_with_its_options(page: Path) -> None:
    lines = [line for line in commands(page.read_text("utf-8")) if re.match(r"pandora [a-z-]", line)]
    for line in lines:
        words = shlex.split(line, comments=True)[1:]
        command: click.Command = main
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            if not re.fullmatch(r"[a-z-]+", words[0]):
                break  # VERB, ... or a choice such as serve|join
            found = command.get_command(click.Context(command), words.pop(0))
            assert found is not None, line
            command = found
        known = options(command)
        for word in words:
            if re.match(r"--?[a-z]", word):
                assert word.partition("=")[0] in known, f"{line}: {word}"


def test_every_other_command_of_a_page_names_what_exists(page: Path) -> None:
    for line in commands(page.read_text("utf-8")):
        words = shlex.split(line, comments=True) if PROGRAM.match(line) else []
        if words[:2] == ["python", "-m"]:
            sources = module_sources(words[2])
            assert sources, line
            for word in words[3:]:
                assert not word.startswith("-") or f'"{word}"' in sources, f"{line}: {word}"
        elif words and words[0] in ("pip", "make"):
            CHECKS[words[0]](words[1:])
        elif words[:2] == ["docker", "compose"]:
            check_docker(words[1:])


def module_sources(name: str) -> str:
    """The text of a module of the repository, or of all modules of a package; empty if there is none."""
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        return ""
    origin = Path(found.origin)
    files = origin.parent.rglob("*.py") if found.submodule_search_locations else [origin]
    return "\n".join(file.read_text() for file in files)

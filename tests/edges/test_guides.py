"""The guides as they stand: `sh` blocks are run, YAML blocks are read, options of `pandora` lines exist.

Python blocks are doctests, which `make check` runs.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from pandora_router.cli.main import main
from pandora_router.config import read_config
from pandora_router.config.experiments import experiment
from tests.support.tables import generate

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(text: str, kind: str = r"\w*") -> list[str]:
    """The code blocks of a page; only those of one kind if it is given."""
    return re.findall(rf"^```{kind}\n(.*?)^```", text, flags=re.S | re.M)


def scripts() -> list[Any]:
    """The commands of each page, in order; the sections of the README stand each for itself."""
    found = []
    for page in PAGES:
        text = page.read_text("utf-8")
        parts = re.split(r"^## ", text, flags=re.M) if page.name == "README.md" else [text]
        for part in parts:
            if script := "\n".join(blocks(part, "sh")):
                title = part.partition("\n")[0] if len(parts) > 1 else page.stem
                found.append(pytest.param(script, id=title))
    return found


def test_there_are_guides_to_run() -> None:
    assert {"ten-minutes", "read-a-decision", "fit-and-route", "Your own data"} <= {
        one.id for one in scripts()
    }


def have_data(folder: Path) -> None:
    """Write the files that the guides say the reader has: scored answers of two models, and prompts."""
    table = generate(n=200, m=2)
    cells = [
        f'"{prompt}",{name},{table.score[i, j]:g}'
        for i, prompt in enumerate(table.prompts)
        for j, name in enumerate(("small", "large"))
    ]
    (folder / "scores.csv").write_text("\n".join(["prompt,llm,score", *cells]) + "\n")
    (folder / "prompts.csv").write_text("\n".join(["prompt", *table.prompts[:5]]) + "\n")


@pytest.mark.slow
@pytest.mark.parametrize("script", scripts())
def test_the_commands_of_a_guide_run(script: str, tmp_path: Path) -> None:
    command = tmp_path / "bin" / "pandora"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pandora_router "$@"\n')
    command.chmod(0o755)
    source = os.pathsep.join(part for part in sys.path if part)
    found = {**os.environ, "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": source}
    work = tmp_path / "work"
    work.mkdir()
    have_data(work)
    run = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=work,
        env=found,
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout


def spoken(text: str) -> list[str]:
    """The command lines that begin with `pandora`, in blocks and between single backticks."""
    lines = [line.strip() for block in blocks(text) for line in block.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"(?<!`)`(pandora [^`]+)`(?!`)", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))
    return [line for line in lines if re.match(r"pandora [a-z-]", line)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_page_exists_with_its_options(page: Path) -> None:
    for line in spoken(page.read_text("utf-8")):
        words = shlex.split(line.replace("\n", " "), comments=True)[1:]
        command: click.Command = main
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            if not re.fullmatch(r"[a-z-]+", words[0]):
                break  # VERB, ... or a choice such as serve|join
            found = command.get_command(click.Context(command), words.pop(0))
            assert found is not None, line
            command = found
        known = {"--help", "-h", "--version"}
        known |= {name for part in command.params for name in (*part.opts, *part.secondary_opts)}
        for word in words:
            if re.match(r"--?[a-z]", word) and isinstance(command, click.Command):
                assert word.partition("=")[0] in known, f"{line}: {word}"


def merged(under: Any, over: Any) -> Any:
    """The mapping `under` with the members of `over`, at all levels."""
    if not isinstance(under, dict) or not isinstance(over, dict):
        return over
    return under | {name: merged(under.get(name), value) for name, value in over.items()}


def test_the_files_of_the_page_on_the_gateway_are_read(tmp_path: Path) -> None:
    first, second = (
        yaml.safe_load(block) for block in blocks((ROOT / "docs" / "serve.md").read_text(), "yaml")
    )
    for document in (first, merged(first, second)):
        (tmp_path / "pandora.yaml").write_text(yaml.safe_dump(document))
        config = read_config(tmp_path / "pandora.yaml")
        assert set(config.specialists) == {"small", "large"}
    assert set(config.serve.profiles) == {"frugal", "fast", "careful"}


def test_the_experiment_of_its_page_is_read() -> None:
    (block,) = blocks((ROOT / "docs" / "experiments.md").read_text(), "yaml")
    made = experiment("mine", yaml.safe_load(block))
    assert made.peek == 400


def test_every_yaml_block_is_read_by_some_test() -> None:
    pages = {page.stem for page in PAGES if blocks(page.read_text("utf-8"), "yaml")}
    # that of collect is read in test_collect_cli.py, that of litellm in conformance/suites/litellm_plugin.py
    assert pages == {"collect", "experiments", "litellm", "serve"}

"""The commands of the guides, run as they stand: every `sh` block of a page, in order, in one folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGES = sorted(page for page in DOCS.glob("*.md") if "```sh\n" in page.read_text("utf-8"))


def test_there_are_guides_to_run() -> None:
    assert {"ten-minutes.md", "read-a-decision.md"} <= {page.name for page in PAGES}


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_guide_run(page: Path, tmp_path: Path) -> None:
    script = "\n".join(re.findall(r"```sh\n(.*?)```", page.read_text("utf-8"), flags=re.S))
    command = tmp_path / "bin" / "pandora"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pandora_router "$@"\n')
    command.chmod(0o755)
    source = os.pathsep.join(part for part in sys.path if part)
    found = {**os.environ, "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": source}
    work = tmp_path / "work"
    work.mkdir()
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

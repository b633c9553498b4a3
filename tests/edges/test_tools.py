"""Commands of the repository: sizes of installs and the list of benchmarks."""

from __future__ import annotations

import runpy
import sys

import pytest
from tools.sizes import required


def test_extras_that_name_extras_of_this_project_are_followed_in_pyproject() -> None:
    """Not in the metadata of the copy that is installed, which may be that of an older version."""
    names = {one.name for one in required(["serve"])}
    assert {"uvicorn", "aiohttp", "numpy"} <= names
    assert "pandora-router" not in names
    assert "pyarrow" not in names
    assert "pyarrow" in {one.name for one in required(["demo"])}


def test_every_benchmark_is_listed_with_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--list"])
    runpy.run_module("benchmarks", run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert {"loop", "router", "gateway", "peers"} <= {line.split()[0] for line in lines}
    assert all(len(line.split()) > 3 for line in lines)

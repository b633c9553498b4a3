"""Commands of the repository: sizes of installs and the list of benchmarks."""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path

import pytest
from tools.api import markdown
from tools.mutants import MUTANTS, PACKAGE, ROOT, Mutant
from tools.pages import put, table_rows
from tools.sizes import EXTRAS, required, write_table
from tools.starts import IMPORTS, cpu_seconds, start_times

from pandora_router.errors import UsageError


def test_extras_that_name_extras_of_this_project_are_followed_in_pyproject() -> None:
    """Not in the metadata of the copy that is installed, which may be that of an older version."""
    names = {one.name for one in required(["serve"])}
    assert {"uvicorn", "httptools", "numpy"} <= names
    assert "pandora-router" not in names
    assert "pyarrow" not in names
    assert "pyarrow" in {one.name for one in required(["demo"])}


def test_the_start_of_every_extra_imports_modules_that_exist() -> None:
    assert set(EXTRAS) <= set(IMPORTS)
    modules = [name for line in IMPORTS.values() for name in line.split(", ") if name.startswith("pandora")]
    assert [name for name in modules if importlib.util.find_spec(name) is None] == []


def test_start_times_count_the_seconds_of_the_process_and_what_cannot_start() -> None:
    assert cpu_seconds("-c", "import no_such_module_here", repeats=1) is None
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    seconds = cpu_seconds("-c", busy, repeats=1)
    assert seconds is not None
    assert seconds >= 0.3
    times = dict(start_times(None))
    assert list(times) == ["python alone", "import pandora_router", "pandora --help"]
    assert all(times.values())


def test_measured_numbers_are_put_between_the_marks_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\nBy hand.\n")
    with pytest.raises(UsageError, match="measured: begin"):
        put("| a |", page)
    page.write_text("By hand.\n\n<!-- measured: begin -->\n<!-- measured: end -->\n\nBelow.\n")
    for number in ("1", "2", "2"):
        put(f"| part | n |\n|---|---|\n| one | {number} |\n", page)
    assert page.read_text().startswith("By hand.\n\n")
    assert page.read_text().endswith("| one | 2 |\n\n<!-- measured: end -->\n\nBelow.\n")
    assert table_rows(page) == [["one", "2"]]


def test_the_table_of_sizes_keeps_rows_of_what_does_not_start_here(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- measured: begin -->\n\n| install | MB | seconds |\n|---|---|---|\n"
        "| `[litellm]` | 629 | 4.2 |\n\n<!-- measured: end -->\n"
    )
    core = {"python alone": 0.01, "import pandora_router": 0.021, "pandora --help": 0.05}
    write_table(page, {"http": {"[http] imported": 0.1}, "litellm": {"[litellm] imported": None}, None: core})
    kept, http, whole = table_rows(page)
    assert kept == ["`[litellm]`", "629", "4.2"]
    assert (http[0], http[2]) == ("`[http]`", "0.10")
    assert (whole[0], whole[2]) == ("`pandora-router`", "0.02 to import, 0.05 for `pandora --help`")
    assert 300 < float(whole[1]) < float(http[1]) < 1000
    assert "\n|---|---|---|\n" in page.read_text()


def test_the_reference_shows_examples_as_code_and_arguments_as_a_list() -> None:
    docstring = (
        "Add.\n\na, b: numbers;\n    finite.\nround: digits.\n\n>>> 1 + 1\n2\n\nEdges: none.\n\n    a + b"
    )
    parts = markdown(docstring).split("\n\n")
    assert parts == [
        "Add.",
        "- `a, b`: numbers; finite.\n- `round`: digits.",
        "```python\n>>> 1 + 1\n2\n```",
        "Edges: none.",
        "    a + b",
    ]


def test_every_benchmark_is_listed_with_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--list"])
    runpy.run_module("benchmarks", run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert {"loop", "router", "gateway", "peers"} <= {line.split()[0] for line in lines}
    assert all(len(line.split()) > 3 for line in lines)


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_every_mutant_changes_one_piece_of_code_that_is_there(mutant: Mutant) -> None:
    changed = mutant.of((ROOT / "src" / PACKAGE / mutant.path).read_text(encoding="utf-8"))
    compile(changed, mutant.path, "exec")
    for test in mutant.tests:
        path, _, name = test.partition("::")
        assert f"def {name}" in (ROOT / path).read_text(encoding="utf-8")

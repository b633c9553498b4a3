"""Compiled kernels never outlive a change in a file they were compiled from."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandora_router
from pandora_router.search.kernels import drop_stale

ASK = "import pandora_router as pr; print(pr.committing_payoffs(pr.Independent([.5, .4], [.2, .3], .01))[0])"


def ask(root: Path) -> float:
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env={**os.environ, "PYTHONPATH": str(root)},
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def test_a_change_in_a_called_kernel_is_seen(tmp_path: Path) -> None:
    package = Path(pandora_router.__file__).parent
    copy = tmp_path / "pandora_router"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    before = ask(tmp_path)
    assert before == ask(tmp_path)
    special = copy / "search" / "kernels" / "special.py"  # `payoffs` calls it, and holds a compiled copy
    text = special.read_text()
    changed = text.replace("return LAST  # not 0", "return 0.5  # not 0").replace(
        "row = CELLS[cell]", "row = CELLS[cell] * 0.5"
    )
    assert changed != text
    special.write_text(changed)
    assert ask(tmp_path) != before


def test_only_old_files_go(tmp_path: Path) -> None:
    source, old, new = tmp_path / "a.py", tmp_path / "old.nbi", tmp_path / "new.nbc"
    for file, age in ((old, 100), (source, 50), (new, 10)):
        file.write_text("")
        os.utime(file, (1e9 - age, 1e9 - age))
    drop_stale(tmp_path, [source])
    assert not old.exists()
    assert new.exists()

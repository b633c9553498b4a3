"""Decisions never wait for a compiler, and compiled code never outlives a change in what it was made from."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pandora_router
from pandora_router.search import Always, drive, kernels, reveal
from tests.support.instances import ONE_TIER, make, policies_for
from tests.support.routers import fitted

HASH = "from pandora_router.search.kernels import fingerprint; print(fingerprint())"
DECIDE = """
import json, sys
import numpy as np
from pandora_router.search import drive, kernels
from tests.support.instances import ONE_TIER, make, policies_for
made = {}
for kind in ONE_TIER:
    for seed in range(4):
        spec = make(kind, np.random.default_rng(seed), 4, grouped=seed > 1, refunded=seed / 3)
        for policy in policies_for(kind):
            made[f"{kind} {seed} {policy}"] = repr(drive(policy, spec.state(), spec.opener()).actions)
print(json.dumps(made))
print("numba" in sys.modules, kernels.ready())
"""

SLOW = ("numba", "lightgbm", "sklearn", "scipy.stats", "pydantic", "pyarrow", "httptools")
"""Libraries that take from a tenth of a second to a second to import."""
COLD = f"""
import sys
from pandora_router.cli.main import main
main(["route", "-r", sys.argv[1], "add up 4 and 9", "--json"], standalone_mode=False)
print([name for name in {SLOW} if name in sys.modules])
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package without compiled code, in a folder of its own."""
    here = Path(pandora_router.__file__).parent
    copy = tmp_path / "lib" / "pandora_router"
    shutil.copytree(here, copy, ignore=shutil.ignore_patterns("__pycache__", "demo"))
    return copy


def ask(package: Path, code: str, home: Path, *words: str, **environment: str) -> list[str]:
    """Run code with this copy of the package and this home and temporary folder; return its lines."""
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        env={
            **{k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")},
            "PYTHONPATH": f"{package.parent}{os.pathsep}{root}",
            "HOME": str(home),
            "TMPDIR": str(home),
            **environment,
        },
        cwd=package.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_plain_twins_take_the_same_decisions_without_numba(package: Path, tmp_path: Path) -> None:
    """With nothing compiled every policy decides as the compiled kernels do, and numba is not imported."""
    (tmp_path / "home").mkdir()
    made, last = ask(package, DECIDE, tmp_path / "home")
    assert last == "False None"
    kernels.load()
    for name, actions in json.loads(made).items():
        kind, seed, policy = next(
            (kind, int(name[len(kind) + 1]), policy)
            for kind in ONE_TIER
            for policy in policies_for(kind)
            if name.startswith(f"{kind} ") and name.endswith(f" {policy}")
        )
        spec = make(kind, np.random.default_rng(seed), 4, grouped=seed > 1, refunded=seed / 3)
        assert repr(drive(policy, spec.state(), spec.opener()).actions) == actions, name


def test_where_nothing_can_be_written_decisions_are_plain(package: Path, tmp_path: Path) -> None:
    """A package that cannot be written and no home folder: no error, no compiler."""
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where a folder is wanted")
    (package / "search" / "kernels" / "__pycache__").write_text("another")
    code = (
        "import pandora_router as pr; from pandora_router.search import kernels\n"
        "state = pr.State(pr.Joint([.5, .4], [[.04, .01], [.01, .09]], .01))\n"
        "print(pr.drive(pr.KnowledgeGradient(), state, pr.reveal([.6, .7])).selected, kernels.ready())\n"
        "print([kernels._writable(place) for place in kernels.places()])"
    )
    decided, writable = ask(
        package, code, tmp_path, HOME=str(blocked), TMPDIR="/dev/null", PYTHONDONTWRITEBYTECODE="1"
    )
    assert decided == "1 None"
    assert writable.startswith("[False, False")


def test_the_first_decision_imports_no_compiler_and_no_library_that_only_a_fit_needs(
    package: Path, tmp_path: Path
) -> None:
    """With nothing compiled `pandora route` answers in under two seconds: most of that would be imports."""
    always_buying = replace(fitted(), policy=Always())
    always_buying.save(tmp_path / "router")
    *told, imported = ask(package, COLD, tmp_path, str(tmp_path / "router"))
    assert json.loads("".join(told))["purchases"]
    assert imported == "[]"


def test_a_change_in_any_source_means_another_folder(package: Path, tmp_path: Path) -> None:
    """By content: the date of each file is set back to what it was."""
    folders = ask(package, HASH, tmp_path)
    for changed in ("search/kernels/special.py", "index_tables.py", "boxes/joint.py"):
        source = package / changed
        date = source.stat().st_mtime
        source.write_text(source.read_text() + "\n# changed\n")
        os.utime(source, (date, date))
        folders += ask(package, HASH, tmp_path)
    assert len(set(folders)) == 4, folders
    other = package / "search" / "policies.py"
    other.write_text(other.read_text() + "\n# no kernel is made from this\n")
    assert ask(package, HASH, tmp_path) == folders[-1:]


def test_a_package_in_another_place_finds_no_code_and_a_new_date_changes_nothing(
    package: Path, tmp_path: Path
) -> None:
    """Numba keeps code by the path of its source: of two copies with one folder only one would find it."""
    here = ask(package, HASH, tmp_path)
    for source in (package / "search" / "kernels").glob("*.py"):
        os.utime(source, (1e9, 1e9))
    assert ask(package, HASH, tmp_path) == here
    other = tmp_path / "other" / "pandora_router"
    shutil.copytree(package, other)
    assert ask(other, HASH, tmp_path) != here


def test_warming_leaves_nothing_to_compile(tmp_path: Path) -> None:
    """After `warm` no decision meets a kernel for arguments it was not compiled for."""
    folder = kernels.warm()
    assert folder is None or (folder / kernels.MARKER).is_file()
    compiled = kernels.ready()
    assert compiled is not None
    names = [name for names in kernels.ENTRIES.values() for name in names]
    before = {name: len(vars(compiled)[name].signatures) for name in names}
    for kind in ONE_TIER:
        for seed in range(4):
            spec = make(
                kind,
                np.random.default_rng(seed),
                3,
                grouped=seed > 1,
                outside=bool(seed % 2),
                refunded=seed / 3,
            )
            for policy in policies_for(kind):
                drive(policy, spec.state(), reveal(spec.values))
    after = {name: len(vars(compiled)[name].signatures) for name in names}
    assert {n: after[n] for n in names if after[n] > max(before[n], 1)} == {}


def test_code_that_others_could_have_written_is_not_trusted(tmp_path: Path) -> None:
    folder = tmp_path / "kernels-x"
    folder.mkdir(mode=0o700)
    assert kernels._private(folder)
    folder.chmod(0o777)
    assert not kernels._private(folder)

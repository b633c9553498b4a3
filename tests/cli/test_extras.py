"""Every command with every extra alone: help always works, and a missing extra is named in one line."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
import venv
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pandora_router.cli.main import EXTRAS
from tests.support.command import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ALONE = sorted(set(PROJECT["optional-dependencies"]) - {"dev"})
WHOLE = {"serve": {"serve", "http"}, "demo": {"demo", "fit", "local"}}
"""An extra, and the extras whose packages it installs."""

# Runs every command in this process, with --help and bare, in a folder with the files of a first hour.
# Prints for each its exit code, its output, and the exception that was not turned into a message. Commands
# whose bare form works for minutes get the options that make them short.
EVERY_COMMAND = """
import json, socket, sys
hidden = set(json.loads(sys.argv[1]))

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
import click
from click.testing import CliRunner
from pandora_router.cli.main import main

taken = socket.create_server(("127.0.0.1", 0))
SHORT = {
    "demo": ["--table", "recorded"],
    "serve": ["--port", str(taken.getsockname()[1])],  # it would go on for ever
    **dict.fromkeys(("market simulate", "market shade", "warm"), ["--help"]),  # would compile for minutes
}

def leaves(command, path=()):
    if not isinstance(command, click.Group):
        return [path]
    context = click.Context(command)
    names = command.list_commands(context)
    return sum((leaves(command.get_command(context, name), (*path, name)) for name in names), [path])

def run(*words):
    result = CliRunner().invoke(main, words)
    expected = result.exception is None or isinstance(result.exception, SystemExit)
    odd = None if expected else repr(result.exception)
    return {"words": " ".join(words), "code": result.exit_code, "odd": odd, "text": result.output}

ran = [run("init"), run("keys", "add", "team")]
for path in leaves(main):
    ran += [run(*path, "--help"), run(*path, *SHORT.get(" ".join(path), []))]
print("\\nRAN" + json.dumps(ran))
"""


def every_command(python: Path | str, hidden: set[str], folder: Path) -> dict[str, dict[str, object]]:
    """Run all commands with this interpreter in `folder`; the result of each by its words."""
    done = subprocess.run(
        [str(python), "-c", EVERY_COMMAND, json.dumps(sorted(hidden))],
        cwd=folder, capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert "\nRAN" in done.stdout, done.stderr[-3000:]
    return {run["words"]: run for run in json.loads(done.stdout.partition("\nRAN")[2])}


def held(ran: dict[str, dict[str, object]]) -> None:
    """No command ended in an exception, every help was shown, and errors about packages are one line."""
    assert len(ran) > 60
    assert {words: run["odd"] for words, run in ran.items() if run["odd"]} == {}
    assert [w for w, run in ran.items() if w.endswith("--help") and run["code"] != 0] == []
    assert {run["code"] for run in ran.values()} <= {0, 1, 2}
    for run in ran.values():
        if "pip install '.[" in str(run["text"]) and run["code"]:
            assert len(str(run["text"]).strip().splitlines()) == 1, run


def test_every_package_of_an_extra_is_known_to_the_command() -> None:
    assert set(EXTRAS.values()) == set(ALONE)


def requirements(extra: str) -> set[str]:
    """Names of all packages that pip would install with this package and `extra`, by their metadata."""
    named: set[str] = set()
    waiting = [(canonicalize_name(PROJECT["name"]), frozenset({extra}))]
    while waiting:
        name, extras = waiting.pop()
        for text in metadata.requires(name) or ():
            need = Requirement(text)
            wanted = need.marker is None or any(need.marker.evaluate({"extra": e}) for e in (*extras, ""))
            if wanted and (needed := canonicalize_name(need.name)) not in named:
                named.add(needed)
                waiting.append((needed, frozenset(need.extras)))
    return named


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This package alone, installed by pip from a clone."""
    clone, target = tmp_path_factory.mktemp("clone"), tmp_path_factory.mktemp("package")
    shutil.copytree(ROOT / "src", clone / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, clone / file)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps"]
    pip += ["--no-build-isolation", "--target", str(target), str(clone)]
    done = subprocess.run(pip, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return target


def environment(home: Path, package: Path, names: set[str]) -> Path:
    """Make an environment: `package`, and links to the packages of these names. Returns its python."""
    venv.create(home, symlinks=True)
    site = next(home.glob("lib/python*/site-packages"))
    shutil.copytree(package, site, dirs_exist_ok=True)
    for name in names - {canonicalize_name(PROJECT["name"])}:
        files = metadata.distribution(name)
        for top in {
            file.parts[0] for file in files.files or () if file.parts[0] not in ("..", "__pycache__")
        }:
            link = site / top
            if not link.exists():
                link.symlink_to(Path(str(files.locate_file(top))))
    return home / "bin" / "python"


@pytest.mark.slow
@pytest.mark.parametrize("extra", ["", *ALONE])
def test_every_command_with_one_extra_alone(extra: str, package: Path, tmp_path: Path) -> None:
    """In an environment that has only the packages which the package with this extra declares.

    Where some of them are not installed here, nothing is installed: packages of other extras are hidden.
    """
    folder = tmp_path / "folder"
    folder.mkdir()
    try:
        names = requirements(extra)
    except metadata.PackageNotFoundError:
        there = WHOLE.get(extra, {extra})
        hidden = {package for package, of in EXTRAS.items() if of not in there}
        ran = every_command(sys.executable, hidden, folder)
    else:
        ran = every_command(environment(tmp_path / "environment", package, names), set(), folder)
    held(ran)
    assert ran["keys list"]["code"] == 0, ran["keys list"]  # a pandora.yaml is read without the gateway
    assert ran["log tail"]["code"] == 0, ran["log tail"]
    (serve,) = (run for words, run in ran.items() if words.startswith("serve --port"))
    assert ("expected a free address" in str(serve["text"])) == (extra == "serve")
    assert ("pip install '.[serve]'" in str(serve["text"])) == (extra != "serve")
    assert ("pip install '.[fit]'" in str(ran["fit"]["text"])) == (extra not in ("fit", "demo"))

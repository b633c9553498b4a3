"""A container as operators harden it: every file system read-only, an unprivileged user, no home folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import pandora_router
from pandora_router.router import Router
from tests.support import routers

NOBODY = "65534"
HARDENED = f"""
awk '{{print $2}}' /proc/self/mounts | while read -r place; do
  mount -o remount,bind,ro "$place" 2>/dev/null || true
done
exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups --no-new-privs "$@"
"""
PROBE = "import os, tempfile; print(os.getuid()); tempfile.TemporaryFile(dir='/tmp')"


def hardened(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command as nobody in a mount namespace of its own in which nothing can be written."""
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", HARDENED, "sh", *command],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LANG": "C.UTF-8", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A copy of the package without compiled code and a fitted router, in a folder that nobody may read."""
    if not shutil.which("unshare") or not shutil.which("setpriv") or hardened("true").returncode != 0:
        reason = "a read-only run as another user needs setpriv and the right to unshare --mount"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(f"NOT TESTED: {reason}")
    folder = Path(tempfile.mkdtemp())
    try:
        folder.chmod(0o755)
        shutil.copytree(
            Path(pandora_router.__file__).parent,
            folder / "lib" / "pandora_router",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        routers.fitted().save(folder / "router")
        yield folder
    finally:
        shutil.rmtree(folder)


def test_nothing_can_be_written_there(place: Path) -> None:
    done = hardened(sys.executable, "-c", PROBE)
    assert done.stdout.strip() == NOBODY
    assert "Read-only file system" in done.stderr


@pytest.mark.parametrize("words", [["route"], ["explain"]], ids=" ".join)
def test_the_first_decision_is_made_and_nothing_is_complained_about(place: Path, words: list[str]) -> None:
    prompt = "count the king"
    command = [sys.executable, "-W", "error", "-m", "pandora_router", *words, prompt, "--json"]
    done = hardened(*command, "-r", str(place / "router"), PYTHONPATH=str(place / "lib"))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    told = json.loads(done.stdout)
    decision = told if words == ["route"] else told["decision"]
    assert decision["specialist"] == Router.load(place / "router").route(prompt).specialist

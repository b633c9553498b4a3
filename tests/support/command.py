"""The command `pandora` as tests run it: in this process (`pandora`) or in one of its own (`start`)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from click.testing import CliRunner, Result

from pandora_router.cli.main import main

ROOT = Path(__file__).resolve().parents[2]


def pandora(*words: object, stdin: str | bytes | None = None) -> Result:
    """Run `pandora` with these words in this process; an error that it does not handle is raised."""
    return CliRunner().invoke(main, [str(word) for word in words], input=stdin, catch_exceptions=False)


def start(
    *words: object, stdin: int = subprocess.DEVNULL, stdout: int = subprocess.PIPE, **environment: str
) -> subprocess.Popen[str]:
    """Start `pandora` with these words in a process of its own; `environment` is added to ours."""
    command = [sys.executable, "-m", "pandora_router", *(str(word) for word in words)]
    ours = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), **environment}
    return subprocess.Popen(
        command,
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env=ours,
        cwd=ROOT,
        start_new_session=True,  # so that a test can interrupt it and its workers as a terminal would
    )


@contextmanager
def listening(process: subprocess.Popen[str], seconds: float = 300) -> Iterator[tuple[str, list[str]]]:
    """The address of a server that was started with its output in a pipe, once it listens, and its lines.

    At the end the process is terminated and waited for.
    """
    lines: list[str] = []
    printed = threading.Event()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if "Serving on" in line:
                printed.set()
        printed.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        assert printed.wait(seconds), lines
        address = re.search(r"http://\S+", "".join(lines))
        assert address is not None, lines
        yield address.group(), lines
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(60)
        reader.join(10)
        assert process.stdout is not None
        process.stdout.close()

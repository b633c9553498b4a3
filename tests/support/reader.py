"""A reader of the documentation at a terminal: runs the commands of a page in a folder, with bash.

`pandora` and `python` are those of this environment. A `pandora` command that serves goes on in the
background as if it had a terminal of its own, and the next command is run once it says that it is ready.
Commands that would install something, or need a container engine, are checked instead of run
(`tests.support.stand_ins`).
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.stand_ins import CHECKS

PANDORA = """#!/bin/sh
case "$1 $2" in
  "serve "* | "bid "* | "market serve") ;;
  *) exec "{python}" -m pandora_router "$@" ;;
esac
said=$(mktemp "{folder}/XXXXXX.served")
"{python}" -m pandora_router "$@" >"$said" 2>&1 </dev/null &
until grep -q "Stop with Ctrl-C" "$said"; do
  kill -0 $! 2>/dev/null || {{ cat "$said" >&2; exit 1; }}
  sleep 0.05
done
"""


def commands_in(folder: Path) -> Path:
    """Write the commands that stand before those of the machine to `folder`; returns it."""
    folder.mkdir()
    programs = {"pandora": PANDORA, "python": '#!/bin/sh\nexec "{python}" "$@"\n'}
    for name in CHECKS:
        programs[name] = f'#!/bin/sh\nexec "{{python}}" -m tests.support.stand_ins {name} "$@"\n'
    for name, text in programs.items():
        (folder / name).write_text(text.format(python=sys.executable, folder=folder))
        (folder / name).chmod(0o755)
    return folder


def run(blocks: Sequence[str], work: Path, seconds: float = 900) -> str:
    """What the commands of `blocks` print, run one after the other in the folder `work`.

    Between two blocks a reader waits until what was started in the background is ready. At the end servers
    are terminated, with all processes that were started here. Raises `AssertionError` with what was printed
    if a command fails, or if a server printed a traceback.
    """
    served = commands_in(work.parent / "bin")
    environment = {
        **os.environ,
        "PATH": f"{served}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(part for part in sys.path if part),
    }
    ended, held = (
        os.pipe()
    )  # every process started here inherits `held`: once all are gone, `ended` is at its end
    process = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", "\nwait\n".join(blocks)],
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=[held],
        start_new_session=True,
    )
    os.close(held)
    try:
        printed, errors = process.communicate(timeout=seconds)
    finally:
        for number, patience in ((signal.SIGTERM, 60.0), (signal.SIGKILL, 10.0)):
            if not select.select([ended], [], [], 0.0)[0]:
                os.killpg(process.pid, number)
                select.select([ended], [], [], patience)
        os.close(ended)
    said = "".join(file.read_text() for file in sorted(served.glob("*.served")))
    assert process.returncode == 0, f"{errors[-3000:]}\n{said[-3000:]}"
    assert "Traceback" not in said, said
    return printed

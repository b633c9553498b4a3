"""Run a program as a container would: read-only root, a user without rights, a few writable folders.

Uses a mount namespace of its own (`unshare`), so no container engine is needed, but root is. Where the
interpreter lies in a folder that only root may read, the user gets the right to read every file and no other.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

NOBODY = 65534


@cache
def possible() -> bool:
    """Whether this process may make a mount namespace with a read-only root."""
    if (
        sys.platform != "linux"
        or os.geteuid() != 0
        or not shutil.which("unshare")
        or not shutil.which("setpriv")
    ):
        return False
    probe = ["unshare", "--mount", "--propagation", "private", "mount", "-o", "remount,bind,ro", "/"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def sealed(
    command: Sequence[str], writable: Sequence[Path], environment: Mapping[str, str], **options: Any
) -> subprocess.Popen[str]:
    """Start `command` where only the folders `writable` can be written, each an empty memory file system.

    Of the environment only `environment` is passed on.
    """
    steps = ["mount -o remount,bind,ro /"]
    steps += [f"mount -t tmpfs -o mode=1777 tmpfs {shlex.quote(str(folder))}" for folder in writable]
    rights = " ".join(
        f"--{kind}=-all,+dac_read_search" for kind in ("bounding-set", "inh-caps", "ambient-caps")
    )
    user = f"--reuid={NOBODY} --regid={NOBODY} --clear-groups --no-new-privs {rights}"
    steps.append(f"exec setpriv {user} -- {shlex.join(command)}")
    script = " && ".join(steps)
    return subprocess.Popen(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
        env=dict(environment),
        text=True,
        **options,
    )

"""A real PostgreSQL server of our own on 127.0.0.1, for the tests of the store."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def programs() -> Path | None:
    """The folder with `initdb` and `postgres`: Debian keeps them out of PATH."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))
    at = found[-1] if found else shutil.which("initdb")
    return Path(at).resolve().parent if at else None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _unprivileged() -> dict[str, int]:
    """PostgreSQL refuses to run as root: become the user that its Debian package makes, or nobody."""
    if os.getuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid}
    return {}


class Server:
    """A PostgreSQL server that can be killed and started again."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self.programs, self.port = folder, programs, free_port()
        self.who = _unprivileged()
        self.process: subprocess.Popen[bytes] | None = None
        if self.who:
            os.chown(folder, self.who["user"], self.who["group"])
        self._run(
            "initdb", "-D", str(folder / "data"), "-U", "pandora", "-A", "trust", "-E", "UTF8", "--no-sync"
        )

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self.programs / program, *arguments],
            check=True,
            capture_output=True,
            cwd=self.folder,
            **self.who,
        )

    @property
    def url(self) -> str:
        return f"postgresql://pandora@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start it and wait until it answers.

        After a kill it refuses to start until the processes of the one before have noticed: so it is tried
        again.
        """
        for _ in range(400):
            if self.process is None or self.process.poll() is not None:
                self._launch()
            ready = subprocess.run(
                [self.programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port), "-t", "1"],
                check=False,
            )
            if ready.returncode == 0:
                return
            time.sleep(0.1)
        raise RuntimeError("PostgreSQL did not start")

    def _launch(self) -> None:
        settings = (
            "fsync=off",
            "unix_socket_directories=",
            "listen_addresses=127.0.0.1",
            "max_connections=40",
        )
        options = [part for setting in settings for part in ("-c", setting)]
        self.process = subprocess.Popen(
            [self.programs / "postgres", "-D", str(self.folder / "data"), "-p", str(self.port), *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
            **self.who,
        )

    def kill(self) -> None:
        """Kill the server and the processes of its connections, which would live on for a moment."""
        assert self.process is not None
        pid = self.process.pid
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        self.process.kill()
        self.process.wait()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        while any(Path(f"/proc/{child}").exists() for child in children):
            time.sleep(0.01)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)  # fast shutdown: does not wait for clients
            self.process.wait(30)


@contextmanager
def postgresql() -> Iterator[Server]:
    """A running server in a folder of its own; everything is removed at the end."""
    at = programs()
    assert at is not None
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        server = Server(Path(folder), at)
        server.start()
        try:
            yield server
        finally:
            server.stop()

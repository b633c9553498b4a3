"""Build the image of the Dockerfile without a container engine, and run commands in it as an engine would.

    python -m tools.image FOLDER [--base ROOT]

Every instruction of the Dockerfile is carried out, in order: RUN in a chroot over an overlay, COPY with the
rules of .dockerignore. The image after FROM is replaced by the file system in ROOT, by default that of this
machine with its own Python: nothing of it is changed, since all writes go to FOLDER. Needs root on Linux.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
APART = ("unshare", "--mount", "--propagation", "private", "sh", "-c")
"""Runs a shell script in a mount namespace of its own: its mounts end with it."""
KEPT = (
    "PIP_",
    "SSL_CERT",
    "REQUESTS_CA",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
)
"""Beginnings of the environment variables that steps of the build see: how packages are reached from here."""


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile as (name, arguments), comments removed and continued lines joined."""
    whole = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    found = (line.split(None, 1) for line in whole.splitlines() if line.strip())
    return [(name, " ".join(rest.split())) for name, rest in found]


@dataclass
class Stage:
    """One stage of a build: `layer` holds what its steps wrote, over the file system `base`."""

    layer: Path
    base: Path = Path("/")
    user: str = "0:0"
    folder: str = "/"
    environment: dict[str, str] = field(default_factory=dict)

    def prepare(self) -> None:
        """Make the layer, with the mount points, and let every user reach the interpreter of this machine."""
        for name in ("config", "data", "proc", "dev", "tmp"):
            (self.layer / name).mkdir(parents=True, exist_ok=True)
        (self.layer / "tmp").chmod(0o1777)
        self.environment["PATH"] = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        if self.base == Path("/"):
            self.environment["PATH"] = f"{sys.base_prefix}/bin:{self.environment['PATH']}"
            for parent in reversed(Path(sys.base_prefix).parents[:-1]):
                (self.layer / parent.relative_to("/")).mkdir(exist_ok=True)

    def script(self, mounts: Sequence[str]) -> str:
        """Shell commands that mount the stage, with `mounts` below it, and leave its root in $root."""
        work = self.layer.with_suffix(".work")
        work.mkdir(exist_ok=True)
        options = f"lowerdir={self.base},upperdir={self.layer},workdir={work}"
        steps = [
            f"root={shlex.quote(str(self.layer))}.root",
            'mkdir -p "$root"',
            f'mount -t overlay overlay -o {shlex.quote(options)} "$root"',
            'mount --bind /dev "$root/dev"',
            'mount -t proc proc "$root/proc"',
            *mounts,
        ]
        return " && ".join(steps)

    def build_step(self, command: str) -> None:
        """Run a shell command in the stage, as RUN does; raises `CalledProcessError` if it fails."""
        names = [f"/etc/{name}" for name in ("resolv.conf", "hosts") if (self.base / "etc" / name).exists()]
        mounts = [f'mount --bind {name} "$root{name}"' for name in names]
        script = self.script(mounts)
        inside = f"cd {shlex.quote(self.folder)} && {command}"
        kept = {name: value for name, value in os.environ.items() if name.startswith(KEPT)}
        subprocess.run(
            [*APART, f'{script} && exec chroot --userspec={self.user} "$root" sh -c "$0"', inside],
            env={**kept, "HOME": "/root", **self.environment},
            check=True,
        )

    def start(
        self,
        command: Sequence[str],
        config: Path,
        environment: Mapping[str, str],
        **options: Any,
    ) -> subprocess.Popen[str]:
        """Start `command` as `docker run --read-only --tmpfs /tmp --cap-drop ALL` does.

        `environment` is added to that of the image. `config` appears as /config and cannot be written; /tmp
        and /data are empty file systems in memory.
        """
        user, group = self.user.split(":")
        mounts = [
            'mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"',
            f'mount -t tmpfs -o mode=755,uid={user},gid={group} tmpfs "$root/data"',
            f'mount --bind {shlex.quote(str(config))} "$root/config"',
            'mount -o remount,bind,ro "$root/config"',
            'mount -o remount,ro "$root"',
        ]
        script = self.script(mounts)
        drop = shlex.join(self._unprivileged())
        inside = f'cd {shlex.quote(self.folder)} && exec "$@"'
        return subprocess.Popen(
            [
                *APART,
                f'{script} && exec chroot "$root" {drop} sh -c {shlex.quote(inside)} sh "$@"',
                "sh",
                *command,
            ],
            env={**self.environment, **environment},
            text=True,
            **options,
        )

    def inside(self, pid: int, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run `command` beside the process `pid` that `start` started, as `docker exec` does."""
        enter = ["nsenter", f"--target={pid}", "--mount", "--root", f"--wd=/proc/{pid}/cwd"]
        return subprocess.run(
            [*enter, *self._unprivileged(), *command],
            env=self.environment,
            text=True,
            capture_output=True,
            check=False,
        )

    def _unprivileged(self) -> list[str]:
        """The command that gives up all rights but those of the user of the image."""
        user, group = self.user.split(":")
        words = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--no-new-privs"]
        return [*words, "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"]


def copy(words: Sequence[str], context: Path, stages: Mapping[str, Stage], target: Stage) -> None:
    """Carry out COPY: from the folder of the Dockerfile, or with --from from an earlier stage."""
    flags = [word for word in words if word.startswith("--")]
    source, where = (word for word in words if not word.startswith("--"))
    place = target.layer / where.lstrip("/")
    if flags:
        shutil.copytree(
            stages[flags[0].removeprefix("--from=")].layer / source.lstrip("/"), place, symlinks=True
        )
        return
    if source != ".":
        raise ValueError(f"COPY {source}: only the whole folder is copied here")
    made = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for rule in (context / ".dockerignore").read_text().split():
        if rule.startswith("!"):
            name = rule.removeprefix("!")
            origin = context / name
            place.mkdir(parents=True, exist_ok=True)
            if origin.is_dir():
                shutil.copytree(origin, place / name, ignore=made)
            else:
                shutil.copy2(origin, place / name)


def build(folder: Path, context: Path = ROOT, base: Path = Path("/")) -> Stage:
    """Carry out the Dockerfile of `context` below the new folder `folder`; returns the last stage."""
    stages: dict[str, Stage] = {}
    stage = Stage(folder)
    for name, rest in instructions((context / "Dockerfile").read_text()):
        if name == "FROM":
            title = rest.split(" AS ")[1] if " AS " in rest else "last"
            stage = stages[title] = Stage(folder.resolve() / title, base)
            stage.prepare()
        elif name == "COPY":
            copy(rest.split(), context, stages, stage)
        elif name == "RUN":
            stage.build_step(rest)
        elif name == "ENV":
            old = {"PATH": stage.environment["PATH"]}
            pairs = (word.split("=", 1) for word in shlex.split(rest))
            stage.environment |= {key: value.replace("$PATH", old["PATH"]) for key, value in pairs}
        elif name == "USER":
            stage.user = rest
        elif name == "WORKDIR":
            stage.folder = rest
        elif name not in ("VOLUME", "EXPOSE", "HEALTHCHECK", "CMD"):
            raise ValueError(f"{name} is not carried out here")
    return stage


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--base", type=Path, default=Path("/"))
    asked = parser.parse_args()
    stage = build(asked.folder, base=asked.base)
    size = sum(file.lstat().st_size for file in stage.layer.rglob("*") if not file.is_symlink())
    print(f"{stage.layer}: {size / 1e6:,.0f} MB over {asked.base}")


if __name__ == "__main__":
    main()

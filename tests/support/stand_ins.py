"""Commands of the documentation that tests check instead of running them: `pip`, `make` and `docker`.

`python -m tests.support.stand_ins pip install ...` ends with an error if the real command could not work: an
extra or a target that does not exist, a flag that the container is not tested with. Nothing is installed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools.image import instructions
from tools.sizes import required

ROOT = Path(__file__).resolve().parents[2]
OURS = re.compile(r"(?:\.|pandora-router)(?:\[([\w,]+)\])?")


def check_pip(words: list[str]) -> None:
    """Our package with extras that exist, whose requirements admit the versions that CI installs."""
    assert words.pop(0) == "install", "only `pip install` is known here"
    makefile = (ROOT / "Makefile").read_text()
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    tested = {canonicalize_name(name): version for name, version in pins.items()}
    for word in words:
        if word == "--no-deps":
            continue
        named = OURS.fullmatch(word)
        if named is None:  # somebody else's package: one that the Makefile installs in the same way
            assert Requirement(word).name in makefile, f"CI never installs {word}"
            continue
        for part in required(named[1].split(",") if named[1] else []):
            version = tested.get(canonicalize_name(part.name))
            assert version is None or part.specifier.contains(version, prereleases=True), (part, version)


def check_make(words: list[str]) -> None:
    """Targets of the Makefile."""
    targets = set(re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text(), flags=re.M))
    assert words, "which target?"
    assert set(words) <= targets, f"no target {set(words) - targets}"


def check_docker(words: list[str]) -> None:
    """The image of our Dockerfile, run with what compose.yaml and tests/gateway/test_container.py give it."""
    verb, rest = words[0], words[1:]
    gateway = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["gateway"]
    if verb == "build":
        assert rest == ["-t", "pandora-router", "."], rest
        assert (ROOT / "Dockerfile").is_file()
        return
    if verb == "compose":
        assert rest == ["up"], rest
        return
    assert verb == "run", f"docker {verb} is not known here"
    named = dict(instructions((ROOT / "Dockerfile").read_text()))
    assert rest.pop() == "pandora-router"
    assert rest[:3] == ["--read-only", "--tmpfs", *gateway["tmpfs"]]
    assert gateway["read_only"] is True
    values = {"-v": list[str](), "-p": list[str](), "-e": list[str]()}
    for flag, value in zip(rest[3::2], rest[4::2], strict=True):
        values[flag].append(value)
    folders = [":".join(volume.split(":")[1:]) for volume in values["-v"]]
    assert folders == [":".join(volume.split(":")[1:]) for volume in gateway["volumes"]]
    assert values["-p"] == gateway["ports"]
    assert values["-p"][0].endswith(f":{named['EXPOSE']}")
    assert set(values["-e"]) <= set(gateway["environment"])


CHECKS = {"pip": check_pip, "make": check_make, "docker": check_docker}

if __name__ == "__main__":
    CHECKS[sys.argv[1]](sys.argv[2:])

"""What an install costs on disk, part by part: `python -m tools.sizes [EXTRA ...]`.

Follows the requirements in pyproject.toml, with the named extras, through the metadata of the packages that
are installed in this environment, and adds up the files of each. Packages that are required but not installed
are listed as missing. `--most MB` ends with exit code 1 if the sum is larger.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
MEGABYTE = 1e6


def required(extras: list[str]) -> list[Requirement]:
    """Return the requirements of this project with `extras`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = list(project["dependencies"])
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    return [Requirement(line) for line in lines]


def closure(wanted: list[Requirement]) -> tuple[dict[str, Distribution], set[str]]:
    """Return the installed packages that `wanted` needs, by name, and the names of those not installed."""
    found: dict[str, Distribution] = {}
    missing: set[str] = set()
    queue = list(wanted)
    seen: set[tuple[str, str]] = set()
    while queue:
        requirement = queue.pop()
        name = canonicalize_name(requirement.name)
        if (name, str(sorted(requirement.extras))) in seen:
            continue
        seen.add((name, str(sorted(requirement.extras))))
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            missing.add(name)
            continue
        for line in found[name].requires or []:
            part = Requirement(line)
            extras = requirement.extras or {""}
            if part.marker is None or any(part.marker.evaluate({"extra": extra}) for extra in extras):
                queue.append(part)
    return found, missing


def files_of(package: Distribution) -> list[Path]:
    """Return the files of a package, byte-code apart."""
    files = (Path(str(package.locate_file(file))) for file in package.files or [])
    return [file for file in files if file.suffix != ".pyc" and file.is_file()]


def size(files: list[Path]) -> float:
    """Return the size of `files` in MB."""
    return sum(file.stat().st_size for file in files) / MEGABYTE


def byte_code(files: list[Path]) -> list[Path]:
    """Return the files in which Python keeps `files` compiled."""
    folders = {file.parent / "__pycache__" for file in files if file.suffix == ".py"}
    return [file for folder in folders for file in folder.glob("*.pyc")]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("extras", nargs="*", help="extras of pyproject.toml")
    parser.add_argument("--most", type=float, help="largest sum allowed, in MB")
    given = parser.parse_args()
    found, missing = closure(required(given.extras))
    files = {name: files_of(package) for name, package in found.items()}
    files["pandora-router"] = [file for file in (ROOT / "src").rglob("*") if "__pycache__" not in file.parts]
    sizes = {name: size(some) for name, some in files.items()}
    for name, megabytes in sorted(sizes.items(), key=lambda item: -item[1]):
        print(f"{megabytes:8.1f} MB  {name}")
    total = sum(sizes.values())
    compiled = sum(size(byte_code(some)) for some in files.values())
    print(f"{total:8.1f} MB  in all; and {compiled:.0f} MB of byte-code (none with pip install --no-compile)")
    if missing:
        print(f"not installed here: {', '.join(sorted(missing))}")
    if given.most is not None and total > given.most:
        sys.exit(f"more than {given.most:g} MB")


if __name__ == "__main__":
    main()

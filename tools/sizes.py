"""Size and start time of an install by parts: `python -m tools.sizes [EXTRA ...]`, or `--all` for a summary.

Follows the requirements in pyproject.toml, with the named extras, through the metadata of the packages that
are installed in this environment, and adds up the files of each. Packages that are required but not installed
are listed as missing. `--most MB` ends with exit code 1 if the sum is larger. `--all` prints a line for the
core and for each extra that users install: its sum, and what it adds to the core.

Below the sizes are CPU seconds (`tools.starts`): of `import pandora_router`, of `pandora --help`, of loading
a router (with `--router FOLDER`), and until the libraries of each extra are imported. Nothing is installed.

`--page PAGE` also writes size and seconds to the table of that Markdown page: with `--all` those of the core
and of every extra that is installed here, else those of the named extras alone. The other rows stay: an extra
that needs an environment of its own is measured there.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.pages import put, table_rows
from tools.starts import start_times

ROOT = Path(__file__).resolve().parent.parent
MEGABYTE = 1e6
EXTRAS = (
    "http", "fit", "serve", "postgres", "otel", "litellm", "demo", "plots", "index", "transformer", "ray"
)  # fmt: skip
Starts = dict[str, float | None]
"""What was started (`tools.starts`), and its CPU seconds; None where it does not start here."""
IN_A_ROW = {
    "import pandora_router": " to import",
    "pandora --help": " for `pandora --help`",
    "a router loaded": " with a router loaded",
}
"""How the row of the core names what was started."""


def required(extras: Iterable[str]) -> list[Requirement]:
    """Return the requirements of this project with `extras`, and with the extras that those name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = list(project["dependencies"])
    queue, seen = list(extras), set[str]()
    while queue:
        extra = queue.pop()
        if extra in seen:
            continue
        seen.add(extra)
        for line in project["optional-dependencies"][extra]:
            part = Requirement(line)
            if canonicalize_name(part.name) == canonicalize_name(project["name"]):
                queue += sorted(part.extras)
            else:
                lines.append(line)
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


def installed(extras: list[str]) -> tuple[dict[str, list[Path]], set[str]]:
    """Return the files of each package that an install with `extras` has, and what is not installed here."""
    found, missing = closure(required(extras))
    files = {name: files_of(package) for name, package in found.items()}
    files["pandora-router"] = [
        file for file in (ROOT / "src").rglob("*") if file.is_file() and "__pycache__" not in file.parts
    ]
    return files, missing


def summary() -> None:
    """Print the sum of the core and of each extra, with the three largest packages that the extra adds."""
    core = {name: size(files) for name, files in installed([])[0].items()}
    print(f"{sum(core.values()):8.1f} MB  core")
    for extra in EXTRAS:
        files, missing = installed([extra])
        sizes = {name: size(some) for name, some in files.items()}
        added = sorted(((sizes[name], name) for name in sizes.keys() - core.keys()), reverse=True)
        largest = ", ".join(f"{name} {megabytes:.0f}" for megabytes, name in added[:3])
        lacking = f"; not installed here: {', '.join(sorted(missing))}" if missing else ""
        total = sum(sizes.values())
        print(f"{total:8.1f} MB  [{extra}] = core + {total - sum(core.values()):.1f} ({largest}{lacking})")


def write_table(page: Path, times: Mapping[str | None, Starts]) -> None:
    """Write size and start `times` of the core (None) and of extras to the table of `page`.

    Rows of extras that are not in `times`, lack a package here or do not start stay as they are.
    """
    rows = {row[0]: row for row in table_rows(page)}
    for extra, starts in times.items():
        files, missing = installed([extra] if extra else [])
        seconds = {what: f"{least:.2f}" for what, least in starts.items() if least is not None}
        if missing or len(seconds) < len(starts):
            continue
        name = f"`[{extra}]`" if extra else "`pandora-router`"
        said = [seconds[what] + words for what, words in IN_A_ROW.items() if what in seconds]
        rows[name] = [
            name,
            f"{sum(map(size, files.values())):,.0f}",
            ", ".join(said if extra is None else seconds.values()),
        ]
    lines = ["| install | MB | seconds |", "|---|---|---|"]
    put("\n".join(lines + [f"| {' | '.join(row)} |" for row in rows.values()]), page)


def measured(extras: Iterable[str | None], router: Path | None) -> dict[str | None, Starts]:
    """Print and return the CPU seconds until the core (None) and each of `extras` have started."""
    times: dict[str | None, Starts] = {}
    for part in extras:
        times[part] = {}
        for what, seconds in start_times(part, router):
            print(f"{'does not start here' if seconds is None else f'{seconds:8.2f} s '}  {what}")
            times[part][what] = seconds
    return times


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("extras", nargs="*", help="extras of pyproject.toml")
    parser.add_argument("--most", type=float, help="largest sum allowed, in MB")
    parser.add_argument("--all", action="store_true", help="a line for the core and each of the usual extras")
    parser.add_argument("--router", type=Path, help="folder of a fitted router: also measure loading it")
    parser.add_argument("--page", type=Path, help="write the rows of the extras to the table of this page")
    given = parser.parse_args()
    if given.all:
        summary()
        times = measured((None, *EXTRAS), given.router)
        if given.page is not None:
            write_table(given.page, times)
        return
    files, missing = installed(given.extras)
    sizes = {name: size(some) for name, some in files.items()}
    for name, megabytes in sorted(sizes.items(), key=lambda item: -item[1]):
        print(f"{megabytes:8.1f} MB  {name}")
    total = sum(sizes.values())
    compiled = sum(size(byte_code(some)) for some in files.values())
    print(f"{total:8.1f} MB  in all; and {compiled:.0f} MB of byte-code (none with pip install --no-compile)")
    if missing:
        print(f"not installed here: {', '.join(sorted(missing))}")
    times = measured((None, *given.extras), given.router)
    if given.page is not None:
        write_table(given.page, {extra: times[extra] for extra in given.extras})
    if given.most is not None and total > given.most:
        sys.exit(f"more than {given.most:g} MB")


if __name__ == "__main__":
    main()

"""Check a wheel before it is installed anywhere: `python -m tools.check_wheel FILE.whl`.

It must hold every file of src/pandora_router that is under version control and nothing besides, and its
requirements must not pin exact versions (constraints.txt does that for development). Ends with exit code 1
and the list of what is wrong.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def mistakes(wheel: Path) -> list[str]:
    """Return what is wrong with a wheel, one sentence each."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = next(name for name in names if name.endswith(".dist-info/METADATA"))
        said = message_from_bytes(archive.read(metadata))
    listed = subprocess.run(
        ["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    wanted = {name.removeprefix("src/") for name in listed}
    packed = {name for name in names if ".dist-info/" not in name}
    found = [f"{name} is missing" for name in sorted(wanted - packed)]
    found += [f"{name} does not belong there" for name in sorted(packed - wanted)]
    found += [
        f"the requirement {line!r} is a pin"
        for line in said.get_all("Requires-Dist", [])
        if "==" in line.split(";")[0]
    ]
    return found


def main() -> None:
    found = mistakes(Path(sys.argv[1]))
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()

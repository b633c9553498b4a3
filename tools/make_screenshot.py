"""Write docs/dashboard.png, the first page of the dashboard over made-up traffic.

Run `python -m tools.make_screenshot`; it needs Chromium. Nothing in the picture is
a result: the traffic is drawn at random with a fixed seed.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from tests.dashboard.conftest import Running
from tests.support.chromium import Chromium
from tests.support.traffic import fill, team

TARGET = Path(__file__).parent.parent / "docs" / "dashboard.png"
DECISIONS = 2500


def main() -> None:
    now = time.time()
    with tempfile.TemporaryDirectory() as folder:
        running = Running(Path(folder) / "store.sqlite")
        running.store.submit(
            lambda open_: fill(open_, DECISIONS, now - 86_000, now, keys=team(open_, now - 1e6))
        ).result()
        chromium = Chromium()
        try:
            chromium.screen(1100, 690)
            chromium.send("Emulation.setScrollbarsHidden", hidden=True)
            chromium.open(running.url)
            chromium.until("document.querySelectorAll('.plot canvas').length === 4")
            chromium.picture(TARGET, whole=False)
        finally:
            chromium.close()
            running.close()


if __name__ == "__main__":
    main()

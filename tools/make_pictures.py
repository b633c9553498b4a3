"""Write docs/figures/demo.png and demo-page.png: what `pandora demo` prints, and the top of its page.

Run `python -m tools.make_pictures` after a new recording; it needs Chromium (`chromium`) and the model.
Of the output the explained decisions are left out: the picture shows the table and the live questions.
"""

from __future__ import annotations

import html
import os
import subprocess
import sys
import tempfile
from pathlib import Path

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
PRE = "pre{font:13px/1.3 'DejaVu Sans Mono',monospace;margin:14px}"
STYLE = f"body{{margin:0;background:#16181c;color:#e4e4e7}}{PRE}"
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars"),
    *("--disable-component-update", "--disable-sync"),
)


def shot(page: Path, target: Path, size: str, profile: Path) -> None:
    """A picture of a page."""
    flags = [*FLAGS, f"--user-data-dir={profile}", f"--window-size={size}", f"--screenshot={target}"]
    subprocess.run(["chromium", *flags, page.as_uri()], check=True, capture_output=True, timeout=180)


def main() -> None:
    """Run the demo and take the pictures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = "from pandora_router.cli.main import main; main()"
        command = [sys.executable, "-c", run, "demo", "--html", str(folder / "page.html")]
        shown = subprocess.run(
            command, check=True, capture_output=True, text=True, env={**os.environ, "COLUMNS": "118"}
        ).stdout
        top, _, rest = shown.partition("\nNothing is worth buying")
        lines = (top + "\n[...]\n\n" + rest[rest.index("10 fresh questions") :]).splitlines()[:-2]
        text = html.escape("\n".join(lines))
        (folder / "shown.html").write_text(f"<meta charset=utf-8><style>{STYLE}</style><pre>{text}</pre>")
        shot(folder / "shown.html", FIGURES / "demo.png", f"1000,{17 * len(lines) + 40}", folder / "profile")
        shot(folder / "page.html", FIGURES / "demo-page.png", "1000,680", folder / "profile")


if __name__ == "__main__":
    main()

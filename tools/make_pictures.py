"""Write docs/demo.svg (ways to route) and docs/decision.svg (one decision) from the demo's record.

Run `python -m tools.make_pictures` after a new recording. The first picture shows right answers against
seconds for the ways of the headline, the second the first story that `pandora demo` tells.
"""

from __future__ import annotations

from pathlib import Path

from pandora_router.demo.page import scatter, stories
from pandora_router.demo.records import Recorded
from pandora_router.demo.study import SHOWN, study
from pandora_router.folders import replace_text
from pandora_router.router.picture import Unit, decision_svg

DOCS = Path(__file__).parent.parent / "docs"


def main() -> None:
    """Fit as the demo does and draw both pictures."""
    found = study(Recorded.read())
    replace_text(DOCS / "demo.svg", scatter([found.way(name) for name in SHOWN]) + "\n")
    heading, decision = stories(found)[0]
    drawn = decision_svg(decision.to_dict(), heading, Unit("s", 1.0 / found.weight, 3))
    replace_text(DOCS / "decision.svg", drawn + "\n")


if __name__ == "__main__":
    main()

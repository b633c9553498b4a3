"""Which modules of ours one decision goes through: `python -m tools.touched [artifact] [prompt]`.

Prints the modules whose functions one `Router.route` call of one prompt enters, in the order of their first
call, and how often the call passes from one room (package) to another: once for a prompt that was never
embedded, once for the same prompt again, whose vector is kept. Without an artifact a small router is fitted.
Another prompt is decided before, so that what is loaded on first use does not count, and the policy buys
nothing: the path that every prompt takes.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from itertools import groupby, pairwise
from pathlib import Path
from types import FrameType
from typing import Any

from pandora_router.router import Router
from pandora_router.search import Never

PACKAGE = "pandora_router."


def paths_of(router: Router, prompt: str) -> dict[str, list[str]]:
    """The paths of a prompt that was never embedded and of the same prompt again, once all is loaded."""
    router.route(prompt + " or not")
    return {"new": path_of(router, prompt), "again": path_of(router, prompt)}


def path_of(router: Router, prompt: str) -> list[str]:
    """The module of every function of ours that is entered, in order."""
    entered: list[str] = []

    def watch(frame: FrameType, event: str, _: Any) -> None:
        module = str(frame.f_globals.get("__name__", ""))
        if event == "call" and module.startswith(PACKAGE):
            entered.append(module.removeprefix(PACKAGE))

    sys.setprofile(watch)
    try:
        router.route(prompt)
    finally:
        sys.setprofile(None)
    return entered


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("artifact", nargs="?", type=Path, help="a fitted router")
    parser.add_argument("prompt", nargs="?", default="How many legs do seven spiders have?")
    parser.add_argument("--bought", action="store_true", help="keep the router's own policy")
    chosen = parser.parse_args()
    if chosen.artifact is None:
        from benchmarks.loop import table

        router = Router.fit(table(300), inspection_cost=0.01)
    else:
        router = Router.load(chosen.artifact)
    asked = router if chosen.bought else router.with_policy(Never())
    for kind, entered in paths_of(asked, chosen.prompt).items():
        counts = Counter(entered)
        print(f"{kind} prompt:")
        for module, calls in counts.items():
            print(f"  {module}: {calls} calls")
        print("rooms: " + " ".join(room for room, _ in groupby(rooms_of(entered))))
        print(f"{len(counts)} modules, {changes(entered)} changes of room, {len(entered)} calls")


def rooms_of(entered: list[str]) -> list[str]:
    """The room of each call."""
    return [module.split(".")[0] for module in entered]


def changes(entered: list[str]) -> int:
    """How often the path passes from one room to another."""
    return sum(before != after for before, after in pairwise(rooms_of(entered)))


if __name__ == "__main__":
    main()

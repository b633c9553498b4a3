"""Which modules of ours one request goes through: `python -m tools.touched [artifact] [prompt]`.

    python -m tools.touched              one prompt decided by the library
    python -m tools.touched --gateway    one request for `auto` over HTTP, with a live look at each specialist
    python -m tools.touched --auction    one prompt auctioned over HTTP: a bidder service, two plain endpoints

Prints the modules whose functions one `Router.route` call of one prompt enters, in the order of their first
call, and how often the call passes from one room (package) to another: once for a prompt that was never
embedded, once for the same prompt again, whose vector is kept. Without an artifact a small router is fitted.
Another prompt is decided before, so that what is loaded on first use does not count, and the policy buys
nothing: the path that every prompt takes. The gateway and the platform run in threads of this process, in
front of the fake provider of the tests; an earlier request has warmed them. Calls are ordered within each
thread, and changes of room are counted thread by thread.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from types import FrameType
from typing import Any

from pandora_router.router import Router
from pandora_router.search import Always, Never

PACKAGE = "pandora_router."
SETTLED = 1.0
"""Seconds after which everything about a request is written."""


def paths_of(router: Router, prompt: str) -> dict[str, list[str]]:
    """The paths of a prompt that was never embedded and of the same prompt again, once all is loaded."""
    router.route(prompt + " or not")
    return {"new": path_of(router, prompt), "again": path_of(router, prompt)}


def path_of(router: Router, prompt: str) -> list[str]:
    """The module of every function of ours that is entered, in order."""
    with watching() as watch:
        watch.on = True
        router.route(prompt)
        watch.on = False
    (entered,) = watch.entered.values()
    return entered


@dataclass
class Watch:
    """A profile function: while `on`, notes by thread the modules whose functions are entered, in order."""

    on: bool = False
    entered: dict[int, list[str]] = field(default_factory=dict)

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Note one call."""
        module = str(frame.f_globals.get("__name__", ""))
        if self.on and event == "call" and module.startswith(PACKAGE):
            self.entered.setdefault(threading.get_ident(), []).append(module.removeprefix(PACKAGE))


@contextmanager
def watching() -> Iterator[Watch]:
    """A `Watch` of the calling thread and of every thread that starts inside the block."""
    watch = Watch()
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        yield watch
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def gateway_path() -> list[list[str]]:
    """One request for `auto` that looks at every specialist before it answers, until it is settled."""
    from tests.gateway.talking import Talking
    from tests.gateway.test_looks import Served, listening, script

    router = listening().with_policy(Always())
    with tempfile.TemporaryDirectory() as folder, watching() as watch, closing(Talking()) as talking:
        script(talking, router, router.specialists[0])
        with closing(Served(talking, router, Path(folder))) as served:
            served.ask("chat")
            time.sleep(SETTLED)
            watch.on = True
            status, *_ = served.ask("chat")
            time.sleep(SETTLED)
            watch.on = False
    assert status == 200
    return list(watch.entered.values())


def auction_path() -> list[list[str]]:
    """One prompt auctioned by a platform among a bidder service and two plain endpoints."""
    from tests.bidding.test_market import in_market

    def ask(url: str) -> None:
        body = b'{"prompt": "count the river stone number 1", "kind": "test"}'
        request = urllib.request.Request(url + "/prompts", body, {"content-type": "application/json"})
        with urllib.request.urlopen(request) as reply:
            assert reply.status == 200

    async def work(url: str, _: object) -> None:
        await asyncio.to_thread(ask, url)
        await asyncio.sleep(SETTLED)
        watch.on = True
        await asyncio.to_thread(ask, url)
        await asyncio.sleep(SETTLED)
        watch.on = False

    with tempfile.TemporaryDirectory() as folder, watching() as watch:
        in_market(Path(folder), work)
    return list(watch.entered.values())


def show(threads: list[list[str]]) -> None:
    """Print modules, rooms and totals."""
    counts = Counter(module for entered in threads for module in entered)
    for module, calls in counts.items():
        print(f"  {module}: {calls} calls")
    for entered in threads:
        print("rooms: " + " ".join(room for room, _ in groupby(rooms_of(entered))))
    passed = sum(changes(entered) for entered in threads)
    print(f"{len(counts)} modules, {passed} changes of room, {counts.total()} calls")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("artifact", nargs="?", type=Path, help="a fitted router")
    parser.add_argument("prompt", nargs="?", default="How many legs do seven spiders have?")
    parser.add_argument("--bought", action="store_true", help="keep the router's own policy")
    parser.add_argument("--gateway", action="store_true", help="a request for `auto` with live looks")
    parser.add_argument("--auction", action="store_true", help="an auction over a network")
    chosen = parser.parse_args()
    if chosen.gateway or chosen.auction:
        show(gateway_path() if chosen.gateway else auction_path())
        return
    if chosen.artifact is None:
        from benchmarks.loop import table

        router = Router.fit(table(300), inspection_cost=0.01)
    else:
        router = Router.load(chosen.artifact)
    asked = router if chosen.bought else router.with_policy(Never())
    for kind, entered in paths_of(asked, chosen.prompt).items():
        print(f"{kind} prompt:")
        show([entered])


def rooms_of(entered: list[str]) -> list[str]:
    """The room of each call."""
    return [module.split(".")[0] for module in entered]


def changes(entered: list[str]) -> int:
    """How often the path passes from one room to another."""
    return sum(before != after for before, after in pairwise(rooms_of(entered)))


if __name__ == "__main__":
    main()

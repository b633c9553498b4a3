"""`python -m benchmarks.peers`: net reward and CPU per decision of our router and of its peers.

    make peers                                            install the peers (.venv-peers, .venv-litellm)
    nice python -m benchmarks.peers --page docs/peers.md  measure and write the page

Finished runs are kept in the cache and not made again; a run that is broken off goes on. A peer that is not
installed or fails is named with its reason and left out. Peers do not depend on our code: `--only-peers`
measures them beforehand.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Mapping
from pathlib import Path

from benchmarks.peers.baselines import BASELINES
from benchmarks.peers.page import Measured, page, write
from benchmarks.peers.runs import NEVER, OURS, PEERS, SEEDS, SETS, Chosen, Run, baseline, ours, peer

COMMAND = "python -m benchmarks.peers --page docs/peers.md"
ROOMS = ("boxes", "calibrate", "estimators", "router", "search")


def code() -> str:
    """A name for the code that decides: the same sources give the same name."""
    mark = hashlib.sha256()
    root = Path(__file__).resolve().parents[2] / "src" / "pandora_router"
    for path in sorted(file for room in ROOMS for file in (root / room).rglob("*.py")):
        mark.update(path.read_bytes())
    return mark.hexdigest()[:10]


def others(run: Run, environments: Path, seconds: float) -> tuple[dict[str, Chosen], dict[str, str]]:
    """Peers and baselines on one set and seed, and the peers that could not be run, with the reason."""
    found: dict[str, Chosen] = {}
    failed = {}
    for way in PEERS:
        try:
            found[way] = peer(run, way, environments, seconds)
        except RuntimeError as error:
            failed[way] = f"{error} ({run.name}, seed {run.seed})"
    return found | {way: baseline(run, way) for way in BASELINES}, failed


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("sets", nargs="*", default=list(SETS), help=f"some of {', '.join(SETS)}")
    options.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    options.add_argument("--cache", type=Path, default=Path("build/peers"))
    options.add_argument("--environments", type=Path, default=Path("."), help="where .venv-peers lies")
    options.add_argument("--seconds", type=float, default=1800.0, help="the longest a peer may take")
    options.add_argument("--version", default=None, help="name of the measured code; other names run anew")
    options.add_argument("--page", type=Path, help="also write this page")
    options.add_argument("--only-peers", action="store_true", help="measure the others alone, no page")
    told = options.parse_args()
    version = told.version or code()
    runs = {name: [Run.of(name, seed, told.cache) for seed in told.seeds] for name in told.sets}
    made: dict[str, list[dict[str, Chosen]]] = {name: [] for name in runs}
    missing: dict[str, str] = {}
    for run in (run for several in runs.values() for run in several):
        ways, failed = others(run, told.environments.resolve(), told.seconds)
        missing |= failed
        made[run.name].append(ways)
        told_of(run, ways)
    if told.only_peers:
        return
    found: dict[str, Measured] = {}
    for name, several in runs.items():
        for run, ways in zip(several, made[name], strict=True):
            ways |= ours(run, version)
            told_of(run, {way: ways[way] for way in (OURS, NEVER)})
        common = [way for way in made[name][0] if all(way in ways for ways in made[name])]
        found[name] = Measured(several, {way: [ways[way] for ways in made[name]] for way in common})
        if told.page is not None:
            write(told.page, page(found, missing, version, COMMAND))
    print(page(found, missing, version, COMMAND))


def told_of(run: Run, ways: Mapping[str, Chosen]) -> None:
    """Print the net reward of each way."""
    levels = (f"{way} {run.net(one).mean():.4f}" for way, one in ways.items())
    print(f"{run.name} {run.seed}: {', '.join(levels)}", flush=True)


if __name__ == "__main__":
    main()

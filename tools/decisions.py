"""Write down what routers decide, so that two versions of the code can be compared decision by decision.

    python -m tools.decisions --routers KEPT -o results/before.json     # on the old version
    python -m tools.decisions --routers KEPT -o results/after.json      # on the new one
    python -m tools.decisions --compare results/before.json results/after.json

Four routers: the demo's, and one for each of three folders of the shared data (a purchase that shows all
specialists; looks at beginnings of answers; passages of retrieval). They are fitted once and kept as
artifacts in KEPT: the second run repeats only the deciding. Each of the first prompts of the test split is
decided by `route` and by `route_batch`; a decision is its specialist, actions and bill (12 digits).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.folders import DATA

from pandora_router.data import FirstOf, Free, PerSpecialist, Table, resplit
from pandora_router.data.importers import read_folder
from pandora_router.demo.records import Recorded
from pandora_router.demo.study import study
from pandora_router.router import Decision, Router
from pandora_router.search import Inspect

PROMPTS = 3000  # of a folder, for fitting and deciding together
ALONE = 150  # prompts that are also decided one by one
SETS: dict[str, tuple[dict[str, float], float]] = {
    "routerdc7": ({}, 0.002),
    "zeroeval_math": ({"gemma-2-2b-it": 0.0, "gemini-1.5-pro": 0.45}, 0.005),
    "rag_adarague": ({"no_retrieval": 0.0, "one_step_bm25": 0.05, "multi_step_ircot": 0.10}, 0.005),
}


def folder(name: str) -> Table:
    """A bounded part of one shared folder with fixed fees and a fixed split."""
    fees, _ = SETS[name]
    table = read_folder(DATA / name, fees=FirstOf((PerSpecialist(fees), Free())))
    if fees:
        table = table.only(list(fees))
    return resplit(table.rows(slice(0, PROMPTS)), seed=0)


def routers(kept: Path) -> Iterator[tuple[str, Router, Table]]:
    """Each router with the table it was fitted on, from the folder `kept` if it is there."""
    recorded = Recorded.read()
    yield "demo", load_or(kept / "demo", lambda: study(recorded).router), recorded.table
    for name, (_, cost) in SETS.items():
        table = folder(name)
        yield name, load_or(kept / name, lambda t=table, c=cost: Router.fit(t, inspection_cost=c)), table


def load_or(path: Path, fit: Any) -> Router:
    """The artifact at `path`, fitted and written there first if it does not exist."""
    if not path.exists():
        fit().save(path)
    return Router.load(path)


def contexts(table: Table, i: int) -> dict[str, str] | None:
    """All contexts of one prompt, by specialist; every fourth prompt lacks those of the first one."""
    if table.contexts is None:
        return None
    cells = zip(table.specialists, table.contexts[i].tolist(), strict=True)
    skipped = table.specialists[0] if i % 4 == 0 else None
    return {name: text for name, text in cells if text is not None and name != skipped}


def essence(decision: Decision) -> list[Any]:
    """What was decided, as plain values."""
    steps = [
        ["inspect", *action.boxes] if isinstance(action, Inspect) else ["select", action.box]
        for action in decision.trace.actions
    ]
    return [decision.specialist, steps, round(decision.trace.spent, 12), decision.declined_because]


def decide(router: Router, table: Table, most: int) -> dict[str, dict[str, list[Any]]]:
    """Decisions by prompt on the first `most` test prompts: all in a batch, some of them one by one."""
    test = table.only(list(router.specialists)).in_split("test")
    chosen = range(min(most, len(test)))
    prompts, told = [test.prompts[i] for i in chosen], [contexts(test, i) for i in chosen]
    alone = [router.route(prompts[i], told[i]) for i in chosen[:ALONE]]
    together = router.route_batch(prompts, told)
    return {
        "batch": {prompt: essence(one) for prompt, one in zip(prompts, together, strict=True)},
        "route": {prompt: essence(one) for prompt, one in zip(prompts, alone, strict=False)},
    }


def compare(before: Path, after: Path) -> None:
    """Print how many decisions on prompts that both files have differ, and the first few that do."""
    old, new = (json.loads(path.read_text(encoding="utf-8")) for path in (before, after))
    for name in old:
        for how, decided in old[name].items():
            both = [prompt for prompt in decided if prompt in new[name][how]]
            pairs = [(decided[prompt], new[name][how][prompt]) for prompt in both]
            different = [pair for pair in pairs if pair[0] != pair[1]]
            bought = sum(len(one[1]) > 1 for one, _ in pairs)
            print(
                f"{name}, {how}: {len(different)} of {len(pairs)} differ ({bought} bought something before)"
            )
            for one, two in different[:5]:
                print(f"  {one} -> {two}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--routers", type=Path, default=Path("results/routers"), help="folder of artifacts")
    parser.add_argument("-o", "--output", type=Path, default=Path("results/decisions.json"))
    parser.add_argument("--prompts", type=int, default=300, help="test prompts of each router")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("BEFORE", "AFTER"))
    chosen = parser.parse_args(arguments)
    if chosen.compare:
        compare(*chosen.compare)
        return
    chosen.routers.mkdir(parents=True, exist_ok=True)
    found = {name: decide(router, table, chosen.prompts) for name, router, table in routers(chosen.routers)}
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    chosen.output.write_text(json.dumps(found), encoding="utf-8")
    print(f"written to {chosen.output}")


if __name__ == "__main__":
    main()

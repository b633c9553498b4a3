"""`python -m benchmarks.demo`: how well the demo's rewards are predicted by several costly estimates.

Mean squared errors on the held-out questions: the usual reward, f, the boosted stack without and with a peek
at what was seen. Then net rewards at several weights, and how
much more the router earns than other ways task by task, at the weight of the demo.
"""

from __future__ import annotations

import argparse

import numpy as np
from rich.console import Console
from rich.table import Table

from pandora_router.calibrate.ways import ORACLE, ROUTER
from pandora_router.demo.records import Recorded
from pandora_router.demo.study import WEIGHT, Study, study
from pandora_router.router import NeighbourRecipe, StackRecipe


def errors(recorded: Recorded) -> dict[str, np.ndarray]:
    table = recorded.table.with_fee_weight(WEIGHT)
    train, test = table.in_split("train"), table.in_split("test")
    test = test.rows(~test.missing.any(axis=1))

    def quiet(what: str, share: float) -> None:
        return

    guesses = {
        "usual": np.broadcast_to(np.nanmean(train.reward, axis=0), test.reward.shape),
        "f": NeighbourRecipe().fit(train, quiet).predict(test.prompts),
        "boosted, prompt only": StackRecipe(peek=0).fit(train, quiet).predict(test.prompts),
        "boosted, words": StackRecipe().fit(train, quiet).predict(test.prompts, test.contexts),
    }
    return {name: ((guess - test.reward) ** 2).mean(axis=0) for name, guess in guesses.items()}


def by_task(found: Study) -> Table:
    tasks = np.array(found.held_out.tasks)
    title = f"how much more the router earns per question, by task, at weight {found.weight:g} (se)"
    shown = Table(title=title, title_justify="left")
    ways = [name for name in found.nets if name not in (ROUTER, ORACLE)]
    for heading in ("task", "questions", *ways):
        shown.add_column(heading, justify="left" if heading == "task" else "right")
    for task in sorted(set(tasks)):
        rows = tasks == task
        more = [(found.nets[ROUTER] - found.nets[name])[rows] for name in ways]
        cells = [f"{one.mean():+.4f} ({one.std(ddof=1) / np.sqrt(len(one)):.4f})" for one in more]
        shown.add_row(task, str(rows.sum()), *cells)
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=float, nargs="*", default=[0.03, 0.1, 0.3])
    chosen = parser.parse_args()
    console, recorded = Console(width=170), Recorded.read()
    shown = Table(title="mean squared error of predicted reward, held-out questions", title_justify="left")
    for heading in ("estimate", *recorded.table.specialists, "all"):
        shown.add_column(heading, justify="left" if heading == "estimate" else "right")
    for name, row in errors(recorded).items():
        shown.add_row(name, *(f"{one:.4f}" for one in row), f"{row.mean():.4f}")
    console.print(shown)
    swept = Table(title="net reward per question; how much less than the router (se)", title_justify="left")
    for heading in ("way", *(f"weight {weight:g}" for weight in chosen.weights)):
        swept.add_column(heading, justify="left" if heading == "way" else "right")
    studies = [study(recorded, weight).ways for weight in chosen.weights]
    for i, way in enumerate(studies[0]):
        cells = [f"{s[i].net:.4f}  {s[i].behind:+.4f} ({s[i].error:.4f})" for s in studies]
        swept.add_row(way.name, *cells)
    console.print(swept)
    console.print(by_task(study(recorded)))


if __name__ == "__main__":
    main()

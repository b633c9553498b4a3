"""`python -m benchmarks.demo`: how well the demo's rewards are predicted by several costly estimates.

Mean squared errors on the held-out questions: the usual reward, f, the boosted stack without and with a peek
at what was seen. Then net rewards at several weights, and how
much more the router earns than other ways task by task, at the weight of the demo.

    python -m benchmarks.demo --shows --page docs/demo.md

measures what a look has to show instead. On fresh splits of the record (seeds 501, 502, ...) a router is
fitted and judged with looks as recorded; without log-probabilities; with one of the five samples whose
agreement the look at the majority shows, at a fifth of its price; with the retrieval score of the passage
before it, and with the score instead of the passage. What was measured is kept, so that a run that is broken
off goes on.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from tools.pages import put

from benchmarks.kept import CACHE, Cell, Made, kept
from pandora_router.calibrate.ways import NEVER, ORACLE, ROUTER
from pandora_router.data import resplit
from pandora_router.demo.questions import corpus
from pandora_router.demo.records import Recorded
from pandora_router.demo.study import WEIGHT, Study, study
from pandora_router.evaluate.statistics import Comparison, Split, compare
from pandora_router.report.tables import grid
from pandora_router.router import NeighbourRecipe, StackRecipe
from pandora_router.specialists.retrieval import Passages
from pandora_router.wires.look import read_head, scored, shown

MAJORITY, OPEN_BOOK, SAMPLES = "majority", "open book", 5
FIRST_SEED = 501
RECORDED = "as recorded"
Shows = Callable[[str, str, str], str]
"""Specialist, question and what a look shows of the one at the other -> what it shows instead."""


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


def no_chances(name: str, question: str, context: str) -> str:
    """A look without its log-probabilities."""
    return shown(read_head(context)[1], None)


def one_sample(name: str, question: str, context: str) -> str:
    """The look at the majority with the first of its five samples, so that it shows no agreement."""
    chances, text = read_head(context)
    return shown(text.split("\n")[0], tuple(chances)) if name == MAJORITY else context


def retrieval(passages: Passages, passage: bool) -> Shows:
    """The look at the open book headed by the BM25 score of its passage; with or without the passage."""

    def show(name: str, question: str, context: str) -> str:
        if name != OPEN_BOOK:
            return context
        best = [score for _, score in passages.find(question, 1)]
        return scored(read_head(context)[1] if passage else "", best)

    return show


def variants() -> dict[str, tuple[Shows, dict[str, float]]]:
    """What looks show, by name, and which part of the recorded price they cost where it is not all of it."""
    passages = corpus()
    return {
        RECORDED: (lambda name, question, context: context, {}),
        "without log-probabilities": (no_chances, {}),
        "one sample, no agreement": (one_sample, {MAJORITY: 1.0 / SAMPLES}),
        "retrieval score and passage": (retrieval(passages, True), {}),
        "retrieval score alone": (retrieval(passages, False), {}),
    }


def showing(recorded: Recorded, show: Shows, part: dict[str, float], seed: int) -> Recorded:
    """The record on a fresh split, with looks that show something else at their part of the price."""
    table = recorded.table
    assert table.contexts is not None
    contexts = table.contexts.copy()
    for i, j in np.ndindex(contexts.shape):
        if contexts[i, j] is not None:
            contexts[i, j] = show(table.specialists[j], table.prompts[i], str(contexts[i, j]))
    prices = np.array([part.get(name, 1.0) for name in table.specialists])
    return replace(
        recorded, table=resplit(replace(table, contexts=contexts), seed=seed), looks=recorded.looks * prices
    )


def earned(recorded: Recorded, name: str, seed: int) -> Cell:
    """Net rewards of the router and of never inspecting (2, N) on one split; looks, seconds and questions."""

    def make() -> Made:
        begun = time.process_time()
        made = study(showing(recorded, *variants()[name], seed))
        mine = made.way(ROUTER)
        told = {"looks": mine.looks, "seconds": mine.look_seconds, "questions": made.held_out.prompt_ids}
        nets = np.stack([made.nets[ROUTER], made.nets[NEVER]])
        return nets, time.process_time() - begun, told

    found = kept(CACHE / "shows", f"{name} {seed}", {"variant": name, "seed": seed}, make)
    assert found is not None
    return found


def looks_shown(recorded: Recorded, seeds: Sequence[int], say: Callable[[str], None]) -> str:
    """The table of what a router earns with looks that show more or less, and the text around it."""
    number = {one: i for i, one in enumerate(recorded.table.prompt_ids)}
    gains: dict[str, list[Split]] = {}
    cells: dict[str, list[Cell]] = {}
    for seed in seeds:
        for name in variants():
            cell = earned(recorded, name, seed)
            say(f"seed {seed}: {name}, {cell.seconds:.0f} CPU-s")
            cells.setdefault(name, []).append(cell)
            net, never = cell.predicted
            more = np.stack([net - never, net - cells[RECORDED][-1].predicted[0]], axis=1)
            which = np.array([number[one] for one in cell.told["questions"]])
            gains.setdefault(name, []).append(Split(1e3 * more, which, which))
    rows = [_shown_row(name, compare(splits), cells[name]) for name, splits in gains.items()]
    count = sum(len(split.differences) for split in gains[RECORDED]) // len(seeds)
    head = ["a look shows", "over never inspecting", "over as recorded", "looks", "seconds", "per second"]
    return SHOWN.format(seeds=", ".join(map(str, seeds)), count=count, weight=WEIGHT, table=grid(head, rows))


def _shown_row(name: str, found: Comparison, made: Sequence[Cell]) -> list[str]:
    looks, seconds = np.mean([(cell.told["looks"], cell.told["seconds"]) for cell in made], axis=0)
    cells = [f"{mean:+.1f} ({error:.1f})" for mean, error in zip(found.mean, found.doubt, strict=True)]
    earned = (1e-3 * found.mean[0] + WEIGHT * seconds) / seconds if seconds else 0.0
    base = "" if name == RECORDED else cells[1]
    return [name, cells[0], base, f"{looks:.2f}", f"{seconds:.3f}", f"{earned:.2f}"]


SHOWN = """Written by `python -m benchmarks.demo --shows --page docs/demo.md`. On fresh splits of the record
(seeds {seeds}; about {count} held-out questions each) a router is fitted and judged with looks that show more
or less. Net reward per question, 1e-3, in brackets the larger of two standard errors (over questions, over
splits). Looks and processor seconds of looks are per question. The last column is what looks earn before they
are paid, per second of looking: a second costs {weight:g}, so that more than {weight:g} pays. One sample of
the majority costs a fifth of five.

{table}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--weights", type=float, nargs="*", default=[0.03, 0.1, 0.3])
    parser.add_argument("--shows", action="store_true", help="measure what a look has to show")
    parser.add_argument("--seeds", type=int, default=3, help="with --shows: how many splits")
    parser.add_argument("--page", type=Path, help="with --shows: the page to write, usually docs/demo.md")
    chosen = parser.parse_args()
    console, recorded = Console(width=170), Recorded.read()
    if chosen.shows:
        for last in range(1, chosen.seeds + 1):  # a run that is broken off leaves the page of its splits
            seeds = range(FIRST_SEED, FIRST_SEED + last)
            words = looks_shown(recorded, seeds, lambda what: print(what, flush=True))
            print(words) if chosen.page is None else put(words, chosen.page, "shows")
        return
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

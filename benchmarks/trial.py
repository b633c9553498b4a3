"""What a trial costs and how its evidence grows: `python -m benchmarks.trial [--page FILE] [--svg FILE]`.

The cost is processor time of one thread for the decision of one `auto` request: without a trial, with a trial
in which both routers agree, and with one in which a coin is tossed and its row written (SQLite). The
candidate is a refit of the serving router. Pricing a lesson (`learn: {explore: ...}`) and comparing a prompt
to the known ones come on top. The picture draws the evidence of three candidates in simulated trials with
`learn.evidence.counted`: better by 0.1, equal, and worse by 0.1 of a right answer where the two disagree.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from tests.store.test_laws import opened
from tests.support.tables import generate
from tools.pages import put

from pandora_router import Never, Router
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.estimators.pooled import Pooled
from pandora_router.gateway.generation import Challenger, Settings
from pandora_router.gateway.incumbent import sharing
from pandora_router.gateway.request import choice
from pandora_router.gateway.request.trial import toss
from pandora_router.learn.evidence import CERTAIN, Evidence, Rated, counted
from pandora_router.learn.exploration import SHARE as SHARE_OF_LAW
from pandora_router.learn.exploration import Exploration
from pandora_router.learn.mix import Mix
from pandora_router.learn.refit import refit
from pandora_router.search import kernels
from pandora_router.store import log
from pandora_router.store.database import connect
from pandora_router.store.migrations import migrate
from pandora_router.store.rows import Draw
from pandora_router.wires.known import BY_NAME

SHARE, TIMES, SESSIONS = 0.5, 400, 600
COLOURS = {0.1: "#0a7d55", 0.0: "#777777", -0.1: "#c0392b"}
WIDTH, HEIGHT, LEFT, TOP = 640, 300, 60, 20


def cost() -> dict[str, list[float]]:
    """Milliseconds of processor time of each request, by what happens in it."""
    kernels.load()
    table = generate(n=1200, m=4, seed=1)
    serving = Router.fit(table.rows(np.arange(600)), policy=Never())
    rng, later = np.random.default_rng(0), table.rows(np.arange(600, 900))
    score = np.full(later.score.shape, np.nan)
    score[np.arange(300), rng.integers(4, size=300)] = 1.0
    known = replace(later, score=np.where(np.isnan(score), np.nan, later.score), contexts=None)
    with tempfile.TemporaryDirectory() as folder:
        refit(serving, known).router.save(f"{folder}/candidate")
        candidate = sharing(Router.load(f"{folder}/candidate"), serving)  # as a gateway reads it
    prompts = [str(prompt) for prompt in table.prompts[900:]]
    settings, coin = Settings(serving.default), random.Random(0)
    agree: list[float] = []
    dispute: list[float] = []

    async def request(prompt: str, tried: Router | None) -> bool:
        message = {"role": "user", "content": prompt}
        turn, begun = BY_NAME["chat"].read({"model": "auto", "messages": [message]}), None
        if tried is not None:
            sides = ((serving, None), (tried, None))
            begun = await toss(sides, Challenger("t", tried, SHARE), prompt, serving.specialists, coin)
        await choice.decide(serving, turn, serving.specialists, settings, coin, None, None, begun)
        return begun is not None and begun.draw is not None

    async def run() -> list[float]:
        alone = []
        for i in range(TIMES):
            prompt = f"{prompts[i % len(prompts)]} {i}"  # a text of its own: nothing of it is remembered
            alone.append((await _timed(lambda prompt=prompt: request(prompt, None)))[0])
            milliseconds, drawn = await _timed(lambda prompt=prompt: request(f"{prompt} also", candidate))
            (dispute if drawn else agree).append(milliseconds)
        return alone

    alone = asyncio.run(run())
    row = _row()
    return {
        "no trial": alone,
        "a trial, both agree": agree,
        "a trial, a coin is tossed and written": [one + row for one in dispute],
    }


async def _timed(work: Callable[[], object]) -> tuple[float, bool]:
    begun = time.process_time()
    drawn = await work()  # type: ignore[misc]
    return 1000.0 * (time.process_time() - begun), bool(drawn)


def _row() -> float:
    """Milliseconds of processor time that the row of a coin adds to the row of its decision."""
    drawn = Draw("t", True, SHARE, ("small", "large"), (0.4, 0.6), 0.5)
    spent = []
    with tempfile.TemporaryDirectory() as folder:
        database = connect(str(Path(folder) / "store.sqlite"))
        migrate(database)
        for draw in (None, drawn):
            begun = time.process_time()
            with database.transaction() as open_:
                for i in range(TIMES):
                    log.begin(open_, replace(opened(f"{i} {draw is None}"), draw=draw))
            spent.append(1000.0 * (time.process_time() - begun) / TIMES)
        database.close()
    return max(spent[1] - spent[0], 0.0)


def lessons(specialists: int = 10) -> dict[str, list[float]]:
    """Milliseconds of processor time to price a lesson, to learn one rating, and to rank one prompt."""
    rng = np.random.default_rng(2)
    units = rng.standard_normal((TIMES, 64)).astype(np.float32)
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    law = Pooled.fit(units, (rng.random((TIMES, specialists)) < 0.6).astype(float), (0.05, 0.15))
    share = np.full(specialists, SHARE_OF_LAW)
    known = Exploration(law, law.features(units[:64]), law.predict(units[:64]), share)
    worth, features = law.predict(units), law.features(units)
    prompts = generate(n=1200, seed=1).prompts
    mix = Mix.of(Neighbours.fit(prompts, np.zeros((len(prompts), 1)), ("one",)))
    assert mix is not None
    mix.ranks(prompts[0])
    works: dict[str, Callable[[int], object]] = {
        "the price of a lesson": lambda i: known.lesson(features[i], worth[i], 2000.0),
        "one rated answer learnt by the linear model": lambda i: law.after(units[i], i % specialists, 1.0),
        "a prompt compared to the known ones": lambda i: mix.ranks(prompts[0]),
    }
    spent: dict[str, list[float]] = {name: [] for name in works}
    for name, work in works.items():
        for i in range(TIMES):
            begun = time.process_time()
            work(i)
            spent[name].append(1000.0 * (time.process_time() - begun))
    return spent


def seconds_of_refit(requests: int) -> float:
    """Seconds of processor time of a refit from so many rated requests, of four specialists."""
    kernels.load()
    router = Router.fit(generate(n=600, m=4, seed=1), policy=Never())
    table = generate(n=requests, m=4, seed=2)
    column = np.random.default_rng(0).integers(4, size=requests)
    rated = np.where(np.arange(4) == column[:, None], table.score, np.nan)
    begun = time.process_time()
    refit(router, replace(table, score=rated))
    return time.process_time() - begun


def paths(seed: int = 3) -> dict[float, list[float]]:
    """Evidence after each rated session, in powers of ten, below zero against; by the true difference."""
    found = {}
    for gain in COLOURS:
        rng, evidence, path = np.random.default_rng(seed), Evidence.start(), [0.0]
        for i in range(SESSIONS):
            tried = bool(rng.random() < SHARE)
            right = float(rng.random() < 0.6 + (gain if tried else 0.0))
            row = Rated(str(i), str(i), None, tried, SHARE, 0.6, 0.6, right, 0.0)
            evidence, _ = counted(evidence, [row], (), {})
            path.append(math.log10(max(evidence.promote, 1.0)) - math.log10(max(evidence.drop, 1.0)))
        found[gain] = path
    return found


def picture(found: dict[float, list[float]]) -> str:
    """The paths as SVG, with the two lines at which a trial ends."""
    most = max(2.0, *(abs(value) for path in found.values() for value in path))
    middle, scale = TOP + HEIGHT / 2, HEIGHT / 2 / most

    def line(value: float, label: str) -> str:
        y = middle - scale * value
        return (
            f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#888" '
            f'stroke-dasharray="4 4"/><text x="{LEFT + 4}" y="{y - 4:.1f}">{label}</text>'
        )

    parts = [
        line(math.log10(CERTAIN), f"proven better ({CERTAIN:g})"),
        line(0.0, "1"),
        line(-math.log10(CERTAIN), f"proven worse ({CERTAIN:g})"),
    ]
    for gain, path in found.items():
        step = WIDTH / max(len(path) - 1, 1)
        at = " ".join(f"{LEFT + i * step:.1f},{middle - scale * value:.1f}" for i, value in enumerate(path))
        end = middle - scale * path[-1]
        parts.append(f'<polyline points="{at}" fill="none" stroke="{COLOURS[gain]}" stroke-width="2"/>')
        parts.append(
            f'<text x="{LEFT + WIDTH + 6}" y="{end + 4:.1f}" fill="{COLOURS[gain]}">{gain:+.1f}</text>'
        )
    parts.append(f'<text x="{LEFT}" y="{TOP + HEIGHT + 24}">rated disagreements, 0 to {SESSIONS}</text>')
    size = f'viewBox="0 0 {LEFT + WIDTH + 60} {TOP + HEIGHT + 40}"'
    style = 'font-family="sans-serif" font-size="12" fill="#777"'
    label = "Evidence of three trials over time, with the lines at which a trial ends"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}"><g {style}>'
        + "".join(parts)
        + "</g></svg>\n"
    )


def main() -> None:
    """Print the costs, and write them to a page and the picture to a file if these are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--refit", type=int, default=0, metavar="REQUESTS", help="time a refit from so many")
    asked = parser.parse_args()
    lines = ["| request | requests | processor time in ms, median (interquartile range) |", "|---|---|---|"]
    for name, spent in {**cost(), **lessons()}.items():
        low, middle, high = statistics.quantiles(spent, n=4)
        lines.append(f"| {name} | {len(spent)} | {middle:.3f} ({low:.3f} to {high:.3f}) |")
    text = "\n".join(lines)
    if asked.refit:
        seconds = seconds_of_refit(asked.refit)
        text += (
            f"\n\nA refit from {asked.refit:,} rated requests takes {seconds:.0f} seconds of processor time."
        )
    print(text)
    if asked.page is not None:
        put(text, asked.page, "cost")
    if asked.svg is not None:
        asked.svg.write_text(picture(paths()))


if __name__ == "__main__":
    main()

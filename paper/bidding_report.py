"""The bidding experiment and the mechanism tables as pages: a long one, and docs/bidding.md for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pandora_router import market
from pandora_router.evaluate.bids import (
    CENTRAL,
    CONDUCTS,
    DEFAULT,
    OPPONENTS,
    PLAIN,
    Bids,
    Kind,
    Setting,
)
from pandora_router.evaluate.experiments import cheap_name
from pandora_router.market.posted import Measure, Opponents
from pandora_router.report.tables import grid, level, signed

MEASURES: tuple[Measure, ...] = ("surplus", "efficiency")
SIZES = (3, 10, 100)
PROMPTS = 100
SIGNALS = {"weak": market.WEAK, "strong": market.STRONG}
Generated = Mapping[tuple[str, int], Mapping[str, tuple[float, float, float]]]
HEAD = """# Bidding and markets

Written by `{command}`; do not edit by hand.

Each specialist in turn is held out and answers a posted price: the best G (strong opponents) or the best raw
f (weak opponents) of the others. *f-only* and *never inspect* never look, *always inspect* always does,
*bidder* looks iff b <= p <= u. The paper's "f-only" in its bidding figures is our *never inspect*. Rewards
are realised ones of test prompts; f is the mean reward of k training neighbours (k = 3 is the paper's), G a
boosted stack, the signal model the paper's independent normal one. Two oracles, both free: one knows G, one
knows R (hindsight).
*Others counted* adds what strong opponents paid to know their G. Differences are paired, prompt by prompt, in
1e-3 of reward. Parentheses: standard error over prompts; over splits. A star: both tests reject "no
difference" at 5 %; over many cells one in twenty passes each single test by chance.
"""
TOLD = (
    "posted price, others' inspections left out",
    "posted price",
    "posted price, set by f",
    "ascending",
    "descending",
    "second price",
    "router: never inspect",
    DEFAULT,
)
REGRETS: tuple[tuple[str, Kind], ...] = (
    ("surplus, knows G", ("surplus", "value", False)),
    ("surplus, hindsight", ("surplus", "hindsight", False)),
    ("efficiency, knows G", ("efficiency", "value", False)),
    ("efficiency, hindsight", ("efficiency", "hindsight", False)),
    ("efficiency, hindsight, others counted", ("efficiency", "hindsight", True)),
)


def generated(seeds: int, cost: float) -> Generated:
    """Every mechanism on generated instances: mean regret, its error over seeds, inspections a prompt."""
    made = {}
    for signal, law in SIGNALS.items():
        for size in SIZES:
            draws = [np.random.default_rng((seed, size)) for seed in range(seeds)]
            runs = [market.compare(market.generate(law, PROMPTS, size, rng), cost) for rng in draws]
            cells = {}
            for name in runs[0]:
                regret = np.array([run[name].regret for run in runs])
                error = float(regret.std(ddof=1) / np.sqrt(seeds)) if seeds > 1 else np.nan
                looks = float(np.mean([run[name].inspections for run in runs]))
                cells[name] = (float(regret.mean()), error, looks)
            made[signal, size] = cells
    return made


def markdown(
    found: Sequence[Bids], made: Generated, images: Mapping[str, str], command: str, cost: float
) -> str:
    """The whole page; `images` are paths relative to it by name of figure."""
    parts = [HEAD.format(command=command), "## Does the weak-opponent effect show?", "", *_answer(found), ""]
    parts += ["## What the mechanisms lose", "", *_lessons(found), ""]
    for one in found:
        parts += [f"## {one.name}, {cheap_name(one.neighbours)}", "", *_section(one, images), ""]
    if made:
        parts += ["## Mechanisms on generated instances", "", _generated(made, cost), ""]
    return "\n".join(parts)


def short(found: Sequence[Bids], made: Generated, command: str, cost: float) -> str:
    """docs/bidding.md: the answers, and the mechanisms on generated instances."""
    parts = [HEAD.format(command=command), "## Does the weak-opponent effect show?", "", *_answer(found), ""]
    parts += ["## What the mechanisms lose", "", *_lessons(found), ""]
    if made:
        parts += ["## Mechanisms on generated instances", "", _generated(made, cost), ""]
    parts += [f"Every conduct and mechanism at every cost: `{command}` writes `results/bidding.md`."]
    return "\n".join(parts) + "\n"


def _answer(found: Sequence[Bids]) -> list[str]:
    lines = [
        "The paper: when the price comes from f, the strategic bidder gains surplus at the expense of "
        "efficiency (its EmbedLLM curves). Here: bidder minus never inspecting against weak opponents; the "
        "effect is surplus up and efficiency down at the same cost. Both pay for the bidder's own looks; "
        "where efficiency falls by less than `looks x c`, its choices got better and the looking ate more "
        "than that.",
        "",
    ]
    lines += [f"- **{one.name}, {cheap_name(one.neighbours)}**: {verdict(one)}" for one in found]
    return lines


def _lessons(found: Sequence[Bids]) -> list[str]:
    """One line per experiment at the middle cost of its mechanism table."""
    lines = [
        f"Welfare regret above the central router ({CENTRAL}) on realised rewards, in 1e-3; + is worse. A "
        "posted price flatters itself while the others' inspections are left out. Where never inspecting is "
        "negative, the central router itself buys too much: like every bidder here it takes the boxes for "
        "independent, and real residuals are correlated, which the default router models.",
        "",
    ]
    for one in found:
        if not one.traded:
            continue
        cost = sorted(one.traded)[len(one.traded) // 2]
        cells = [f"{name} {signed(one.welfare[name, cost][1])}" for name in TOLD]
        lines.append(f"- **{one.name}, {cheap_name(one.neighbours)}**, c = {cost:g}: {'; '.join(cells)}.")
    return lines


def verdict(one: Bids) -> str:
    """Whether the weak-opponent effect shows, in plain words with numbers."""
    at: list[Setting] = [("weak", "bidder", cost) for cost in one.costs]
    pairs = [(key[2], one.gaps[key, "surplus"], one.gaps[key, "efficiency"]) for key in at]
    full = [p for p in pairs if p[1].star and p[2].star and p[1].mean > 0.0 > p[2].mean]
    loose = [p for p in pairs if p[1].mean > 0.0 > p[2].mean]
    shown = full or loose or [max(pairs, key=lambda p: p[1].mean)]
    numbers = "; ".join(
        f"c = {c:g}: surplus {signed(s)}, efficiency {signed(e)}, "
        f"looks x c {1e3 * c * one.looks(('weak', 'bidder', c)):.1f}"
        for c, s, e in shown
    )
    if full:
        return f"it shows, with stars on both sides. {numbers}."
    if loose:
        return f"the signs are there, but not with stars on both sides: not established. {numbers}."
    lost = [p for p in pairs if p[2].star and p[2].mean < 0.0]
    worse = f" Efficiency falls with a star at c = {', '.join(f'{c:g}' for c, _, _ in lost)}." if lost else ""
    return f"it does **not** show: at no cost does surplus rise while efficiency falls. {numbers}.{worse}"


def _section(one: Bids, images: Mapping[str, str]) -> list[str]:
    prompts = np.mean([len(split.prompt) for split in one.splits])
    head = (
        f"{one.title}. {one.specialists} specialists, {len(one.splits)} splits of {prompts:.0f} test prompts."
    )
    lines = [head, ""]
    image = images.get(f"bidding_{one.name}_k{one.neighbours}")
    if image:
        lines += [f"![{one.title}, {cheap_name(one.neighbours)}]({image})", ""]
    for opponents in OPPONENTS:
        lines += [f"### {opponents.capitalize()} opponents", "", _gaps(one, opponents), ""]
        lines += [_regrets(one, opponents), ""]
    if one.traded:
        lines += ["### Mechanisms", "", _mechanisms(one)]
    return lines


def _gaps(one: Bids, opponents: Opponents) -> str:
    rows = []
    for conduct in CONDUCTS:
        if conduct == PLAIN:
            continue
        for measure in MEASURES:
            cells = [signed(one.gaps[(opponents, conduct, c), measure]) for c in one.costs]
            rows.append([f"{conduct}, {measure}", *cells])
    looks = [f"{one.looks((opponents, 'bidder', c)):.2f}" for c in one.costs]
    rows.append(["how often the bidder looks", *looks])
    return grid(["1e-3 above never inspecting", *(f"c = {c:g}" for c in one.costs)], rows)


def _regrets(one: Bids, opponents: Opponents) -> str:
    rows = []
    for words, kind in REGRETS:
        if kind[2] and opponents == "weak":
            continue  # weak opponents never look: nothing to count
        for conduct in CONDUCTS:
            cells = [level(one.regrets[(opponents, conduct, c), kind]) for c in one.costs]
            rows.append([f"{words}: {conduct}", *cells])
    return grid(["regret", *(f"c = {c:g}" for c in one.costs)], rows)


def _mechanisms(one: Bids) -> str:
    words = "Welfare regret / inspections a prompt, then 1e-3 above the central router"
    heads = [word for c in one.traded for word in (f"c = {c:g}", "above")]
    rows = []
    for name in dict.fromkeys(name for name, _ in one.welfare):
        cells = []
        for cost in one.traded:
            mean, above = one.welfare[name, cost]
            cells += [f"{level(mean)} / {one.trade_looks(name, cost):.2f}"]
            cells += ["" if name == CENTRAL else signed(above)]
        rows.append([name, *cells])
    return f"{words} ({CENTRAL}; + is worse).\n\n" + grid(["mechanism", *heads], rows)


def _generated(made: Generated, cost: float) -> str:
    rows = []
    for name in next(iter(made.values())):
        cells = [f"{a:.4f} ({e:.4f}) / {n:.2f}" for a, e, n in (cells[name] for cells in made.values())]
        rows.append([name, *cells])
    head = f"Welfare regret (standard error over instances) / inspections a prompt at c = {cost:g}.\n\n"
    return head + grid(["mechanism", *(f"{s} f, M = {m}" for s, m in made)], rows)

"""Runs everything behind docs/claims.md and writes the page, with bidding and the paper's arithmetic."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pandora_router.config.experiments import read_experiment
from pandora_router.evaluate import bids
from pandora_router.evaluate.bids import Bids
from pandora_router.evaluate.statistics import Estimate
from pandora_router.market.posted import Measure
from pandora_router.report.tables import grid
from pandora_router.search import kernels
from pandora_router.types import Progress
from paper import theory
from paper.claims import (
    COSTS,
    MOST,
    SEEDS,
    STAND_INS,
    Claim,
    Domain,
    K,
    overall,
    play,
    routing,
)

HERE = Path(__file__).parent
COMMAND = (
    "python -m paper claims --data ../shared/data --paper ../shared/paper/figures.json --page docs/claims.md"
)
HEAD = """# The paper, claim by claim

Written by `{command}`; do not edit by hand.

The paper's models and data cannot be had here. Its system (f of three neighbours, a joint Gaussian signal
model, the committing policy with 100 samples; in the product `fit: {{preset: paper}}`) runs on one stand-in
for each of its domains: {names}. In place of its fine-tuned language model stands a boosted stack. Splits:
seeds {seeds}, on which nothing was tuned, at most {most} test prompts each. Inspection costs are those of
the paper's tables.

Differences are regret + inspection cost of the paper's router minus that of the other way, averaged over
costs, in 1e-3; negative: the router loses less. In brackets the larger of two standard errors (over prompts,
clustered by f vector; over splits). A star: both tests reject "no difference" at 5 %. A claim *holds* on a
stand-in with a star of the right sign, and is *reversed* with a star of the other sign; claims of equality
hold without a star. *Not decided* is neither. Our default router is another one: [results](results.md)
compares it with these ways.
"""
MISSING = """
## What cannot be tested here

The levels of its figures (its language models, its fine-tuned estimators and the texts of EmbedLLM are not at
hand), its hours of training, and its monetary figures at today's prices.
"""


def markdown(root: Path, paper: Path | None, cache: Path, say: Progress, seeds: Sequence[int] = SEEDS) -> str:
    """The whole page from the data folders under `root` and the paper's figures, if there are any."""
    known: Mapping[str, Any] = json.loads(paper.read_text(encoding="utf-8")) if paper is not None else {}
    tables, figures = known.get("tables", {}), known.get("figures", {})
    kernels.warm(say)
    domains, games, done = [], [], 0
    for name, file in STAND_INS.items():
        experiment = read_experiment(HERE / "experiments" / f"{file}.yaml")
        experiment = replace(experiment, neighbours=(K,))
        splits = []
        for seed in seeds:
            say(f"{name}: seed {seed}", done, 2 * len(STAND_INS) * len(seeds))
            splits.append(play(experiment, root, seed, COSTS[name], MOST[name], cache))
            done += 1
        domains.append(Domain(name, COSTS[name], splits))
        games.append(bids.Game(experiment, root, K, tuple(seeds), COSTS[name], (), cache))
    found = bids.run(games, progress=say)
    played = dict(zip(STAND_INS, found, strict=True))
    parts = [_section("Mathematics", mathematics())]
    parts.append(_section("Pandora's Router", [*routing(domains, tables), *_cost_column(figures, tables)]))
    parts.append(_section("Pandora's Bidder", [*bidder(played), *_oracle(figures)]))
    parts.append(_section("Money", money()))
    names = ", ".join(f"{name}: {file}" for name, file in STAND_INS.items())
    head = HEAD.format(
        command=COMMAND,
        names=names,
        seeds=", ".join(map(str, seeds)),
        most=" / ".join(str(most) for most in MOST.values()),
    )
    return "\n".join([head, *parts]) + MISSING


def _section(title: str, claims: Sequence[Claim]) -> str:
    rows = [[one.where, one.words, one.printed, one.measured, one.verdict] for one in claims]
    head = ["where", "claim, in our words", "printed", "measured here", "verdict"]
    return f"## {title}\n\n{grid(head, rows)}\n"


def mathematics() -> list[Claim]:
    """The claims that need no data."""
    wrong, tried = theory.prices_cross()
    alone, dependent = theory.reduction()
    mean, backup = theory.holdouts("mean"), theory.holdouts("backup")
    gap = theory.weitzman()
    closed, interval = theory.closed_form(), theory.bidder_interval()
    return [
        Claim(
            "eq. 1, 2, 4",
            "Reservation and backup price of a Gaussian box are roots of a closed-form expression.",
            "",
            f"largest difference to integration and root finding on 50 boxes: {closed:.0e}",
            "holds" if closed < theory.ROUND else "does not hold",
        ),
        Claim(
            "section 3",
            "The backup price is at most the reservation price exactly if the cost is at most the expected "
            "shortfall below the mean.",
            "",
            f"{wrong} exceptions among {tried} boxes of three values",
            "holds" if not wrong else "does not hold",
        ),
        Claim(
            "section 3",
            "Opening by falling reservation price is optimal where only opened boxes may be taken.",
            "",
            f"largest gap to dynamic programming on {theory.INSTANCES} instances: {gap:.0e}",
            "holds" if gap < theory.ROUND else "does not hold",
        ),
        Claim(
            "section 3, footnote",
            "Holding several boxes sealed cannot be better than holding the best single one.",
            "",
            f"better on {mean.several} of {theory.INSTANCES} instances with the mean as outside option, on "
            f"{backup.several} with the backup price, which is the paper's",
            "holds" if not backup.several else "holds with the mean, not with the paper's backup price",
        ),
        Claim(
            "section 3, footnote; appendix F",
            "As outside option the backup price is slightly better than the mean (here in the mathematics; "
            "on data below).",
            "",
            "mean (largest) gap to the best admissible policy: "
            f"backup {backup.mean:.4f} ({backup.worst:.3f}), mean {mean.mean:.4f} ({mean.worst:.3f})",
            "does not hold" if backup.mean > mean.mean else "holds",
        ),
        Claim(
            "proposition 1",
            "The opened value may replace the reward if boxes are independent given what is free.",
            "",
            f"largest difference of expectations: {alone:.0e} with independence, {dependent:.2f} without",
            "holds" if alone < theory.ROUND < dependent else "does not hold",
        ),
        Claim(
            "section 5",
            "A bidder's information is worth its price on one interval of posted prices.",
            "",
            f"its ends are backup and reservation price: largest difference on 50 boxes {interval:.0e}",
            "holds" if interval < theory.ROUND else "does not hold",
        ),
    ]


def money() -> list[Claim]:
    """The paper's cost ratios, from the prices and lengths that it states."""
    embed, read, write, retrieval = 0.2e-6, 0.25e-6, 2.5e-6, 1.4e-2
    ratios = {
        "MATH": (5.8, 20 * write / (43 * embed)),
        "RAG": (7000.0, retrieval / (10.1 * embed)),
        "EmbedLLM": (1.6, (write + 126 * read) / (126 * embed)),
    }
    follows = {
        name: "holds" if round(ours, 1) == printed or (name == "RAG" and ours > printed) else "reversed"
        for name, (printed, ours) in ratios.items()
    }
    measured = "; ".join(f"{name} {ours:,.2f}" for name, (_, ours) in ratios.items())
    words = "From its stated prices and lengths, g costs so many times as much as f."
    printed = "MATH 5.8; RAG more than 7000; EmbedLLM 1.6"
    return [Claim("appendix D", words, printed, measured, overall(follows))]


def bidder(played: Mapping[str, Bids]) -> list[Claim]:
    """The claims about bidding at posted prices."""
    return [
        *(
            Claim(
                "section 5, figure 3",
                f"In {measure}, the bidder follows the better of never and always inspecting at every cost.",
                "",
                *_follows(played, measure),
            )
            for measure in ("surplus", "efficiency")
        ),
        _weak(played),
    ]


def _follows(played: Mapping[str, Bids], measure: Measure) -> tuple[str, str]:
    """Cells in which the bidder is more than one standard error behind never or always inspecting."""
    numbers, says = [], {}
    for name, found in played.items():
        worst, behind = 0.0, 0
        for cost in found.costs:
            bidder = found.gaps[("strong", "bidder", cost), measure]
            always = found.gaps[("strong", "always inspect", cost), measure]
            best = max(always, Estimate(0.0, 0.0, 0.0, False), key=lambda each: each.mean)
            short, doubt = best.mean - bidder.mean, float(np.hypot(best.doubt, bidder.doubt))
            behind += short > doubt
            worst = max(worst, short)
        numbers.append(f"{name}: behind at {behind} of {len(found.costs)} costs, at most {1e3 * worst:.1f}")
        says[name] = "holds" if not behind else "not decided"
    return "; ".join(numbers), overall(says)


def _weak(played: Mapping[str, Bids]) -> Claim:
    """Against prices from f: more surplus than never inspecting, less efficiency."""
    numbers, says = [], {}
    for name, found in played.items():
        both = more = 0
        for cost in found.costs:
            surplus = found.gaps[("weak", "bidder", cost), "surplus"]
            efficiency = found.gaps[("weak", "bidder", cost), "efficiency"]
            more += surplus.star and surplus.mean > 0
            both += surplus.star and surplus.mean > 0 and efficiency.star and efficiency.mean < 0
        numbers.append(
            f"{name}: more surplus at {more}, and less efficiency too at {both}, of {len(found.costs)} costs"
        )
        says[name] = "holds" if both else "not decided"
    words = "Against prices set by f, the bidder gains surplus at the expense of efficiency."
    return Claim("section 5, appendix E", words, "RAG and EmbedLLM", "; ".join(numbers), overall(says))


def _cost_column(figures: Mapping[str, Any], tables: Mapping[str, Any]) -> list[Claim]:
    """Whether the cost column of the overall table is the mean of queries x cost."""
    if not figures:
        return []
    numbers, says = [], {}
    for name in STAND_INS:
        points = np.array(figures["queries_per_prompt"]["domains"][name]["pandora-ni"])
        costs = np.array(COSTS[name])
        queries = np.interp(np.log(costs), np.log(points[:, 0]), points[:, 1])
        printed = tables["overall"][name]["pandora-router"][1]
        right, product = float(np.mean(queries * costs)), float(queries.mean() * costs.mean())
        numbers.append(
            f"{name}: printed {printed:.3f}, mean of queries x cost {right:.3f}, product of the means "
            f"{product:.3f}"
        )
        says[name] = "reversed" if abs(np.log(printed / product)) < abs(np.log(printed / right)) else "holds"
    words = "The column Cost is the mean inspection cost of a prompt, not a product of means."
    measured = "; ".join(numbers) + " (queries read from its figure)"
    return [Claim("table 2", words, "", measured, overall(says))]


def _oracle(figures: Mapping[str, Any]) -> list[Claim]:
    """Whether regret is measured against an oracle that knows G: then g-always has a regret of exactly c."""
    if not figures:
        return []
    numbers, says = [], {}
    for name, curves in figures["bidding_strong_opponents"]["domains"].items():
        points = np.array(curves["surplus_regret"]["g-always"])
        over = points[:, 1] - points[:, 0]
        numbers.append(f"{name} c + {over.mean():.3f} (spread {over.std():.0e})")
        says[name] = "reversed" if over.min() > 1e-3 else "holds"
    words = "Regret in bidding is against an oracle that knows G for free, to which g-always loses exactly c."
    return [Claim("section 5", words, "g-always: " + "; ".join(numbers), "", overall(says))]

"""`python -m benchmarks.parallel`: looks side by side where a second has a price, against the exact optimum.

Small instances whose optimum is known: a few boxes, looks of 0.3 to 3 seconds, and a price of a second. Of
boxes opened together only the longest look is waited for. A gap is what a policy earns less than the best
search that may open any set at any time, in 1e-4 of reward; both are computed exactly, by following every
outcome. Compared are the best search that opens one box at a time, the better of everything at once and
nothing, and the policies of the library. In "all back" the whole cost of the box that is taken comes back.

With --http N the specialists of the demo answer N held-out questions through a gateway over HTTP, from the
record at --speed times their recorded speed, with the looks of each policy: one after the other, in prefixes,
in sets, all at once. A right answer is worth ten processor seconds, as in the demo, and a second of waiting
`SECOND` right answers.

With --page FILE the tables are written there between marks.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from tests.oracles.sets_optimum import Lattice

from benchmarks import looks
from benchmarks.stage import Stage
from pandora_router.boxes import Costs
from pandora_router.collect.assemble import Question
from pandora_router.demo.records import Recorded
from pandora_router.folders import replace_text
from pandora_router.prices import Tariff
from pandora_router.report.tables import grid
from pandora_router.router import Router, StackRecipe
from pandora_router.search import Always, KnowledgeGradient, Never, Policy, Rollout, SideBySide
from pandora_router.search.state import Action, State

MARKS = "<!-- measured: python -m benchmarks.parallel -->", "<!-- end of measurement -->"
HTTP = "<!-- measured: python -m benchmarks.parallel --http -->", "<!-- end of looks over HTTP -->"
SECOND = 0.03  # right answers that a second of the record is worth, over HTTP
MONEY = 0.01  # of a look, in units of reward; waiting comes on top
SECONDS = 0.3, 3.0
# boxes, correlation, share of the cost that comes back
CASES = (3, 0.0, 0.0), (4, 0.0, 0.0), (4, 0.0, 1.0), (3, 0.3, 0.0), (3, 0.8, 0.0), (3, 0.8, 1.0)
PRICES = 0.01, 0.03  # of a second
POLICIES: dict[str, Policy] = {
    "SideBySide": SideBySide(),
    "KnowledgeGradient": KnowledgeGradient(),
    "Rollout (one at a time)": Rollout(),
}
WAYS = ("best one at a time", "all at once or nothing", *POLICIES)


def instance(boxes: int, rho: float, back: float, second: float, rng: np.random.Generator) -> Lattice:
    """Boxes of means and spreads as in `benchmarks.gaps`, with looks of random length."""
    mean, std = rng.normal(0.5, 0.1, boxes), rng.uniform(0.1, 0.3, boxes)
    wait = second * np.exp(rng.uniform(*np.log(SECONDS), boxes))
    money = np.full(boxes, MONEY)
    refund = back * (money + wait)
    if rho == 0.0:
        return Lattice.independent(mean, std, money, wait, refund, 12)
    covariance = np.outer(std, std) * (rho + (1.0 - rho) * np.eye(boxes))
    return Lattice.joint(mean, covariance, money, wait, refund, 11)


def gaps(case: Lattice) -> list[float]:
    """What each of `WAYS` earns less than the optimum."""
    best = case.optimum()
    values = [case.optimum("single"), case.optimum("all"), *map(case.value, POLICIES.values())]
    return [1e4 * (best - value) for value in values]


def rows(count: int, seed: int, console: Console) -> list[list[str]]:
    """Mean gap and standard error over `count` instances of every case and price of a second."""
    lines = []
    cells = [(*case, second) for case in CASES for second in PRICES]
    for boxes, rho, back, second in track(cells, "cases", console=console):
        rng = np.random.default_rng([seed, boxes, int(100 * rho), int(back)])
        every = np.array([gaps(instance(boxes, rho, back, second, rng)) for _ in range(count)])
        error = every.std(axis=0, ddof=1) / np.sqrt(count)
        means = [f"{m:.1f} ({e:.1f})" for m, e in zip(every.mean(axis=0), error, strict=True)]
        lines.append([str(boxes), f"{rho:g}", "all" if back else "nothing", f"{second:g}", *means])
        console.print("  ".join(lines[-1]))
    return lines


@dataclass(frozen=True)
class OneAtATime:
    """A policy that is told that every look is waited for alone."""

    policy: Policy

    def start(self, state: State) -> Policy:
        return replace(self, policy=self.policy.start(_alone(state)))

    def next(self, state: State) -> Action:
        return self.policy.next(_alone(state))


def _alone(state: State) -> State:
    costs = state.boxes.costs
    plain = Costs(costs.own, costs.shared, costs.group, costs.refund)
    return replace(state, boxes=state.boxes._changed(costs=plain))  # type: ignore[attr-defined]


OVER_HTTP: dict[str, Policy] = {
    "one after the other": OneAtATime(KnowledgeGradient()),
    "prefixes (SideBySide)": SideBySide(),
    "sets (KnowledgeGradient)": KnowledgeGradient(),
    "all at once": Always(),
    "no looks": Never(),
}


def over_http(count: int, speed: float, at_once: int) -> str:
    """Right answers, money and seconds of each policy through a gateway, per question, with paired errors."""
    record = Recorded.read()
    prices = looks.tariffs(record)
    table = looks.priced(record, prices)
    router = looks.fitted(table, record, prices, StackRecipe())
    questions = looks.held_out(table, count)
    router.warm()
    found: dict[str, list[looks.Result]] = {}
    with closing(Stage(looks.played(record), speed=speed, played=True)) as stage:
        for way, policy in OVER_HTTP.items():
            found[way] = _asked(stage, router.with_policy(policy), prices, questions, speed, at_once)
    nets, lines = {}, []
    for way, every in found.items():
        reward = np.array([one.right - router.fee_weight * one.money for one in every])
        seconds = speed * np.array([one.seconds for one in every])
        nets[way] = reward - SECOND * seconds
        lead = nets[way] - nets["one after the other"]
        error = lead.std(ddof=1) / np.sqrt(len(lead))
        figures = [
            f"{np.mean([one.right for one in every]):.3f}",
            f"{np.mean([one.looks for one in every]):.2f}",
            f"{seconds.mean():.2f}",
            f"{np.quantile(seconds, 0.95):.2f}",
            f"{reward.sum() / seconds.sum():.4f}",
            f"{nets[way].mean():.4f}",
            f"{lead.mean():+.4f} ({error:.4f})",
        ]
        lines.append([way, *figures])
    head = ["looks", "right", "looks a question", "seconds", "p95", "reward per second", "net"]
    shown = grid([*head, "more than one after the other (se)"], lines)
    return (
        f"{len(questions)} held-out questions over HTTP at {speed:g} times the recorded speed; seconds are "
        f"those of the record. Reward is right answers less money, net is reward less {SECOND:g} per "
        f"second.\n\n{shown}"
    )


def _asked(
    stage: Stage,
    router: Router,
    prices: dict[str, Tariff],
    questions: list[Question],
    speed: float,
    at_once: int,
) -> list[looks.Result]:
    """The results of one policy, question by question."""
    second = SECOND * speed / router.fee_weight
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(looks.Served(stage, router, prices, Path(folder), second)) as served,
    ):
        for name in router.specialists:  # lengths are measured before they are used
            for question in questions[:3]:
                served.ask(name, question)
        return asyncio.run(looks._asked(lambda one: served.ask("auto", one), questions, at_once))


def put(page: Path, marks: tuple[str, str], text: str) -> None:
    """Write the text into the page, between its marks."""
    before, _, rest = page.read_text().partition(marks[0])
    after = rest.partition(marks[1])[2]
    replace_text(page, f"{before}{marks[0]}\n\n{text.strip()}\n\n{marks[1]}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--instances", type=int, default=10, help="per case and price (10)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--page", type=Path, help="write the table into this page, between its marks")
    parser.add_argument("--http", type=int, metavar="N", help="instead: N questions over HTTP")
    parser.add_argument("--speed", type=float, default=4.0, help="of the played answers (4)")
    parser.add_argument("--at-once", type=int, default=4, help="questions asked at the same time (4)")
    options = parser.parse_args()
    if options.http:
        told = over_http(options.http, options.speed, options.at_once)
        print(told)
        if options.page:
            put(options.page, HTTP, told)
        return
    console = Console(stderr=True)
    head = ["boxes", "correlation", "comes back", "price of a second", *WAYS]
    table = grid(head, rows(options.instances, options.seed, console))
    told = f"Gaps in 1e-4 of reward, mean (standard error) over {options.instances} instances.\n\n{table}"
    print(told)
    if options.page:
        put(options.page, MARKS, told)


if __name__ == "__main__":
    main()

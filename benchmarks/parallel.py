"""`python -m benchmarks.parallel`: looks side by side where a second has a price, against the exact optimum.

Small instances whose optimum is known: a few boxes, looks of 0.3 to 3 seconds, and a price of a second. Of
boxes opened together only the longest look is waited for. A gap is what a policy earns less than the best
search that may open any set at any time, in 1e-4 of reward; both are computed exactly, by following every
outcome. Compared are the best search that opens one box at a time, the better of everything at once and
nothing, and the policies of the library. In "all back" the whole cost of the box that is taken comes back.

With --page FILE the tables are written there between marks.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from tests.oracles.sets_optimum import Lattice

from pandora_router.folders import replace_text
from pandora_router.report.tables import grid
from pandora_router.search import KnowledgeGradient, Policy, Rollout, SideBySide

MARKS = "<!-- measured: python -m benchmarks.parallel -->", "<!-- end of measurement -->"
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--instances", type=int, default=10, help="per case and price (10)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--page", type=Path, help="write the table into this page, between its marks")
    options = parser.parse_args()
    console = Console(stderr=True)
    head = ["boxes", "correlation", "comes back", "price of a second", *WAYS]
    table = grid(head, rows(options.instances, options.seed, console))
    told = f"Gaps in 1e-4 of reward, mean (standard error) over {options.instances} instances.\n\n{table}"
    print(told)
    if options.page:
        before, _, rest = options.page.read_text().partition(MARKS[0])
        after = rest.partition(MARKS[1])[2]
        replace_text(options.page, f"{before}{MARKS[0]}\n\n{told.strip()}\n\n{MARKS[1]}{after}")


if __name__ == "__main__":
    main()

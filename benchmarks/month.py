"""A month with a budget in a minute: real requests over HTTP to a gateway whose clock is moved.

    OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 nice -n 10 python -m benchmarks.month --page docs/goals.md

For each shape of traffic a gateway with `goal: {budget, per: month}` answers the requests of a month, one
after another, from the fake provider on 127.0.0.1. Before each request the clock of this process is set to
the time at which it comes; the gateway computes its pace every two hours of that clock. What was spent is
read in the books of the provider. The best fixed worth in hindsight decides the same prompts under the same
stop.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path


class MovedClock:
    """The real time plus what `set` has moved the clock by."""

    def __init__(self) -> None:
        self._real, self._ahead = time.time, 0.0

    def __call__(self) -> float:
        return self._real() + self._ahead

    def set(self, now: float) -> None:
        """Make it `now`."""
        self._ahead = now - self._real()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("shapes", nargs="*", help="growing, weekly, spike, falling [all]")
    options.add_argument("--requests", type=int, default=400, help="about so many in each month")
    options.add_argument("--draws", type=int, default=3, help="months of each shape (3)")
    options.add_argument("--json", action="store_true")
    options.add_argument("--page", type=Path, help="also write the part `month` of this page")
    told = options.parse_args()
    clock = MovedClock()
    time.time = clock
    from tools.pages import put

    from benchmarks.simulated_month import SHAPES, page, run  # after the clock, which it must not see unmoved

    months = run(told.shapes or list(SHAPES), told.requests, told.draws, clock.set)
    print(json.dumps([asdict(one) for one in months]) if told.json else page(months))
    if told.page is not None:
        put(page(months), told.page, "month")


if __name__ == "__main__":
    main()

"""Processor seconds of the tests, with those of the processes that they started and waited for.

    pytest                     a line at the end: of all tests, and of those that `make quick` runs
    pytest --durations 20      also the twenty files that took most

A fixture of a module or of the session counts for the file that asked first; importing the test files counts
for none. Wall time says little on a machine that does other work beside the tests. `conftest.py` takes these
hooks.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

BEGAN = pytest.StashKey[float]()
SPENT, SLOW = "processor seconds", "slow"


def spent() -> float:
    """Processor seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Note when a test begins, before its fixtures are made."""
    item.stash[BEGAN] = spent()
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Give the last report of a test what it took; workers send it to the process that counts."""
    if call.when == "teardown":
        item.user_properties += [
            (SPENT, spent() - item.stash[BEGAN]),
            (SLOW, item.get_closest_marker("slow") is not None),
        ]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the sums, and the files that took most if `--durations` asks for them."""
    files: Counter[str] = Counter()
    quick = 0.0
    for report in (one for reports in terminalreporter.stats.values() for one in reports):
        told = dict(getattr(report, "user_properties", ()))
        if getattr(report, "when", "") == "teardown" and SPENT in told:
            files[report.nodeid.partition("::")[0]] += told[SPENT]
            quick += 0.0 if told[SLOW] else told[SPENT]
    terminalreporter.write_line(
        f"{files.total():.0f} processor seconds, {quick:.0f} of them in tests of `make quick`"
    )
    for name, seconds in files.most_common(config.option.durations or 0):
        terminalreporter.write_line(f"{seconds:8.1f}  {name}")

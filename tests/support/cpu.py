"""CPU seconds of each test file, with the processes that its tests started and waited for.

    pytest -p tests.support.cpu tests/cli

A fixture of the session counts for the file that asked first. Run it on one process (`-n 0`): the workers of
several print nothing. Wall time says little on a machine that does other work beside the tests.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest

_seconds: Counter[str] = Counter()


def _spent() -> float:
    """CPU seconds of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Count what one test takes, its fixtures included."""
    before = _spent()
    done = yield
    _seconds[item.location[0]] += _spent() - before
    return done


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the files, the heaviest first, and the sum."""
    terminalreporter.section("CPU seconds by file")
    for file, seconds in _seconds.most_common():
        terminalreporter.write_line(f"{seconds:8.1f}  {file}")
    terminalreporter.write_line(f"{sum(_seconds.values()):8.1f}  all")

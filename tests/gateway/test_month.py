"""Months through the real gateway with a moved clock: the budget holds, and lasts until the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_no_month_exceeds_its_budget_and_three_of_four_refuse_nobody() -> None:
    """In a process of its own, whose clock is moved; the provider's books say what was spent."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.month", "--requests", "300", "--draws", "1", "--json"],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    months = json.loads(done.stdout)
    assert len(months) == 4
    for month in months:
        assert 0.5 * month["budget"] < month["spent"] <= month["budget"]
        assert month["scored"] > 0.9 * month["best"]
    assert sum(month["first_refused"] is None for month in months) >= 3

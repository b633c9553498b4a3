"""The page about looks: one command runs what is missing, goes on where it stopped, and says what it has."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from paper.looks import main

from tests.evaluate.test_evaluate import write_folder

PAIR = """
title: A small pair
data: small
specialists: {cheap: 0, dear: 0.2}
peek: 40
neighbours: []
costs: [0.002, 0.05]
seeds: 2
"""
OPENED = "arms: [router, own, 'opened, no choice', open everything, never inspect, always inspect]"
REFUND = """inspection: {refund: full}
arms: [router, blind to refunds, never inspect, obligatory]"""


@pytest.mark.slow
def test_the_page_goes_on_where_it_stopped(tmp_path: Path) -> None:
    write_folder(tmp_path / "data" / "small")
    experiments = tmp_path / "experiments"
    experiments.mkdir()
    (experiments / "opened_pair_40.yaml").write_text(PAIR + OPENED)
    (experiments / "refund_pair.yaml").write_text(PAIR + REFUND)
    results, page = tmp_path / "results", tmp_path / "looks.md"

    def look(*more: str) -> str:
        options = ["--experiments", str(experiments), "--page", str(page), *more]
        done = CliRunner().invoke(main, [str(results), *options], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return page.read_text(encoding="utf-8")

    run = ("--data", str(tmp_path / "data"), "--workers", "1")
    text = look(*run, "--only", "opened", "--seeds", "1")
    assert "| A small pair | 40 | 1 |" in text
    assert "Not measured yet: refund_pair." in text
    assert "Splits that are missing: opened_pair_40 (1 of 2)." in text
    first = results / "opened_pair_40" / "seed-1.parquet"
    before = first.stat().st_mtime_ns
    text = look(*run)
    assert first.stat().st_mtime_ns == before
    assert "| A small pair | 40 | 2 |" in text
    assert "| A small pair | 2 |" in text
    assert "missing" not in text
    assert "Not measured" not in text
    assert len(list((results / "cache").glob("*.safetensors"))) == 2  # both experiments share their estimates
    assert look() == text  # nothing to run: the same page from what is finished

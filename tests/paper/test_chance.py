"""How many cells are behind by chance: against independent cells, and against cells that go together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from paper.chance import behind_by_chance

from pandora_router.evaluate import results
from tests.evaluate.test_evaluate import YAML, write_folder
from tests.support.command import pandora


def test_signs_drawn_anew_put_cells_behind_as_often_as_a_normal_number_and_together(tmp_path: Path) -> None:
    """The draws of one experiment by hand: the same signs for all costs, errors over prompts and splits."""
    write_folder(tmp_path / "small")
    (tmp_path / "pair.yaml").write_text(YAML)
    done = pandora("evaluate", tmp_path / "pair.yaml", "-o", tmp_path / "out", "--data", tmp_path)
    assert done.exit_code == 0, done.output
    found = results.read(tmp_path / "out" / "pair")
    draws = behind_by_chance([found], {"pair": "small"}, draws=4000)
    cells = len(found.costs)
    assert 0 <= draws.min() <= draws.max() <= cells
    assert 0.02 * cells < draws.mean() < 0.25 * cells  # 0.159 of the cells; less where splits differ much
    twice = behind_by_chance([found, found], {"pair": "small"}, draws=4000)
    np.testing.assert_array_equal(twice, 2 * draws)  # equal data, equal signs
    # more than independent cells, of which the ratio of 4,000 draws would be 1 give or take .03
    assert draws.var() > 1.1 * draws.mean() * (1.0 - draws.mean() / cells)
    assert behind_by_chance([], {}).tolist() == pytest.approx([0] * 1000)

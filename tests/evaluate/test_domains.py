"""Tables of experiments: folders side by side, tasks, stated sizes, recorded costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pandora_router.config.experiments import experiment as parse
from pandora_router.errors import UsageError
from pandora_router.evaluate.estimates import estimates, read, table_of
from pandora_router.evaluate.trials import trial_of


def folder(
    path: Path, ids: list[int], scores: dict[str, list[float | None]], params: dict[str, float | None]
) -> None:
    """Prompts with these ids; None is an answer that was never graded."""
    path.mkdir(parents=True)
    tasks = ["sums/easy" if i % 2 else "proofs" for i in ids]
    prompts = {"prompt_id": ids, "prompt": [f"question {i} of many" for i in ids], "task": tasks}
    pq.write_table(pa.table({**prompts, "split": ["train"] * len(ids)}), path / "prompts.parquet")
    cells = [(i, m, x) for m, each in scores.items() for i, x in zip(ids, each, strict=True) if x is not None]
    long = {name: [cell[at] for cell in cells] for at, name in enumerate(("prompt_id", "model", "score"))}
    cost = [0.001 * (1 + i % 3) for i in long["prompt_id"]]
    pq.write_table(pa.table({**long, "cost_usd": cost}), path / "scores.parquet")
    models = pa.table({"model": list(params), "params_b": pa.array(list(params.values()), pa.float64())})
    pq.write_table(models, path / "models.parquet")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two folders that share prompts 3 to 8; `late` has no score there, `gappy` lacks one."""
    first = {"small": [1.0] * 8, "late": [1.0, 1.0, 1.0, *([None] * 5)]}
    folder(tmp_path / "one", list(range(8)), first, {"small": 10.0, "late": 20.0})
    second = {"large": [0.0] * 7, "gappy": [1.0, None, *([1.0] * 5)]}
    folder(tmp_path / "two", list(range(3, 10)), second, {"large": 100.0, "gappy": None})
    return tmp_path


def test_folders_stand_side_by_side_on_common_prompts(root: Path) -> None:
    given = {"data": ["one", "two"], "fee_per_trillion": 2, "parameters": {"gappy": 50}}
    table = read(parse("x", given), root)
    assert table.specialists == ("small", "large", "gappy")  # `late` has no score on the common prompts
    assert table.prompt_ids == ("3", "4", "5", "6", "7")
    assert table.fee[0].tolist() == pytest.approx([0.02, 0.2, 0.1])
    assert np.argwhere(table.missing).tolist() == [[1, 2]]  # the gap is kept, not filled


def test_tasks_are_picked_by_name_or_beginning(root: Path) -> None:
    everything = read(parse("x", {"data": "one"}), root)
    easy = read(parse("x", {"data": "one", "tasks": ["sums/"]}), root)
    both = read(parse("x", {"data": "one", "tasks": ["sums/", "proofs"]}), root)
    assert easy.prompt_ids == ("1", "3", "5", "7")
    assert both.fingerprint() == everything.fingerprint()


def test_recorded_costs_are_fees(root: Path) -> None:
    table = read(parse("x", {"data": "one", "fee_column": "cost_usd", "fee_weight": 20}), root)
    expected = [0.02 * (1 + i % 3) for i in range(8)]
    assert (table.score - table.reward)[:, 0].tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": "one", "tasks": ["proof"]}, "Did you mean 'proofs'"),
        ({"data": "two", "fee_per_trillion": 1}, "fee for every answer"),
        ({"data": "one", "fee_per_trillion": 1, "parameters": {"gappy": 5}}, "specialists of the data"),
        ({"data": ["one", "one"]}, "different names"),
        ({"data": []}, "1 or more values"),
        ({"data": "one", "fee_column": "price"}, "cost_usd"),
    ],
)
def test_what_does_not_fit_is_told_plainly(root: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(parse("x", given), root)


def test_sizes_matter_only_for_those_who_take_part(root: Path) -> None:
    table = table_of(parse("x", {"data": "two", "fee_per_trillion": 1, "specialists": ["large"]}), root)
    assert table.fee[0].tolist() == pytest.approx([0.1])


def test_prompts_without_every_reward_are_fitted_on_but_not_judged(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ids = list(range(120))
    scores = {name: [float(x) for x in rng.random(120) < 0.6] for name in ("a", "b")}
    gaps = [x if i % 4 else None for i, x in enumerate(scores["b"])]
    folder(tmp_path / "gappy", ids, {**scores, "b": gaps}, {"a": 1.0, "b": 2.0})
    experiment = parse("x", {"data": "gappy", "neighbours": [5]})
    table = table_of(experiment, tmp_path)
    made = estimates(experiment, table, 1)
    judged = trial_of(made, 5).test
    assert len(made["test_score"]) == 36  # 0.3 of 120
    whole = np.isfinite(made["test_score"]).all(axis=1)
    assert 0 < len(judged) == whole.sum() < 36
    assert np.isfinite(made["test_g"]).all()


def test_experiments_on_the_same_table_share_estimates(root: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    scores = {name: [float(x) for x in rng.random(60) < 0.6] for name in ("a", "b")}
    folder(tmp_path / "both", list(range(60)), scores, {"a": 1.0, "b": 2.0})
    for name, costs in (("one", [0.1]), ("other", [0.2])):
        experiment = parse(name, {"data": "both", "neighbours": [5], "costs": costs})
        estimates(experiment, table_of(experiment, tmp_path), 1, tmp_path / "cache")
    assert [path.name[:4] for path in (tmp_path / "cache").iterdir()] == ["one-"]

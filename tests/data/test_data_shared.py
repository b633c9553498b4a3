"""The importer on real folders, against the counts that their own READMEs state and against pyarrow."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pandora_router.data import Free, FromColumn, PerParameter, Table, beside, load, resplit, save
from pandora_router.data.check import summarise
from pandora_router.data.importers import read_folder
from pandora_router.data.splits import crossing
from pandora_router.errors import UsageError

ROOT = Path(__file__).resolve().parents[3] / "shared" / "data"
pytestmark = pytest.mark.skipif(not ROOT.is_dir(), reason="no folder ../shared/data beside the repository")


@cache
def read(name: str) -> Table:
    return read_folder(ROOT / name, fees=Free())


# name, prompts, specialists, scores, repeated texts, best single, oracle: from the READMEs
STATED = [
    ("openllm_pool", 18_334, 19, 336_314, 163, None, None),
    ("mmlupro_cot", 12_032, 29, 347_215, 159, 0.702, None),
    ("zeroeval_math", 2_040, 29, 59_160, None, None, None),
    ("gsm8k_6b_175b", 1_319, 4, 5_276, None, 0.563, 0.672),
    ("rag_adarague", 6_000, 3, 18_000, None, 0.412, 0.523),
    ("rag_mirage", 7_663, 4, 30_652, 79, 0.731, 0.874),
    ("routellm", 15_361, 2, 30_722, 105, None, None),
    ("routerbench_part", 3_150, 11, 34_650, None, 0.879, 0.976),
    ("routerdc7", 13_747, 7, 96_229, None, 0.577, 0.766),
]


@pytest.mark.parametrize(("name", "n", "m", "scores", "repeated", "best", "oracle"), STATED)
def test_counts_and_rewards_are_those_of_the_readme(name, n, m, scores, repeated, best, oracle):
    summary = summarise(read(name))
    assert (summary.prompts, len(summary.specialists), summary.scores) == (n, m, scores)
    assert summary.missing_cells == n * m - scores
    assert summary.available is not None
    if repeated is not None:
        assert summary.duplicate_prompts == repeated
    if best is not None:
        assert summary.available.best_single.reward.mean == pytest.approx(best, abs=6e-4)
    if oracle is not None:
        assert summary.available.oracle.mean == pytest.approx(oracle, abs=6e-4)


def test_openllm_pool_by_parts():
    table = read("openllm_pool")
    assert round(100 * float((~table.missing).mean()), 1) == 96.5
    hard = np.array([task.startswith("mmlu_pro/") for task in table.tasks])
    for part, best, oracle in ((table.rows(hard), 0.568, 0.879), (table.rows(~hard), 0.735, 0.973)):
        result = summarise(part).available
        assert result is not None
        assert result.best_single.reward.mean == pytest.approx(best, abs=6e-4)
        assert result.oracle.mean == pytest.approx(oracle, abs=6e-4)
    missing = dict(zip(table.specialists, table.missing.sum(axis=0).tolist(), strict=True))
    assert {name for name, count in missing.items() if count} == {"upstage/SOLAR-10.7B-Instruct-v1.0"}


def test_mmlupro_missing_cells_are_where_the_readme_says():
    table = read("mmlupro_cot")
    there = dict(zip(table.specialists, (~table.missing).sum(axis=0).tolist(), strict=True))
    short = {name: count for name, count in there.items() if count < 12_032}
    assert short == {
        "DeepSeek-Coder-V2": 10_351,
        "gemini-1.5-flash-002": 12_012,
        "gemini-1.5-pro-002": 12_020,
    }
    complete = summarise(table).complete
    assert complete is not None
    assert complete.prompts == 10_326
    assert complete.oracle.mean == pytest.approx(0.95, abs=5e-3)


@pytest.mark.parametrize("name", [row[0] for row in STATED])
def test_every_cell_is_the_one_in_the_file(name):
    """A thousand rows of the long file, looked up one by one."""
    table = read(name)
    rows, columns = ({k: i for i, k in enumerate(keys)} for keys in (table.prompt_ids, table.specialists))
    file = pq.read_table(ROOT / name / "scores.parquet", columns=["prompt_id", "model", "score"])
    for row in file.take(np.random.default_rng(0).choice(len(file), 1000)).to_pylist():
        assert table.score[rows[str(row["prompt_id"])], columns[row["model"]]] == row["score"]
    prompts = pq.read_table(ROOT / name / "prompts.parquet")
    assert table.prompts == tuple(prompts["prompt"].to_pylist())
    assert table.tasks == tuple(prompts["task"].to_pylist())
    names = {"val": "calibration", "ood": ""}
    assert table.split.tolist() == [names.get(s, s) for s in prompts["split"].to_pylist()]


@pytest.mark.parametrize("name", ["zeroeval_math", "rag_adarague", "routellm"])
def test_contexts_stand_in_their_cells(name):
    table = read(name)
    assert table.contexts is not None
    rows, columns = ({k: i for i, k in enumerate(keys)} for keys in (table.prompt_ids, table.specialists))
    file = pq.read_table(ROOT / name / "context.parquet").to_pylist()
    for row in file[:: len(file) // 500]:
        cell = table.contexts[rows[str(row["prompt_id"])], columns[row["model"]]]
        assert cell == (row["context"] or None)
    assert sum(text is not None for text in table.contexts.ravel()) == sum(
        bool(row["context"]) for row in file
    )


def test_two_folders_side_by_side_give_47_columns():
    joined = beside(read("openllm_pool"), read("mmlupro_cot"), shared=True)
    assert joined.shape == (12_032, 48)
    joined = joined.only(joined.answered)  # SOLAR has no MMLU-Pro answers
    assert joined.shape == (12_032, 47)
    assert int((~joined.missing.any(axis=0)).sum()) == 44


def test_fees_from_columns_and_parameters():
    table = read_folder(ROOT / "routerbench_part", fees=FromColumn("cost_usd"), fee_weight=10.0)
    models = {
        row["model"]: row for row in pq.read_table(ROOT / "routerbench_part" / "models.parquet").to_pylist()
    }
    for name, fee in zip(table.specialists, table.fee.mean(axis=0), strict=True):
        assert fee == pytest.approx(models[name]["mean_cost_usd"], rel=1e-4)
    with pytest.raises(UsageError, match=r"gemini-1.5-flash-002"):
        read_folder(ROOT / "mmlupro_cot", fees=PerParameter(1.0))
    with pytest.raises(UsageError, match=r"multi_step_ircot \(3000 answers\)"):
        read_folder(ROOT / "rag_adarague", fees=FromColumn("retrieval_steps"))
    samples = PerParameter(1.0, samples="samples_per_question")
    assert read_folder(ROOT / "gsm8k_6b_175b", fees=samples).fee[0].tolist() == pytest.approx(
        [0.006, 0.6, 0.175, 17.5]
    )


def test_a_real_table_survives_the_disk_and_a_new_split(tmp_path):
    table = resplit(read("rag_mirage"), seed=11)
    assert crossing(table) == ()
    for task in set(table.tasks):
        part = table.split[np.array(table.tasks) == task]
        assert (part == "train").mean() == pytest.approx(0.6, abs=0.01)
        assert (part == "test").mean() == pytest.approx(0.2, abs=0.01)
    save(table, tmp_path / "t")
    assert load(tmp_path / "t").fingerprint() == table.fingerprint()

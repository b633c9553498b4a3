"""Experiments from YAML to results, reports and exit codes, on a small folder written here."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from pandora_router.cli.compare import compare
from pandora_router.cli.evaluate import evaluate
from pandora_router.errors import UsageError
from pandora_router.evaluate import campaign, results
from pandora_router.evaluate.experiments import Inspection, load, parse
from pandora_router.run import Pool

YAML = """
title: A small pair
data: small
specialists: {cheap: 0, dear: 0.2}
peek: 40
neighbours: [5, 3]
costs: [0.001, 0.05]
seeds: 2
arms: [mean-only, inspect-all, "margin-N, mean", oracle]
"""


def write_folder(path: Path, prompts: int = 240) -> None:
    rng = np.random.default_rng(0)
    path.mkdir(parents=True)
    hard = rng.random(prompts) < 0.5
    texts = [f"{'prove lemma' if h else 'add numbers'} {i} please" for i, h in enumerate(hard)]
    ids = list(range(prompts))
    task = ["t"] * prompts
    pq.write_table(pa.table({"prompt_id": ids, "prompt": texts, "task": task}), path / "prompts.parquet")
    right = {"cheap": rng.random(prompts) < np.where(hard, 0.3, 0.8), "dear": rng.random(prompts) < 0.8}
    long = [(i, name, float(right[name][i])) for name in right for i in ids]
    columns = dict(zip(("prompt_id", "model", "score"), map(list, zip(*long, strict=True)), strict=True))
    pq.write_table(pa.table(columns), path / "scores.parquet")
    says = ["it is surely so" if x else "hm, not certain" for _, _, x in long]
    context = {"prompt_id": columns["prompt_id"], "model": columns["model"], "context": says}
    pq.write_table(pa.table(context), path / "context.parquet")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, an experiment and its results."""
    home = tmp_path_factory.mktemp("evaluate")
    write_folder(home / "small")
    (home / "pair.yaml").write_text(YAML)
    done = CliRunner().invoke(evaluate, [str(home / "pair.yaml"), "-o", str(home / "results")])
    assert done.exit_code == 0, done.output
    assert "The default router" in done.output
    return home


def test_results_have_a_row_per_arm_cost_and_neighbours(ran: Path) -> None:
    found = results.read(ran / "results" / "pair")
    assert len(found.seeds) == 2
    assert found.arms == ("knowledge gradient", "mean-only", "inspect-all", "margin-N, mean", "oracle")
    assert len(found.keys) == 5 * 2 * 2
    assert found.mean("total", (5, 0.05, "oracle")) == 0.0
    slope = found.mean("total", (5, 0.05, "inspect-all")) - found.mean("total", (5, 0.001, "inspect-all"))
    assert slope == pytest.approx(2 * 0.049)


def test_finished_seeds_are_not_run_again_and_changed_ones_are(ran: Path) -> None:
    experiment = load(ran / "pair.yaml")
    files = sorted((ran / "results" / "pair").glob("*.parquet"))
    before = {path: path.stat().st_mtime_ns for path in files}
    campaign.run(experiment, ran, ran / "results")
    assert {path: path.stat().st_mtime_ns for path in files} == before
    key = results.asked_for(experiment, [], "data", 1)
    others = {
        results.asked_for(replace(experiment, costs=(0.1,)), [], "data", 1),
        results.asked_for(experiment, ["an arm"], "data", 1),
        results.asked_for(experiment, [], "other data", 1),
        results.asked_for(experiment, [], "data", 2),
    }
    assert len(others | {key}) == 5


def test_a_change_of_data_reruns(ran: Path, tmp_path: Path) -> None:
    """One score changed in the file, no setting: other results, as from an empty folder."""
    shutil.copytree(ran / "results" / "pair", tmp_path / "old" / "pair")
    shutil.copytree(ran / "small", tmp_path / "small")
    scores = tmp_path / "small" / "scores.parquet"
    columns = pq.read_table(scores).to_pydict()
    columns["score"] = [1.0 - x if i < 40 else x for i, x in enumerate(columns["score"])]
    pq.write_table(pa.table(columns), scores)
    experiment = load(ran / "pair.yaml")
    again = campaign.run(experiment, tmp_path, tmp_path / "old", seeds=[1])
    fresh = campaign.run(experiment, tmp_path, tmp_path / "new", seeds=[1])
    assert again.seeds[1].rows == fresh.seeds[1].rows
    assert again.seeds[1].rows != results.read(ran / "results" / "pair").seeds[1].rows


def test_the_same_seed_gives_the_same_results_with_and_without_cache(ran: Path, tmp_path: Path) -> None:
    """The first ran over processes (the default), these in this process and in three."""
    first = results.read(ran / "results" / "pair")
    for runner in (None, Pool(3)):
        again = campaign.run(
            load(ran / "pair.yaml"), ran, tmp_path / repr(runner), seeds=[2, 1], runner=runner
        )
        assert again.seeds[1].rows == first.seeds[1].rows
        keys = first.keys
        for n in (1, 2):
            mine, theirs = again.seeds[n].totals(keys), first.seeds[n].totals(keys)
            assert all(np.array_equal(mine[key], theirs[key]) for key in keys)


def test_an_interrupted_run_is_clean_and_goes_on(ran: Path, tmp_path: Path) -> None:
    """Ctrl-C after the first split: no traceback, no drafts; the next run does the others alone."""
    (ran / "five.yaml").write_text(YAML.replace("seeds: 2", "seeds: 4"))
    code = "from pandora_router.cli.main import main; main()"
    command = [sys.executable, "-c", code, "evaluate", str(ran / "five.yaml"), "-o", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    run = subprocess.Popen(
        [*command, "--workers", "1"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    until = time.monotonic() + 60
    while not (done := sorted(tmp_path.glob("five/seed-*.parquet"))) and time.monotonic() < until:
        time.sleep(0.02)
    os.killpg(run.pid, signal.SIGINT)
    _, told = run.communicate(timeout=30)
    assert (run.returncode, told.strip()) == (1, b"Aborted!")
    assert 1 <= len(done) < 4
    assert not list((tmp_path / "five").glob(".*"))
    before = {path: path.stat().st_mtime_ns for path in done}
    subprocess.run([*command, "--workers", "2"], env=environment, check=True, capture_output=True, timeout=60)
    assert {path: path.stat().st_mtime_ns for path in done} == before
    again, first = results.read(tmp_path / "five"), results.read(ran / "results" / "pair")
    assert sorted(again.seeds) == [1, 2, 3, 4]
    rows = [{**row, "experiment": "pair"} for row in again.seeds[2].rows.values()]
    assert rows == list(first.seeds[2].rows.values())


def test_workers_and_a_cluster_exclude_each_other(ran: Path) -> None:
    asked = [str(ran / "pair.yaml"), "-o", str(ran / "results"), "--ray", "auto", "--workers", "2"]
    done = CliRunner().invoke(evaluate, asked)
    assert (done.exit_code, "The cluster knows its cores" in done.output) == (2, True)


def test_json_and_reports_load_nothing(ran: Path) -> None:
    arguments = [str(ran / "pair.yaml"), "-o", str(ran / "results"), "--finished", "--json"]
    done = CliRunner().invoke(evaluate, [*arguments, "--report", str(ran / "results.md")])
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)) == 5 * 2 * 2 * 2
    assert "1e-3 above the envelope" in (ran / "results.md").read_text()


def test_figures_are_written(ran: Path) -> None:
    pytest.importorskip("matplotlib")
    arguments = [str(ran / "pair.yaml"), "-o", str(ran / "results"), "--finished"]
    done = CliRunner().invoke(evaluate, [*arguments, "--plots", str(ran / "plots")])
    assert done.exit_code == 0, done.output
    assert (ran / "plots" / "pair.png").read_bytes()[:4] == b"\x89PNG"


def test_compare_has_an_exit_code(ran: Path) -> None:
    folder = str(ran / "results" / "pair")
    assert CliRunner().invoke(compare, [folder, folder]).exit_code == 0
    worse = CliRunner().invoke(compare, [folder, folder, "--arm", "oracle", "--arm-b", "inspect-all"])
    assert worse.exit_code == 1, worse.output
    better = ["--arm", "inspect-all", "--arm-b", "oracle", "--json"]
    assert CliRunner().invoke(compare, [folder, folder, *better]).exit_code == 0
    assert CliRunner().invoke(compare, [folder, str(ran)]).exit_code == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"data": "x", "cost": [0.1]}, "Did you mean 'costs'"),
        ({"costs": [0.1]}, "a folder"),
        ({"data": "x", "costs": []}, "a list, not empty"),
        ({"data": "x", "costs": [-0.1]}, "0 or more"),
        ({"data": "x", "seeds": 1.5}, "a whole number"),
        ({"data": "x", "split": [0.5, 0.5]}, "three shares"),
        ({"data": "x", "control": "yes"}, "true or false"),
        ({"data": "x", "specialists": {"a": "free"}}, "a number"),
        ({"data": "x", "inspection": {"share": 1}}, "Did you mean 'shared'"),
        ([1, 2], "keys with values"),
    ],
)
def test_a_bad_experiment_is_told_plainly(content: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse("bad", content)


def test_costs_can_differ_and_be_shared() -> None:
    costs = Inspection(shared=2.0, own={"a": 0.0}).costs(0.01, ("a", "b"))
    assert costs.marginal.tolist() == pytest.approx([0.02, 0.03])
    assert costs.paid(0).marginal.tolist() == pytest.approx([0.0, 0.01])


def test_every_experiment_of_the_repository_is_well_formed() -> None:
    files = sorted((Path(__file__).resolve().parents[2] / "experiments").glob("*.yaml"))
    assert len(files) >= 10
    for path in files:
        assert load(path).title

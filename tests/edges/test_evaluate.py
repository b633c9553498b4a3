"""Experiments from YAML to results, reports and exit codes, on a small folder written here."""

from __future__ import annotations

import json
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
    campaign.run(experiment, Path("no such folder"), ran / "results")
    assert {path: path.stat().st_mtime_ns for path in files} == before
    with pytest.raises(UsageError):  # other costs: the data is needed again
        campaign.run(
            parse("pair", {"data": "small", "costs": [0.1]}), Path("no such folder"), ran / "results"
        )


def test_the_same_seed_gives_the_same_results_with_and_without_cache(ran: Path, tmp_path: Path) -> None:
    again = campaign.run(load(ran / "pair.yaml"), ran, tmp_path, seeds=[1])
    first = results.read(ran / "results" / "pair")
    assert again.seeds[1].rows == first.seeds[1].rows


def test_json_and_reports_load_nothing(ran: Path) -> None:
    arguments = [str(ran / "pair.yaml"), "-o", str(ran / "results"), "--finished", "--json"]
    done = CliRunner().invoke(evaluate, [*arguments, "--report", str(ran / "results.md")])
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)) == 5 * 2 * 2 * 2
    assert "1e-3 above the envelope" in (ran / "results.md").read_text()


def test_the_page_is_self_contained_and_figures_are_written(ran: Path) -> None:
    pytest.importorskip("matplotlib")
    arguments = [str(ran / "pair.yaml"), "-o", str(ran / "results"), "--finished"]
    written = ["--plots", str(ran / "plots"), "--html", str(ran / "page.html")]
    done = CliRunner().invoke(evaluate, [*arguments, *written])
    assert done.exit_code == 0, done.output
    page = (ran / "page.html").read_text()
    assert "<svg" in page
    assert "<script" not in page
    assert 'src="http' not in page
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

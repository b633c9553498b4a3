"""Experiments from YAML to results, reports and exit codes, on a small folder written here."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from paper.__main__ import main as reproduce
from rich.console import Console

from pandora_router.cli.console import SlowProgress
from pandora_router.config.experiments import experiment as parse
from pandora_router.config.experiments import read_experiment
from pandora_router.errors import UsageError
from pandora_router.evaluate import campaign, flips, reliability, results
from pandora_router.evaluate.arms import ARMS, BY_NAME, RAW
from pandora_router.evaluate.campaign import Campaign
from pandora_router.evaluate.estimates import estimates, recipe_of, split_of, table_of
from pandora_router.evaluate.experiments import Experiment
from pandora_router.evaluate.trials import trial_of
from pandora_router.folders.saved import read_arrays, write_arrays
from pandora_router.router import Router, SetRecipe
from pandora_router.router.inspection import Inspection
from pandora_router.run import on_one_core
from pandora_router.search import Never
from tests.support.command import pandora

YAML = """
title: A small pair
data: small
specialists: {cheap: 0, dear: 0.2}
peek: 40
neighbours: [3]
costs: [0.001, 0.05]
seeds: 2
arms: [never inspect, "always inspect, raw g", margin, oracle]
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
    done = pandora("evaluate", str(home / "pair.yaml"), "-o", str(home / "results"))
    assert done.exit_code == 0, done.output
    assert "The router: " in done.output
    return home


def test_results_have_a_row_per_arm_cost_and_neighbours(ran: Path) -> None:
    found = results.read(ran / "results" / "pair")
    assert len(found.seeds) == 2
    assert found.arms == ("router", "never inspect", RAW, "margin", "oracle")
    assert len(found.keys) == 5 * 2 * 2
    assert found.mean("total", (0, 0.05, "oracle")) == 0.0
    high, low = (found.mean("total", (0, cost, RAW)) for cost in (0.05, 0.001))
    assert high - low == pytest.approx(2 * 0.049)


def test_finished_seeds_are_not_run_again_and_changed_ones_are(ran: Path) -> None:
    experiment = read_experiment(ran / "pair.yaml")
    files = sorted((ran / "results" / "pair").glob("*.parquet"))
    before = {path: path.stat().st_mtime_ns for path in files}
    campaign.run([Campaign(experiment, ran)], ran / "results")
    assert {path: path.stat().st_mtime_ns for path in files} == before
    keys = {
        results.asked_for(results.settings_of(one, arms, version), data)
        for one, arms, version, data in (
            (experiment, [], 1, "data"),
            (replace(experiment, costs=(0.1,)), [], 1, "data"),
            (experiment, ["an arm"], 1, "data"),
            (experiment, [], 2, "data"),
            (experiment, [], 1, "other data"),
        )
    }
    assert len(keys) == 5


def test_splits_of_different_settings_are_never_mixed(ran: Path, tmp_path: Path) -> None:
    """Seed 1 as it is, seed 2 run with other costs: neither reading nor --finished averages them."""
    shutil.copytree(ran / "results" / "pair", tmp_path / "pair")
    other = replace(read_experiment(ran / "pair.yaml"), costs=(0.002,))
    campaign.run([Campaign(other, ran, [2])], tmp_path / "other")
    for file in (tmp_path / "other" / "pair").glob("*-2.parquet"):
        shutil.copy(file, tmp_path / "pair" / file.name)
    with pytest.raises(UsageError, match="several settings: seed-1, seed-2"):
        results.read(tmp_path / "pair")
    asked = ["evaluate", str(ran / "pair.yaml"), "-o", str(tmp_path), "--finished", "--json"]
    done = pandora(*asked)
    assert done.exit_code == 0, done.output
    assert {row["seed"] for row in json.loads(done.stdout)} == {1}
    (ran / "changed.yaml").write_text(YAML.replace("0.05]", "0.06]"))
    shutil.copytree(tmp_path / "pair", tmp_path / "changed")
    refused = pandora("evaluate", str(ran / "changed.yaml"), "-o", str(tmp_path), "--finished")
    assert (refused.exit_code, "only splits of other settings" in refused.stderr) == (2, True)


def test_a_change_of_data_reruns(ran: Path, tmp_path: Path) -> None:
    """One score changed in the file, no setting: other results, as from an empty folder."""
    shutil.copytree(ran / "results" / "pair", tmp_path / "old" / "pair")
    shutil.copytree(ran / "small", tmp_path / "small")
    scores = tmp_path / "small" / "scores.parquet"
    columns = pq.read_table(scores).to_pydict()
    columns["score"] = [1.0 - x if i < 40 else x for i, x in enumerate(columns["score"])]
    pq.write_table(pa.table(columns), scores)
    experiment = read_experiment(ran / "pair.yaml")
    wanted = [Campaign(experiment, tmp_path, [1])]
    (again,), (fresh,) = (campaign.run(wanted, tmp_path / name) for name in ("old", "new"))
    assert again.seeds[1].rows == fresh.seeds[1].rows
    assert again.seeds[1].rows != results.read(ran / "results" / "pair").seeds[1].rows


def test_the_same_seed_gives_the_same_results_with_and_without_cache(ran: Path, tmp_path: Path) -> None:
    """The first ran over processes (the default), this one in this process and the other way round."""
    first = results.read(ran / "results" / "pair")
    (again,) = campaign.run([Campaign(read_experiment(ran / "pair.yaml"), ran, [2, 1])], tmp_path)
    assert again.seeds[1].rows == first.seeds[1].rows
    keys = first.keys
    for n in (1, 2):
        mine, theirs = again.seeds[n].totals(keys), first.seeds[n].totals(keys)
        assert all(np.array_equal(mine[key], theirs[key]) for key in keys)


def misshaped(path: Path) -> None:
    arrays = read_arrays(path)
    write_arrays(path, {**arrays, "test_g": arrays["test_g"][:-1]})


def incomplete(path: Path) -> None:
    write_arrays(path, {name: a for name, a in read_arrays(path).items() if name != "calibration_f0"})


def of_strange_names(path: Path) -> None:
    write_arrays(path, {**read_arrays(path), "some_rows": np.zeros(3)})


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8])


@pytest.mark.parametrize("spoil", [misshaped, incomplete, of_strange_names, truncated])
def test_spoilt_estimates_in_the_cache_are_made_anew(
    ran: Path, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    experiment = read_experiment(ran / "pair.yaml")
    table = table_of(experiment, ran)
    shutil.copytree(ran / "results" / "cache", tmp_path / "cache")
    first = estimates(experiment, table, 1, tmp_path / "cache")
    [path] = (tmp_path / "cache").glob("*-1-*")
    whole = path.read_bytes()
    assert estimates(experiment, table, 1, tmp_path / "cache").keys() == first.keys()
    assert path.read_bytes() == whole
    spoil(path)
    again = estimates(experiment, table, 1, tmp_path / "cache")
    same = {name: np.array_equal(again[name], first[name], equal_nan=True) for name in first}
    assert all(same[name] for name in same if name != "seconds")
    assert read_arrays(path).keys() == first.keys()


def test_an_interrupted_run_is_clean_and_goes_on(ran: Path, tmp_path: Path) -> None:
    """Ctrl-C after the first split: no traceback, no drafts; the next run does the others alone."""
    (ran / "three.yaml").write_text(YAML.replace("seeds: 2", "seeds: 3"))
    code = "from pandora_router.cli.main import main; main()"
    arguments = ["evaluate", str(ran / "three.yaml"), "-o", str(tmp_path), "--workers", "1"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    run = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    until = time.monotonic() + 300
    while not (done := sorted(tmp_path.glob("three/seed-*.parquet"))) and time.monotonic() < until:
        time.sleep(0.02)
    os.killpg(run.pid, signal.SIGINT)
    _, told = run.communicate(timeout=120)
    assert run.returncode == 130
    assert b"Interrupted. Finished work is kept" in told
    assert b"Traceback" not in told
    assert 1 <= len(done) < 3
    assert not list((tmp_path / "three").glob(".*"))
    before = {path: path.stat().st_mtime_ns for path in done}
    assert pandora(*arguments).exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in done} == before
    again, first = results.read(tmp_path / "three"), results.read(ran / "results" / "pair")
    assert sorted(again.seeds) == [1, 2, 3]
    rows = [{**row, "experiment": "pair"} for row in again.seeds[2].rows.values()]
    assert rows == list(first.seeds[2].rows.values())


def test_the_bar_appears_while_the_first_shard_is_under_way() -> None:
    file = io.StringIO()
    with SlowProgress(0.05, Console(file=file, force_terminal=True)) as progress:
        progress("pair: seed 1 ...", 0, 5)
        time.sleep(0.5)
        shown = file.getvalue()
    assert "pair: seed 1" in shown


def test_workers_and_a_cluster_exclude_each_other(ran: Path) -> None:
    asked = [str(ran / "pair.yaml"), "-o", str(ran / "results"), "--ray", "auto", "--workers", "2"]
    done = pandora("evaluate", *asked)
    assert (done.exit_code, "The cluster knows its cores" in done.output) == (2, True)


def test_json_and_reports_load_nothing(ran: Path) -> None:
    arguments = [str(ran / "pair.yaml"), "-o", str(ran / "results"), "--finished", "--json"]
    done = pandora("evaluate", *arguments, "--report", str(ran / "results.md"))
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)) == 5 * 2 * 2 * 2
    assert "1e-3 above the envelope" in (ran / "results.md").read_text()


def test_figures_are_written(ran: Path) -> None:
    pytest.importorskip("matplotlib")
    arguments = [str(ran / "pair.yaml"), "-o", str(ran / "results"), "--finished"]
    done = pandora("evaluate", *arguments, "--plots", str(ran / "plots"))
    assert done.exit_code == 0, done.output
    assert (ran / "plots" / "pair.png").read_bytes()[:4] == b"\x89PNG"


SWEPT = """
title: The same pair, varied
data: small
specialists: {cheap: 0, dear: 0.2}
peek: 10
neighbours: [3, 7]
costs: [0.001, 0.05]
seeds: 2
usd: {read: 0, written: 3}
sweep: {calibration: [10, 20], samples: [5], signal_neighbours: [4], signals: true}
"""


@pytest.fixture(scope="module")
def swept(ran: Path) -> Path:
    """The same folder with a second experiment that varies the router."""
    (ran / "swept.yaml").write_text(SWEPT)
    done = pandora("evaluate", str(ran / "swept.yaml"), "-o", str(ran / "results"), "--workers", "1")
    assert done.exit_code == 0, done.output
    assert "signal: " not in done.output  # variations are for reports
    return ran


def test_variations_run_on_the_first_number_of_neighbours(swept: Path) -> None:
    found = results.read(swept / "results" / "swept")
    by_k = {k: {arm for n, _, arm in found.keys if n == k} for k in (0, 3, 7)}
    assert {"calibration: 10", "S: 5", "K: 4", "signal: no slope", "one step"} <= by_k[0]
    assert not any(": " in arm for arm in by_k[3] | by_k[7])
    assert {"router", "never inspect", "committing (paper)", "rollout"} <= by_k[7] == by_k[3]
    assert "auto" in by_k[0] - by_k[3]


def test_checks_are_measured_on_test_prompts(swept: Path) -> None:
    """Errors again from the estimates, which a run without a cache makes the same way."""
    experiment = read_experiment(swept / "swept.yaml")
    told = reliability.of(results.read(swept / "results" / "swept"))
    assert told is not None
    table = table_of(experiment, swept)
    made = on_one_core(lambda seed: estimates(experiment, table, seed), 1)  # as every runner computes
    trial = trial_of(made, 0)
    test = trial.test
    path = swept / "results" / "swept" / "checks-1.parquet"
    kept = pq.read_table(path)
    assert kept["error|0|g"].to_numpy() == pytest.approx(
        ((test.costly - test.reward) ** 2).mean(axis=1), abs=1e-6
    )
    away = np.abs(test.costly - trial.signal().expected(test.cheap)) <= 2 * trial.signal().spread(test.cheap)
    assert kept["inside2|0|calibrated"].to_numpy() == pytest.approx(away.mean(axis=1))
    assert told.compare(0, ["error|f"], "error|f").mean[0] == 0.0
    spent, arms, unknown = told.seconds()
    assert unknown == 0
    assert spent > 0.0
    assert arms["router"] >= 0.0
    assert told.facts[1]["left_out"] == 0


WORDS = """
data: small
specialists: {cheap: 0, dear: 0.2}
neighbours: []
costs: [0.002, 0.01]
seeds: [3, 4]
arms: [never inspect, oracle]
paraphrases: words.csv
"""


def reworded(home: Path, words: Callable[[str], str]) -> Experiment:
    """The folder, an experiment on it, and other words for two of three of its prompts."""
    write_folder(home / "small")
    prompts = pq.read_table(home / "small" / "prompts.parquet")["prompt"].to_pylist()
    rows = [{"prompt": p, "paraphrase": words(p) if i % 3 else None} for i, p in enumerate(prompts)]
    pa_csv.write_csv(pa.Table.from_pylist(rows), home / "words.csv")
    (home / "reworded.yaml").write_text(WORDS)
    return read_experiment(home / "reworded.yaml")


def test_the_same_words_never_flip(tmp_path: Path) -> None:
    asked = Campaign(reworded(tmp_path, lambda prompt: prompt), tmp_path)
    found = campaign.run([asked], tmp_path / "results")[0]
    router, never = flips.of(found, 0)
    assert (router.way, never.way) == ("router", "never inspect")
    assert router.pairs > 20
    assert {router.flips.mean, router.cost.mean, never.flips.mean, never.cost.mean} == {0.0}


def test_flips_are_those_of_the_router_that_a_fit_makes(tmp_path: Path) -> None:
    """Hard prompts in the words of easy ones and the other way round, routed by `Router.fit` itself."""
    easy, hard = "add numbers", "prove lemma"

    def swapped(prompt: str) -> str:
        return prompt.replace(easy, hard) if easy in prompt else prompt.replace(hard, easy)

    experiment = reworded(tmp_path, swapped)
    asked = (tmp_path / "reworded.yaml", "-o", tmp_path / "results", "--workers", "1")
    done = pandora("evaluate", *asked)
    assert done.exit_code == 0, done.output
    router, never = flips.of(results.read(tmp_path / "results" / "reworded"), 0)
    changed, lost = [], []
    for seed in experiment.seeds:
        split = split_of(experiment, table_of(experiment, tmp_path), seed)
        fitted = Router.fit(split, costly=SetRecipe(peek=0), inspection_cost=0.01, remember_test=False)
        test = split.in_split("test")
        rows = [i for i, prompt in enumerate(test.prompts) if int(prompt.split()[2]) % 3]
        free = fitted.with_policy(Never())
        first = free.route_batch([test.prompts[i] for i in rows])
        other = free.route_batch([swapped(test.prompts[i]) for i in rows])
        at = {name: j for j, name in enumerate(test.specialists)}
        pairs = [(i, at[a.specialist], at[b.specialist]) for i, a, b in zip(rows, first, other, strict=True)]
        changed.append(np.mean([a != b for _, a, b in pairs]))
        lost.append(np.mean([test.reward[i, a] - test.reward[i, b] for i, a, b in pairs]))
    assert np.mean(changed) > 0.2  # otherwise nothing is compared
    assert never.flips.mean == pytest.approx(np.mean(changed))
    assert never.cost.mean == pytest.approx(np.mean(lost))
    assert f"{100 * router.flips.mean:.1f} %" in " ".join(done.output.split())


def test_with_looks_the_other_words_are_routed_without_them(tmp_path: Path) -> None:
    experiment = replace(reworded(tmp_path, str.upper), peek=40)
    found = campaign.run([Campaign(experiment, tmp_path, (3,))], tmp_path / "results")[0]
    assert [way.way for way in flips.of(found, 0)] == ["never inspect"]


def test_one_pair_says_nothing(tmp_path: Path) -> None:
    experiment = reworded(tmp_path, lambda prompt: prompt if prompt.endswith(" 1 please") else "")
    found = campaign.run([Campaign(experiment, tmp_path, range(3, 6))], tmp_path / "results")[0]
    pairs = [int(np.isin(1, seed.clusters(0)[0])) for seed in found.seeds.values()]
    ways = flips.of(found, 0)
    assert 0 in pairs  # a split without the pair
    assert [way.pairs for way in ways] == ([1.0] * 2 if sum(pairs) > 1 else [])


def test_paraphrases_need_a_pair(tmp_path: Path) -> None:
    experiment = reworded(tmp_path, lambda prompt: "")
    with pytest.raises(UsageError, match="a prompt with a paraphrase"):
        campaign.run([Campaign(experiment, tmp_path)], tmp_path / "results")


def test_the_report_has_every_part(swept: Path) -> None:
    pytest.importorskip("matplotlib")
    names = [str(swept / f"{name}.yaml") for name in ("pair", "swept")]
    written = ["--data", str(swept), "-o", str(swept / "results"), "--page", str(swept / "short.md")]
    done = CliRunner().invoke(reproduce, ["results", *names, *written, "--finished"])
    assert done.exit_code == 0, done.output
    page = (swept / "results" / "all.md").read_text()
    for part in (
        "## Summary",
        "## Where the paper's findings hold",
        "Weak f",
        "Against each way that does not search",
        "cost, paper's way",
        "Value estimators",
        "within 2 s.d.",
        "Sweep: calibration prompts",
        "Sweep: neighbours behind f",
        "USD per 1000 prompts",
        "## Length of the peek",
        "## What it cost to compute",
        "figures/swept-sweeps.png",
    ):
        assert part in page, part
    assert page.count("<details>") == page.count("</details>") > 10
    assert "nan" not in page.replace("nan;", "")
    for ending in ("", "-more", "-sweeps"):
        assert (swept / "results" / "figures" / f"swept{ending}.svg").is_file()
    short = (swept / "short.md").read_text()
    assert "| pair | " in short
    assert "findings" in short
    assert "Weak f" not in short
    assert len(short.splitlines()) < 60


def test_the_page_of_ones_own_data_speaks_of_that_data(swept: Path) -> None:
    """Accuracy and money first, nothing of the paper's findings; files are overwritten only when asked."""
    asked = ["evaluate", str(swept / "pair.yaml"), "-o", str(swept / "results"), "--finished"]
    for option, file in (("--html", swept / "mine.html"), ("--report", swept / "mine.md")):
        done = pandora(*asked, option, str(file))
        assert done.exit_code == 0, done.output
        words = file.read_text()
        assert "The router: " in words
        assert "findings hold" not in words
        jargon = words.index("above the envelope")  # for those who open it
        assert words.rindex("<details>", 0, jargon) > words.rfind("</details>", 0, jargon)
        refused = pandora(*asked, option, str(file))
        assert (refused.exit_code, "--replace" in refused.stderr) == (2, True)
        assert pandora(*asked, option, str(file), "--replace").exit_code == 0
    page = (swept / "mine.html").read_text()
    assert page.index("What routing earns") < page.index("The router: ") < page.index('id="explorer"')
    assert "the router's f" in page


def test_the_first_table_is_small_and_verbose_shows_all(swept: Path) -> None:
    asked = ["evaluate", str(swept / "swept.yaml"), "-o", str(swept / "results"), "--finished"]
    few, many = pandora(*asked).stdout, pandora(*asked, "--verbose").stdout
    assert len(few.splitlines()) < 16
    assert "committing (paper)" not in few
    assert "committing (paper)" in many
    assert "…" not in few + many


def test_arms_are_listed() -> None:
    shown = pandora("evaluate", "--list-arms")
    assert shown.exit_code == 0, shown.output
    for arm in (*ARMS, *BY_NAME):
        assert arm.name in shown.stdout
        assert arm.about


def test_compare_has_an_exit_code(ran: Path) -> None:
    folder = str(ran / "results" / "pair")
    assert pandora("compare", folder, folder).exit_code == 0
    worse = pandora("compare", folder, folder, "--arm", "oracle", "--arm-b", RAW)
    assert worse.exit_code == 1, worse.output
    better = ["--arm", RAW, "--arm-b", "oracle", "--json"]
    assert pandora("compare", folder, folder, *better).exit_code == 0
    assert pandora("compare", folder, str(ran)).exit_code == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"data": "x", "cost": [0.1]}, "Did you mean 'costs'"),
        ({"costs": [0.1]}, "the key data"),
        ({"data": "x", "costs": []}, "1 or more values, got .* for costs"),
        ({"data": "x", "costs": [-0.1]}, "at least 0, got -0.1 for costs.0"),
        ({"data": "x", "seeds": 1.5}, "a list"),
        ({"data": "x", "split": [0.5, 0.5]}, "3 or more values"),
        ({"data": "x", "control": "yes"}, "true or false"),
        ({"data": "x", "specialists": {"a": "free"}}, "a number"),
        ({"data": "x", "inspection": {"share": 1}}, "Did you mean 'shared'"),
        ({"data": "x", "sweep": {"sample": [5]}}, "Did you mean 'samples'"),
        ({"data": "x", "sweep": {"samples": [5, 5]}}, "each number once"),
        ({"data": "x", "usd": {"reads": 1}}, "Did you mean 'read'"),
        ({"data": "x", "usd": {"read": -1}}, "at least 0"),
        ({"data": "x", "tasks": "math"}, "a list"),
        ({"data": "x", "arms": [1]}, "a text"),
        ([1, 2], "names with values"),
    ],
)
def test_a_bad_experiment_is_told_plainly(content: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse("bad", content)


def test_costs_can_differ_and_be_shared() -> None:
    costs = Inspection(shared=2.0, own={"a": 0.0}).costs(0.01, ("a", "b"))
    assert costs.marginal.tolist() == pytest.approx([0.02, 0.03])
    assert costs.paid(0).marginal.tolist() == pytest.approx([0.0, 0.01])
    once = Inspection(shared=1.0, each=0.0).costs(0.01, ("a", "b"))
    assert once.marginal.tolist() == pytest.approx([0.01, 0.01])
    assert once.paid(0).marginal.tolist() == [0.0, 0.0]


def test_a_misspelt_specialist_or_agreement_without_a_peek_is_told_plainly() -> None:
    with pytest.raises(UsageError, match="Did you mean 'gemini'"):
        Inspection(own={"gemin": 2.0}).costs(0.01, ("gemma", "gemini"))
    with pytest.raises(UsageError, match="agreement compares"):
        recipe_of(Experiment("x", data="x", agreement=True))


def test_every_experiment_of_the_repository_is_well_formed() -> None:
    files = sorted((Path(__file__).resolve().parents[2] / "paper" / "experiments").rglob("*.yaml"))
    assert len(files) >= 37
    for path in files:
        assert read_experiment(path).title

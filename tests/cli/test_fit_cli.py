"""`pandora fit --data` on every shared folder, what it says before it starts, and what it refuses."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from pandora_router.calibrate.ways import BEST_SINGLE, NEVER, ROUTER
from pandora_router.cli.console import Screen
from pandora_router.cli.earnings import headline
from pandora_router.cli.fit import unnamed
from pandora_router.config import read_config
from pandora_router.data import Table, save
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.router import Router
from pandora_router.router.out_of_fold import recentred
from tests.support.command import pandora
from tests.support.tables import generate

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
SCORED = sorted(p.parent.name for p in SHARED.glob("*/scores.parquet"))
PARTS = {"mean", "scale", "correlation", "slope", "law", "pooled"}


def few(folder: Path, place: Path, prompts: int = 150) -> Path:
    """The first prompts of a folder of every task, with all that belongs to them."""
    place.mkdir()
    every = pq.read_table(folder / "prompts.parquet")
    step = max(1, len(every) // prompts)
    chosen = every.take(np.arange(0, len(every), step)[:prompts])
    ids = set(chosen["prompt_id"].to_pylist())
    pq.write_table(chosen, place / "prompts.parquet")
    for name in ("scores", "models", "context"):
        if (folder / f"{name}.parquet").exists():
            rows = pq.read_table(folder / f"{name}.parquet")
            if "prompt_id" in rows.column_names:
                rows = rows.filter([one in ids for one in rows["prompt_id"].to_pylist()])
            pq.write_table(rows, place / f"{name}.parquet")
    return place


@pytest.mark.skipif(not SCORED, reason="the shared routing data are not here")
@pytest.mark.parametrize("name", SCORED)
def test_one_command_fits_and_reports_on_a_part_of_every_shared_folder(tmp_path: Path, name: str) -> None:
    folder = few(SHARED / name, tmp_path / "data")
    result = pandora("fit", "--data", folder, "--free", "-o", tmp_path / "router", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert {"training mean", "kNN-3", "kNN-50", "h(f)", "g"} <= set(told["report"]["mse"])
    assert 0.0 < told["report"]["coverage_1"] <= told["report"]["coverage_2"] <= 1.0
    weighed = {one["off"] for one in told["report"]["parts"]}
    assert weighed in ({None, *PARTS}, set()), "all parts, or none where too few prompts are complete"
    router = Router.load(tmp_path / "router")
    assert router.route("How many apples are left?").specialist in router.specialists


def test_a_stored_table_keeps_its_split_and_parts_are_shown(tmp_path: Path) -> None:
    save(generate(), tmp_path / "table")
    result = pandora(
        "fit", "--data", tmp_path / "table", "-o", tmp_path / "router", "--inspection-cost", 0.01, "--verbose"
    )
    assert result.exit_code == 0, result.output
    assert "an inspection costs $0.01" in result.stderr
    assert "What each part of the signal model is worth" in result.stdout
    for part in PARTS:
        assert part in result.stdout
    router = Router.load(tmp_path / "router")
    assert router.record.prompts["train"] == int((generate().split == "train").sum())
    assert router.costs.shared.tolist() == [0.01]


def test_a_part_that_the_config_switches_off_is_not_weighed(tmp_path: Path) -> None:
    save(generate(), tmp_path / "table")
    (tmp_path / "pandora.yaml").write_text(
        "fit:\n  inspection: 0.002\n  costly: {rounds: 10, folds: 2}\n"
        "  signal: {mean: identity, scale: constant, correlation: none, slope: false, law: normal,\n"
        "           pooled: false}\n"
    )
    result = pandora("fit", tmp_path / "pandora.yaml", "-o", tmp_path / "router", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)["report"]["parts"]
    assert [one["off"] for one in told] == [None]
    kept = Router.load(tmp_path / "router").record.report["parts"]
    assert kept == told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.yaml"], "got no such path. Write one: pandora init"),
        ([str(Path(__file__).parent)], "got a folder"),
        ([os.devnull], "got no regular file"),
        (["pandora.yaml", "--data", "table"], "both"),
        (["pandora.yaml", "--free"], "both"),
        (["pandora.yaml", "--fee-per-trillion-parameters", "0"], "both"),
        (["--inspection-cost", "0"], "without it"),
        (["--free"], "without it"),
        (["--data", "table", "--inspection-cost", "nan"], "got nan"),
        (["--data", "table", "--inspection-cost", "inf"], "got inf"),
        (["--data", "nowhere"], "no such path"),
    ],
)
def test_unclear_orders_are_refused(tmp_path: Path, words: list[str], said: str) -> None:
    result = pandora("fit", *words, "-o", tmp_path / "router")
    assert result.exit_code != 0
    assert said in result.output


def as_measured(router: Router, table: Table) -> Router:
    """The router as the report measured it: before it remembered the prompts of the test split."""
    cheap, known = router.cheap, len(table) - len(table.in_split("test"))
    assert isinstance(cheap, Neighbours)
    assert len(cheap.vectors) == len(table)
    return replace(router, cheap=replace(cheap, vectors=cheap.vectors[:known], reward=cheap.reward[:known]))


def measured(guard: dict[str, Any], bought: float) -> dict[str, Any]:
    """The facts of a fit with this guard whose router buys so many estimates a prompt."""
    way = dict.fromkeys(
        ("accuracy", "accuracy_error", "cost", "cost_error", "inspections", "net_reward", "behind_error"), 0.5
    )
    ways = dict.fromkeys((ROUTER, NEVER, BEST_SINGLE), way) | {ROUTER: way | {"inspections": bought}}
    report = {
        "routing": {"ways": ways, "prompts": 9},
        "standing": {"single": "small", "cheapest": "small"},
    }
    return {"report": report, "evidence": {"guard": guard}, "prompts": {"test": 90}, "settings": {}}


@pytest.mark.parametrize(
    ("gain", "on", "end"),
    [
        (
            0.002,
            True,
            "earns $1.00 per 1,000 prompts (standard error $0.50) against never buying: it is kept.",
        ),
        (-0.0005, True, "never buying: it is kept, because the loss is within the noise."),
        (-0.002, False, "never buying: it is off, and nothing is bought."),
    ],
)
def test_it_says_why_estimates_are_bought_or_not(gain: float, on: bool, end: str) -> None:
    facts = measured({"gain": gain, "error": 0.001, "prompts": 400, "on": on}, 0.5)
    said = StringIO()
    headline(Screen(file=said, width=200), facts, 2.0, "$", ())
    assert said.getvalue().splitlines()[-1].endswith(end)


@pytest.mark.parametrize(
    ("bought", "contenders", "end"),
    [
        (
            0.0,
            3,
            "those of the 3 best specialists differ by 1 more than cheap estimates tell, "
            "the worth of their answers differs by 0.14 (standard error 0.05); over all specialists 0.41 "
            "(0.02).",
        ),
        (
            0.0,
            2,
            "those of the specialists differ by 1 more than cheap estimates tell, "
            "the worth of their answers differs by 0.14 (standard error 0.05).",
        ),
        (0.5, 3, "never buying: it is kept."),
    ],
)
def test_where_nothing_is_bought_it_says_how_little_costly_estimates_say(
    bought: float, contenders: int, end: str
) -> None:
    news = {"slope": 0.41, "error": 0.02, "contenders": contenders, "best": 0.14, "best_error": 0.05}
    facts = measured({"gain": 0.0, "error": 0.0, "prompts": 400, "on": True, "news": news}, bought)
    said = StringIO()
    headline(Screen(file=said, width=300), facts, 2.0, "$", ())
    assert said.getvalue().splitlines()[-1].endswith(end)


def test_it_begins_with_what_the_router_earns_in_accuracy_and_money(tmp_path: Path) -> None:
    """The sentence is checked against the table itself: always one specialist, and what was routed."""
    table = generate()
    save(table, tmp_path / "table")
    (tmp_path / "pandora.yaml").write_text(
        "value: {right_answer: 0.5, second: 0.01}\nfit: {costly: {rounds: 20, folds: 2}}\n"
    )
    result = pandora("fit", tmp_path / "pandora.yaml", "-o", tmp_path / "router")
    assert result.exit_code == 0, result.output
    sentence = result.stdout.splitlines()[0]
    router = as_measured(Router.load(tmp_path / "router"), table)
    train, test = table.in_split("train"), table.in_split("test")
    seen = set(train.prompts)
    fresh = np.array([prompt not in seen for prompt in test.prompts])
    reward = np.nanmean(train.score - 2 * train.fee, axis=0)
    best = int(reward.argmax())
    right, fee = test.score[fresh, best].mean(), test.fee[fresh, best].mean()
    assert f"always {table.specialists[best]}: {right:.3f} right at ${1000 * fee:,.2f} per 1,000" in sentence
    decisions = router.route_batch([p for p, new in zip(test.prompts, fresh, strict=True) if new])
    columns = [table.specialists.index(one.specialist) for one in decisions]
    rows = np.flatnonzero(fresh)
    paid = test.fee[rows, columns] + np.array([one.trace.spent for one in decisions]) * 0.5
    expected = f"{test.score[rows, columns].mean():.3f} right at ${1000 * paid.mean():,.2f} per 1,000"
    assert sentence.startswith(expected)
    assert "Mean squared error" not in result.stdout
    guard = router.record.evidence["guard"]
    (line,) = (one for one in result.stdout.splitlines() if one.startswith("Cross-validated on"))
    assert f"${500 * abs(guard['gain']):.2f}" in line or f"{500 * abs(guard['gain']):.2g}" in line
    kept = "it is kept." if guard["gain"] >= 0 else "it is kept, because the loss is within the noise."
    assert line.endswith(kept if guard["on"] else "it is off, and nothing is bought.")
    inspections = router.record.report["routing"]["ways"][ROUTER]["inspections"]
    assert ("Nothing is bought because" in result.stdout) == (inspections == 0)
    rows = [one.split("│")[1:] for one in result.stdout.splitlines() if one.startswith("│")]
    assert len(rows) > 3
    assert len({tuple(cell.strip() for cell in row[1:]) for row in rows}) == len(rows)
    assert len({row[0].strip() for row in rows}) == len(rows)


@pytest.mark.parametrize(
    ("serve", "said"),
    [
        ("{router: router}", ""),
        ("{router: ./router/}", ""),
        (
            "{default: small}",
            "write `router: router` under `serve:` in {file}, in place of `default: small`.",
        ),
        ("{router: old}", "write `router: router` under `serve:` in {file}, in place of `router: old`."),
        ("{}", "write `router: router` under `serve:` in {file}."),
    ],
)
def test_it_says_which_line_serves_the_router(tmp_path: Path, serve: str, said: str) -> None:
    file = tmp_path / "pandora.yaml"
    file.write_text(
        f"serve: {serve}\nspecialists: {{small: {{kind: function, function: 'm:f', prices: free}}}}\n"
    )
    told = unnamed(file, read_config(file), tmp_path / "router")
    assert told == (f"To serve it, {said.format(file=file)}" if said else "")


def test_held_out_estimates_are_written_as_sweep_reads_them(tmp_path: Path) -> None:
    table = generate()
    save(table, tmp_path / "table")
    (tmp_path / "pandora.yaml").write_text("fit: {inspection: 0.002, costly: {rounds: 10, folds: 2}}\n")
    words = ("fit", tmp_path / "pandora.yaml", "--write-estimates", tmp_path / "estimates", "-o")
    result = pandora(*words, tmp_path / "router")
    assert result.exit_code == 0, result.output
    cheap = as_measured(Router.load(tmp_path / "router"), table).cheap
    assert isinstance(cheap, Neighbours)
    left_out = recentred(cheap.leave_one_out(), cheap.reward)[len(table.in_split("train")) :]
    seen, size = set(table.in_split("train").prompts), 0
    for split in ("calibration", "test"):
        part = table.in_split(split)
        part = part.rows(np.array([prompt not in seen for prompt in part.prompts]))
        written = pq.read_table(tmp_path / "estimates" / f"{split}.parquet")
        f, reward, fee = (np.array(written[name].to_pylist()) for name in ("f", "reward", "fee"))
        expected = left_out if split == "calibration" else cheap.predict(part.prompts)
        np.testing.assert_allclose(f, expected, atol=1e-12)
        np.testing.assert_array_equal(reward, part.reward)
        np.testing.assert_array_equal(fee, part.fee_weight * part.fee)
        size = len(part)
    calibration, test = (tmp_path / "estimates" / f"{split}.parquet" for split in ("calibration", "test"))
    swept = pandora("sweep", test, "--calibration", calibration, "--cost", 0.002, "--arm", "f-only", "--json")
    assert swept.exit_code == 0, swept.output
    (row,) = json.loads(swept.stdout)
    chosen = f.argmax(axis=1)
    assert row["prompts"] == size
    assert row["accuracy"] == pytest.approx(part.score[np.arange(size), chosen].mean())
    assert row["fee"] == pytest.approx(part.fee_weight * part.fee[np.arange(size), chosen].mean())
    shown = pandora("sweep", test, "--calibration", calibration, "--cost", 0.002, "--arm", "never inspect")
    assert " never inspect " in shown.stdout, "tables in a pipe are never cut"
    again = pandora(*words, tmp_path / "other")
    assert again.exit_code == 2
    assert "one that is there already" in again.output
    assert not (tmp_path / "other").exists()


def test_a_router_that_looks_says_what_routing_needs(tmp_path: Path) -> None:
    table = generate(contexts=True)
    save(table, tmp_path / "table")
    (tmp_path / "pandora.yaml").write_text(
        "fit: {inspection: 0.001, costly: {peek: 50, rounds: 10, folds: 2}}\n"
    )
    result = pandora("fit", tmp_path / "pandora.yaml", "-o", tmp_path / "router")
    assert result.exit_code == 0, result.output
    assert "have begun to say" in result.stdout
    assert "Without them it buys no estimates: " in result.stdout
    (tmp_path / "pandora.yaml").write_text(
        "fit: {inspection: 0.001, policy: {kind: never}, costly: {peek: 50, rounds: 10, folds: 2}}\n"
    )
    never = pandora("fit", tmp_path / "pandora.yaml", "-o", tmp_path / "never")
    assert never.exit_code == 0, never.output
    assert "beg" not in never.stdout  # it never looks, so it needs no beginnings
    (tmp_path / "pandora.yaml").write_text("fit: {costly: {rounds: 10, folds: 2}}\n")
    blind = pandora("fit", tmp_path / "pandora.yaml", "-o", tmp_path / "blind")
    assert "have begun to say" not in blind.stdout
    assert Router.load(tmp_path / "blind").costly.needs == frozenset()
    (tmp_path / "pandora.yaml").write_text("fit: {costly: {peek: 50}}\n")
    unpriced = pandora("fit", tmp_path / "pandora.yaml", "-o", tmp_path / "unpriced")
    assert unpriced.exit_code == 2
    assert "the price of a look" in unpriced.output


@pytest.mark.parametrize(
    ("fit", "told"),
    [
        ("{default: smal}", "Did you mean 'small'"),
        ("{inspection: {own: {smal: 1}, each: 2}}", "Did you mean 'small'"),
        ("{specialists: [small, larg]}", "larg"),
    ],
)
def test_names_are_checked_before_the_long_work(tmp_path: Path, fit: str, told: str) -> None:
    save(generate(), tmp_path / "table")
    (tmp_path / "pandora.yaml").write_text(f"fit: {fit}\n")
    result = pandora("fit", tmp_path / "pandora.yaml", "-o", tmp_path / "router")
    assert result.exit_code == 2
    assert told in result.output
    assert not (tmp_path / ".router.work").exists()


@pytest.mark.skipif(not SCORED, reason="the shared routing data are not here")
def test_unpriced_specialists_are_refused(tmp_path: Path) -> None:
    result = pandora("fit", "--data", SHARED / "gsm8k_6b_175b", "-o", tmp_path / "router")
    assert result.exit_code != 0
    assert "--free" in result.output


@pytest.mark.slow
@pytest.mark.parametrize("some", [0.5, 0.0])
def test_prompts_with_one_score_are_fitted_on_and_what_is_missing_is_said(
    tmp_path: Path, some: float
) -> None:
    """As `pandora log export --table` writes them: one score a prompt, and no split."""
    table, rng = generate(240), np.random.default_rng(0)
    lone = np.zeros(table.shape, dtype=np.bool_)
    lone[np.arange(len(table)), rng.integers(len(table.specialists), size=len(table))] = True
    kept = lone | (rng.random(len(table)) < some)[:, None]
    traffic = replace(table, score=np.where(kept, table.score, np.nan), split=[""] * len(table))
    save(traffic, tmp_path / "traffic")
    result = pandora("fit", "--data", tmp_path / "traffic", "-o", tmp_path / "router")
    assert result.exit_code == 0, result.output
    assert "The table has no split: drawn by seed 0" in result.output
    assert f"{int((~kept).sum()):,} of {kept.size:,} scores are missing" in result.output
    assert (
        "A right answer is assumed to be worth $1.00: the default, since nothing says otherwise"
        in result.output
    )
    told = " ".join(result.output.split())
    assert f"{int((kept.sum(axis=1) == 1).sum()):,} prompts have one score each" in told
    measured = (
        "0 of 48 test prompts have scores of all specialists" if not some else "of 48 test prompts with"
    )
    assert measured in told
    router = Router.load(tmp_path / "router")
    assert str(router.report).startswith("On " if some else "Not measured: 0 of 48 test prompts")
    assert router.route("count the river king number 7").specialist in table.specialists


def test_a_specialist_without_a_score_is_named(tmp_path: Path) -> None:
    table = generate(120)
    score = table.score.copy()
    score[:, 1] = np.nan
    save(replace(table, score=score), tmp_path / "table")
    result = pandora("fit", "--data", tmp_path / "table", "-o", tmp_path / "router")
    assert result.exit_code == 2
    assert "'large': expected a score of at least one train prompt, got none of 72" in result.output
    assert "fit.specialists" in result.output

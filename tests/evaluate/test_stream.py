"""A streamed sweep: bit for bit the totals of all rows in memory, however the rows are cut."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pandora_router.boxes import Costs
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.ways import Standing
from pandora_router.errors import UsageError
from pandora_router.evaluate import stream
from pandora_router.evaluate.arms import DEFAULT, named
from pandora_router.evaluate.outcomes import Outcomes, summands
from pandora_router.evaluate.outcomes import sweep as in_memory
from pandora_router.evaluate.stream import CHUNK
from pandora_router.evaluate.trials import Trial
from pandora_router.run import InPlace, Pool
from tests.support.command import pandora

COSTS = (0.002, 0.03)
ROWS = CHUNK + 4_000  # more than a chunk, and no multiple of one
LOTTERIES = ("random", "coin flip")  # their streams belong to chunks


def generate(n: int, seed: int, boxes: int = 3) -> Readings:
    rng = np.random.default_rng(seed)
    chance = np.clip(rng.random((n, 1)) + 0.2 * rng.standard_normal((n, boxes)), 0, 1)
    f, g = (chance + s * rng.standard_normal((n, boxes)) for s in (0.2, 0.1))
    score = (rng.random((n, boxes)) < chance).astype(float)
    fee = 0.1 * rng.random((n, boxes)) * np.arange(boxes)
    return Readings(f, g, score - fee, fee)


def write(path: Path, arrays: Readings, group: int, *, fixed: bool = True) -> Path:
    boxes = arrays.cheap.shape[1]
    kind = pa.list_(pa.float64(), boxes) if fixed else pa.large_list(pa.float64())
    columns = {}
    for name, values in (
        ("f", arrays.cheap),
        ("g", arrays.costly),
        ("score", arrays.score),
        ("fee", arrays.fee),
    ):
        flat = pa.array(values.ravel())
        made = pa.FixedSizeListArray.from_arrays(flat, boxes)
        columns[name] = made.cast(kind)
    pq.write_table(pa.table(columns), path, row_group_size=group)
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home, test = tmp_path_factory.mktemp("stream"), generate(ROWS, 2)
    write(home / "one.parquet", test, ROWS)
    write(home / "many.parquet", test, 4_321, fixed=False)
    write(home / "calibration.parquet", generate(3_000, 1), 1_000)
    return {path.stem: path for path in home.iterdir()}


@pytest.fixture(scope="module")
def streamed(files: dict[str, Path]) -> dict[tuple[float, str], Outcomes]:
    return stream.sweep([files["one"]], files["calibration"], COSTS)


def test_totals_are_those_of_all_rows_in_memory(streamed: Any) -> None:
    """Against the sweep that holds everything, each field summed once and correctly by math.fsum."""
    test, known = generate(ROWS, 2), generate(3_000, 1)
    trial = Trial(known, test, Standing.of(known.reward, known.fee))
    arms = [arm for arm in named() if (COSTS[0], arm.name) in streamed]
    assert {"oracle", "always inspect", "never inspect", DEFAULT} <= {arm.name for arm in arms}
    runs = in_memory(trial, arms, COSTS, lambda c: Costs([c] * 3), 0)
    for run in runs:
        if run.arm in LOTTERIES:
            continue
        found = streamed[run.cost, run.arm]
        assert found.prompts == ROWS
        for name, values in summands(run.routed, test, trial.standing.single).items():
            assert getattr(found, name) == math.fsum(values), (run.arm, run.cost, name)


@pytest.mark.parametrize("runner", [InPlace(), Pool(2)], ids=repr)
def test_other_shards_and_runners_change_no_bit(runner: Any, files: dict[str, Path], streamed: Any) -> None:
    again = stream.sweep([files["many"]], files["calibration"], COSTS, runner=runner)
    drawn = {place for place in streamed if place[1] in LOTTERIES}
    assert {p: again[p] for p in again if p not in drawn} == {
        p: streamed[p] for p in streamed if p not in drawn
    }
    assert all(again[p].regret == pytest.approx(streamed[p].regret, rel=0.05) for p in drawn)


def test_policies_that_sample_stream_too(tmp_path: Path, files: dict[str, Path]) -> None:
    arms, few = ("committing (paper)", "rollout"), generate(300, 4)
    one, many = (write(tmp_path / f"{group}.parquet", few, group) for group in (300, 70))
    asked = [stream.sweep([path], files["calibration"], [0.01], arms=arms) for path in (one, many)]
    assert set(asked[0]) == {(0.01, arm) for arm in arms}
    assert asked[0] == asked[1]


def test_lots_are_the_same_whoever_draws(files: dict[str, Path]) -> None:
    one, two = (
        stream.sweep([files["many"]], files["calibration"], COSTS, arms=LOTTERIES, seed=3, runner=runner)
        for runner in (InPlace(), Pool(2))
    )
    assert one == two


def test_the_command_adds_files_up(files: dict[str, Path], streamed: Any) -> None:
    words = [str(files["one"]), str(files["many"]), "--calibration", str(files["calibration"]), "--json"]
    done = pandora("sweep", *words, "--cost", "0.03", "--arm", "oracle", "--arm", DEFAULT, "--workers", "1")
    assert done.exit_code == 0, done.output
    rows = {row["arm"]: row for row in json.loads(done.stdout)}
    assert set(rows) == {DEFAULT, "oracle"}
    assert (rows["oracle"]["prompts"], rows["oracle"]["total"]) == (2 * ROWS, 0.0)
    mean = streamed[0.03, DEFAULT].means()
    assert rows[DEFAULT]["total"] == pytest.approx(mean["total"], rel=1e-14)
    assert rows[DEFAULT]["total_error"] == pytest.approx(mean["total_error"] / math.sqrt(2), rel=1e-4)
    shown = pandora("sweep", *words[:1], *words[2:4], "--cost", "0.03", "--arm", "oracle")
    assert f"{ROWS:,} prompts" in shown.output


def test_missing_rewards_are_left_out(tmp_path: Path, files: dict[str, Path]) -> None:
    rows = {"f": [[0.1, 0.2, 0.3]] * 3, "g": [[0.1, 0.2, 0.3]] * 3}
    table = pa.table({**rows, "reward": [[0.0, 1.0, 0.5], [0.0, None, 0.5], [1.0, 0.0, float("nan")]]})
    pq.write_table(table, tmp_path / "few.parquet")
    found = stream.sweep([tmp_path / "few.parquet"], files["calibration"], [0.01], arms=["oracle"])
    assert found[0.01, "oracle"].prompts == 1
    assert found[0.01, "oracle"].score == 1.0


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"f": [[0.1, 0.2, 0.3]], "reward": [[0.1, 0.2, 0.3]]}, "no g"),
        ({"f": [[0.1, 0.2]], "g": [[0.1, 0.2]], "reward": [[0.1, 0.2]]}, "lists of 3 numbers"),
        ({"f": [[0.1, 0.2, 0.3]], "g": [[0.1, 0.2]], "reward": [[0.1, 0.2, 0.3]]}, "column 'g'"),
        ({"f": [0.1], "g": [[0.1, 0.2, 0.3]], "reward": [[0.1, 0.2, 0.3]]}, "got double"),
        ({"f": [["a", "b", "c"]], "g": [[0.1, 0.2, 0.3]], "reward": [[0.1, 0.2, 0.3]]}, "no numbers"),
        ({"f": [[0.1, None, 0.3]], "g": [[0.1, 0.2, 0.3]], "reward": [[0.1, 0.2, 0.3]]}, "finite"),
        ({"f": [None], "g": [[0.1, 0.2, 0.3]], "reward": [[0.1, 0.2, 0.3]]}, "column 'f'"),
    ],
)
def test_bad_columns_are_told_plainly(
    columns: dict[str, Any], message: str, tmp_path: Path, files: dict[str, Path]
) -> None:
    pq.write_table(pa.table(columns), tmp_path / "bad.parquet")
    with pytest.raises(UsageError, match=message):
        stream.sweep([tmp_path / "bad.parquet"], files["calibration"], [0.01])


def test_bad_files_and_arms_are_told_plainly(tmp_path: Path, files: dict[str, Path]) -> None:
    (tmp_path / "text").write_text("no Parquet")
    with pytest.raises(UsageError, match="Name a Parquet file"):
        stream.sweep([tmp_path / "text"], files["calibration"], [0.01])
    with pytest.raises(UsageError, match="needs all prompts at once"):
        stream.sweep([files["one"]], files["calibration"], [0.01], arms=["margin"])
    asked = [str(tmp_path / "nothing"), "--calibration", str(files["calibration"])]
    done = pandora("sweep", *asked)
    assert (done.exit_code, "Traceback" in done.output) == (2, False)


def test_every_sum_is_carried() -> None:
    """A field added to Outcomes must be among the summands, or a stream would leave it 0."""
    arrays = generate(5, 0)
    trial = Trial(arrays, arrays, Standing(0, 0))
    names = {one.name for one in fields(Outcomes)}
    oracle = named(["oracle"])[1].route(trial, Costs([0.1] * 3), 0, np.random.default_rng(0))
    assert set(summands(oracle, arrays, 0)) == names - {"prompts"}

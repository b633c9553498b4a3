"""Bad input to calibration, and damaged models on disk, are refused with words that help."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from pandora_router import folders
from pandora_router.calibrate import (
    Auto,
    Calibrated,
    EmpiricalDraws,
    NeighbourSignal,
    RidgeMean,
    check,
    cross_check,
    extend,
    load,
    save,
)
from pandora_router.calibrate.readings import Readings, same_presence
from pandora_router.calibrate.reward_mean import SLOPE
from pandora_router.calibrate.signal_states import KIND
from pandora_router.errors import UsageError
from pandora_router.folders import kinds
from pandora_router.folders.saved import packed, unpacked

RNG = np.random.default_rng(0)
F = RNG.random((40, 2))
G = F + 0.1 * RNG.standard_normal(F.shape)


@dataclass(frozen=True)
class Bent:
    """A mean of somebody else that is not linear in f: f squared."""

    def of(self, cheap: np.ndarray) -> np.ndarray:
        return np.asarray(cheap**2)

    def fit(self, readings: Readings) -> tuple[Bent, np.ndarray]:
        return self, self.of(readings.cheap)


def with_cell(value: float) -> np.ndarray:
    changed = G.copy()
    changed[3, 1] = value
    return changed


@pytest.mark.parametrize(
    ("f", "g", "r", "said"),
    [
        (with_cell(np.nan), G, G, "cheap estimates.*nan"),
        (F[0], G, G, "cheap estimates"),
        (F[:0], G[:0], G[:0], "cheap estimates"),
        (F, G[:-1], G, r"costly estimates.*\(40, 2\).*\(39, 2\)"),
        (F, G, G[:, :1], "rewards"),
        (F, with_cell(np.inf), G, "costly estimates.*prompt 3, specialist 1"),
        (F, G, with_cell(-np.inf), "rewards.*NaN"),
        (F[:5], G[:5], G[:5], "8 or more"),
        (F, np.where(np.arange(2) == 1, np.nan, G), G, "specialist 1.*0 of 40"),
    ],
)
def test_bad_readings_are_refused(f: np.ndarray, g: np.ndarray, r: np.ndarray, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Calibrated().fit(Readings(f, g, r))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Calibrated(scale="x").fit(Readings(F, G, G)), "by_mean"),
        (lambda: Calibrated(correlation="x").fit(Readings(F, G, G)), "ledoit_wolf"),
        (lambda: Calibrated(law="x").fit(Readings(F, G, G)), "quantiles"),
        (lambda: RidgeMean(strengths=(0.0,)), "positive"),
        (lambda: NeighbourSignal(neighbours=1), "2 or more"),
        (lambda: NeighbourSignal(neighbours=41).fit(Readings(F, G)), "41 or more"),
        (lambda: EmpiricalDraws(draws=1), "draws"),
        (lambda: Auto(rule="x"), "one_standard_error"),
        (lambda: Auto(folds=1).choose(Readings(F, G, G), 0.1), "folds"),
        (lambda: Auto().choose(Readings(F, G, np.full(F.shape, np.nan)), 0.1), "0 of 40"),
        (lambda: Auto().choose(Readings(F, G, G), [0.1]), "inspection_cost"),
        (lambda: cross_check(Calibrated(), Readings(F, G, G), folds=1), "folds"),
        (
            lambda: check(Calibrated().fit(Readings(F, G)), Readings(F, G, G), training_mean=[0.1]),
            "training_mean",
        ),
        (lambda: Calibrated().fit(Readings(F, G)).boxes([0.1, np.nan], 0.1), "estimates"),
        (lambda: Calibrated().fit(Readings(F, G)).boxes([[0.1, 0.2]], 0.1), "estimates"),
        (lambda: Calibrated().fit(Readings(F, G)).boxes([0.1, 0.2], -0.1), "inspection_cost"),
        (lambda: Calibrated().fit(Readings(F, G)).boxes([0.1, 0.2, 0.3], 0.1), "2 finite numbers"),
        (lambda: NeighbourSignal().fit(Readings(F, G)).boxes([0.1, 0.2, 0.3], 0.1), "2 entries"),
        (lambda: EmpiricalDraws().fit(Readings(F, G)).boxes([0.1], 0.1), "2 entries"),
        (lambda: Calibrated().fit(Readings(F, G)).values(F, G[:3]), "costly estimates"),
        (lambda: NeighbourSignal().fit(Readings(F, G)).values(F, G[:3]), "costly estimates"),
        (lambda: extend(Calibrated().fit(Readings(F, G)), Readings(F, G)), "3 columns"),
        (lambda: extend(Calibrated(mean=Bent()).fit(Readings(F, G)), Readings(F, G)), "linear"),
        (lambda: extend(Calibrated().fit(Readings(F[:, :1], G[:, :1])), Readings(F[:5], G[:5])), "8 or more"),
    ],
)
def test_bad_arguments_are_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make()


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_columns_with_the_same_missing_rows_are_grouped(share: float) -> None:
    """Each column once, with its own rows, and no two groups alike."""
    present = np.random.default_rng(0).random((4, 9)) < share
    groups = list(same_presence(present))
    assert sorted(j for columns, _ in groups for j in columns) == list(range(9))
    for columns, rows in groups:
        for j in columns:
            assert rows.tolist() == [i for i in range(4) if present[i, j]]
    assert len({tuple(rows) for _, rows in groups}) == len(groups) == len({*map(tuple, present.T)})


def test_without_rewards_the_slope_is_what_other_data_had() -> None:
    assert Calibrated().fit(Readings(F, G)).slope == SLOPE[0]


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    save(Calibrated().fit(Readings(F, G, G)), tmp_path / "signal")
    return tmp_path / "signal"


@pytest.mark.parametrize("name", ["state.json", "arrays.safetensors"])
@pytest.mark.parametrize("damage", ["cut", "flip", "gone", "longer"])
def test_a_damaged_file_is_refused(stored: Path, name: str, damage: str) -> None:
    file = next(stored.glob(f"*/{name}"))
    raw = bytearray(file.read_bytes())
    if damage == "gone":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(raw[:-7])
    elif damage == "longer":
        file.write_bytes(bytes(raw) + b"x")
    else:
        raw[len(raw) // 2] ^= 1
        file.write_bytes(raw)
    with pytest.raises(UsageError, match=f"{name}.*damaged"):
        load(stored)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 3}, "version 2.*3.*Another version"),
        ({"version": None}, "version"),
        ({"format": "other"}, "without a manifest.json of"),
        ({"files": {}}, "arrays.safetensors"),
        ({"files": None}, "list of files"),
        ({"files": {"state.json": {}, "arrays.safetensors": {}, "../x": {}}}, "plain file names"),
    ],
)
def test_a_changed_manifest_is_refused(stored: Path, change: dict[str, object], said: str) -> None:
    file = stored / "manifest.json"
    told = {**json.loads(file.read_text()), **change}
    file.write_text(json.dumps({**told, "seal": kinds.seal_of(told)}))
    with pytest.raises(UsageError, match=said):
        load(stored)


def test_what_is_not_a_model_is_refused(stored: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"without a manifest\.json"):
        load(tmp_path)
    (stored / "manifest.json").write_text("{")
    with pytest.raises(UsageError, match=r"without a manifest\.json of pandora-router"):
        load(stored)


def test_parts_that_do_not_make_a_model_are_refused(stored: Path) -> None:
    next(stored.glob("*/state.json")).write_text('{"kind": "no such"}')
    reseal(stored)
    with pytest.raises(UsageError, match="parts of a signal model"):
        load(stored)


@pytest.mark.parametrize(
    "part", ["mean.weights", "mean.intercept", "scale.centre", "scale.coefficients", "laws.edges"]
)
def test_arrays_of_another_shape_are_refused(stored: Path, part: str) -> None:
    file = next(stored.glob("*/arrays.safetensors"))
    arrays = unpacked(file.read_bytes())
    file.write_bytes(packed({**arrays, part: arrays[part][:-1]}))
    reseal(stored)
    with pytest.raises(UsageError, match=part.split(".")[1]):
        load(stored)


def test_state_nested_without_end_is_refused(stored: Path) -> None:
    for depth in (70, 100_000):
        next(stored.glob("*/state.json")).write_text('{"parts":' + "[" * depth + "]" * depth + "}")
        reseal(stored)
        with pytest.raises(UsageError, match="JSON"):
            load(stored)


def reseal(folder: Path) -> None:
    file = folder / "manifest.json"
    told = json.loads(file.read_text())
    for name, entry in told["files"].items():
        path = folder / told["content"] / name
        entry.update(bytes=path.stat().st_size, sha256=folders.sha256(path))
    file.write_text(json.dumps({**told, "seal": kinds.seal_of(told)}))


def test_an_existing_folder_is_only_replaced_on_request(stored: Path, tmp_path: Path) -> None:
    other = Calibrated(slope=False).fit(Readings(F, G, G))
    with pytest.raises(UsageError, match="that is there already"):
        save(other, stored)
    save(other, stored, replace=True)
    assert load(stored).prior([0.1, 0.2], 0.01).value(0, 0.9) == pytest.approx(0.9)
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "mine.txt").write_text("x")
    with pytest.raises(UsageError, match="did not write"):
        save(other, tmp_path / "plain", replace=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["plain", "signal"]


def test_a_failed_write_leaves_what_was_there(stored: Path) -> None:
    before = {p: p.read_bytes() for p in stored.rglob("*") if p.is_file()}

    def fill(folder: Path) -> dict[str, object]:
        (folder / "half").write_text("x")
        raise OSError("the disk is full")

    with pytest.raises(UsageError, match="full"):
        folders.write(stored, KIND, fill, replace=True)
    assert {p: p.read_bytes() for p in stored.rglob("*") if p.is_file()} == before
    assert [p.name for p in stored.parent.iterdir()] == ["signal"]


def test_a_model_of_another_kind_cannot_be_saved(tmp_path: Path) -> None:
    @dataclass
    class Mine:
        slope: float = 1.0

    with pytest.raises(UsageError, match="Mine"):
        save(Mine(), tmp_path / "mine")  # type: ignore[arg-type]
    assert not (tmp_path / "mine").exists()

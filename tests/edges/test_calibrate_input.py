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
    TreeMean,
    check,
    cross_check,
    extend,
    load,
    save,
)
from pandora_router.errors import UsageError

RNG = np.random.default_rng(0)
F = RNG.random((40, 2))
G = F + 0.1 * RNG.standard_normal(F.shape)


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
        Calibrated().fit(f, g, r)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Calibrated(scale="x").fit(F, G, G), "by_mean"),
        (lambda: Calibrated(correlation="x").fit(F, G, G), "ledoit_wolf"),
        (lambda: Calibrated(law="x").fit(F, G, G), "quantiles"),
        (lambda: RidgeMean(strengths=(0.0,)), "positive"),
        (lambda: NeighbourSignal(neighbours=1), "2 or more"),
        (lambda: NeighbourSignal(neighbours=41).fit(F, G), "41 or more"),
        (lambda: EmpiricalDraws(draws=1), "draws"),
        (lambda: Auto(rule="x"), "one_standard_error"),
        (lambda: Auto(folds=1).choose(F, G, G, 0.1), "folds"),
        (lambda: Auto().choose(F, G, np.full(F.shape, np.nan), 0.1), "0 of 40"),
        (lambda: Auto().choose(F, G, G, [0.1]), "inspection_cost"),
        (lambda: cross_check(Calibrated(), F, G, G, folds=1), "folds"),
        (lambda: check(Calibrated().fit(F, G), F, G, G, training_mean=[0.1]), "training_mean"),
        (lambda: Calibrated().fit(F, G).boxes([0.1, np.nan], 0.1), "estimates"),
        (lambda: Calibrated().fit(F, G).boxes([[0.1, 0.2]], 0.1), "estimates"),
        (lambda: Calibrated().fit(F, G).boxes([0.1, 0.2], -0.1), "inspection_cost"),
        (lambda: Calibrated().fit(F, G).boxes([0.1, 0.2, 0.3], 0.1), "2 entries"),
        (lambda: NeighbourSignal().fit(F, G).boxes([0.1, 0.2, 0.3], 0.1), "2 entries"),
        (lambda: EmpiricalDraws().fit(F, G).boxes([0.1], 0.1), "2 entries"),
        (lambda: Calibrated().fit(F, G).values(F, G[:3]), "costly estimates"),
        (lambda: NeighbourSignal().fit(F, G).values(F, G[:3]), "costly estimates"),
        (lambda: extend(Calibrated().fit(F, G), F, G), "3 columns"),
        (lambda: extend(Calibrated(mean=TreeMean(rounds=2)).fit(F, G), F, G), "linear"),
        (lambda: extend(Calibrated().fit(F[:, :1], G[:, :1]), F[:5], G[:5]), "8 or more"),
    ],
)
def test_bad_arguments_are_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make()


def test_without_rewards_the_slope_stays_one() -> None:
    assert Calibrated().fit(F, G).slope == 1.0


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    save(Calibrated().fit(F, G, G), tmp_path / "signal")
    return tmp_path / "signal"


@pytest.mark.parametrize("name", ["signal.json", "arrays.npz"])
@pytest.mark.parametrize("damage", ["cut", "flip", "gone", "longer"])
def test_a_damaged_file_is_refused(stored: Path, name: str, damage: str) -> None:
    file = stored / name
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
        ({"version": 2}, "version 1.*2.*Upgrade"),
        ({"version": None}, "version"),
        ({"format": "other"}, "another format"),
        ({"files": {}}, "arrays.npz"),
        ({"files": None}, "arrays.npz"),
        ({"files": {"signal.json": {}, "arrays.npz": {}, "../x": {}}}, "None bytes|plain file names"),
    ],
)
def test_a_changed_manifest_is_refused(stored: Path, change: dict[str, object], said: str) -> None:
    file = stored / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(UsageError, match=said):
        load(stored)


def test_what_is_not_a_model_is_refused(stored: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="without one"):
        load(tmp_path)
    (stored / "manifest.json").write_text("{")
    with pytest.raises(UsageError, match="JSON"):
        load(stored)


def test_parts_that_do_not_make_a_model_are_refused(stored: Path) -> None:
    (stored / "signal.json").write_text('{"model": "no such"}')
    reseal(stored)
    with pytest.raises(UsageError, match="parts of a signal model"):
        load(stored)


def test_compressed_arrays_are_refused(stored: Path) -> None:
    np.savez_compressed(stored / "arrays.npz", bomb=np.zeros(10_000))
    reseal(stored)
    with pytest.raises(UsageError, match="not compressed"):
        load(stored)


def reseal(folder: Path) -> None:
    file = folder / "manifest.json"
    manifest = json.loads(file.read_text())
    for name, entry in manifest["files"].items():
        entry.update(bytes=(folder / name).stat().st_size, sha256=folders.sha256(folder / name))
    file.write_text(json.dumps(manifest))


def test_an_existing_folder_is_only_replaced_on_request(stored: Path, tmp_path: Path) -> None:
    other = Calibrated(slope=False).fit(F, G, G)
    with pytest.raises(UsageError, match="something is there"):
        save(other, stored)
    save(other, stored, replace=True)
    assert load(stored).prior([0.1, 0.2], 0.01).value(0, 0.9) == pytest.approx(0.9)
    (tmp_path / "plain").mkdir()
    with pytest.raises(UsageError, match="not a signal model"):
        save(other, tmp_path / "plain", replace=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["plain", "signal"]


def test_a_failed_write_leaves_what_was_there(stored: Path) -> None:
    before = {p.name: p.read_bytes() for p in stored.iterdir()}

    def fill(folder: Path) -> dict[str, object]:
        (folder / "half").write_text("x")
        raise OSError("the disk is full")

    kind = folders.Kind("f", 1, "a thing", "Make one.", "mend it.")
    with pytest.raises(OSError, match="full"):
        folders.write(stored, kind, fill, replace=True)
    assert {p.name: p.read_bytes() for p in stored.iterdir()} == before
    assert [p.name for p in stored.parent.iterdir()] == ["signal"]


def test_a_model_of_another_kind_cannot_be_saved(tmp_path: Path) -> None:
    @dataclass
    class Mine:
        slope: float = 1.0

    with pytest.raises(UsageError, match="Mine"):
        save(Mine(), tmp_path / "mine")  # type: ignore[arg-type]
    assert not (tmp_path / "mine").exists()

"""Loading artifacts in the wild: signed, altered by somebody who knows the format, and in forked servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pandora_router import folders
from pandora_router.errors import UsageError
from pandora_router.estimators.stack.ensemble import Ensemble
from pandora_router.folders.kinds import seal_of
from pandora_router.folders.saved import packed, unpacked
from pandora_router.router import NeighbourRecipe, Router, StackRecipe
from pandora_router.router.artifact import KEY, KEY_FILE
from tests.support.tables import generate

ROOT = Path(__file__).resolve().parents[2]
PROMPTS = generate().in_split("test").prompts[:8]


@cache
def fitted() -> Router:
    """f by neighbours, g by a stack of trees, which LightGBM grows."""
    costly = StackRecipe(rounds=20, folds=2)
    cheap = NeighbourRecipe(10)
    return Router.fit(generate(), cheap=cheap, costly=costly, inspection_cost=1e-6)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fitted().save(tmp_path / "router")
    return tmp_path / "router"


def decisions(path: Path) -> list[str]:
    router = Router.load(path)
    assert any(router.route(prompt).inspected for prompt in PROMPTS), "nothing was bought, so g did not run"
    return [router.route(prompt).specialist for prompt in PROMPTS]


def test_a_loaded_router_decides_as_the_fitted_one(folder: Path) -> None:
    assert decisions(folder) == [fitted().route(prompt).specialist for prompt in PROMPTS]


def serve(path: Path, queue: Any) -> None:
    queue.put(decisions(path))


@pytest.mark.parametrize("threads", ["1", "4"])
def test_children_forked_from_a_process_that_routed_load_and_route(folder: Path, threads: str) -> None:
    """A pre-forking server: OpenMP threads of the parent do not exist in its children."""
    code = """
import multiprocessing, sys
from pathlib import Path
import numpy as np
from tests.router.test_loading import decisions, serve
import lightgbm
rows = np.random.default_rng(0).random((4000, 20))
path = Path(sys.argv[1])
expected = decisions(path)
model = lightgbm.train({"num_threads": 4, "verbosity": -1}, lightgbm.Dataset(rows, rows[:, 0]), 50)
model.predict(rows)
lightgbm.Booster(model_str=model.model_to_string())  # LightGBM's own way to load starts threads
context = multiprocessing.get_context("fork")
queue = context.Queue()
children = [context.Process(target=serve, args=(path, queue), daemon=True) for _ in range(3)]
for child in children:
    child.start()
assert all(queue.get(timeout=90) == expected for _ in children)
print("the same")
"""
    environment = {**os.environ, "OMP_NUM_THREADS": threads}
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    assert done.stdout == "the same\n", done.stderr[-2000:]


def test_artifacts_are_signed_and_others_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "a key that nobody else has"
    Router.load(folder)
    monkeypatch.setenv(KEY, key)
    with pytest.raises(UsageError, match="signature made with the key that is set, got none"):
        Router.load(folder)
    fitted().save(folder, replace=True)
    assert Router.load(folder).id == fitted().id
    assert key not in (folder / "manifest.json").read_text()
    told = json.loads((folder / "manifest.json").read_text())
    for change in ({"default": "large"}, {"signature": "0" * 64}, {"signature": None}, {"signature": 3}):
        edited = {**told, **change}
        (folder / "manifest.json").write_text(json.dumps({**edited, "seal": seal_of(edited)}))
        with pytest.raises(UsageError, match="signature") as caught:
            Router.load(folder)
        assert key not in str(caught.value)
    (folder / "manifest.json").write_text(json.dumps(told))
    Router.load(folder)
    monkeypatch.setenv(KEY, "another key, of another person")
    with pytest.raises(UsageError, match="another key"):
        Router.load(folder)
    monkeypatch.delenv(KEY)
    assert Router.load(folder).id == fitted().id


def test_the_key_may_be_in_a_file(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text("a key that nobody else has\n")
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "key"))
    fitted().save(folder, replace=True)
    monkeypatch.delenv(KEY_FILE)
    monkeypatch.setenv(KEY, "a key that nobody else has")
    assert Router.load(folder).id == fitted().id
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "nothing"))
    with pytest.raises(UsageError, match="No such file"):
        Router.load(folder)
    monkeypatch.setenv(KEY, "short")
    monkeypatch.delenv(KEY_FILE)
    with pytest.raises(UsageError, match="at least 16 bytes") as caught:
        Router.load(folder)
    assert "short" not in str(caught.value)


def altered(folder: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    """Change a file and make everything in the manifest fit, as an attacker without the key could."""
    told = json.loads((folder / "manifest.json").read_text())
    file = folder / told["content"] / name
    file.write_bytes(change(file.read_bytes()))
    told["files"][name] = {"bytes": file.stat().st_size, "sha256": folders.sha256(file)}
    (folder / "manifest.json").write_text(json.dumps({**told, "seal": seal_of(told)}))


ATTACK = """
import random, shutil, sys
from pathlib import Path
from pandora_router.errors import UsageError
from pandora_router.router import Router
from tests.router.test_loading import PROMPTS, altered
rng = random.Random(int(sys.argv[2]))
source, copy = Path(sys.argv[1]), Path(sys.argv[1]).with_name("copy")
refused = 0
for turn in range(int(sys.argv[3])):
    shutil.copytree(source, copy)
    name = rng.choice(["state.json", "arrays.safetensors"])

    def flipped(raw):
        changed = bytearray(raw)
        span = len(raw) if rng.random() < 0.7 else min(len(raw), 4000)
        for _ in range(rng.randint(1, 20)):
            changed[rng.randrange(span)] = rng.randrange(256)
        return bytes(changed[: rng.randrange(len(raw))] if rng.random() < 0.1 else changed)

    altered(copy, name, flipped)
    try:
        router = Router.load(copy)
    except UsageError:
        refused += 1
    else:
        try:
            router.route_batch(PROMPTS)
        except (UsageError, ValueError, OverflowError, FloatingPointError):
            pass  # numbers that are finite and mean nothing
    shutil.rmtree(copy)
print("alive", refused)
"""


def test_no_alteration_of_an_artifact_ends_the_process(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ATTACK, str(folder), "1", "60"],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.returncode, done.stderr[-3000:])
    assert int(done.stdout.split()[1]) > 20


def ensemble() -> Ensemble:
    trees = fitted().costly.boosters[0]  # type: ignore[union-attr]
    assert isinstance(trees, Ensemble)
    assert trees.sets.sum() > 0, "no tree asks for a category"
    return trees


WRONG: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a feature that there is not": lambda a: a["feature"].__setitem__(0, 10_000),
    "a node that leads back": lambda a: a["left"].__setitem__(int(np.flatnonzero(a["left"] > 0)[-1]), 0),
    "a node that there is not": lambda a: a["right"].__setitem__(0, 5_000),
    "a leaf that there is not": lambda a: a["left"].__setitem__(
        int(np.flatnonzero(a["left"] < 0)[0]), -5_000
    ),
    "an unknown kind of decision": lambda a: a["decision"].__setitem__(0, 64),
    "values that are missing or not finite": lambda a: a["value"].__setitem__(0, np.inf),
    "no leaves": lambda a: a["leaves"].__setitem__(0, 0),
    "bounds out of order": lambda a: a["bounds"].__setitem__(0, 1),
    "a set that there is not": lambda a: a["threshold"].__setitem__(
        np.flatnonzero(a["decision"] & 1)[0], 99.0
    ),
    "nodes that are missing": lambda a: a.update(left=a["left"][:-1]),
    "sets that are missing": lambda a: a.update(words=a["words"][:-1]),
    "left of another type": lambda a: a.update(left=a["left"].astype(np.int64)),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_arrays_that_are_no_trees_never_reach_lightgbm(wrong: str) -> None:
    state = ensemble().state()
    arrays = {name: array.copy() for name, array in state.arrays.items()}
    WRONG[wrong](arrays)
    with pytest.raises(ValueError, match=wrong):
        Ensemble(features=state.settings["features"], **arrays)


def test_trees_predict_what_lightgbm_does_bit_for_bit() -> None:
    import lightgbm

    rng = np.random.default_rng(0)
    rows = rng.random((600, 6))
    rows[:, 0] = rng.integers(0, 9, 600)
    rows[rng.random(rows.shape) < 0.1] = np.nan
    target = np.nan_to_num(rows[:, 0]) % 3 + np.nan_to_num(rows[:, 1]) + rng.random(600)
    settings = {"num_leaves": 12, "min_data_in_leaf": 5, "verbosity": -1, "num_threads": 1}
    data = lightgbm.Dataset(rows, target, categorical_feature=[0], params=dict(settings))
    model = lightgbm.train(settings, data, 40)
    probe = np.vstack([rows, rng.normal(0.5, 3.0, (300, 6))])
    np.testing.assert_array_equal(Ensemble.of(model).predict(probe), model.predict(probe))
    kept = unpacked(packed(Ensemble.of(model).state().arrays))
    np.testing.assert_array_equal(Ensemble(features=6, **kept).predict(probe), model.predict(probe))
    constant = lightgbm.train(settings, lightgbm.Dataset(rows, np.full(600, 0.25)), 3)
    np.testing.assert_array_equal(Ensemble.of(constant).predict(probe), constant.predict(probe))

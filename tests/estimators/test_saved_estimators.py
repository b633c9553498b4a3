"""Saved estimators: the same after a round trip, refused when changed, whole or absent when killed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pandora_router.errors import UsageError
from pandora_router.estimators.embedders.embedder import Cached, default_embedder
from pandora_router.estimators.extended import Extended
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.estimators.stack.boosted import Boosted, Trees
from pandora_router.estimators.stack.peek import Peek
from pandora_router.estimators.states import Saved, estimator_of, load_estimator, read, write
from tests.support.embedders import CallableEmbedder

PROMPTS = [
    f"{kind} question number {i} about {topic}"
    for i in range(12)
    for kind, topic in (("short", "numbers"), ("a much longer", "history of the world"), ("odd", "genes"))
]
REWARD = np.random.default_rng(0).random((len(PROMPTS), 2))
CONTEXTS = np.array([[f"I think {i}", f"maybe {i % 5}"] for i in range(len(PROMPTS))], dtype=object)
QUICK = Trees(rounds=5, folds=3)


def fitted(kind: str) -> Neighbours | Boosted:
    if kind == "neighbours":
        return Neighbours.fit(PROMPTS, REWARD, ["a", "b"])
    if kind == "boosted":
        return Boosted.fit(PROMPTS, REWARD, ["a", "b"], trees=QUICK)
    return Boosted.fit(
        PROMPTS, REWARD, ["a", "b"], contexts=CONTEXTS, peek=Peek(20, agreement=True), trees=QUICK
    )


@pytest.mark.parametrize("kind", ["neighbours", "boosted", "peeking"])
def test_a_round_trip_changes_no_prediction(tmp_path: Path, kind: str) -> None:
    before = fitted(kind)
    before.save(tmp_path / "g")
    after = type(before).load(tmp_path / "g")
    np.testing.assert_allclose(
        after.predict(PROMPTS, CONTEXTS), before.predict(PROMPTS, CONTEXTS), atol=1e-12
    )
    assert after.specialists == ("a", "b")
    names = {path.suffix for path in tmp_path.rglob("*") if path.is_file()}
    assert names <= {".json", ".safetensors"}


@pytest.mark.parametrize("kind", ["neighbours", "boosted", "peeking"])
def test_an_estimator_with_a_newcomer_is_opened_by_its_manifest(tmp_path: Path, kind: str) -> None:
    few = np.where(np.arange(len(PROMPTS)) % 3 == 0, np.nan, REWARD[:, 0])
    before = Extended.fit(fitted(kind), "new", PROMPTS, few)
    before.save(tmp_path / "g")
    after = load_estimator(tmp_path / "g")
    assert after.specialists == ("a", "b", "new")
    np.testing.assert_allclose(after.predict(PROMPTS), before.predict(PROMPTS), atol=1e-12)
    with pytest.raises(UsageError, match="'new'"):
        Extended.fit(before, "new", PROMPTS, few)


def test_equal_arrays_are_written_once_and_shared(tmp_path: Path) -> None:
    """Parts that were fitted on the same prompts hold the same vectors."""
    vectors = np.random.default_rng(0).random((500, 40))
    one, two = Saved("a", arrays={"v": vectors}), Saved("b", arrays={"w": vectors.copy(), "x": vectors[:10]})
    write(tmp_path / "g", Saved("both", parts={"one": one, "two": two}))
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert size < 1.2 * vectors.nbytes
    back = read(tmp_path / "g").parts
    np.testing.assert_array_equal(back["one"].arrays["v"], vectors)
    np.testing.assert_array_equal(back["two"].arrays["x"], vectors[:10])
    assert np.shares_memory(back["one"].arrays["v"], back["two"].arrays["w"])


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(UsageError, match="'oracle'"):
        estimator_of(Saved("oracle"))


def test_saving_again_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    for k in (1, 5):
        Neighbours.fit(PROMPTS, REWARD, ["a", "b"], k=k).save(tmp_path / "f")
    assert Neighbours.load(tmp_path / "f").k == (5,)
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_every_changed_or_missing_file_is_refused(tmp_path: Path) -> None:
    fitted("boosted").save(tmp_path / "g")
    files = [path.relative_to(tmp_path / "g") for path in (tmp_path / "g").rglob("*") if path.is_file()]
    assert len(files) == 3
    for name in files:
        for damage in ("truncate", "remove", "flip"):
            shutil.copytree(tmp_path / "g", tmp_path / "copy")
            victim = tmp_path / "copy" / name
            raw = victim.read_bytes()
            if damage == "remove":
                victim.unlink()
            elif damage == "truncate":
                victim.write_bytes(raw[: len(raw) // 2])
            elif name != Path("manifest.json"):
                victim.write_bytes(raw[:-3] + bytes([raw[-3] ^ 1]) + raw[-2:])
            else:
                victim.write_text(raw.decode().replace('"version": 4', '"version": 5'))
            with pytest.raises(UsageError):
                Boosted.load(tmp_path / "copy")
            shutil.rmtree(tmp_path / "copy")


def test_a_newer_format_says_so(tmp_path: Path) -> None:
    fitted("neighbours").save(tmp_path / "f")
    path = tmp_path / "f" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 9}))
    with pytest.raises(UsageError, match="version 4, got 9"):
        Neighbours.load(tmp_path / "f")


def test_a_folder_with_other_files_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "diary.txt").write_text("mine")
    with pytest.raises(UsageError, match="did not write"):
        fitted("neighbours").save(tmp_path)
    assert (tmp_path / "diary.txt").read_text() == "mine"


def test_another_kind_is_refused(tmp_path: Path) -> None:
    fitted("neighbours").save(tmp_path / "f")
    with pytest.raises(UsageError, match="boosted"):
        Boosted.load(tmp_path / "f")


def test_a_callable_embedder_must_be_handed_over_again_under_its_name(tmp_path: Path) -> None:
    lengths = CallableEmbedder("lengths", lambda texts: [[1.0, float(len(t))] for t in texts])
    before = Neighbours.fit(PROMPTS, REWARD, ["a", "b"], embedder=lengths)
    before.save(tmp_path / "f")
    with pytest.raises(UsageError, match="pass embedder"):
        Neighbours.load(tmp_path / "f")
    with pytest.raises(UsageError, match="'lengths', which it was fitted with"):
        Neighbours.load(tmp_path / "f", embedder=default_embedder())
    after = Neighbours.load(tmp_path / "f", embedder=lengths)
    np.testing.assert_array_equal(after.predict(PROMPTS), before.predict(PROMPTS))


def test_a_cached_embedder_is_saved_as_the_one_inside(tmp_path: Path) -> None:
    cached = Cached(default_embedder(), tmp_path / "cache")
    Neighbours.fit(PROMPTS, REWARD, ["a", "b"], embedder=cached).save(tmp_path / "f")
    assert Neighbours.load(tmp_path / "f").embedder is default_embedder()

"""The embedding cache: each text once, shared by processes, safe against broken files."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from pandora_router.estimators.embedders import embedder
from pandora_router.estimators.embedders.embedder import Cached
from pandora_router.folders.saved import write_arrays
from tests.support.embedders import CallableEmbedder


class Counting:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, texts: list[str]) -> list[list[float]]:
        self.seen.extend(texts)
        return [[1.0, float(len(text))] for text in texts]


def test_a_text_is_embedded_once_also_by_the_next_process(tmp_path: Path) -> None:
    count = Counting()
    first = Cached(CallableEmbedder("lengths", count), tmp_path)
    rows = first.embed(["a", "bb", "a"])
    assert count.seen == ["a", "bb"]
    second = Cached(CallableEmbedder("lengths", count), tmp_path)
    np.testing.assert_array_equal(second.embed(["bb", "a"]), rows[[1, 0]])
    assert count.seen == ["a", "bb"]
    assert [path.suffix for path in tmp_path.rglob("*") if path.is_file()] == [embedder.ENDING]


def test_embedders_of_different_names_do_not_share(tmp_path: Path) -> None:
    Cached(CallableEmbedder("one", lambda texts: [[1.0, 0.0]] * len(texts)), tmp_path).embed(["a"])
    other = Cached(CallableEmbedder("two", lambda texts: [[0.0, 1.0]] * len(texts)), tmp_path).embed(["a"])
    np.testing.assert_array_equal(other, [[0.0, 1.0]])


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 truncated", b"not an archive"])
def test_a_broken_segment_is_passed_over(tmp_path: Path, damage: bytes) -> None:
    count = Counting()
    Cached(CallableEmbedder("lengths", count), tmp_path).embed(["a"])
    [segment] = tmp_path.rglob(f"*{embedder.ENDING}")
    segment.write_bytes(damage)
    rows = Cached(CallableEmbedder("lengths", count), tmp_path).embed(["a"])
    assert count.seen == ["a", "a"]
    np.testing.assert_allclose(rows, [[2**-0.5, 2**-0.5]], rtol=1e-6)


def claims(path: Path) -> None:
    """A header that claims 10**15 rows, and the bytes of one."""
    header = {
        "keys": {"dtype": "U8", "shape": [10**15, 32], "data_offsets": [0, 32 * 10**15]},
        "vectors": {"dtype": "F32", "shape": [10**15, 2], "data_offsets": [32 * 10**15, 40 * 10**15]},
    }
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(40))


def sparse(path: Path) -> None:
    """A file of 2**40 bytes that takes no space on disk."""
    with path.open("wb") as file:
        file.truncate(2**40)


def misshaped(path: Path) -> None:
    write_arrays(path, {"keys": np.zeros((3, 32), np.uint8), "vectors": np.zeros((3, 2, 2), np.float32)})


def not_finite(path: Path) -> None:
    write_arrays(path, {"keys": np.zeros((1, 32), np.uint8), "vectors": np.full((1, 2), np.nan, np.float32)})


def whole_numbers(path: Path) -> None:
    write_arrays(path, {"keys": np.zeros((1, 32), np.uint8), "vectors": np.zeros((1, 2), np.int64)})


def pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("made", [claims, sparse, misshaped, not_finite, whole_numbers, pipe])
def test_a_hostile_segment_is_passed_over_in_little_memory(
    tmp_path: Path, made: Callable[[Path], None]
) -> None:
    kept = Cached(CallableEmbedder("lengths", Counting()), tmp_path)
    kept.embed(["a"])
    made(kept.shelf / f"0{embedder.ENDING}")
    tracemalloc.start()
    try:
        again = Cached(CallableEmbedder("lengths", Counting()), tmp_path)
        np.testing.assert_array_equal(again.embed(["a"]), kept.embed(["a"]))
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()
    assert len(again._known) == 1


def test_texts_are_not_written(tmp_path: Path) -> None:
    Cached(CallableEmbedder("lengths", Counting()), tmp_path).embed(["a very private text"])
    assert all(b"private" not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_many_small_segments_are_folded_into_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedder, "SEGMENTS", 5)
    count = Counting()
    kept = Cached(CallableEmbedder("lengths", count), tmp_path)
    for n in range(13):
        kept.embed(["x" * n])
    assert len(list(tmp_path.rglob(f"*{embedder.ENDING}"))) <= 6
    Cached(CallableEmbedder("lengths", count), tmp_path).embed(["x" * n for n in range(13)])
    assert len(count.seen) == 13


def test_several_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    def work(n: int) -> None:
        Cached(CallableEmbedder("lengths", Counting()), tmp_path).embed(
            [f"{n} {i}" for i in range(20)] + ["shared"]
        )

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(16)))
    count = Counting()
    Cached(CallableEmbedder("lengths", count), tmp_path).embed(
        [f"{n} {i}" for n in range(16) for i in range(20)]
    )
    assert count.seen == []


def test_nothing_in_nothing_out(tmp_path: Path) -> None:
    assert len(Cached(CallableEmbedder("lengths", lambda texts: np.zeros((0, 2))), tmp_path).embed([])) == 0

"""Folders on disk under real readers, writers and kills; and nobody else's folder is ever replaced."""

from __future__ import annotations

import json
import mmap
import os
import random
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pandora_router import folders
from pandora_router.data import load, save
from pandora_router.errors import UsageError
from pandora_router.folders import publication
from pandora_router.folders.kinds import check_output
from pandora_router.folders.saved import NEEDS, Saved, fill, packed, saved_from, unpacked
from tests.support.command import pandora
from tests.support.tables import generate

THING = folders.Kind("pandora-router thing", 1, "a thing", "Make one.", "make it anew.")
ROOT = Path(__file__).resolve().parents[2]


def put(path: Path, number: int, *, replace: bool = True, parts: int = 4, size: int = 1000) -> None:
    """A thing whose every array and file says the same number."""

    def files(folder: Path) -> dict[str, object]:
        fill(folder, Saved("thing", {"n": number}, {str(k): np.full(size, number) for k in range(parts)}))
        for k in range(parts):
            (folder / f"more{k}.txt").write_text(str(number))
        return {"n": number}

    folders.write(path, THING, files, replace=replace)


def get(path: Path) -> set[int]:
    """All the numbers that a thing says: one, unless it is a mixture."""
    stored = folders.read(path, THING, NEEDS)
    saved = saved_from(stored, THING)
    said = {int(n) for array in saved.arrays.values() for n in np.unique(array)}
    texts = {int(text) for name, text in stored.files.items() if name.endswith(".txt")}
    return said | texts | {saved.settings["n"], stored.manifest["n"]}


def started(code: str, *words: object) -> subprocess.Popen[str]:
    head = "import os, sys; from pathlib import Path; from tests.folders.test_folders import *\n"
    command = [sys.executable, "-c", head + code, *map(str, words)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


WRITER = """
for number in range(int(sys.argv[2]), int(sys.argv[3])):
    put(Path(sys.argv[1]), number)
"""
READER = """
seen, parent = set(), os.getppid()
print("ready", flush=True)
while not Path(sys.argv[2]).exists() and os.getppid() == parent:
    found = get(Path(sys.argv[1]))
    assert len(found) == 1, found
    seen |= found
print(len(seen))
"""


def test_a_folder_that_another_writer_replaces_during_the_check_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other writer removes the former files when this one has begun to list them."""
    thing = tmp_path / "thing"
    put(thing, 0)
    usual = os.scandir

    def gone(folder: Any = ".") -> Any:
        if Path(folder).name.startswith("data-"):
            Path(folder).rename(tmp_path / "removed")
        return usual(folder)

    monkeypatch.setattr(os, "scandir", gone)
    check_output(thing, THING, replace=True)
    assert (tmp_path / "removed").is_dir()


def test_readers_never_see_a_mixture_while_writers_publish(tmp_path: Path) -> None:
    thing = tmp_path / "thing"
    put(thing, 0)
    readers = [started(READER, thing, tmp_path / "stop") for _ in range(2)]
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
    writers = [started(WRITER, thing, start, start + 30) for start in (100, 200)]
    try:
        ended = [(process.communicate(timeout=600), process.returncode)[1] for process in writers]
    finally:
        (tmp_path / "stop").write_text("")
        told = [reader.communicate(timeout=600)[0] for reader in readers]
    assert ended == [0, 0]
    seen = [int(said) for said in told]
    assert min(seen) > 2, "the readers saw nothing being published"
    (tmp_path / "stop").unlink()
    assert get(thing) <= {129, 229}
    put(thing, 1)
    assert len(list(thing.glob("data-*"))) == 2, "the current files and those before them"
    assert {p.name for p in tmp_path.iterdir()} == {"thing"}
    assert {p.name for p in thing.iterdir() if not p.name.startswith("data-")} == {"manifest.json"}


def test_a_reader_that_has_begun_finishes_with_what_it_began(tmp_path: Path) -> None:
    put(tmp_path / "thing", 1)
    told = folders.manifest(tmp_path / "thing", THING)
    put(tmp_path / "thing", 2)
    for name, entry in told["files"].items():
        assert (tmp_path / "thing" / told["content"] / name).stat().st_size == entry["bytes"]
    assert get(tmp_path / "thing") == {2}


@pytest.mark.parametrize("there", [False, True])
def test_a_writer_killed_at_any_moment_leaves_old_or_new(tmp_path: Path, there: bool) -> None:
    rng = random.Random(int(there))
    for _ in range(6):
        if there:
            put(tmp_path / "thing", 7)
        writer = started(f"print('go', flush=True)\n{WRITER}", tmp_path / "thing", 100, 400)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(rng.uniform(0.0, 0.1))
        writer.kill()
        writer.communicate()
        if there or (tmp_path / "thing").exists():
            assert len(get(tmp_path / "thing")) == 1
    put(tmp_path / "thing", 8)
    assert get(tmp_path / "thing") == {8}
    assert {p.name for p in tmp_path.iterdir()} == {"thing"}, "what killed writers left was not removed"
    assert len(list((tmp_path / "thing").glob("data-*"))) <= 2


SLOW = """
def files(folder):
    (folder / "half").write_text("x")
    print("writing", flush=True)
    while not Path(sys.argv[2]).exists():
        time.sleep(0.01)
    return {}
folders.write(Path(sys.argv[1]), THING, files, replace=True)
"""


@pytest.mark.slow
def test_a_writer_waits_for_another_and_never_removes_its_draft(tmp_path: Path) -> None:
    """As two containers on one volume would: neither can tell whether the other's process is alive."""
    for there in (False, True):
        slow = started(SLOW, tmp_path / "thing", tmp_path / "go")
        assert slow.stdout is not None
        assert slow.stdout.readline() == "writing\n"
        second = started("put(Path(sys.argv[1]), 5)", tmp_path / "thing")
        with pytest.raises(subprocess.TimeoutExpired):
            second.communicate(timeout=3.0)
        assert list(tmp_path.rglob("half")), "the draft of a living writer was removed"
        (tmp_path / "go").write_text("")
        for process in (slow, second):
            process.communicate(timeout=60)
            assert process.returncode == 0
        assert get(tmp_path / "thing") == {5}, there
        (tmp_path / "go").unlink()


def extension(path: Path) -> dict[str, str]:
    """Somebody's browser extension, which has a manifest.json as well."""
    path.mkdir()
    (path / "manifest.json").write_text('{"manifest_version": 3, "name": "mine", "version": "1.0"}')
    (path / "background.js").write_text("// three years of work")
    return {p.name: p.read_text() for p in path.iterdir()}


def test_what_we_did_not_write_is_never_replaced(tmp_path: Path) -> None:
    before = extension(tmp_path / "extension")
    with pytest.raises(UsageError, match="did not write"):
        put(tmp_path / "extension", 1)
    assert {p.name: p.read_text() for p in (tmp_path / "extension").iterdir()} == before
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="a file"):
        put(tmp_path / "file", 1)
    (tmp_path / "nowhere").symlink_to(tmp_path / "absent" / "deep")
    with pytest.raises(UsageError, match="symlink"):
        put(tmp_path / "nowhere", 1)
    save(generate(), tmp_path / "table")
    with pytest.raises(UsageError, match=r"another kind \(pandora-router table\)"):
        put(tmp_path / "table", 1)
    assert load(tmp_path / "table").fingerprint() == generate().fingerprint()
    put(tmp_path / "thing", 1)
    with pytest.raises(UsageError, match="that is there already"):
        put(tmp_path / "thing", 2, replace=False)


@pytest.mark.parametrize("place", ["notes.txt", "{content}/notes.txt", "deep/notes.txt"])
def test_a_folder_of_ours_with_a_file_of_yours_is_kept(tmp_path: Path, place: str) -> None:
    put(tmp_path / "thing", 1)
    content = next((tmp_path / "thing").glob("data-*")).name
    mine = tmp_path / "thing" / place.format(content=content)
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text("mine")
    with pytest.raises(UsageError, match=r"did not put there \(.*(notes\.txt|deep)"):
        put(tmp_path / "thing", 2)
    assert mine.read_text() == "mine"
    assert get(tmp_path / "thing") == {1}


def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    """A mounted volume cannot be renamed over."""
    (tmp_path / "volume").mkdir()
    put(tmp_path / "volume", 1, replace=False)
    assert get(tmp_path / "volume") == {1}


def test_outputs_and_inputs_are_kept_apart_by_any_name(tmp_path: Path) -> None:
    source = tmp_path / "data" / "source"
    source.mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "data")
    file = source / "in.parquet"
    file.write_text("x")
    os.link(file, tmp_path / "other.parquet")
    for output, came in [
        (source, "the input itself"),
        (tmp_path / "link" / "source", "the input itself"),
        (tmp_path / "data" / ".." / "data" / "source", "the input itself"),
        (source / "out", "inside it"),
        (tmp_path / "link" / "source" / "a" / "b", "inside it"),
        (tmp_path / "data", "contains it"),
        (tmp_path / "link", "contains it"),
        (tmp_path, "contains it"),
    ]:
        with pytest.raises(UsageError, match=came):
            folders.keep_apart(output, [source])
        with pytest.raises(UsageError, match=came):
            folders.check_output(output, THING, replace=True, inputs=[tmp_path / "elsewhere", source])
    with pytest.raises(UsageError, match="the input itself"):
        folders.keep_apart(tmp_path / "other.parquet", [file])
    folders.keep_apart(tmp_path / "data" / "sibling", [source])
    folders.keep_apart(source / "out.parquet", [file])


def test_no_command_writes_over_its_input_or_a_stranger(tmp_path: Path) -> None:
    save(generate(), tmp_path / "table")
    (tmp_path / "pandora.yaml").write_text("fit: {inspection: 0.002}\n")
    before = extension(tmp_path / "extension")
    alias = tmp_path / "alias"
    alias.symlink_to(tmp_path / "table")
    for words in (
        ["fit", "--data", tmp_path / "table", "-o", tmp_path / "table"],
        ["fit", "--data", alias, "-o", tmp_path / "table"],
        ["fit", tmp_path / "pandora.yaml", "-o", tmp_path / "table"],
        ["fit", tmp_path / "pandora.yaml", "-o", tmp_path / "table" / "inside"],
        ["fit", tmp_path / "pandora.yaml", "-o", tmp_path / "extension"],
        ["data", "import", tmp_path / "table", "-o", tmp_path / "extension"],
        ["data", "import", tmp_path / "table", "-o", alias],
        ["data", "import", tmp_path / "table", "-o", tmp_path],
    ):
        result = pandora(*words, "--replace")
        assert result.exit_code == 2, (words, result.output)
        assert "Traceback" not in result.output
    assert load(tmp_path / "table").fingerprint() == generate().fingerprint()
    assert {p.name: p.read_text() for p in (tmp_path / "extension").iterdir()} == before


def test_an_output_that_cannot_be_written_is_named_without_the_draft(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError) as caught:
        put(tmp_path / "file" / "out", 1)
    assert str(tmp_path / "file" / "out") in str(caught.value)
    assert "draft" not in str(caught.value)
    with pytest.raises(UsageError, match="which is a file"):
        folders.check_file(tmp_path / "file" / "out.md", replace=False)
    with pytest.raises(UsageError, match="one that is there already"):
        folders.check_file(tmp_path / "file", replace=False)
    folders.check_file(tmp_path / "file", replace=True)
    with pytest.raises(OSError, match=r"exists|Not a directory") as refused:
        folders.replace_text(tmp_path / "file" / "out.md", "x")
    assert refused.value.filename == str(tmp_path / "file" / "out.md")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_named(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(UsageError, match=r"closed/out: .*Permission denied"):
        put(tmp_path / "closed" / "out", 1)


def test_a_pipe_in_place_of_a_file_does_not_block(tmp_path: Path) -> None:
    put(tmp_path / "thing", 1)
    victim = next((tmp_path / "thing").glob("*/more0.txt"))
    victim.unlink()
    os.mkfifo(victim)
    with pytest.raises(UsageError, match="regular file"):
        get(tmp_path / "thing")


ARRAYS = {
    "f8": np.linspace(0.0, 1.0, 12).reshape(3, 4),
    "f4": np.arange(5, dtype=np.float32),
    "yes": np.array([True, False, True]),
    "none": np.zeros((0, 3)),
    "one": np.array(2.5),
    "turned": np.arange(6.0).reshape(2, 3).T,
    "big endian": np.arange(4, dtype=">i4"),
    "words": np.arange(3, dtype=np.uint32),
}


def test_arrays_come_back_bit_for_bit_and_other_programs_read_them() -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    back = unpacked(packed(ARRAYS))
    other = safetensors.load(packed(ARRAYS))
    assert back.keys() == ARRAYS.keys() == other.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(back[name], array)
        np.testing.assert_array_equal(other[name], array)
        assert not back[name].flags.writeable
        assert back[name].flags.aligned
    assert unpacked(safetensors.save({"x": np.arange(3.0)}))["x"].tolist() == [0.0, 1.0, 2.0]
    for odd in (np.array(["text"]), np.array([None]), np.zeros(2, dtype=complex)):
        with pytest.raises(TypeError, match="cannot be written"):
            packed({"odd": odd})


def tensor(header: object, data: bytes = b"\0" * 16) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


F8 = {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 7,
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 100) + b"{}",
        tensor(b"[" * 100_000),
        tensor(b"\xff\xfe"),
        tensor([1]),
        tensor({"x": 1}),
        tensor({"x": {**F8, "dtype": "O"}}),
        tensor({"x": {**F8, "shape": [2**62, 2**62]}}),
        tensor({"x": {**F8, "shape": [-2]}}),
        tensor({"x": {**F8, "shape": [2.0]}}),
        tensor({"x": {**F8, "shape": [True, 2]}}),
        tensor({"x": {**F8, "shape": [1] * 40 + [2]}}),
        tensor({"x": {**F8, "data_offsets": [0, 2**70]}}),
        tensor({"x": {**F8, "data_offsets": [-16, 0]}}),
        tensor({"x": F8, "y": F8}),
        tensor({"x": F8}, b"\0" * 15),
        tensor({"x": F8}, b"\0" * 17),
        tensor({"x": {"dtype": "BOOL", "shape": [2], "data_offsets": [0, 2]}}, b"\1\2"),
    ],
    ids=range(20),
)
def test_arrays_that_lie_about_themselves_are_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"header|array|bytes"):
        unpacked(content)


def test_random_flips_of_arrays_give_arrays_or_a_refusal() -> None:
    rng = random.Random(0)
    good = packed(ARRAYS)
    for _ in range(2000):
        raw = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            raw[rng.randrange(min(len(raw), 800))] = rng.randrange(256)
        try:
            found = unpacked(bytes(raw[: rng.choice([len(raw), rng.randrange(len(raw))])]))
        except ValueError:
            continue
        assert sum(array.nbytes for array in found.values()) <= len(good)


def test_large_files_are_mapped_unless_a_key_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mapped content is the same, is refused if damaged, and outlives the publication that replaces it."""
    monkeypatch.setattr(publication, "MAPPED", 1000)
    array = np.arange(5000, dtype=np.int32)

    def filled(value: np.ndarray) -> Callable[[Path], dict[str, Any]]:
        def files(folder: Path) -> dict[str, Any]:
            fill(folder, Saved("thing", {}, {"numbers": value}))
            return {}

        return files

    folders.write(tmp_path / "a", THING, filled(array), key=b"k" * 16)
    mapped = folders.read(tmp_path / "a", THING, NEEDS)
    signed = folders.read(tmp_path / "a", THING, NEEDS, key=b"k" * 16)
    assert isinstance(mapped.files["arrays.safetensors"], mmap.mmap)
    assert isinstance(signed.files["arrays.safetensors"], bytes)
    assert mapped.files["arrays.safetensors"][:] == signed.files["arrays.safetensors"]
    numbers = saved_from(mapped, THING).arrays["numbers"]
    assert not numbers.flags.writeable
    for _ in range(2):  # the second publication removes the files of the first
        folders.write(tmp_path / "a", THING, filled(array[::-1]), replace=True)
    np.testing.assert_array_equal(numbers, array)
    file = tmp_path / "a" / folders.manifest(tmp_path / "a", THING)["content"] / "arrays.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(UsageError, match="SHA-256"):
        folders.read(tmp_path / "a", THING, NEEDS)

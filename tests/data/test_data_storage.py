"""A stored table comes back as it was, or not at all."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pandora_router.data import Limits, Table, load, merge, save
from pandora_router.errors import UsageError
from pandora_router.folders import kinds


def table(seed: int = 0, n: int = 40, m: int = 3) -> Table:
    rng = np.random.default_rng(seed)
    score = np.where(rng.random((n, m)) < 0.2, np.nan, rng.random((n, m)))
    contexts = np.where(rng.random((n, m)) < 0.5, "ctx é\n", None).astype(object)
    return Table(
        prompt_ids=tuple(f"id{i}" for i in range(n)),
        prompts=tuple(f"prompt {i} \u2028 {seed}" for i in range(n)),
        tasks=tuple(f"t{i % 3}" for i in range(n)),
        split=rng.choice(["train", "calibration", "test", ""], n),
        specialists=tuple(f"org/model-{j} [x]" for j in range(m)),
        score=score,
        fee=rng.random((n, m)),
        contexts=contexts,
        fee_weight=0.1 + 0.2,
    )


def test_what_is_saved_is_loaded(tmp_path):
    for i, t in enumerate((table(), replace(table(), contexts=None), table().rows([]))):
        save(t, tmp_path / "deep" / str(i))
        back = load(tmp_path / "deep" / str(i))
        assert back.fingerprint() == t.fingerprint()
        np.testing.assert_array_equal(back.score, t.score)
        np.testing.assert_array_equal(back.fee, t.fee)
        assert (back.prompts, back.tasks, back.specialists) == (t.prompts, t.tasks, t.specialists)
        assert (back.fee_weight, back.split.tolist()) == (t.fee_weight, t.split.tolist())
        assert (back.contexts is None) == (t.contexts is None)
        if t.contexts is not None:
            assert back.contexts.tolist() == t.contexts.tolist()


@pytest.mark.parametrize("name", ["seconds", "first_seconds"])
def test_the_seconds_of_answers_are_kept_picked_and_merged(tmp_path, name):
    t = table()
    known = replace(t, **{name: np.where(t.missing, np.nan, 1.0 + t.fee)})
    save(known, tmp_path / "t")
    back = load(tmp_path / "t")
    assert list(back.times) == [name]
    np.testing.assert_array_equal(back.times[name], known.times[name])
    assert back.fingerprint() == t.fingerprint()  # as `lengths`, they do not make another table
    some = back.rows([3, 1]).only(t.specialists[1:])
    np.testing.assert_array_equal(some.times[name], known.times[name][[3, 1]][:, 1:])
    halves = [known.only(t.specialists[:1]), known.only(t.specialists[1:])]
    np.testing.assert_array_equal(merge(halves).table.times[name], known.times[name])
    assert not merge([t.only(t.specialists[:1]), t.only(t.specialists[1:])]).table.times
    with pytest.raises(UsageError, match=name.replace("_", " ")):
        replace(t, **{name: np.full(t.shape, -1.0)})
    with pytest.raises(UsageError, match=name):
        replace(t, **{name: np.ones((2, 2))})


def test_the_files_are_plain_parquet_and_json(tmp_path):
    t = table()
    save(t, tmp_path / "t")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t"]
    content, _ = sorted((tmp_path / "t").iterdir())
    assert sorted(path.name for path in content.iterdir()) == [
        "contexts.parquet", "fee.parquet", "prompts.parquet", "score.parquet",
    ]  # fmt: skip
    assert pq.read_table(content / "prompts.parquet")["prompt"].to_pylist() == list(t.prompts)
    stored = pq.read_table(content / "score.parquet")
    assert stored.column_names == list(t.specialists)
    np.testing.assert_array_equal(np.column_stack([c.to_numpy() for c in stored.columns]), t.score)
    manifest = json.loads((tmp_path / "t" / "manifest.json").read_text())
    assert (manifest["version"], manifest["missing_cells"]) == (2, int(np.isnan(t.score).sum()))


def test_nothing_is_overwritten_unasked(tmp_path):
    save(table(1), tmp_path / "t")
    with pytest.raises(UsageError, match="that is there already"):
        save(table(2), tmp_path / "t")
    assert load(tmp_path / "t").fingerprint() == table(1).fingerprint()
    save(table(2), tmp_path / "t", replace=True)
    assert load(tmp_path / "t").fingerprint() == table(2).fingerprint()
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_only_a_routing_table_is_ever_replaced(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("ten years")
    with pytest.raises(UsageError, match="did not write"):
        save(table(), tmp_path / "home", replace=True)
    assert (tmp_path / "home" / "thesis.txt").read_text() == "ten years"


@pytest.mark.parametrize("name", ["prompts", "score", "fee", "contexts"])
@pytest.mark.parametrize("harm", ["flip", "cut", "remove", "swap"])
def test_a_damaged_file_is_refused_by_name(tmp_path, name, harm):
    save(table(), tmp_path / "t")
    file = next((tmp_path / "t").glob(f"*/{name}.parquet"))
    raw = bytearray(file.read_bytes())
    if harm == "flip":
        raw[len(raw) // 2] ^= 1
        file.write_bytes(raw)
    elif harm == "cut":
        file.write_bytes(raw[:-9])
    elif harm == "remove":
        file.unlink()
    else:
        save(table(5), tmp_path / "other")
        file.write_bytes(next((tmp_path / "other").glob(f"*/{name}.parquet")).read_bytes())
    with pytest.raises(UsageError, match=f"{name}.parquet.*damaged"):
        load(tmp_path / "t")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 1}, "format version 2, got 1.*Another version"),
        ({"format": "other"}, "without a manifest.json of pandora-router"),
        ({"format": "pandora-router artifact"}, "another kind .pandora-router artifact"),
        ({"fee_weight": 7.0}, "fingerprint"),
        ({"specialists": ["a", "b", "c"]}, "damaged"),
        ({"files": {}}, "complete manifest"),
        ({"content": "../.."}, "complete manifest"),
        (
            {"files": {"../x": {}, "prompts.parquet": 1, "score.parquet": 1, "fee.parquet": 1}},
            "plain file names",
        ),
    ],
)
def test_a_changed_manifest_is_refused(tmp_path, change, said):
    save(table(), tmp_path / "t")
    file = tmp_path / "t" / "manifest.json"
    told = json.loads(file.read_text()) | change
    file.write_text(json.dumps(told))
    with pytest.raises(
        UsageError, match=said if "format" in change or "version" in change else "an edited one"
    ):
        load(tmp_path / "t")
    file.write_text(json.dumps({**told, "seal": kinds.seal_of(told)}))  # by somebody who knows how
    with pytest.raises(UsageError, match=said):
        load(tmp_path / "t")


def test_no_table_is_there(tmp_path):
    with pytest.raises(UsageError, match="no such folder"):
        load(tmp_path / "nothing")
    with pytest.raises(UsageError, match=r"without a manifest\.json"):
        load(tmp_path)
    save(table(), tmp_path / "t")
    (tmp_path / "t" / "manifest.json").write_text("{")
    with pytest.raises(UsageError, match=r"without a manifest\.json of pandora-router"):
        load(tmp_path / "t")


def test_limits_hold_when_loading(tmp_path):
    save(table(), tmp_path / "t")
    with pytest.raises(UsageError, match="--max-file-bytes"):
        load(tmp_path / "t", limits=Limits(file_bytes=100))
    with pytest.raises(UsageError, match="--max-cells"):
        load(tmp_path / "t", limits=Limits(cells=100))


def test_half_a_character_is_refused_and_leaves_nothing(tmp_path):
    broken = replace(table(), prompts=("cut \ud83d", *table().prompts[1:]))
    with pytest.raises(UsageError, match="after 'cut '"):
        save(broken, tmp_path / "t")
    assert list(tmp_path.iterdir()) == []


CHILD = """
import sys
sys.path.insert(0, sys.argv[2])
from test_data_storage import table
from pandora_router.data import save
big = table(3, n=20_000, m=8)
print("go", flush=True)
save(big, sys.argv[1])
print("saved", flush=True)
"""


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.05, 0.1, 0.2])
def test_killed_while_saving_leaves_nothing_or_everything(tmp_path, delay):
    command = [sys.executable, "-c", CHILD, str(tmp_path / "t"), str(Path(__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "go\n"
        time.sleep(delay)
        child.kill()
        saved = "saved" in child.stdout.read()
    if (tmp_path / "t").exists():
        assert load(tmp_path / "t").shape == (20_000, 8)
    else:
        assert not saved
    save(table(), tmp_path / "t", replace=True)  # what a killed run left behind is in nobody's way
    assert load(tmp_path / "t").fingerprint() == table().fingerprint()

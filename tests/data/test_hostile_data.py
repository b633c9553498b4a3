"""Files that are damaged or made to harm: clear errors that name file, row and column; never a crash."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pandora_router.data import Free, Limits
from pandora_router.data.importers import read_long
from pandora_router.errors import UsageError
from pandora_router.text import printable, unfit_for_name
from tests.support.command import pandora

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    {"prompt": f"question {i // 2}", "model": "ab"[i % 2], "score": float(i % 3 == 0)} for i in range(400)
]
GOOD = "".join(json.dumps(row) + "\n" for row in ROWS[:4])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (rb'{"prompt": "x", "prompt": "y", "model": "a", "score": 1}', r"line 5: .*'prompt' twice"),
        (rb'{"prompt": "x", "model": "a", "score": 1, "more": {"k": 1, "k": 2}}', r"line 5: .*'k' twice"),
        (b'{"prompt": "\xff\xfe", "model": "a", "score": 1}', r"line 5: .*utf-8"),
        (b"\x00\x01\x02\x03", "line 5: "),
        (b'{"prompt": "x", "model": "a", "score": ' + b"9" * 5000 + b"}", "line 5: .*digits"),
        (b'{"prompt": ' + b"[" * 200_000 + b"}", "line 5: "),
        (rb'{"prompt": "cut \ud83d", "model": "a", "score": 1}', r"row 5, column 'prompt': .*surrogate"),
        (rb'{"prompt": "x", "model": "a\u200b", "score": 1}', r"specialist 'a.u200b': .*ZERO WIDTH SPACE"),
        (rb'{"prompt": "x", "model": "\u001b[31m", "score": 1}', r"specialist .*control character"),
        (rb'{"prompt": "x", "model": "a ", "score": 1}', r"specialist 'a ': .*white space"),
    ],
)
def test_one_bad_line_is_named(tmp_path: Path, line: bytes, told: str) -> None:
    (tmp_path / "x.jsonl").write_bytes(GOOD.encode() + line + b"\n")
    with pytest.raises(UsageError, match=f"(?s){told}") as caught:
        read_long(tmp_path / "x.jsonl", fees=Free())
    assert "\x1b" not in str(caught.value)
    result = pandora("data", "check", tmp_path / "x.jsonl", "--format", "long", "--free")
    assert result.exit_code == 2
    assert "\x1b" not in result.output
    assert "Traceback" not in result.output


def test_bytes_in_place_of_texts(tmp_path: Path) -> None:
    """Bytes that are UTF-8 are the text they spell, as old writers stored it; others are named."""
    columns = {name: [row[name] for row in ROWS] for name in ("prompt", "model", "score")}
    as_bytes = {**columns, "prompt": pa.array([str(p).encode() for p in columns["prompt"]], pa.binary())}
    pq.write_table(pa.table(as_bytes), tmp_path / "x.parquet")
    assert read_long(tmp_path / "x.parquet", fees=Free()).prompts[1] == "question 1"
    broken = [str(p).encode() for p in columns["prompt"]]
    broken[8] = broken[9] = b"\x89PNG\r\n\x1a\n\xff"
    for kind in (pa.binary(), pa.large_binary()):
        pq.write_table(pa.table({**columns, "prompt": pa.array(broken, kind)}), tmp_path / "x.parquet")
        with pytest.raises(
            UsageError, match=r"x\.parquet: .*row 9, column 'prompt': bytes that are no UTF-8"
        ):
            read_long(tmp_path / "x.parquet", fees=Free())


def test_a_prompt_that_is_too_long_is_named(tmp_path: Path) -> None:
    rows = [*ROWS[:6], {"prompt": "x" * 2000, "model": "a", "score": 1.0}]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UsageError, match=r"row 7, column 'prompt': expected at most 1,000 characters"):
        read_long(tmp_path / "x.jsonl", fees=Free(), limits=Limits(text_characters=1000))


def test_a_header_nobody_can_type_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("prompt,model,sco\u200bre\np,a,1\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"column .*ZERO WIDTH SPACE"):
        read_long(tmp_path / "x.csv", fees=Free())
    (tmp_path / "y.csv").write_text("prompt,model,points\np,a,1\n")
    with pytest.raises(UsageError, match=r"a column 'score'.*--score-column"):
        read_long(tmp_path / "y.csv", fees=Free())


FLIPS = """
import random, sys
from pathlib import Path
from pandora_router.data import Free
from pandora_router.data.importers import read_long
from pandora_router.errors import UsageError
source, copy = Path(sys.argv[1]), Path(sys.argv[1]).with_name("flipped.parquet")
good, rng, refused = source.read_bytes(), random.Random(int(sys.argv[2])), 0
for turn in range(int(sys.argv[3])):
    raw = bytearray(good)
    for _ in range(rng.randint(1, 3)):
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    copy.write_bytes(raw if rng.random() < 0.9 else raw[: rng.randrange(len(raw))])
    try:
        read_long(copy, fees=Free())
    except UsageError as error:
        assert "flipped.parquet" in str(error) or "specialist" in str(error) or "score" in str(error), error
        refused += 1
print("alive", refused)
"""


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_flipped_bits_of_parquet_are_refused_or_harmless(tmp_path: Path, compression: str) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "x.parquet", compression=compression)
    done = subprocess.run(
        [sys.executable, "-c", FLIPS, str(tmp_path / "x.parquet"), "3", "300"],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    assert int(done.stdout.split()[1]) > 30


def test_what_is_printable() -> None:
    rng = random.Random(0)
    for _ in range(500):
        text = "".join(
            chr(rng.choice([rng.randrange(0x250), rng.randrange(0x2000, 0x2070)])) for _ in range(20)
        )
        shown = printable(text)
        assert all(c.isprintable() or c in "\n\t\xa0\u2000\u202f\u205f" or c.isspace() for c in shown)
        assert not set(shown) & set("\x1b\x9b\x07\x00\r\u202e\u200b")
    assert printable("G\u00f6tter \u4e2d\n\t\U0001f600") == "G\u00f6tter \u4e2d\n\t\U0001f600"
    assert unfit_for_name("gpt-4o mini (2024)") is None
    assert str(UsageError("\x1b]0;owned\x07", expected="a", came="b", do="c")).startswith(
        "\\x1b]0;owned\\x07"
    )

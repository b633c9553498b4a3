"""`pandora data` as a user types it."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from rich.console import Console

from pandora_router.cli.console import SlowProgress
from pandora_router.data import Table, load, save
from tests.support.command import pandora


def run(*words: object) -> Result:
    return pandora("data", *words)


@pytest.fixture
def long_csv(tmp_path):
    path = tmp_path / "long.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "llm", "ok", "usd", "part", "kind", "params_b"])
        for i in range(20):
            part = "train" if i < 15 else "test"
            writer.writerow([f"q{i}", "small", i % 2, 0.01, part, "k", 7])
            if i != 3:
                writer.writerow([f"q{i}", "large", 1, 0.5, part, "k", 70])
    return path


COLUMNS = (
    "--prompt-column",
    "text",
    "--specialist-column",
    "llm",
    "--score-column",
    "ok",
    "--task-column",
    "kind",
)


def test_import_then_check(tmp_path, long_csv):
    result = run(
        "import", long_csv, "--format", "long", *COLUMNS, "--fee-column", "usd", "-o", tmp_path / "t"
    )
    assert result.exit_code == 0, result.output
    assert "20 prompts x 2 specialists: 39 scores, 97.5 % of the grid, 1 cells missing" in result.output
    table = load(tmp_path / "t")
    assert {name: int((table.split == name).sum()) for name in ("train", "calibration", "test")} == {
        "train": 12, "calibration": 4, "test": 4,
    }  # fmt: skip
    checked = json.loads(run("check", tmp_path / "t", "--json", "--fee-weight", "2").stdout)
    assert checked["fee_weight"] == 2
    assert checked["specialists"][1]["missing"] == 1
    # by hand: large earns 1 - 2 * .5 = 0, small .5 - .02 on all 20; oracle .98 when odd and 0 when even
    assert checked["available"]["best_single"]["specialist"] == "small"
    assert checked["available"]["best_single"]["reward"]["mean"] == pytest.approx(0.48)
    assert checked["available"]["oracle"]["mean"] == pytest.approx(0.49)
    assert json.loads(run("check", tmp_path / "t", "--split", "test", "--json").stdout)["prompts"] == 4


def test_the_split_is_kept_when_asked(tmp_path, long_csv):
    words = (
        "import",
        long_csv,
        "--format",
        "long",
        *COLUMNS,
        "--split-column",
        "part",
        "--free",
        "--keep-split",
    )
    assert run(*words, "-o", tmp_path / "kept").exit_code == 0
    assert (load(tmp_path / "kept").split == "train").sum() == 15
    assert run(*words, "--calibration-from-train", "0.2", "-o", tmp_path / "carved").exit_code == 0
    split = load(tmp_path / "carved").split
    assert [(split == name).sum() for name in ("train", "calibration", "test")] == [12, 3, 5]


def test_specialists_are_listed_by_reward(tmp_path):
    """Also one that earns exactly nothing."""
    (tmp_path / "wide.csv").write_text("prompt,dear,zero,good\nq1,0,1,1\nq2,0,0,1\n")
    fees = ["dear=1", "zero=0.5", "good=0"]
    words = ["import", tmp_path / "wide.csv", "--format", "wide", "-o", tmp_path / "t"]
    shown = run(*words, *(word for fee in fees for word in ("--fee", fee))).stdout
    rows = [line.split()[1] for line in shown.splitlines() if line.startswith("\u2502")]
    assert rows[:3] == ["good", "zero", "dear"]


def test_seeds_and_fractions(tmp_path, long_csv):
    splits = []
    for i, words in enumerate((("--seed", 1), ("--seed", 1), ("--seed", 2), ("--fractions", 0.5, 0, 0.5))):
        out = tmp_path / str(i)
        assert (
            run("import", long_csv, "--format", "long", *COLUMNS, "--free", *words, "-o", out).exit_code == 0
        )
        splits.append(load(out).split.tolist())
    assert splits[0] == splits[1] != splits[2]
    assert "calibration" not in splits[3]


def test_fee_options(tmp_path, long_csv):
    def fees(*words):
        out = tmp_path / "t"
        result = run("import", long_csv, "--format", "long", *COLUMNS, *words, "-o", out, "--replace")
        assert result.exit_code == 0, result.output
        return load(out).fee[0].tolist()

    assert fees("--fee", "small=0.5", "--fee", "large=2") == [0.5, 2]
    np.testing.assert_allclose(fees("--fee-per-trillion-parameters", "10"), [0.07, 0.7])
    assert fees("--fee", "small=9", "--fee-column", "usd") == [9, 0.5]
    np.testing.assert_allclose(
        fees("--fee-per-token", "--tokens-out", "100", "--price-column", "params_b"),
        [7 * (0.5 + 100) / 1e6, 70 * (0.5 + 100) / 1e6],
    )


def test_wide_files(tmp_path):
    path = tmp_path / "w.jsonl"
    path.write_text('{"prompt": "p", "a_ok": true, "a_usd": 1}\n{"prompt": "q", "a_ok": false, "a_usd": 2}\n')
    words = ("import", path, "--format", "wide", "--score-column", "{}_ok", "--fee-column", "{}_usd")
    assert run(*words, "-o", tmp_path / "t").exit_code == 0
    assert load(tmp_path / "t").fee.tolist() == [[1], [2]]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--free"),
        (("--fee", "small=1"), "large (19 answers)"),
        (("--fee", "small"), "NAME=FEE"),
        (("--fee", "small=x"), "NAME=FEE"),
        (("--free", "--fee-column", "usd"), "Choose one"),
        (("--fee-per-token",), "either tokens_out or characters_out"),
        (("--free", "--tokens-out", "4"), "--fee-per-token"),
        (("--free", "--keep-split"), "data with a split"),
        (("--free", "--keep-split", "--seed", "1"), "Choose one"),
        (("--free", "--calibration-from-train", ".2"), "--keep-split"),
        (("--free", "--fractions", "1", "1", "1"), "sum 1"),
        (("--free", "--specialist", "small"), "--specialist"),
        (("--free", "--max-cells", "3"), "at most 3 cells"),
        (("--free", "--fee-weight", "-1"), "fee_weight"),
    ],
)
def test_mistakes_are_one_message_and_exit_code_2(tmp_path, long_csv, words, said):
    result = run("import", long_csv, "--format", "long", *COLUMNS, *words, "-o", tmp_path / "t")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert said in result.stderr
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "t").exists()


def test_other_mistakes(tmp_path, long_csv):
    assert "Check the path" in run("check", tmp_path / "none").stderr
    assert f"pandora data import {long_csv} --format" in run("check", long_csv).stderr
    words = ("import", long_csv, "--format", "long", *COLUMNS, "--free", "-o", tmp_path / "t")
    assert run(*words).exit_code == 0
    again = run(*words)
    assert (again.exit_code, "there already" in again.stderr) == (2, True)
    idle = run("check", tmp_path / "t", "--free")
    assert (idle.exit_code, "Leave it out" in idle.stderr) == (2, True)
    (tmp_path / "file").write_text("")
    blocked = run(*words[:-1], tmp_path / "file" / "t")
    assert (blocked.exit_code, blocked.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize("command", ["import", "check"])
def test_help_has_examples(command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"pandora data {command}" in result.output


def test_progress_waits_before_it_shows():
    def shown(patience: float, terminal: bool) -> str:
        file = io.StringIO()
        with SlowProgress(patience, Console(file=file, force_terminal=terminal)) as progress:
            progress("reading x", 1, 2)
        return file.getvalue()

    assert shown(60, terminal=True) == ""
    assert "reading x" in shown(0, terminal=True)
    assert shown(60, terminal=False) == ""
    assert re.fullmatch(r"reading x: 1 of 2 \(50%\), \d+ s\n", shown(0, terminal=False))


ROWS = [("Wie groß?", "a", "90,5 %"), ("Wie groß?", "b", "10 %"), ("Und nun, bitte?", "a", "0 %")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16"])
@pytest.mark.parametrize(("sign", "said"), [(";", "semicolons"), ("\t", "tabs"), ("|", "bars")])
def test_a_file_as_a_spreadsheet_writes_it(tmp_path: Path, encoding: str, sign: str, said: str) -> None:
    """Other signs between columns, other encodings, percent signs, decimal commas, a header in capitals."""
    text = "\r\n".join(sign.join(row) for row in [("Prompt", "MODEL", " Score"), *ROWS]) + "\r\n"
    (tmp_path / "scores.csv").write_bytes(text.encode(encoding))
    result = pandora(
        "data", "import", tmp_path / "scores.csv", "--format", "long", "--free", "-o", tmp_path / "table"
    )
    assert result.exit_code == 0, result.output
    table = load(tmp_path / "table")
    assert table.prompts == ("Wie groß?", "Und nun, bitte?")
    np.testing.assert_array_equal(table.score, [[0.905, 0.1], [0.0, np.nan]])
    for text in (said, "percent", "' Score' of scores.csv is read as 'score'"):
        assert text in result.stderr
    assert ("not UTF-8" in result.stderr) == (encoding in ("latin-1", "utf-16"))


@pytest.mark.parametrize(
    ("options", "score"), [((), 0.9), (("--score-scale", "1"), 90.0), (("--score-scale", "90"), 1.0)]
)
def test_scores_of_0_to_100_are_divided_unless_told_otherwise(
    tmp_path: Path, options: tuple[str, ...], score: float
) -> None:
    (tmp_path / "x.csv").write_text("prompt,a,b\np,90,7\nq,0,45\n")
    asked = ("data", "import", tmp_path / "x.csv", "--format", "wide", "--free", "-o", tmp_path / "table")
    result = pandora(*asked, *options)
    assert result.exit_code == 0, result.output
    assert load(tmp_path / "table").score[0, 0] == score
    assert ("divided by 100" in result.stderr) == (options == ())


def test_the_sign_and_the_encoding_can_be_given(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes("a;b,model,score\nπ,m,1\n".encode("iso-8859-7"))
    given = ("--delimiter", ",", "--encoding", "iso-8859-7", "--prompt-column", "a;b")
    asked = ("data", "import", tmp_path / "x.csv", "--format", "long", "--free", "-o", tmp_path / "table")
    assert pandora(*asked, *given).exit_code == 0
    assert load(tmp_path / "table").prompts == ("π",)


def part(names: tuple[str, ...], prompts: dict[str, list[float]], ids: str = "p", **more: object) -> Table:
    """A table with one row of scores per prompt, and fees of .01."""
    score = np.array(list(prompts.values()))
    given: dict[str, object] = {
        "prompt_ids": tuple(f"{ids}{i}" for i in range(len(prompts))),
        "prompts": tuple(prompts),
        "tasks": ("",) * len(prompts),
        "split": ["train"] * len(prompts),
        "specialists": names,
        "score": score,
        "fee": np.where(np.isnan(score), np.nan, 0.01),
    }
    return Table(**(given | more))  # type: ignore[arg-type]


SAID = np.array([["yes", "no"], ["no", None]], dtype=object)


def test_merge_keeps_every_cell_and_leaves_the_rest_missing(tmp_path: Path) -> None:
    nan = float("nan")
    save(part(("a", "b"), {"x": [1, 0], "y": [nan, 1]}), tmp_path / "left")
    right = part(("b", "c"), {"y ": [1, 0.5], "z": [0, nan]}, split=["test", "test"], contexts=SAID)
    save(right, tmp_path / "right")
    result = run("merge", tmp_path / "left", tmp_path / "right", "-o", tmp_path / "both")
    assert result.exit_code == 0, result.output
    assert "In several tables: 1 prompt." in result.output
    both = load(tmp_path / "both")
    assert (both.prompts, both.specialists) == (("x", "y", "z"), ("a", "b", "c"))
    np.testing.assert_array_equal(both.score, [[1, 0, nan], [nan, 1, 0.5], [nan, 0, nan]])
    assert both.contexts is not None
    assert both.contexts.tolist() == [[None, None, None], [None, "yes", "no"], [None, "no", None]]
    assert both.split.tolist() == ["train", "train", "test"]  # of the first table that has the prompt
    assert both.prompt_ids == ("p0", "p1", "p1-2")  # p1 is another text in the second table


def test_merge_says_where_tables_disagree(tmp_path: Path) -> None:
    save(part(("a",), {"x": [1.0], "y": [1.0]}), tmp_path / "left")
    save(part(("a",), {"x": [0.0], "y": [1.0]}, split=["", ""]), tmp_path / "right")
    words = ("merge", tmp_path / "left", tmp_path / "right", "-o", tmp_path / "both")
    result = run(*words)
    assert result.exit_code == 2
    assert "the cell of 'a' on prompt 'x'" in result.output
    assert "--prefer" in result.output
    assert not (tmp_path / "both").exists()
    for prefer, score in (("first", 1.0), ("last", 0.0)):
        result = run(*words, "--prefer", prefer, "--replace")
        assert result.exit_code == 0, result.output
        assert f"Stated differently: 1 cell, of which that of the {prefer} table is kept." in result.output
        assert "right has no split: drawn by seed 0" in result.output
        assert load(tmp_path / "both").score[0, 0] == score

"""Every importer against files written by the standard library, and errors that name file, row and column."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pandora_router.data import Free, FromColumn, Limits, PerSpecialist, PerToken
from pandora_router.data.importers import (
    LongColumns,
    WideColumns,
    read_embedllm,
    read_folder,
    read_long,
    read_routellm,
    read_routerbench,
    read_wide,
)
from pandora_router.data.importers.sheet import read_sheet
from pandora_router.errors import UsageError

nan = np.nan

LONG = [
    {"prompt": 'What, "is"\nthis?', "model": "a", "score": 1, "task": "t", "split": "train", "usd": 0.25},
    {"prompt": "Größe?", "model": "b", "score": 0.5, "task": "u", "split": "val", "usd": 0.5},
    {"prompt": 'What, "is"\nthis?', "model": "b", "score": 0, "task": "t", "split": "train", "usd": 0.75},
    {"prompt": "Größe?", "model": "c", "score": None, "task": "u", "split": "val", "usd": None},
]
COLUMNS = LongColumns(task="task", split="split")


def write(path: Path, rows: list[dict]) -> Path:
    names = list(dict.fromkeys(name for row in rows for name in row))
    if path.suffix in (".csv", ".tsv"):
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, names, delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows, schema=None), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(params=["x.csv", "x.tsv", "x.jsonl", "x.ndjson", "x.parquet"])
def name(request) -> str:
    return request.param


def test_long_files_of_every_kind(tmp_path, name):
    table = read_long(write(tmp_path / name, LONG), fees=FromColumn("usd"), columns=COLUMNS, fee_weight=2)
    assert table.prompts == ('What, "is"\nthis?', "Größe?")
    assert table.specialists == ("a", "b", "c")
    assert table.tasks == ("t", "u")
    assert table.split.tolist() == ["train", "calibration"]
    np.testing.assert_array_equal(table.score, [[1, 0, nan], [nan, 0.5, nan]])
    np.testing.assert_array_equal(table.fee, [[0.25, 0.75, nan], [nan, 0.5, nan]])
    np.testing.assert_array_equal(table.reward, [[0.5, -1.5, nan], [nan, -0.5, nan]])


def test_wide_files_of_every_kind(tmp_path, name):
    rows = [
        {
            "id": 7,
            "q": "one",
            "a_ok": True,
            "b_ok": False,
            "a_usd": 0.5,
            "b_usd": 1,
            "a_text": "A1",
            "b_text": None,
        },
        {
            "id": 8,
            "q": "two",
            "a_ok": None,
            "b_ok": True,
            "a_usd": None,
            "b_usd": 2,
            "a_text": "A2",
            "b_text": "B2",
        },
    ]
    columns = WideColumns(
        prompt="q", prompt_id="id", score="{}_ok", numbers={"usd": "{}_usd"}, context="{}_text"
    )
    table = read_wide(write(tmp_path / name, rows), fees=FromColumn("usd"), columns=columns)
    assert table.prompt_ids == ("7", "8")
    assert table.specialists == ("a", "b")
    np.testing.assert_array_equal(table.score, [[1, 0], [nan, 1]])
    np.testing.assert_array_equal(table.fee, [[0.5, 1], [nan, 2]])
    assert table.contexts.tolist() == [["A1", None], ["A2", "B2"]]


def test_a_wide_file_with_a_bad_cell_does_not_lose_the_specialist(tmp_path):
    path = write(tmp_path / "w.csv", [{"prompt": "p", "a": 1, "b": 1}, {"prompt": "q", "a": "one", "b": 0}])
    with pytest.raises(UsageError, match=r"w.csv, row 2, column 'a'"):
        read_wide(path, fees=Free())
    assert read_wide(path, fees=Free(), columns=WideColumns(specialists=("b",))).specialists == ("b",)


def test_a_wide_specialist_without_its_cost_is_an_error(tmp_path):
    path = write(tmp_path / "w.csv", [{"prompt": "p", "a": 1, "a_usd": 1, "b": 1}])
    with pytest.raises(UsageError, match="column 'b_usd' for specialist 'b'"):
        read_wide(path, fees=FromColumn("usd"), columns=WideColumns(numbers={"usd": "{}_usd"}))


def test_tokens_price_long_files(tmp_path):
    rows = [{"prompt": "x" * 8, "model": m, "score": 1, "out": n} for m, n in (("a", 10), ("b", 100))]
    table = read_long(
        write(tmp_path / "l.jsonl", rows), fees=PerToken({"a": 1.0, "b": 10.0}, 2.0, tokens_out="out")
    )
    np.testing.assert_allclose(table.fee, [[(2 * 1 + 10 * 2) / 1e6, (2 * 10 + 100 * 2) / 1e6]])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({2: {"score": "good"}}, "row 3, column 'score'.*'good'"),
        ({1: {"score": "inf"}}, "row 2, column 'score'"),
        ({1: {"score": "1_0"}}, "row 2, column 'score'"),
        ({3: {"prompt": ""}}, "row 4, column 'prompt'.*nothing"),
        ({0: {"model": ""}}, "row 1, column 'model'"),
        ({2: {"model": "a"}}, "row 3, column 'model'.*row 1"),
        ({2: {"task": "u"}}, "row 3, column 'task'.*row 1"),
        ({2: {"split": "holdout"}, 0: {"split": "holdout"}}, "'holdout'"),
        ({0: {"usd": "cheap"}}, "row 1, column 'usd'"),
        ({0: {"usd": ""}}, r"fees: .*a \(1 answers\)"),
    ],
)
@pytest.mark.parametrize("name", ["bad.csv", "bad.jsonl"])
def test_errors_name_file_row_and_column(tmp_path, changes, said, name):
    rows = [dict(row, **changes.get(i, {})) for i, row in enumerate(LONG)]
    with pytest.raises(UsageError, match=said) as caught:
        read_long(write(tmp_path / name, rows), fees=FromColumn("usd"), columns=COLUMNS)
    assert name in str(caught.value) or "'holdout'" in said or "fees" in said


def test_repeats_by_choice(tmp_path):
    rows = [{"prompt": "p", "model": "a", "score": s, "n": i} for i, s in enumerate((0, 1, None))]
    path = write(tmp_path / "l.csv", rows)
    with pytest.raises(UsageError, match=r"row 2, column 'model'.*2 such rows"):
        read_long(path, fees=Free())
    assert read_long(path, fees=FromColumn("n"), repeats="first").score.tolist() == [[0.0]]
    best = read_long(path, fees=FromColumn("n"), repeats="max")
    assert (best.score.tolist(), best.fee.tolist()) == ([[1.0]], [[1.0]])  # the fee of the row chosen


def test_a_missing_column_lists_those_there_are(tmp_path):
    with pytest.raises(UsageError, match="column 'llm', got columns prompt, model, score"):
        read_long(write(tmp_path / "l.csv", LONG), fees=Free(), columns=LongColumns(specialist="llm"))


def test_ragged_csv_names_the_row(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text('prompt,model,score\n"a\nb",m,1\nc,m,1,extra\n')
    with pytest.raises(UsageError, match=r"r.csv: expected 3 fields.*4 fields instead of 3 in row 2"):
        read_long(path, fees=Free())


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("x.csv", b"", "at least one row"),
        ("x.csv", b"prompt,model,score\n", "at least one row"),
        ("x.csv", b"prompt,prompt,score\n1,2,3\n", "'prompt' twice"),
        ("x.csv", b"prompt,model,score\n\xff\xfe,m,1\n", "x.csv"),
        ("x.jsonl", b'{"prompt": 1}\n[1]\n', "x.jsonl, line 2.*list"),
        ("x.jsonl", b'{"prompt": \n', "x.jsonl, line 1"),
        ("x.jsonl", b'{"prompt": ["p"], "model": "m", "score": 1}\n', "row 1, column 'prompt'"),
        ("x.jsonl", b"[" * 100_000 + b"\n", "x.jsonl, line 1"),
        (
            "x.jsonl",
            b'{"prompt": "a", "model": "m"}\n{"prompt": "\\ud83d", "model": "m"}',
            "row 2, column 'prompt'.*surrogate",
        ),
        ("x.csv", b"x" * 200_000, "a csv file that is whole"),
        ("x.parquet", b"PAR1 no", "x.parquet"),
        ("x.pkl", b"\x80", "pickle"),
    ],
)
def test_broken_files(tmp_path, file, content, said):
    (tmp_path / file).write_bytes(content)
    with pytest.raises(UsageError, match=said):
        read_long(tmp_path / file, fees=Free())


def test_no_such_file(tmp_path):
    with pytest.raises(UsageError, match="no such path"):
        read_long(tmp_path / "none.csv", fees=Free())


def test_a_byte_order_mark_is_no_part_of_the_name(tmp_path):
    (tmp_path / "b.csv").write_bytes(b"\xef\xbb\xbfprompt,model,score\np,m,1\n")
    assert read_long(tmp_path / "b.csv", fees=Free()).prompts == ("p",)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(file_bytes=10), "file_bytes.*--max-file-bytes"),
        (Limits(cells=5), r"at most 5 cells, got 6.*Limits\(cells=6\)"),
        (Limits(text_characters=5), "row 1, column 'prompt'.*--max-text-characters"),
    ],
)
def test_limits_hold_and_say_how_to_raise_them(tmp_path, limits, said):
    with pytest.raises(UsageError, match=said):
        read_long(write(tmp_path / "l.csv", LONG), fees=FromColumn("usd"), columns=COLUMNS, limits=limits)


def test_a_parquet_file_that_unpacks_to_too_much_is_refused(tmp_path):
    path = tmp_path / "bomb.parquet"
    pq.write_table(
        pa.table({"prompt": ["x" * 1000] * 20_000}), path, compression="zstd", use_dictionary=False
    )
    assert path.stat().st_size < 100_000
    with pytest.raises(UsageError, match="unpacked"):
        read_sheet(path, limits=Limits(file_bytes=1_000_000))


def test_rows_far_down_a_large_file_are_named_right(tmp_path):
    """Above one block and one batch, so that code books are merged."""
    rows = [{"prompt": f"p{i}", "model": "m", "score": i % 2, "pad": "x" * 500} for i in range(70_000)]
    rows[69_990]["score"] = "?"
    path = write(tmp_path / "big.csv", rows)
    assert path.stat().st_size > 2**25
    with pytest.raises(UsageError, match="row 69991, column 'score'"):
        read_long(path, fees=Free())
    rows[69_990]["score"] = 0
    seen = []
    table = read_long(write(path, rows), fees=Free(), progress=lambda *step: seen.append(step))
    assert table.score[:, 0].tolist() == [i % 2 for i in range(70_000)]
    assert table.prompts[69_990] == "p69990"
    assert len(seen) > 1
    assert all(done <= total for _, done, total in seen)


def folder(path: Path, **changes) -> Path:
    files = {
        "prompts": [
            {"prompt_id": i, "prompt": f"p{i}", "task": "t", "split": s}
            for i, s in enumerate(("train", "val", "test", "ood"))
        ],
        "scores": [
            {"prompt_id": i, "model": m, "score": float(i == j), "n": 10 * i + j}
            for i in range(4)
            for j, m in enumerate("ba")
            if (i, m) != (3, "a")
        ],
        "models": [{"model": "a", "params_b": 7.0}, {"model": "b", "params_b": 70.0}],
        "context": [{"prompt_id": 2, "model": "a", "context": "hm"}],
    }
    for name, rows in (files | changes).items():
        if rows is not None:
            write(path / f"{name}.parquet", rows)
    return path


def test_the_folder_layout(tmp_path):
    table = read_folder(folder(tmp_path), fees=FromColumn("n"))
    assert table.specialists == ("a", "b")  # in the order of the models file
    assert table.split.tolist() == ["train", "calibration", "test", ""]
    np.testing.assert_array_equal(table.score, [[0, 1], [1, 0], [0, 0], [nan, 0]])
    np.testing.assert_array_equal(table.fee, [[1, 0], [11, 10], [21, 20], [nan, 30]])
    assert table.contexts.tolist() == [[None, None], [None, None], ["hm", None], [None, None]]
    assert read_folder(tmp_path, fees=FromColumn("params_b")).fee[0].tolist() == [7, 70]


def test_a_folder_needs_only_prompts_and_scores(tmp_path):
    table = read_folder(folder(tmp_path, models=None, context=None), fees=Free())
    assert table.specialists == ("b", "a")
    assert table.contexts is None


def test_empty_columns_for_task_and_split_are_as_good_as_none(tmp_path):
    empty = [{"prompt_id": i, "prompt": f"p{i}", "task": None, "split": ""} for i in range(4)]
    table = read_folder(folder(tmp_path, prompts=empty), fees=Free())
    bare = [{"prompt_id": row["prompt_id"], "prompt": row["prompt"]} for row in empty]
    (tmp_path / "bare").mkdir()
    again = read_folder(folder(tmp_path / "bare", prompts=bare), fees=Free())
    assert table.split.tolist() == again.split.tolist()
    assert table.fingerprint() == again.fingerprint()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prompts": None}, "prompts.parquet"),
        (
            {"scores": [{"prompt_id": 9, "model": "a", "score": 1}]},
            "scores.parquet, row 1, column 'prompt_id'.*'9'",
        ),
        (
            {"scores": [{"prompt_id": 1, "model": "a", "score": 1}] * 2},
            "scores.parquet, row 2, column 'model'",
        ),
        ({"scores": [{"prompt_id": 1, "model": "z", "score": 1}]}, "models.parquet.*no 'z'"),
        ({"prompts": [{"prompt_id": 1, "prompt": "p"}] * 2}, "prompts.parquet, row 2, column 'prompt_id'"),
        ({"models": [{"model": "a"}, {"model": "b"}, {"model": "b"}]}, "models.parquet, row 3"),
        (
            {"context": [{"prompt_id": 1, "model": "z", "context": "c"}]},
            "context.parquet, row 1, column 'model'",
        ),
        (
            {"context": [{"prompt_id": 8, "model": "a", "context": "c"}]},
            "context.parquet, row 1, column 'prompt_id'",
        ),
    ],
)
def test_a_folder_that_does_not_fit_together(tmp_path, changes, said):
    with pytest.raises(UsageError, match=said):
        read_folder(folder(tmp_path, **changes), fees=Free())


def test_a_listed_model_without_scores_is_all_missing(tmp_path):
    models = [{"model": name} for name in "azb"]
    table = read_folder(folder(tmp_path, models=models), fees=Free())
    assert table.specialists == ("a", "z", "b")
    assert table.answered == ("a", "b")


def embedllm(path: Path, *, texts_in_parts: bool = True) -> Path:
    def part(pairs):
        return [
            {"prompt_id": p, "model_id": m, "category": f"c{p % 2}", "label": label, "model_name": f"m{m}"}
            | ({"prompt": f"question {p}?"} if texts_in_parts else {})
            for p, m, label in pairs
        ]

    write(path / "train.csv", part([(0, 0, 1), (0, 1, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1)]))
    write(path / "val.csv", part([(2, 1, 1)]))
    write(path / "test.csv", part([(3, 0, 1), (3, 1, 1)]))
    return path


@pytest.mark.parametrize("ordered", [True, False])
def test_embedllm(tmp_path, ordered):
    embedllm(tmp_path, texts_in_parts=not ordered)
    if ordered:
        write(
            tmp_path / "question_order.csv", [{"prompt_id": i, "prompt": f"question {i}?"} for i in range(9)]
        )
    table = read_embedllm(tmp_path, fees=PerSpecialist({"m0": 1, "m1": 2}))
    assert table.prompt_ids == ("0", "1", "2", "3")
    assert table.prompts == tuple(f"question {i}?" for i in range(4))
    assert table.tasks == ("c0", "c1", "c0", "c1")
    assert table.split.tolist() == ["train", "train", "calibration", "test"]
    # prompt 1 has two rows for m1: right if either is; val never asked m0
    np.testing.assert_array_equal(table.score, [[1, 0], [0, 1], [nan, 1], [1, 1]])
    with pytest.raises(UsageError, match=r"train.csv, row 5, column 'model_name'.*row 4"):
        read_embedllm(tmp_path, fees=Free(), repeats="refuse")


def test_embedllm_one_file_names_from_the_model_order(tmp_path):
    rows = [{"prompt_id": 5, "model_id": m, "category": "c", "label": m % 2, "prompt": "q"} for m in range(3)]
    path = write(tmp_path / "anything.csv", rows)
    write(tmp_path / "model_order.csv", [{"model_id": m, "model_name": f"org__{m}"} for m in range(3)])
    table = read_embedllm(path, fees=Free())
    assert table.specialists == ("org__0", "org__1", "org__2")
    assert table.split.tolist() == [""]
    write(tmp_path / "model_order.csv", [{"model_id": 0, "model_name": "org__0"}])
    with pytest.raises(UsageError, match=r"row 2, column 'model_id'.*model_order.csv.*'1'"):
        read_embedllm(path, fees=Free())


def routerbench(path: Path, first: int) -> Path:
    rows = []
    for i in range(first, first + 2):
        row = {"": i, "sample_id": f"mbpp.{i}", "prompt": repr([f"It's {i}\nok"]), "eval_name": "mbpp"}
        row |= {"m/a": 1.0, "gpt-4": 0.0 if i else ""}
        row |= {f"{m}|model_response": repr([f'{m} "says" {i}']) for m in ("gpt-4", "m/a")}
        row |= {"gpt-4|total_cost": 0.01 * i if i else "", "m/a|total_cost": 1e-5}
        rows.append(row | {"oracle_model_to_route_to": "m/a"})
    return write(path, rows)


def test_routerbench_file_and_folder(tmp_path):
    routerbench(tmp_path / "mbpp_train.csv", 0)
    routerbench(tmp_path / "mbpp_test.csv", 2)
    table = read_routerbench(tmp_path)
    assert table.prompt_ids == ("mbpp.2", "mbpp.3", "mbpp.0", "mbpp.1")
    assert table.prompts[0] == "It's 2\nok"
    assert table.specialists == ("m/a", "gpt-4")
    assert table.split.tolist() == ["test", "test", "train", "train"]
    assert set(table.tasks) == {"mbpp"}
    np.testing.assert_array_equal(table.score, [[1, 0], [1, 0], [1, nan], [1, 0]])
    np.testing.assert_allclose(table.fee[:, 1], [0.02, 0.03, nan, 0.01])
    assert table.contexts[0].tolist() == ['m/a "says" 2', 'gpt-4 "says" 2']
    alone = read_routerbench(tmp_path / "mbpp_test.csv", fees=PerSpecialist({"m/a": 1, "gpt-4": 2}))
    assert alone.fee[0].tolist() == [1, 2]


@pytest.mark.parametrize("odd", ["[1] see", "['a', 3]", "[", "[]", "[" * 5000 + "]" * 5000, "['a\x00']"])
def test_prompts_that_only_look_like_lists_stay(tmp_path, odd):
    row = {
        "sample_id": "s",
        "prompt": odd,
        "eval_name": "e",
        "m": 1,
        "m|model_response": "r",
        "m|total_cost": 0,
    }
    write(tmp_path / "r.jsonl", [row])
    assert read_routerbench(tmp_path / "r.jsonl").prompts == (odd,)


def test_a_printed_list_of_several_texts_is_joined(tmp_path):
    row = {
        "sample_id": "s",
        "prompt": r"['\\d', 'two']",
        "eval_name": "e",
        "m": 1,
        "m|model_response": r"['\d']",
        "m|total_cost": 0,
    }
    table = read_routerbench(write(tmp_path / "r.jsonl", [row]))
    assert table.prompts == ("\\d\ntwo",)
    assert table.contexts.tolist() == [["\\d"]]


def test_routerbench_cost_that_is_missing_is_not_free(tmp_path):
    row = {
        "sample_id": "s",
        "prompt": "p",
        "eval_name": "e",
        "m": 1,
        "m|model_response": "r",
        "m|total_cost": "",
    }
    with pytest.raises(UsageError, match=r"fees.*m \(1 answers\)"):
        read_routerbench(write(tmp_path / "r.csv", [row]))


def test_routellm_mmlu_and_gsm8k(tmp_path):
    (tmp_path / "mmlu").mkdir()
    write(tmp_path / "mmlu" / "mmlu_virology.csv", [
        {"prompt": "same\nA. x", "mixtral": True, "gpt-4": False},
        {"prompt": "same\nA. x", "mixtral": False, "gpt-4": True},
    ])  # fmt: skip
    write(tmp_path / "gsm8k_responses.csv", [
        {"prompt": "2+2", "mixtral": True, "gpt-4": True, "mixtral_response": "4", "gpt-4_response": " four"},
    ])  # fmt: skip
    table = read_routellm(tmp_path, fees=PerSpecialist({"mixtral": 0.24, "gpt-4": 24.7}))
    assert table.prompt_ids == ("gsm8k_responses/1", "mmlu_virology/1", "mmlu_virology/2")
    assert table.tasks == ("gsm8k", "mmlu/virology", "mmlu/virology")
    assert table.specialists == ("mixtral", "gpt-4")
    assert table.score.tolist() == [[1, 1], [1, 0], [0, 1]]
    assert table.contexts[0].tolist() == ["4", " four"]
    assert table.contexts[1].tolist() == [None, None]

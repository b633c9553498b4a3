"""Whatever texts and numbers a file holds, every format gives back the same table."""

from __future__ import annotations

import csv
import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pandora_router.data import FromColumn, load, save
from pandora_router.data.importers import LongColumns, read_long
from pandora_router.text import unfit_for_name

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
prompt_lists = st.lists(texts, min_size=1, max_size=5, unique=True)
name_lists = st.lists(
    texts.filter(lambda name: unfit_for_name(name) is None), min_size=1, max_size=5, unique=True
)
numbers = st.floats(0, 1) | st.sampled_from([0.0, 1.0, 0.1])


@st.composite
def grids(draw: st.DrawFn) -> tuple[list[str], list[str], np.ndarray, np.ndarray]:
    prompts, specialists = draw(prompt_lists), draw(name_lists)
    shape = (len(prompts), len(specialists))
    cells = [draw(numbers | st.none()) for _ in range(shape[0] * shape[1])]
    score = np.array([np.nan if x is None else x for x in cells]).reshape(shape)
    score[:, 0] = np.nan_to_num(score[:, 0])  # every prompt and every specialist is named at least once
    score[0, :] = np.nan_to_num(score[0, :])
    fee = np.array([draw(st.floats(0, 1e6)) for _ in cells]).reshape(shape)
    return prompts, specialists, score, fee


def write(path: Path, rows: list[tuple[str, str, float, float]]) -> None:
    header = ("prompt", "model", "score", "fee")
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, quoting=csv.QUOTE_ALL).writerows([header, *rows])
    elif path.suffix == ".jsonl":
        lines = [json.dumps(dict(zip(header, row, strict=True)), ensure_ascii=False) for row in rows]
        path.write_bytes("\n".join(lines).encode())
    else:
        pq.write_table(pa.table(dict(zip(header, zip(*rows, strict=True), strict=True))), path)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
@settings(max_examples=60, deadline=None)
@given(grid=grids())
def test_what_is_written_is_read(suffix, grid):
    prompts, specialists, score, fee = grid
    rows = [
        (prompt, name, float(score[i, j]), float(fee[i, j]))
        for i, prompt in enumerate(prompts)
        for j, name in enumerate(specialists)
        if not np.isnan(score[i, j])
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"x{suffix}"
        write(path, rows)
        table = read_long(path, fees=FromColumn("fee"), columns=LongColumns())
        assert table.prompts == tuple(prompts)
        assert table.specialists == tuple(specialists)
        np.testing.assert_array_equal(table.score, score)
        np.testing.assert_array_equal(table.fee, np.where(np.isnan(score), np.nan, fee))
        save(table, Path(folder) / "t")
        assert load(Path(folder) / "t").fingerprint() == table.fingerprint()

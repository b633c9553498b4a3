"""`pandora route` over files and pipes: formats, messages, contexts, bad rows, processes, resuming."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import time
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pandora_router.cli.batch_file import CHUNK, DECIDED, last_by_user
from pandora_router.cli.row_files import source_of
from pandora_router.router import Router
from pandora_router.search import Never
from tests.support import routers
from tests.support.command import pandora, start
from tests.support.tables import generate, row_contexts

PROMPTS = generate().prompts[:40]


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """The rows in the form that the ending of `path` names, written without our own code."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(list(rows)), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    return path


def read(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return rows
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    before = csv.field_size_limit(10_000_000)
    try:
        with path.open(newline="") as file:
            return [{k: v or None for k, v in row.items()} for row in csv.DictReader(file)]
    finally:
        csv.field_size_limit(before)


def test_a_file_with_long_fields_leaves_the_limit_of_the_process_as_it_was(tmp_path: Path) -> None:
    before = csv.field_size_limit()
    long = "x" * (before + 1)
    assert list(source_of(write(tmp_path / "in.csv", [{"prompt": long}])).rows()) == [{"prompt": long}]
    assert csv.field_size_limit() == before


@pytest.mark.parametrize("out", ["out.csv", "out.jsonl", "out.parquet"])
@pytest.mark.parametrize("given", ["in.csv", "in.jsonl", "in.parquet"])
def test_every_format_in_and_out(
    given: str, out: str, saved_router: Path, router: Router, tmp_path: Path
) -> None:
    rows = [
        {"key": i, "prompt": prompt, "note": 'a "quoted", line\nof ü'} for i, prompt in enumerate(PROMPTS)
    ]
    source = write(tmp_path / given, rows)
    done = pandora("route", "-r", saved_router, "--batch", source, "-o", tmp_path / out, "--json")
    assert done.exit_code == 0, done.output
    found = read(tmp_path / out)
    assert list(found[0]) == ["key", "prompt", "note", *DECIDED]
    assert [int(row["key"]) for row in found] == list(range(len(rows)))
    assert [row["note"] for row in found] == [row["note"] for row in rows]
    wanted = router.route_batch(PROMPTS)
    assert [row["specialist"] for row in found] == [one.specialist for one in wanted]
    assert [float(row["spent"]) for row in found] == pytest.approx([one.trace.spent for one in wanted])
    facts = json.loads(done.stdout)
    assert (facts["prompts"], facts["declined"]) == (len(rows), 0)
    assert sum(facts["specialists"].values()) == len(rows)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([given, out])


def test_what_estimates_cost_is_said_in_money(saved_router: Path, router: Router, tmp_path: Path) -> None:
    """As `pandora fit` says it: for 1,000 prompts."""
    source = write(tmp_path / "in.csv", [{"prompt": prompt} for prompt in PROMPTS])
    done = pandora("route", "-r", saved_router, "--batch", source, "-o", tmp_path / "out.csv")
    spent = sum(float(row["spent"]) for row in read(tmp_path / "out.csv")) / len(PROMPTS)
    said = re.search(r"estimates bought for \$([0-9.,]+) per 1,000", done.output)
    assert said is not None, done.output
    assert spent > 0.0
    assert float(said[1].replace(",", "")) == pytest.approx(1000 * spent / router.fee_weight, rel=0.06)


def test_parquet_columns_keep_their_types(saved_router: Path, tmp_path: Path) -> None:
    table = pa.table({"n": pa.array([1, 2], pa.int16()), "prompt": ["count", "tell"], "x": [[1.5], None]})
    pq.write_table(table, tmp_path / "in.parquet")
    done = pandora(
        "route", "-r", saved_router, "--batch", tmp_path / "in.parquet", "-o", tmp_path / "o.parquet"
    )
    assert done.exit_code == 0, done.output
    assert pq.read_table(tmp_path / "o.parquet").select(["n", "prompt", "x"]).equals(table)


def test_prices_and_times_of_parquet_are_plain_cells_in_csv(saved_router: Path, tmp_path: Path) -> None:
    row = {"prompt": PROMPTS[0], "usd": Decimal("1.20"), "day": date(2026, 2, 3), "tags": ["a", "b"]}
    source = write(tmp_path / "in.parquet", [row])
    done = pandora("route", "-r", saved_router, "--batch", source, "-o", tmp_path / "out.csv")
    assert done.exit_code == 0, done.output
    found = read(tmp_path / "out.csv")[0]
    assert (found["usd"], found["day"], found["tags"]) == ("1.20", "2026-02-03", '["a", "b"]')


def test_standard_input_and_output(saved_router: Path, router: Router, tmp_path: Path) -> None:
    one = pandora("route", "-r", saved_router, "-", stdin=PROMPTS[0])
    assert one.stdout.strip() == router.route(PROMPTS[0]).specialist
    lines = "\n\n".join(json.dumps({"prompt": prompt, "n": i}) for i, prompt in enumerate(PROMPTS))
    many = pandora("route", "-r", saved_router, "--batch", "-", stdin=lines)
    found = [json.loads(line) for line in many.stdout.splitlines()]
    assert [row["n"] for row in found] == list(range(len(PROMPTS)))
    assert [row["specialist"] for row in found] == [d.specialist for d in router.route_batch(PROMPTS)]
    source = write(tmp_path / "in.csv", [{"prompt": prompt} for prompt in PROMPTS])
    printed = pandora("route", "-r", saved_router, "--batch", source)
    assert [json.loads(line)["specialist"] for line in printed.stdout.splitlines()] == [
        row["specialist"] for row in found
    ]
    refused = pandora("route", "-r", saved_router, "--batch", "-", "-o", tmp_path / "x.csv", stdin=lines)
    assert (refused.exit_code, "Redirect" in refused.stderr) == (2, True)


@pytest.mark.parametrize("name", ["in.csv", "in.jsonl"])
def test_files_as_windows_writes_them(name: str, saved_router: Path, tmp_path: Path) -> None:
    """A byte order mark before the first line, and lines that end in CR LF."""
    written = write(tmp_path / name, [{"prompt": prompt} for prompt in PROMPTS]).read_bytes()
    lines = written.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + lines)
    done = pandora("route", "-r", saved_router, "--batch", tmp_path / name)
    assert done.exit_code == 0, done.output
    assert [json.loads(line)["prompt"] for line in done.stdout.splitlines()] == list(PROMPTS)


def test_bytes_that_are_no_text_are_declined_and_an_endless_prompt_ends(saved_router: Path) -> None:
    binary = pandora("route", "-r", saved_router, "-", stdin=b"add up \xff\xfe and 9")
    assert "not valid text" in binary.output
    with Path("/dev/zero").open("rb") as endless:
        process = start("route", "-r", saved_router, "-", stdin=endless.fileno())
        printed, _ = process.communicate()
    assert (process.returncode, "more than 1,000,000" in printed) == (0, True)


def test_messages_are_routed_by_the_last_turn_of_the_user(
    saved_router: Path, router: Router, tmp_path: Path
) -> None:
    talk = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "something else"},
        {"role": "assistant", "content": "yes?"},
        {"role": "user", "content": PROMPTS[3]},
    ]
    parts = [{"role": "user", "content": [{"type": "text", "text": PROMPTS[4]}]}]
    rows = [{"messages": talk}, {"messages": json.dumps(parts)}, {"messages": []}]
    source = write(tmp_path / "in.jsonl", rows)
    assert pandora("route", "-r", saved_router, "--batch", source, "-o", tmp_path / "o.jsonl").exit_code == 0
    found = read(tmp_path / "o.jsonl")
    assert [row["specialist"] for row in found[:2]] == [
        router.route(prompt).specialist for prompt in PROMPTS[3:5]
    ]
    assert found[2]["declined_because"] == "the prompt is empty"
    assert last_by_user(talk) == PROMPTS[3]


def test_contexts_of_a_row_reach_the_router(tmp_path: Path) -> None:
    table = generate(contexts=True)
    router = routers.fitted(contexts=True)
    router.save(tmp_path / "r")
    told = [row_contexts(table, i) for i in range(30)]
    rows = [{"prompt": p, "contexts": json.dumps(c)} for p, c in zip(table.prompts, told, strict=False)]
    source = write(tmp_path / "in.csv", rows)
    done = pandora("route", "-r", tmp_path / "r", "--batch", source, "-o", tmp_path / "out.jsonl")
    assert done.exit_code == 0, done.output
    found = read(tmp_path / "out.jsonl")
    wanted = [router.route(p, c) for p, c in zip(table.prompts, told, strict=False)]
    assert [row["specialist"] for row in found] == [one.specialist for one in wanted]
    assert [row["inspected"] for row in found] == [list(one.inspected) for one in wanted]
    assert any(row["inspected"] for row in found)


def test_a_prompt_that_cannot_be_judged_declines_its_row_alone(
    saved_router: Path, router: Router, tmp_path: Path
) -> None:
    rows = [{"prompt": p} for p in (PROMPTS[0], "", None, "half a pair \ud800", "x" * 1_000_001, PROMPTS[1])]
    source = write(tmp_path / "in.jsonl", rows)
    for out in ("out.jsonl", "out.csv", "out.parquet"):
        done = pandora("route", "-r", saved_router, "--batch", source, "-o", tmp_path / out)
        assert done.exit_code == 0, done.output
        found = read(tmp_path / out)
        assert [row["declined_because"] is None for row in found] == [True, False, False, False, False, True]
        assert {row["specialist"] for row in found[1:5]} == {router.default}
        assert "4 declined" in done.stdout


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"prompt": "a"}\n{"prompt": \n', "line 2"),
        (b'{"prompt": "a"}\n[1]\n', "line 2"),
        (b'{"prompt": "a", "prompt": "b"}\n', "twice"),
        (b'{"prompt": "a", "x": NaN}\n', "NaN"),
        (b'{"text": "a"}\n', "--prompt-column"),
        (b'{"prompt": "a", "contexts": {"nobody": "x"}}\n', "nobody"),
        (b'{"prompt": "a", "contexts": 7}\n', "row 1"),
        (b'{"messages": [7]}\n', "row 1"),
        (b'{"prompt": "a"}\n{"prompt": "b", "contexts": "' + b"[" * 100_000 + b'"}\n', "row 2"),
        (b'{"prompt": "\xff"}\n', "line 1"),
        (b"[" * 100_000 + b"\n", "line 1"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_before_any_work(
    content: bytes, said: str, saved_router: Path, tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_bytes(content)
    done = pandora("route", "-r", saved_router, "--batch", tmp_path / "in.jsonl", "-o", tmp_path / "o.csv")
    assert (done.exit_code, said in done.stderr) == (2, True), done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["in.jsonl"]
    piped = pandora("route", "-r", saved_router, "--batch", "-", stdin=content)
    assert (piped.exit_code, said in piped.stderr, piped.stdout) == (2, True, ""), piped.stderr


def test_other_files_are_refused_too(saved_router: Path, tmp_path: Path) -> None:
    def refused(source: str, out: str) -> str:
        done = pandora("route", "-r", saved_router, "--batch", tmp_path / source, "-o", tmp_path / out)
        assert done.exit_code == 2, done.output
        return done.stderr

    (tmp_path / "in.parquet").write_bytes(b"PAR1 no Parquet")
    (tmp_path / "in.csv").write_text("prompt,x\na,b,c\n")
    write(tmp_path / "good.csv", [{"prompt": "a"}])
    assert "Parquet" in refused("in.parquet", "out.csv")
    assert "as many fields" in refused("in.csv", "out.csv")
    (tmp_path / "twice.csv").write_text("prompt,x,prompt\na,b,c\n")
    pq.write_table(pa.table([["a"], ["b"]], names=["prompt", "prompt"]), tmp_path / "twice.parquet")
    assert "'prompt' more than once" in refused("twice.csv", "out.csv")
    assert "'prompt' more than once" in refused("twice.parquet", "out.csv")
    assert "the input" in refused("good.csv", "good.csv")
    assert "one that is there already" in refused("good.csv", "in.csv")
    assert "ends in" in refused("good.csv", "out.xlsx")
    assert "none.csv" in refused("none.csv", "out.csv")
    done = pandora(
        "route", "-r", saved_router, "--batch", tmp_path / "good.csv", "-o", tmp_path / "in.csv", "--replace"
    )
    assert done.exit_code == 0, done.output
    assert len(read(tmp_path / "in.csv")) == 1


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a router that never inspects and a file of a few chunks."""
    place = tmp_path_factory.mktemp("many")
    routers.fitted().with_policy(Never()).save(place / "router")
    prompts = [f"{p} again {k}" for k in range(21) for p in generate().prompts]
    write(place / "in.jsonl", [{"key": i, "prompt": prompt} for i, prompt in enumerate(prompts)])
    assert len(prompts) > 6 * CHUNK
    return place


def decisions(path: Path) -> list[tuple[Any, ...]]:
    return [(row["key"], row["specialist"], row["expected_reward"]) for row in read(path)]


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_batch_over_processes_is_stopped_and_continued(
    end: signal.Signals, many: Path, tmp_path: Path
) -> None:
    words = ("route", "-r", many / "router", "--batch", many / "in.jsonl", "-o", tmp_path / "out.jsonl")
    with start(*words, "--workers", "2") as run:
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob(".*/*.json")) and run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        os.killpg(run.pid, end)
        _, said = run.communicate(timeout=300)
    assert run.returncode == (-9 if end == signal.SIGKILL else 130)
    assert "Traceback" not in said
    assert ("run the same command again to continue" in said) == (end == signal.SIGINT)
    assert not (tmp_path / "out.jsonl").exists()
    finished = {path: path.stat().st_mtime_ns for path in tmp_path.glob(".*/*.json")}
    assert 0 < len(finished) < 7
    first = json.loads(min(finished).read_text())
    again = pandora(*words, "--workers", "1")
    assert again.exit_code == 0, again.output
    assert [p.name for p in tmp_path.iterdir()] == ["out.jsonl"]
    at = int(min(finished).stem) * CHUNK
    ids = [row["decision_id"] for row in read(tmp_path / "out.jsonl")[at : at + len(first)]]
    assert ids == [row["decision_id"] for row in first]
    alone = pandora(*words[:-1], tmp_path / "alone.jsonl", "--workers", "1")
    assert alone.exit_code == 0, alone.output
    assert decisions(tmp_path / "out.jsonl") == decisions(tmp_path / "alone.jsonl")


def test_a_reader_that_goes_away_is_no_error(many: Path) -> None:
    with start("route", "-r", many / "router", "--batch", many / "in.jsonl") as run:
        assert run.stdout is not None
        assert run.stderr is not None
        assert json.loads(run.stdout.readline())["key"] == 0
        run.stdout.close()
        said = run.stderr.read()
        assert (run.wait(timeout=300), said) == (141, "")


def test_only_those_allowed_are_chosen(many: Path, tmp_path: Path) -> None:
    """Without inspections the choice is the highest mean among those allowed: found here by hand."""
    router = routers.fitted().with_policy(Never())
    fees = dict(zip(router.specialists, router.fees.tolist(), strict=True))
    cheap = sorted(fees.values())[1]
    write(tmp_path / "in.csv", [{"prompt": prompt} for prompt in PROMPTS])
    for words, allowed in (
        (["--only", "lawyer", "--only", "small"], {"lawyer", "small"}),
        (["--exclude", "small"], {"large", "lawyer"}),
        (["--max-fee", str(cheap)], {name for name, fee in fees.items() if fee <= cheap}),
    ):
        out = tmp_path / "out.jsonl"
        given = ("route", "-r", many / "router", *words)
        assert pandora(*given, "--batch", tmp_path / "in.csv", "-o", out, "--replace").exit_code == 0
        means = [dict(zip(router.specialists, router.route(p).estimates.mean, strict=True)) for p in PROMPTS]
        wanted = [max(allowed, key=mean.__getitem__) for mean in means]
        assert [row["specialist"] for row in read(out)] == wanted
        assert pandora(*given, PROMPTS[0]).stdout.strip() == wanted[0]
    for wrong in (["--only", "smal"], ["--max-fee", "-1"], ["--only", "small", "--exclude", "small"]):
        assert pandora("route", "-r", many / "router", *wrong, PROMPTS[0]).exit_code == 2

"""`pandora collect` as a process of its own: killed, resumed, misconfigured."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from pandora_router.collect.assemble import CollectPlan
from pandora_router.collect.journal import Journal, unline
from pandora_router.config import read_config
from pandora_router.data import storage
from pandora_router.errors import UsageError
from pandora_router.specialists.specialist import Request
from tests.support.command import pandora, start
from tests.support.upstream import SECRET, Upstream

COMMAND = [sys.executable, "-c", "from pandora_router.cli.collect import collect; collect()"]
PLAN = """
prompts: questions.jsonl
grading: {sums: numeric, other: exact}
collect: {budget: 500}
endpoints:
  here: {base_url: "URL", key_from: TEST_KEY, timeout: 0.4, retries: 4, pause: 0.01, at_once: 6}
specialists:
  good: {kind: chat, endpoint: here, model: good, prices: {in: 1000, out: 2000}, tokens: 16}
  poor: {kind: chat, endpoint: here, model: poor, prices: {in: 1000, out: 2000}, tokens: 16, stream: true}
  three: {kind: sampling, inner: poor, n: 3, majority_of: boxed}
"""


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", SECRET)


def written(folder: Path, url: str, text: str = PLAN, questions: int = 30) -> Path:
    folder.mkdir(exist_ok=True)
    rows = [
        {"prompt": f"Add {i} and {i * i}", "answer": str(i + i * i), "task": "sums"} for i in range(questions)
    ]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "pandora.yaml").write_text(text.replace("URL", url))
    return folder / "pandora.yaml"


def read_plan(path: Path, *, dry_run: bool = False) -> CollectPlan:
    return read_config(path).plan(path.parent, dry_run=dry_run)


def invoke(*arguments: object) -> Result:
    return pandora("collect", *arguments)


def records(path: Path, kind: str) -> list[dict[str, Any]]:
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    return [one for text in lines if text and (one := unline(text)) and one["kind"] == kind]


def killed(plan: Path, output: Path, after: int) -> str:
    """Start collect, kill it with SIGKILL once so many answers are on disk, return what it printed."""
    journal = output.with_name(output.name + ".journal")
    process = subprocess.Popen(
        [*COMMAND, str(plan), "-o", str(output)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        limit = time.monotonic() + 300
        while process.poll() is None and len(records(journal, "answer")) < after and time.monotonic() < limit:
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        said, _ = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    return said


def test_killed_three_times_under_faults_the_table_is_that_of_a_calm_run(tmp_path: Path) -> None:
    def faults(model: str, prompt: str, attempt: int) -> str | None:
        return (
            ("429", "500", "cut")[len(prompt) % 3]
            if attempt == 0 and int(prompt.split()[1]) % 4 == 0
            else None
        )

    with Upstream() as upstream:
        calm = invoke(written(tmp_path / "calm", upstream.url), "-o", tmp_path / "calm" / "table", "--json")
    assert calm.exit_code == 0, calm.output
    said, output = "", tmp_path / "storm" / "table"
    with Upstream(faults, slow=0.03) as upstream:
        plan = written(tmp_path / "storm", upstream.url)
        prompts = {f"p{i + 1}": f"Add {i} and {i * i}" for i in range(30)}
        kept: dict[tuple[str, str], int] = {}
        for after in (10, 30, 50):
            said += killed(plan, output, after)
            for one in records(output.with_name("table.journal"), "answer"):
                if one["specialist"] == "good":
                    asked = ("good", prompts[one["prompt_id"]])
                    kept.setdefault(asked, upstream.asked[asked])
        assert kept
        last = invoke(plan, "-o", output, "--json")
        assert last.exit_code == 0, last.output
        assert {key: upstream.asked[key] for key in kept} == kept
    facts, before = json.loads(last.stdout), json.loads(calm.stdout)
    assert facts["complete"]
    assert facts["fingerprint"] == before["fingerprint"]
    assert facts["spent"] == pytest.approx(before["spent"], rel=1e-12)
    keys = [one["key"] for one in records(output.with_name("table.journal"), "answer")]
    assert len(keys) == len(set(keys)) == 90
    assert storage.load(output).fingerprint() == facts["fingerprint"]
    everything = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert SECRET not in said + last.output
    assert SECRET.encode() not in everything


def test_the_last_sight_of_an_incomplete_table_is_exit_code_one(tmp_path: Path) -> None:
    with Upstream(lambda model, *_: "401" if model == "poor" else None) as upstream:
        plan = written(tmp_path / "a", upstream.url)
        first = invoke(plan, "-o", tmp_path / "table")
        assert first.exit_code == 1
        assert "was asked no more" in first.output
        assert SECRET not in first.output
        upstream.faults = lambda *_: None
        second = invoke(plan, "-o", tmp_path / "table", "--json")
        assert second.exit_code == 0, second.output
        assert json.loads(second.stdout)["bought_now"] == 60


def test_a_dry_run_buys_nothing_and_a_foreign_folder_is_left_alone(tmp_path: Path) -> None:
    with Upstream() as upstream:
        plan = written(tmp_path / "a", upstream.url)
        found = json.loads(invoke(plan, "-o", tmp_path / "t", "--dry-run", "--json").stdout)
        assert (found["answers"], found["prompts"], found["budget"]) == (90, 30, 500)
        assert 0 < found["expected"] < found["worst"] < 500
        assert "The budget of $500.00 is enough" in invoke(plan, "-o", tmp_path / "t", "--dry-run").stdout
        tight = written(tmp_path / "b", upstream.url, PLAN.replace("500", "0.9"))
        said = invoke(tight, "-o", tmp_path / "t", "--dry-run").stdout
        assert "of 30 prompts; prompts are bought whole" in said
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "letter.txt").write_text("dear diary")
        refused = invoke(plan, "-o", tmp_path / "mine")
        assert refused.exit_code == 2
        assert not upstream.asked
    assert not (tmp_path / "t.journal").exists()


def test_what_was_bought_before_is_not_expected_again(tmp_path: Path) -> None:
    with Upstream(lambda model, *_: "401" if model == "poor" else None) as upstream:
        plan = written(tmp_path / "a", upstream.url)
        before = json.loads(invoke(plan, "-o", tmp_path / "t", "--dry-run", "--json").stdout)
        assert (before["bought"], before["spent"], before["left"]) == (0, 0.0, 500.0)
        assert invoke(plan, "-o", tmp_path / "t").exit_code == 1
        after = json.loads(invoke(plan, "-o", tmp_path / "t", "--dry-run", "--json").stdout)
        with Journal(tmp_path / "t.journal") as journal:
            assert after["bought"] == len(journal.answers) == 30
            assert after["spent"] == float(journal.spent + journal.lost) > 0
        assert (after["answers"], after["prompts"]) == (60, 30)
        assert 0 < after["expected"] < before["expected"]
        assert 0 < after["worst"] < before["worst"]
        assert after["left"] == pytest.approx(500 - after["spent"])
        said = invoke(plan, "-o", tmp_path / "t", "--dry-run").stdout
        assert said.startswith("30 answers were bought before; $")
        upstream.faults = lambda *_: None
        assert invoke(plan, "-o", tmp_path / "t").exit_code == 0
        assert "Nothing is left to buy." in invoke(plan, "-o", tmp_path / "t", "--dry-run").stdout


def test_a_dry_run_says_what_a_judge_may_cost(tmp_path: Path) -> None:
    text = PLAN.replace("sums: numeric", "sums: {judge: judge}")
    text += "  judge: {kind: chat, hidden: true, endpoint: here, model: judge, prices: {in: 10, out: 20}}\n"
    with Upstream() as upstream:
        plan = written(tmp_path / "a", upstream.url, text)
        found = json.loads(invoke(plan, "-o", tmp_path / "t", "--dry-run", "--json").stdout)
        assert found["verdicts"] == found["answers"] == 90
        assert found["worst"] == found["worst_answers"] + found["worst_verdicts"]
        assert "90 verdicts" in invoke(plan, "-o", tmp_path / "t", "--dry-run").stdout
        assert not upstream.asked
        assert invoke(plan, "-o", tmp_path / "t").exit_code == 0
        bought = sum(record["fee"] for record in records(tmp_path / "t.journal", "grade"))
    assert 0 < bought < found["worst_verdicts"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("budget:", "bugdet:", "line 4: expected one of the keys budget, samples"),
        ("budget:", "bugdet:", "Did you mean 'budget'"),
        ("tokens: 16}", "token: 16}", "Did you mean 'tokens'"),
        ("numeric", "numerical", "Did you mean 'numeric'"),
        ("inner: poor", "inner: pour", "Did you mean 'poor'"),
        ("kind: sampling", "kind: sample", "Did you mean 'sampling'"),
        ("prices: {in: 1000, out: 2000}, ", "", "the key prices in specialists.good"),
        ("{in: 1000, out: 2000}", "{in: 1000}", "both in and out"),
        ("inner: poor", "inner: three", "a chain of `inner` that ends"),
        ("budget: 500", "budget: lots", "a number, got 'lots' for collect.budget"),
        ("budget: 500", "budget: 500, budget: 6", "'budget' again"),
        ("grading:", "grader:", "Did you mean 'grading'"),
        ("key_from: TEST_KEY", "key_from: sk-a-key-itself", "name of an environment variable"),
        ("tokens: 16}", 'tokens: 16, template: "{question} {passages}"}', "template"),
        ("questions.jsonl", "nothing.jsonl", "with the columns prompt and answer"),
        ("sums: numeric, other: exact", "shapes: numeric", "none for task 'sums'"),
        ("grading: {", "grading: {[1]: 2, ", "a name before the colon"),
    ],
)
def test_a_mistake_in_the_file_is_told_at_start_with_the_nearest_key(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    plan = written(tmp_path, "http://127.0.0.1:9/v1", PLAN.replace(old, new))
    found = invoke(plan, "-o", tmp_path / "table")
    assert found.exit_code == 2, found.output
    assert message in " ".join(found.output.split())
    assert "sk-a-key-itself" not in found.output


def test_every_kind_of_specialist_can_be_written_down(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text("One is a number.\n\nTwo is another.")
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    more = """
  wiki: {kind: retrieval, inner: good, passages: corpus, k: 1, price: 0.01}
  call: {kind: function, function: "math:sqrt", prices: free}
  smol: {kind: local, path: model.gguf, prices: {second: 0.001}, context_tokens: 8, hidden: true}
"""
    found = read_plan(written(tmp_path, "http://127.0.0.1:9/v1", PLAN + more))
    assert [one.name for one in found.specialists] == ["good", "poor", "three", "wiki", "call"]
    assert {q.split for q in found.questions} == {"train", "calibration", "test"}
    wiki = found.specialists[3]
    assert wiki.most(Request.of("One?")) > found.specialists[0].most(Request.of("One?"))
    with pytest.raises(UsageError, match="corpus2"):
        read_plan(written(tmp_path, "http://127.0.0.1:9/v1", PLAN + more.replace("corpus", "corpus2")))


def test_the_page_of_the_manual_is_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "collect.md").read_text()
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text("One is a number.")
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    monkeypatch.setenv("CLOUD_KEY", SECRET)
    text = page.split("```yaml")[1].split("```")[0]
    found = read_plan(written(tmp_path, "", text), dry_run=True)
    assert [one.name for one in found.specialists] == ["small", "library", "five", "sums", "laptop"]
    assert set(found.graders) == {"sums", "capitals", ""}
    assert found.specialists[2].most(Request.of("x")) > found.specialists[0].most(Request.of("x"))


def test_answers_without_a_verdict_are_counted_in_words(tmp_path: Path) -> None:
    """A judge that talks instead of judging leaves cells empty: the summary says so."""
    judged = PLAN.replace("sums: numeric", "sums: {judge: talker}")
    judged += "  talker: {kind: chat, hidden: true, endpoint: here, model: good, prices: free}\n"
    with Upstream() as upstream:
        found = invoke(written(tmp_path, upstream.url, judged, questions=1), "-o", tmp_path / "t")
    assert "3 answers got no verdict from the judge (invalid reply 3)" in " ".join(found.output.split())


def test_a_dead_server_or_a_wrong_key_is_said_at_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    dead = written(tmp_path / "dead", "http://127.0.0.1:9/v1", PLAN.replace("retries: 4", "retries: 50"))
    found = invoke(dead, "-o", tmp_path / "t")
    assert found.exit_code == 2, found.output
    assert "endpoints.here: expected a server at http://127.0.0.1:9/v1" in " ".join(found.output.split())
    judged = PLAN.replace("sums: numeric", "sums: {judge: judge}").replace(
        "here: {", "there: {base_url: DEAD}\n  here: {"
    )
    judged += "  judge: {kind: chat, hidden: true, endpoint: there, model: judge, prices: free}\n"
    with Upstream() as upstream:
        plan = written(tmp_path / "judge", upstream.url, judged.replace("DEAD", '"http://127.0.0.1:9/v1"'))
        found = invoke(plan, "-o", tmp_path / "t")
        assert (found.exit_code, upstream.asked) == (2, {})
        assert "endpoints.there (the judge's)" in found.output
    with Upstream(lambda *_: "401") as upstream:
        plan = written(tmp_path / "key", upstream.url)
        found = invoke(plan, "-o", tmp_path / "t")
        assert found.exit_code == 2
        assert "status 401" in found.output
        assert SECRET not in found.output
    assert not (tmp_path / "t").exists()


def test_what_is_bought_is_graded_again_without_a_server(tmp_path: Path) -> None:
    with Upstream() as upstream:
        plan = written(tmp_path / "a", upstream.url)
        assert invoke(plan, "-o", tmp_path / "table").exit_code == 0
    plan.write_text(plan.read_text().replace("sums: numeric", "sums: exact"))
    again = invoke(plan, "-o", tmp_path / "table", "--json")
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout)["bought_now"] == 0


def test_interrupted_it_says_how_to_continue(tmp_path: Path) -> None:
    with Upstream(slow=0.05) as upstream:
        process = start("collect", written(tmp_path, upstream.url), TEST_KEY=SECRET)
        try:
            limit = time.monotonic() + 300
            while len(records(tmp_path / "table.journal", "answer")) < 3 and time.monotonic() < limit:
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=20)
        finally:
            process.kill()
        assert process.returncode == 130
        assert "run the same command again to continue" in said
        assert "Traceback" not in said
        again = invoke(tmp_path / "pandora.yaml", "--json")
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout)["answers"] == 90


def test_an_output_that_cannot_be_written_is_refused_before_anything_is_bought(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with Upstream() as upstream:
        found = invoke(written(tmp_path, upstream.url), "-o", tmp_path / "file" / "table")
        assert (found.exit_code, upstream.asked) == (2, {})
        assert "which is a file" in found.output


def test_help_has_examples() -> None:
    said = invoke("--help").output
    assert "pandora collect pandora.yaml -o table" in said
    assert "--json" in said

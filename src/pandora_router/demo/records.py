"""Record the answers of specialists: journals while they run, one Parquet file at the end.

`record` runs one specialist after the other, in blocks of questions, so that the processor seconds of a block
belong to one specialist. Every answer is written to a journal before it is used; an interrupted run resumes
from there, and answers already in the file are not requested again. `pack` writes the answers of the file and
of the journals to a new file, `Recorded.read` reads it. Questions that a specialist was not asked are missing
cells (NaN), never zeros. `graded` says what counts as a right answer.
"""

from __future__ import annotations

import asyncio
import functools
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pandora_router.collect.assemble import CollectPlan, Question, cells
from pandora_router.collect.collection import Status, collect
from pandora_router.collect.graders import ReferenceGrader, contains, numeric
from pandora_router.collect.journal import Journal
from pandora_router.data.table import Table
from pandora_router.demo.questions import balanced, recorded
from pandora_router.demo.specialists import NAMES, SMALL, STRONG, STRONG_SHA256, the_specialists, was_recorded
from pandora_router.errors import UsageError
from pandora_router.folders import replacing
from pandora_router.specialists.specialist import Answer, Request
from pandora_router.types import Matrix
from pandora_router.wires.look import shown

OTHER = {"Yes": "No", "No": "Yes"}
_FIGURES = re.compile(r"\d+")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")


def solved(answer: str, wanted: str) -> float:
    """Whether a puzzle is solved: by the number an answer ends on, by Yes or by No.

    A fraction must be in its lowest terms (neither 2/4 nor 3 1/2 is 1/2), and an answer with both Yes and No
    is wrong.
    """
    if wanted in OTHER:
        return float(contains(answer, wanted) and not contains(answer, OTHER[wanted]))
    same = numeric(answer, wanted)
    if "/" not in wanted:
        return same
    mixed = re.search(rf"\d\s+{re.escape(wanted)}\b", answer)
    return 0.0 if mixed else min(same, contains(answer, wanted))


GRADERS: dict[str, ReferenceGrader] = {
    "sums": ReferenceGrader(numeric),
    "puzzles": ReferenceGrader(solved),
    "": ReferenceGrader(lambda said, wanted: (numeric if wanted[-1].isdigit() else contains)(said, wanted)),
}
"""By task; the one under "" is for all others."""


def beyond(question: str, answer: str) -> str:
    """The text after the numbers of the question, if the answer starts with several of them."""
    asked, plain = _FIGURES.findall(question), _THOUSANDS.sub("", answer)
    figures = list(_FIGURES.finditer(plain))[: len(asked)]
    if len(asked) < 2 or [figure[0] for figure in figures] != asked:
        return answer
    return plain[figures[-1].end() :]


def graded(question: Question, answer: Answer) -> float:
    """1 if the answer is right, else 0."""
    grader = GRADERS.get(question.task, GRADERS[""])
    return grader.score(beyond(question.text, answer.text), question.references)


FILE = Path(__file__).with_name("answers.parquet")
BLOCK = 100
ENOUGH = 1e9  # budget in seconds, which are the money here: no limit


def complete(
    work: Path, target: Path, who: Sequence[str], strong: Path | None, tell: Callable[[str, int, int], None]
) -> tuple[int, int]:
    """Record what the file `target` lacks, with a journal per specialist in the folder `work`.

    `who` are the specialists to ask, by default all that can run; `strong` is the GGUF file of the strong
    model. `tell` is called with the specialist, answers done and answers wanted. Returns how many answers the
    file then holds, and how many it held before. Raises `UsageError` before anything is asked if `target`
    cannot be written, or if `strong` is missing or not the model whose answers are in `target`.
    """
    _check(target, who, strong)
    known = Recorded.read(target).answers if target.exists() else {}
    if strong is not None and any(name == STRONG for _, name in known) and not was_recorded(strong):
        raise UsageError(
            str(strong),
            expected=f"the model whose answers {target} holds (SHA-256 {STRONG_SHA256[:12]}...)",
            came="another file",
            do="Name a file of answers that is not there yet with --answers: it will hold this model's.",
        )
    work.mkdir(parents=True, exist_ok=True)
    for name in who or (NAMES if strong is not None else SMALL):
        record(work / f"{name}.journal", [name], known, functools.partial(_told, tell, name), strong)
    return pack(sorted(work.glob("*.journal")), target, known, strong), len(known)


def _told(tell: Callable[[str, int, int], None], name: str, now: Status) -> None:
    tell(name, now.done, now.total)


def _check(target: Path, who: Sequence[str], strong: Path | None) -> None:
    if STRONG in who and strong is None:
        raise UsageError(
            "--who strong",
            expected="the file of the strong model",
            came="no --gguf",
            do="Add --gguf PATH; docs/demo.md says which file was recorded.",
        )
    if not os.access(target.parent, os.W_OK):  # said now, not after an hour of answers
        raise UsageError(
            str(target),
            expected="a file in a folder that can be written to",
            came="no permission" if target.parent.is_dir() else "no such folder",
            do="Name another with --answers.",
        )


def record(
    journal: Path,
    names: Sequence[str] = NAMES,
    known: Collection[tuple[str, str]] = (),
    tell: Callable[[Status], None] | None = None,
    strong: Path | None = None,
) -> None:
    """Ask the named specialists every question, unless the answer is in the journal or `known`.

    `known` holds pairs of question id and specialist; `strong` is the GGUF file of the strong model, needed
    to record that one. Questions are asked in `balanced` order: stopped early, a record is a fair sample.
    """
    asked, specialists = balanced(recorded()), the_specialists(strong)
    with Journal(journal) as kept:
        for start in range(0, len(asked), BLOCK):
            for name in names:
                block = tuple(
                    question for question in asked[start : start + BLOCK] if (question.id, name) not in known
                )
                if not block:
                    continue
                plan = CollectPlan(block, (specialists[name],), GRADERS, ENOUGH)
                if any(cell.key not in kept.answers for cell in cells(plan, specialists[name])):
                    load = Request.of("Is this a question?")  # loads the model, outside of any answer's time
                    asyncio.run(specialists[name].answer(load))
                    asyncio.run(collect(plan, kept, tell))


def pack(
    journals: Sequence[Path],
    target: Path = FILE,
    known: Mapping[tuple[str, str], Answer] | None = None,
    strong: Path | None = None,
) -> int:
    """Write all answers to the Parquet file `target`, atomically; returns how many there are.

    Answers that are `known`, by question id and specialist, are written unchanged; the journals give the
    rest. `strong` is the GGUF file with which the journal of the strong model was made.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    asked, specialists = recorded(), the_specialists(strong)
    bought: dict[str, Answer] = {}
    for path in journals:
        with Journal(path) as bought_before:
            bought |= bought_before.answers
    answers = dict(known or {})
    for specialist in specialists.values():
        for cell in cells(CollectPlan(asked, (specialist,), GRADERS, ENOUGH), specialist):
            if cell.key in bought:
                answers.setdefault((cell.question.id, specialist.name), bought[cell.key])
    places = [(question.id, name) for name in NAMES for question in asked]
    rows = [
        {"prompt_id": place[0], "specialist": place[1], **_row(answers[place])}
        for place in places
        if place in answers
    ]
    schema = pa.schema(
        [
            *((name, pa.string()) for name in ("prompt_id", "specialist", "text", "finish", "context")),
            *((name, pa.int32()) for name in ("tokens_in", "tokens_out")),
            *((name, pa.float32()) for name in ("seconds", "context_seconds")),
            ("logprobs", pa.list_(pa.float32())),
        ]
    )
    with replacing(target) as draft:
        pq.write_table(pa.Table.from_pylist(rows, schema), draft, compression="zstd", compression_level=15)
    return len(rows)


def _row(answer: Answer) -> dict[str, object]:
    names = ("text", "finish", "context", "tokens_in", "tokens_out", "seconds", "context_seconds", "logprobs")
    return {name: getattr(answer, name) for name in names}


@dataclass(frozen=True, eq=False)
class Recorded:
    """Questions by specialists: what was said, how right it was, processor seconds of answer and look.

    `table` has fees in processor seconds and contexts as `shown` writes them; `looks` (N, M) are the seconds
    of a look. Rows without any answer are left out.
    """

    table: Table
    looks: Matrix
    answers: Mapping[tuple[str, str], Answer]

    @classmethod
    def read(cls, path: Path = FILE) -> Recorded:
        """The recorded answers, graded anew."""
        import pyarrow.parquet as pq

        answers: dict[tuple[str, str], Answer] = {}
        for row in pq.read_table(path).to_pylist():
            chances = row["logprobs"]
            given = {**row, "logprobs": None if chances is None else tuple(chances), "fee": row["seconds"]}
            key = str(given.pop("prompt_id")), str(given.pop("specialist"))
            answers[key] = Answer(**given)
        there = {prompt_id for prompt_id, _ in answers}
        return cls.of([question for question in recorded() if question.id in there], answers)

    @classmethod
    def of(cls, questions: Sequence[Question], answers: Mapping[tuple[str, str], Answer]) -> Recorded:
        """The same from questions and their answers by question and specialist."""
        shape = (len(questions), len(NAMES))
        score, fee, looks = (np.full(shape, np.nan) for _ in range(3))
        contexts = np.full(shape, None, dtype=object)
        for i, question in enumerate(questions):
            for j, name in enumerate(NAMES):
                answer = answers.get((question.id, name))
                if answer is None:
                    continue
                score[i, j], fee[i, j] = graded(question, answer), answer.seconds
                looks[i, j] = answer.context_seconds or 0.0
                contexts[i, j] = shown(answer.context, answer.logprobs)
        table = Table(
            prompt_ids=tuple(asked.id for asked in questions),
            prompts=tuple(asked.text for asked in questions),
            tasks=tuple(asked.task for asked in questions),
            split=np.array([asked.split for asked in questions]),
            specialists=NAMES,
            score=score,
            fee=fee,
            contexts=contexts,
        )
        return cls(table, looks, answers)

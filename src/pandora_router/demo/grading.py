"""What counts as a right answer in the demo.

Numbers are compared by value, everything else by the words it must contain. If an answer repeats the numbers
of the question, what follows them is graded: "To calculate 42 / 7, we" is not a six.
"""

from __future__ import annotations

import re

from pandora_router.collect.assemble import Question
from pandora_router.collect.graders import ReferenceGrader, contains, numeric
from pandora_router.specialists.answer import Answer

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

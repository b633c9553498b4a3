"""How a request reaches specialists that do not serve its wire, and how their answers come back.

A specialist that serves the wire of the request gets its bytes unchanged; only for others is anything
translated. A request that cannot be expressed on any wire of a specialist excludes it, with the reason.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from pandora_router.gateway.providers.backend import Backend
from pandora_router.transport.failures import Failed
from pandora_router.wires.events import framed
from pandora_router.wires.known import BY_NAME
from pandora_router.wires.translation import AnswerAbout, NeutralRequest, Untranslatable
from pandora_router.wires.translator import NEAREST, Translator, request_of, written
from pandora_router.wires.wire import Name, Turn, Wire


@dataclass
class Crossing:
    """One request (`parsed`, understood as `turn`) on its way to other wires; each way is tried once."""

    wire: Wire
    parsed: Mapping[str, Any]
    turn: Turn
    _ways: dict[tuple[Name, str, int], dict[str, Any] | str] = field(default_factory=dict)
    _request: NeutralRequest | str | None = None

    def unreached(self, backend: Backend) -> str | None:
        """Why the specialist cannot be asked on any wire that it serves; None if it can."""
        if self.wire.name in backend.wires or self._way(backend) is not None:
            return None
        others = [name for name in NEAREST[self.wire.name] if name in backend.wires]
        why = "; ".join(f"{name} cannot express {self._body(backend, name)}" for name in others)
        add = f"wires: [{', '.join([*sorted(backend.wires), self.wire.name])}]"
        return f"does not serve the wire {self.wire.name}, and {why} (pandora.yaml says otherwise with {add})"

    def translator(self, backend: Backend, decision: str) -> Translator | None:
        """What translates its answer; None if it serves the wire of the request (or cannot be asked)."""
        way = None if self.wire.name in backend.wires else self._way(backend)
        if way is None:
            return None
        counted = self.turn.wants_usage or not self.turn.stream
        about = AnswerAbout(decision.replace("-", ""), int(time.time()), counted)
        return Translator(BY_NAME[way], self.wire, about, self._neutral.without)

    def body(self, backend: Backend, wire: Wire, *, stream: bool) -> bytes:
        """The request in the format of `wire`, for which `unreached` found a way."""
        if stream == self._neutral.stream:
            return orjson.dumps(self._body(backend, wire.name))
        asked = replace(self._neutral, stream=stream)
        return orjson.dumps(written(asked, wire.name, backend.model, backend.tokens_as, backend.max_output))

    @property
    def _neutral(self) -> NeutralRequest:
        assert isinstance(self._request, NeutralRequest)
        return self._request

    def _way(self, backend: Backend) -> Name | None:
        """The first wire of the specialist that can express the request; None if there is none."""
        others = (name for name in NEAREST[self.wire.name] if name in backend.wires)
        return next((name for name in others if isinstance(self._body(backend, name), dict)), None)

    def _body(self, backend: Backend, name: Name) -> dict[str, Any] | str:
        """The request on another wire, or what that wire cannot express."""
        if self._request is None:
            try:
                self._request = request_of(self.wire.name, self.parsed)
            except Untranslatable as error:
                self._request = str(error)
        if isinstance(self._request, str):
            return self._request
        key = (name, backend.tokens_as, backend.max_output)
        if key not in self._ways:
            try:
                self._ways[key] = written(self._request, name, "", *key[1:])
            except Untranslatable as error:
                self._ways[key] = str(error)
        way = self._ways[key]
        return way if isinstance(way, str) else {**way, "model": backend.model}


def translated(translator: Translator | None, status: int, answer: bytes) -> bytes:
    """A whole reply in the format of the client; raises `Failed` for an answer that is not understood."""
    if translator is None:
        return answer
    if status >= 400:
        return translator.error(status, answer)
    try:
        return translator.whole(answer)
    except Untranslatable as error:
        why = f"an answer that cannot be translated: {error}"
        raise Failed(why, "invalid reply", again=True, charged=True) from error


async def crossed(translator: Translator | None, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """A stream in the format of the client; raises `Failed` for one that is not understood."""
    try:
        async for part in parts:
            yield part if translator is None else translator.feed(part)
        if translator is not None:
            yield translator.end()
    except Untranslatable as error:
        why = f"an answer that cannot be translated: {error}"
        raise Failed(why, "invalid reply", again=False, charged=True) from error


def broken_off(translator: Translator | None, wire: Wire, message: str) -> bytes:
    """The events of the client's `wire` that end a stream after a failure."""
    if translator is not None:
        return translator.fail(message)
    return b"".join(framed(name, event) for name, event in wire.failure(message))

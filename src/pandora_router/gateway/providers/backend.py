"""A specialist as backend of the gateway: endpoint, model name, prices and abilities.

A specialist that keeps failing is not called for a while, then tried once (`Circuit`):

    closed     calls go through; `FAILURES` failures in a row open it
    open       no calls for a pause that doubles each time, up to `LONGEST`
    half-open  the pause is over: one call goes through; its outcome closes or opens the circuit

It also remembers what the provider refused, for specialists whose abilities are not stated: an ability that
was refused is not asked for again for a while if others have it, unless an answer has shown it before.

The clock is passed in, so behaviour can be tested without waiting. Each worker has circuits of its own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from pandora_router.errors import UsageError
from pandora_router.prices import BYTES_PER_TOKEN, CHARACTERS_PER_TOKEN, Cancelling, Tariff
from pandora_router.specialists.specialist import Request, Specialist, Unanswered
from pandora_router.store.money import nanodollars
from pandora_router.transport.endpoint import Endpoint
from pandora_router.transport.failures import Failed, RateLimit
from pandora_router.wires.demand import PLAIN, Demand
from pandora_router.wires.json_text import dumped, with_member, with_model
from pandora_router.wires.look import LookLength
from pandora_router.wires.own_members import with_own
from pandora_router.wires.usage import Usage
from pandora_router.wires.wire import Name, Turn, Wire, WireAnswer

FAILURES = 5
SHORTEST = 5.0
LONGEST = 300.0
FORGOTTEN = 600.0
"""Seconds after which a refused ability is asked for again."""


@dataclass
class Circuit:
    """The circuit of one specialist."""

    failures: int = 0
    pause: float = SHORTEST
    opened_at: float | None = None
    probing: bool = False
    shown: frozenset[str] = frozenset()
    refused: dict[str, float] = field(default_factory=dict)

    def state(self, now: float) -> str:
        """`closed`, `open` or `half-open`."""
        if self.opened_at is None:
            return "closed"
        return "half-open" if now >= self.opened_at + self.pause else "open"

    def lets_through(self, now: float) -> bool:
        """Whether a call may be made now; does not change the state."""
        state = self.state(now)
        return state == "closed" or (state == "half-open" and not self.probing)

    def begin(self, now: float) -> None:
        """A call is being made; in a half-open circuit it is the only one."""
        if self.state(now) == "half-open":
            self.probing = True

    def succeed(self, abilities: frozenset[str] = frozenset()) -> None:
        """A call went well that needed these abilities: close the circuit."""
        self.shown |= abilities
        self.failures, self.pause, self.opened_at, self.probing = 0, SHORTEST, None, False

    def fail(self, now: float) -> bool:
        """A call failed: open the circuit after too many in a row, for longer if it was the probe.

        Returns whether this opened it.
        """
        before = self.opened_at
        self.failures += 1
        if self.probing:
            self.pause = min(2.0 * self.pause, LONGEST)
            self.opened_at, self.probing = now, False
        elif self.opened_at is None and self.failures >= FAILURES:
            self.opened_at = now
        return self.opened_at != before

    def refuse(self, abilities: frozenset[str], now: float) -> bool:
        """The provider says that it lacks these abilities; returns whether one of them is news."""
        lacks = abilities - self.shown
        news = not lacks <= self.lacking(now)
        self.refused |= dict.fromkeys(lacks, now)
        return news

    def lacking(self, now: float) -> frozenset[str]:
        """The abilities that the provider refused lately and has not shown."""
        lately = (name for name, then in self.refused.items() if now - then < FORGOTTEN)
        return frozenset(lately) - self.shown

    def abandon(self) -> None:
        """A call ended without information on the specialist, for example because the client disconnected."""
        self.probing = False


ABILITIES = frozenset({"tools", "images", "audio", "files", "json_schema", "logprobs"})


NOT_TEXT = frozenset(
    {"n", "functions", "response_format", "modalities", "audio", "previous_response_id", "conversation"}
)
"""Members of a request that one who answers with plain text cannot support."""
PATIENCE = 5.0
"""Seconds that a request waits while all places of a tool are taken."""


class SpokenReply:
    """The answer `text` of `model`, a bidder or a tool, as a reply on `wire`.

    size: bytes of the request, to estimate its tokens. stream: as server-sent events instead of one body.
    """

    status = 200
    broken = False

    def __init__(self, wire: Wire, text: str, model: str, id_: str, size: int, *, stream: bool) -> None:
        self.headers = {"content-type": "text/event-stream" if stream else "application/json"}
        answer = WireAnswer(
            id_,
            model,
            int(time.time()),
            text,
            max(size // BYTES_PER_TOKEN, 1),
            max(round(len(text) / CHARACTERS_PER_TOKEN), 1),
        )
        speech = wire.speech()
        if stream:
            self._body = speech.head(answer) + speech.delta(answer, text) + speech.tail(answer, usage=True)
        else:
            self._body = orjson.dumps(speech.whole(answer))

    async def chunk(self) -> bytes:
        """The whole body at the first call, b"" after that."""
        body, self._body = self._body, b""
        return body

    async def read(self, limit: int) -> bytes:
        """The whole body. `limit` is ignored: the text is in memory already."""
        return await self.chunk()

    def close(self) -> None:
        """Do nothing: there is no connection."""


@dataclass(frozen=True)
class Tool:
    """A specialist that is no model behind an endpoint: a function, or a tool of an MCP server.

    It is given the words of the user and answers with plain text.
    """

    specialist: Specialist
    limit: RateLimit

    async def text(self, prompt: str) -> str:
        """The answer; raises `Failed` without one, and if no place is free in time."""
        place = await self.limit.take(PATIENCE)
        try:
            answer = await self.specialist.answer(Request.of(prompt))
        except Unanswered as error:
            raise Failed(str(error), error.failure, again=False, charged=True) from error
        finally:
            place.release()
        if not answer.text.strip():
            raise Failed("it has no answer to this", "invalid reply", again=False, charged=True)
        return answer.text


@dataclass(frozen=True)
class Backend:
    """A specialist behind an endpoint.

    `model` is its name there. `abilities` are what it can do; `learns`: they are not stated, so that what
    its provider refuses or shows counts. `longest` is the most that it writes, if stated. `context` is its
    limit for input and output tokens together, None if unknown. `refuses` are members of a request that it
    answers with an error, such as `temperature`. `own` are members that every request to it has, by wire
    (`with` in pandora.yaml); they replace those of the client. `cancel` says whether closing a stream stops
    billing. `looks`: whether looks are allowed; false for models with hidden reasoning. `peek` is how much a
    look reads. `tokens_as` is its name for the limit of tokens, used where a request is translated to the
    chat wire. A `tool` answers in place of a model: the endpoint is never called.
    """

    name: str
    endpoint: Endpoint
    model: str
    prices: Tariff
    wires: frozenset[Name] = frozenset({"chat"})
    abilities: frozenset[str] = ABILITIES
    refuses: frozenset[str] = frozenset()
    context: int | None = None
    max_output: int = 4096
    tokens_as: str = "max_tokens"
    cancel: Cancelling = "unknown"
    looks: bool = True
    peek: LookLength = field(default_factory=LookLength)
    own: Mapping[Name, Mapping[str, Any]] = field(default_factory=dict)
    learns: bool = False
    longest: int | None = None
    tool: Tool | None = None

    def __post_init__(self) -> None:
        self.bound(0, self.max_output)  # refuses prices that the store cannot hold
        unknown = self.abilities - ABILITIES
        if unknown or not self.wires or self.max_output < 1:
            raise UsageError(
                f"the specialist {self.name}",
                expected=f"abilities among {', '.join(sorted(ABILITIES))}, a wire, max_output of 1 or more",
                came=", ".join(sorted(unknown)) or f"{len(self.wires)} wires, max_output {self.max_output}",
                do="Change its entry in pandora.yaml.",
            )

    def request(
        self,
        wire: Wire,
        body: bytes,
        parsed: Mapping[str, Any],
        turn: Turn,
        *,
        look: bool = False,
        chances: bool = False,
    ) -> bytes:
        """The client's bytes with the model's name replaced; for a chat stream, usage is requested too.

        Only if the specialist has members of its `own` is the object serialised again. A `look` requests a
        stream even if the client does not; with `chances` also log-probabilities.
        """
        if own := self.own.get(wire.name):
            body = dumped(parsed := with_own(parsed, own))
        changed, known = with_model(body, parsed, self.model), {**parsed, "model": self.model}
        members: dict[str, Any] = {}
        if look and not turn.stream:
            members["stream"] = True
        if (turn.stream or look) and not turn.wants_usage:
            members |= wire.counted(parsed)
        if chances and not parsed.get("logprobs"):
            members["logprobs"] = True
        for name, value in members.items():
            changed = with_member(changed, known, name, value)
            known[name] = value
        return changed

    def address(self, path: str) -> str:
        """The URL of a path such as /v1/chat/completions; a base that ends in /v1 already has that part."""
        return self.endpoint.url(path.removeprefix("/v1"))

    def sent_headers(self, wire: Wire, passed: Mapping[str, str]) -> dict[str, str]:
        """The headers of a call: ours, `passed` ones of the client, and the key in the form of the wire.

        Raises `Failed` if the key cannot be read, as for a server that cannot be reached.
        """
        headers = {
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            **passed,
        }
        try:
            key = self.endpoint.key()
        except UsageError:
            raise Failed(f"the key of {self.name} cannot be read", "connection", again=True) from None
        return {**wire.key_headers(key), **headers}

    def bound(self, size: int, output: int, demand: Demand = PLAIN) -> int:
        """The most that a call of `size` bytes costs that writes `output` tokens or fewer, in nanodollars.

        What a tool of the provider brings is read too: up to the whole window, once for each of its calls. So
        is input that lies at the provider. A summary that the provider may write before reads all of it once
        more. The tokens of sounds come on top, up to the window where it is known.
        """
        size += min(demand.sounds, self.context or demand.sounds)
        if demand.tools or demand.away:
            size = (1 + demand.calls) * max(size, self.context or 0)
        if demand.compacts:
            size, output = 2 * size, output + self.max_output
        return nanodollars(self.prices.most(size, output, demand=demand))

    def cost(self, usage: Usage) -> int:
        """The price of these token counts, in nanodollars."""
        return nanodollars(self.prices.of(usage))

    def estimate(self, size: int, output: int) -> Usage:
        """Estimated token counts of a call without counts: from its size and the number of events."""
        return Usage(size // BYTES_PER_TOKEN, 0, 0, output, complete=False)

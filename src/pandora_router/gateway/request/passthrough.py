"""Calls that are passed to one specialist without routing: embeddings, token counts, stored responses.

A call goes to the specialist that it names. One that concerns an earlier response, or a conversation, goes to
the specialist that wrote it. Any other goes to the default, or to the first that serves its wire.

Embeddings and the compaction of a conversation cost money, so they have a decision with one attempt in the
store: the worst case is reserved before the call and the cost is settled after it, as for requests that are
routed. The other calls are free: they need no more than a key within its rate and its budget.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from pandora_router.errors import UpstreamError, UsageError
from pandora_router.gateway.providers.backend import Backend
from pandora_router.gateway.providers.cost_bound import possible, refuse_later, unpriced
from pandora_router.gateway.request.attempts import LARGEST_ANSWER, OURS, logger
from pandora_router.gateway.request.calls import PASSED
from pandora_router.gateway.request.choice import response_session, session_of
from pandora_router.gateway.request.eligible import read_request
from pandora_router.gateway.request.ledger import identify, limited, refusal
from pandora_router.prices import MARKERS, expected_bill
from pandora_router.router.decision import new_id
from pandora_router.store import accounts, budgets, log
from pandora_router.store.database import Transaction
from pandora_router.store.rows import Attempt, DecisionRow, Key, Outcome, Refusal, Settlement, Status
from pandora_router.transport.asgi import Receive, Refused, Reply, read_body
from pandora_router.transport.failures import Failed
from pandora_router.transport.relay import Relay
from pandora_router.wires.demand import Demand, demand_of
from pandora_router.wires.events import parsed as parsed_object
from pandora_router.wires.json_text import closing, string, with_model
from pandora_router.wires.known import BY_NAME
from pandora_router.wires.usage import Usage, tokens_of, usage_of
from pandora_router.wires.wire import Wire

if TYPE_CHECKING:
    from pandora_router.gateway.http.app import Gateway

EMBEDDINGS = "/v1/embeddings"
COMPACT = "/v1/responses/compact"
PASSED_ON: Mapping[str, str] = {
    "/v1/messages/count_tokens": "messages",
    EMBEDDINGS: "chat",
    "/v1/responses/input_tokens": "responses",
    COMPACT: "responses",
}
"""Paths of calls with a body -> the wire that a specialist must serve."""


async def passed_on(gateway: Gateway, path: str, headers: Mapping[str, str], receive: Receive) -> Reply:
    """Pass a call to one specialist (see above); raises `Refused`."""
    begun, site, wire = time.time(), gateway.site, BY_NAME[PASSED_ON[path]]
    body = await read_body(receive, site.settings.largest_request, site.settings.patience)
    body, parsed = read_request(body)
    key = await admitted(gateway, headers, begun)  # before the name of a specialist is said
    if not isinstance(parsed.get("model"), str):
        raise Refused(400, "model: expected a text.", "invalid_request")
    backend = await _specialist(gateway, wire, path, parsed, headers, key)
    sent = with_model(body, parsed, backend.model), wire, _given(headers)
    if path not in (EMBEDDINGS, COMPACT):
        return await _called(backend, path, *sent)
    written = backend.max_output if path == COMPACT else 0
    demand = demand_of(parsed)
    if path == EMBEDDINGS and not _is_text(parsed.get("input")):
        demand = replace(demand, away=True)
    if limited(key, site.budgets(backend.name)):
        refuse_later(parsed, 0)
        if (why := unpriced(backend, demand)) is not None:
            raise Refused(400, f"{backend.name} {why}.", "invalid_request")
    paid = _Paid(gateway, backend, key, len(body), begun, written, demand)
    await paid.begin()
    try:
        reply = await _called(backend, path, *sent)
    except Refused as refused:
        failed = refused.__cause__
        charged = isinstance(failed, Failed) and failed.charged
        paid.end("error", paid.estimate if charged else 0, refused.message)
        raise
    except BaseException:  # the client has gone
        paid.end("cancelled", paid.estimate)
        raise
    if reply.status < 400:
        told = reply.body, backend, len(body)
        usage, wrong = _compacted(*told) if path == COMPACT else _charged(*told, demand)
        paid.end("ok", backend.cost(usage), wrong, usage=usage)
    else:
        paid.end("error", 0, f"status {reply.status}")
    return replace(reply, headers={**reply.headers, "x-pandora-decision-id": paid.id})


async def stored_response(
    gateway: Gateway, method: str, path: str, query: bytes, headers: Mapping[str, str]
) -> Reply:
    """Read, delete or cancel a stored response (`path`: /v1/responses/ID...) at the specialist that wrote it.

    Raises `Refused` with 404 for a response that is not known here, or that was written for another key.
    """
    now = time.time()
    key = await admitted(gateway, headers, now)
    session = response_session(path.split("/")[3], None if key is None else key.id)
    known = await gateway.store.run(lambda open_: log.pinned(open_, session, now))
    if known is None or known.specialist not in gateway.site.names:
        raise Refused(404, "No response of yours with this id is known here.", "not_found")
    backend = gateway.site.backend(known.specialist)
    path = f"{path}?{query.decode('latin-1')}" if query else path
    return await _called(backend, path, b"", BY_NAME["responses"], _given(headers), method)


async def _specialist(
    gateway: Gateway,
    wire: Wire,
    path: str,
    parsed: Mapping[str, Any],
    headers: Mapping[str, str],
    key: Key | None,
) -> Backend:
    """The specialist that a call goes to; raises `Refused` (404) if it does not serve the wire."""
    site, owner = gateway.site, None if key is None else key.id
    name: str | None = site.meant(parsed["model"])
    if name not in site.names:
        sessions = []
        if previous := string(parsed.get("previous_response_id")):
            sessions.append(response_session(previous, owner))
        with contextlib.suppress(UsageError):
            sessions.append(session_of(wire.read(parsed), headers, owner))
        now = time.time()
        known = await gateway.store.run(
            lambda open_: next((known for s in sessions if (known := log.pinned(open_, s, now))), None)
        )
        name = None if known is None else known.specialist
    if name not in site.names:
        able = [one.name for one in site.backends if wire.name in one.wires and one.tool is None]
        name = next(iter(able), None) if site.settings.default not in able else site.settings.default
    if name is None:
        raise Refused(404, f"No specialist serves {path}.", "model_not_found")
    if wire.name not in (backend := site.backend(name)).wires or backend.tool is not None:
        raise Refused(404, f"{name} does not serve {path}.", "model_not_found")
    return backend


def _given(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a client that are passed on."""
    return {passed: headers[passed] for passed in PASSED if passed in headers}


async def _called(
    backend: Backend, path: str, body: bytes, wire: Wire, given: Mapping[str, str], method: str = "POST"
) -> Reply:
    """The specialist's reply; raises `Refused` (502) if there is none, or one with a status 5xx or of `OURS`.

    `given` are the headers of the client that are passed on.
    """
    endpoint = backend.endpoint
    try:
        headers = backend.sent_headers(wire, given)
        address, proxy = backend.address(path), endpoint.proxy()
        relay = await Relay.open(address, body or None, headers, endpoint.timeout, proxy, method=method)
        try:
            whole = await relay.read(LARGEST_ANSWER)
        finally:
            relay.close()
    except Failed as error:
        why = f"status {error.status}" if error.status else error.failure  # its text has the address
        raise Refused(502, f"{backend.name} did not answer ({why}).", "upstream_failed") from error
    if relay.status >= 500 or relay.status in OURS:
        raise Refused(502, f"{backend.name} answered with status {relay.status}.", "upstream_failed")
    kind = relay.headers.get("content-type", "application/json")
    return Reply(whole, relay.status, kind, {"x-pandora-specialist": backend.name})


async def admitted(gateway: Gateway, headers: Mapping[str, str], now: float) -> Key | None:
    """Count a call against the rate of its key; raises `Refused` (401, 429), also if no budget is left."""
    keys, shared = gateway.site.settings.keys, gateway.site.budgets("")
    if not keys and not shared:
        return None
    key, left = await identify(gateway.store, headers, now, shared, keys=keys)
    if left is not None and left <= 0:
        name = "this gateway" if key is None else f"the key {key.name}, or one that it shares,"
        raise refusal(Refusal("budget", f"The budget of {name} is used up."))
    if key is None:
        return None
    refused = await gateway.store.run(
        lambda open_: accounts.admit(open_, key, now), short=True, budgets=budgets.taking(key, now)
    )
    if refused is not None:
        raise refusal(refused)
    return key


NEAR = 2**12
"""Bytes at either end of a large reply among which its usage is looked for."""


def reply_usage(reply: bytes) -> Mapping[str, Any]:
    """The object `usage` of an embeddings reply; empty if there is none.

    Of a reply with millions of numbers only both ends are parsed: the members after the numbers, made an
    object of their own, and those before them.

    >>> reply_usage(b'{"data": [' + b"0.5, " * 10_000 + b'1], "usage": {"prompt_tokens": 7}, "model": "m"}')
    {'prompt_tokens': 7}
    """
    ends = [reply]
    if len(reply) > 4 * NEAR:
        tail, head = reply[-NEAR:], reply[:NEAR]
        after, before = tail.rfind(b'"usage"'), head.find(b"{", head.find(b'"usage"') + 1)
        end = closing(head, before) if before > 0 else None
        ends = [b"{" + tail[after:]] if after >= 0 else []
        ends += [head[:end] + b"}"] if end is not None else []
    for part in ends:
        try:
            content: Any = orjson.loads(part)
        except orjson.JSONDecodeError:
            continue
        if isinstance(content, dict) and isinstance(content.get("usage"), dict):
            usage: dict[str, Any] = content["usage"]
            return usage
    return {}


def _is_text(given: object) -> bool:
    """Whether the input of embeddings is text or tokens alone, so that its bytes limit its tokens."""
    items = given if isinstance(given, list) else [given]
    return all(
        isinstance(item, str | int)
        or (isinstance(item, list) and all(isinstance(token, int) for token in item))
        for item in items
    )


def _charged(reply: bytes, backend: Backend, size: int, demand: Demand) -> tuple[Usage, str]:
    """The token count of a reply, and what is wrong with it.

    Without a count that is understood it is estimated. One that is not possible (more tokens than bytes, of
    text) is cut to the bound of the request.
    """
    counts = reply_usage(reply)
    stated = (tokens_of(counts, name) for name in ("prompt_tokens", "input_tokens", "total_tokens"))
    tokens = next((count for count in stated if count is not None), None)
    if tokens is None:
        return backend.estimate(size, 0), ""
    if tokens <= size + MARKERS or (demand.away and possible(Usage(tokens))):
        return Usage(tokens), ""
    logger.warning("%s claims %d tokens for a request of %d bytes", backend.name, tokens, size)
    return Usage(size + MARKERS, complete=False), f"more was claimed than is possible: {tokens:,} tokens"


def _compacted(reply: bytes, backend: Backend, size: int) -> tuple[Usage, str]:
    """The token counts of a compaction, estimated if there are none or they cannot be true."""
    usage = usage_of(parsed_object(reply) or {})
    if usage is not None and usage.complete and possible(usage):
        return usage, ""
    return backend.estimate(size, backend.max_output), "" if usage is None else "impossible token counts"


class _Paid:
    """The rows of one call that costs money; `written` is the most tokens that it may write."""

    def __init__(
        self,
        gateway: Gateway,
        backend: Backend,
        key: Key | None,
        size: int,
        begun: float,
        written: int,
        demand: Demand,
    ) -> None:
        self.id, self._attempt = new_id(), new_id()
        self._gateway, self._backend, self._key, self._begun = gateway, backend, key, begun
        self._worst = backend.bound(size, written, demand)
        self._wire = "responses" if written else "embeddings"
        self.estimate = backend.cost(expected_bill(backend.estimate(size, written), demand))

    async def begin(self) -> None:
        """Reserve the worst case and write the decision; raises `Refused` (429, 503)."""
        site, key, name = self._gateway.site, self._key, self._backend.name
        shared = site.budgets(name)
        row = DecisionRow(
            id=self.id,
            at=self._begun,
            key=None if key is None else key.id,
            wire=self._wire,
            mode=site.settings.mode,
            policy="named",
            artifact="",
            generation=site.generation,
            specialist=name,
            proposed=name,
        )
        attempt = Attempt(self._attempt, self.id, "answer", name, self._begun, self.estimate)

        def write(open_: Transaction) -> Refusal | None:
            if key is not None or shared:
                lease = site.settings.lease
                refused = budgets.reserve(open_, key, self.id, self._worst, self._begun, lease, shared)
                if refused is not None:
                    return refused
            log.begin(open_, row, [attempt], worker=self._gateway.worker)
            return None

        try:
            taken = budgets.taking(key, self._begun, shared)
            refused = await self._gateway.store.run(write, short=True, of=self.id, budgets=taken)
        except UpstreamError as error:
            raise Refused(503, f"The call could not be recorded: {error}.", "store_failed") from error
        if refused is not None:
            raise refusal(refused)

    def end(self, status: Status, cost: int, reason: str = "", *, usage: Usage | None = None) -> None:
        """Settle the attempt and close the decision, soon and in any case."""
        now, seconds = time.time(), time.time() - self._begun
        outcome = Outcome(status, cost, usage or Usage(), seconds=seconds, reason=reason)
        last = Settlement(self._attempt, outcome, now)
        self._gateway.store.keep(
            lambda open_: log.close(open_, self.id, now, status=status, seconds=seconds, last=last),
            short=True,
            of=self.id,
        )

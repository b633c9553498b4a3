"""Endpoints other than the wires: models, decisions, feedback, health, metrics.

If keys are required, names of specialists are shown only to holders of a key, and what concerns all keys (the
metrics, the state of each specialist) only to holders of an admin key. Probes need no key: /healthz and
/readyz then answer without names.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import orjson

from pandora_router.errors import UsageError
from pandora_router.gateway.http import openapi, telemetry
from pandora_router.gateway.request.eligible import read_object
from pandora_router.gateway.request.ledger import identify, secret_of
from pandora_router.gateway.request.passthrough import PASSED_ON, admitted, passed_on, stored_response
from pandora_router.router.decision import new_id
from pandora_router.store import accounts, auctions, log, versions
from pandora_router.store.database import Transaction
from pandora_router.store.rows import Feedback, Key
from pandora_router.transport.asgi import Receive, Refused, Reply, Scope, read_body
from pandora_router.wires.known import BY_NAME, BY_PATH
from pandora_router.wires.wire import Wire

if TYPE_CHECKING:
    from pandora_router.gateway.http.app import Gateway

SMALL = 64 * 2**10
"""Most bytes of a request that is not passed on."""
DASHBOARD = "/dashboard"
"""Where a browser that asks for / is sent, if the dashboard is served."""
ADMIN = "The metrics count the requests of all keys: send an admin key (pandora keys add NAME --admin)."
SESSION = 100
"""Decisions of a session that get the feedback on it, at most."""
LATEST = 253_402_300_799.0
"""The last second of the year 9999: a later time of an observation is a mistake."""
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,100}")
_ADDRESS = re.compile(r"https?://\S+")
NO_WEBSOCKET = "No websockets are served here: POST /v1/responses with `stream: true` instead."


@dataclass(frozen=True)
class EndpointCall:
    """A request to an endpoint. `key` is that of the client, where the endpoint asks for one."""

    gateway: Gateway
    scope: Scope
    headers: Mapping[str, str]
    receive: Receive
    key: Key | None = None

    @property
    def last(self) -> str:
        """The part of the path after the last slash."""
        return str(self.scope["path"]).rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Route:
    """An endpoint: its methods and its path as regular expressions, what answers, whether it needs a key.

    One without `keyed` asks for a key itself, or answers without.
    """

    methods: str
    path: str
    answer: Callable[[EndpointCall], Awaitable[Reply]]
    keyed: bool = True


async def answer(gateway: Gateway, scope: Scope, headers: Mapping[str, str], receive: Receive) -> Reply:
    """Answer a request by the first of `ROUTES` that fits; raises `Refused`."""
    call = EndpointCall(gateway, scope, headers, receive)
    fitting = (one for one in _routes(scope["path"]) if re.fullmatch(one.methods, scope["method"]))
    route = next(fitting, None)
    if route is None or route.keyed:
        call = replace(call, key=await _key(gateway, headers))
    return await (_not_served if route is None else route.answer)(call)


def _routes(path: str) -> list[Route]:
    return [route for route in ROUTES if re.fullmatch(route.path, path)]


async def _not_served(call: EndpointCall) -> Reply:
    method, path = call.scope["method"], call.scope["path"]
    known = path in BY_PATH or bool(_routes(path))
    code = "" if known else "not_found"
    raise Refused(405 if known else 404, f"{method} {path[:200]} is not served here.", code)


async def _alive(call: EndpointCall) -> Reply:
    return Reply(b'{"status":"ok"}')


async def _front(call: EndpointCall) -> Reply:
    """The dashboard for a browser; Claude Code asks with HEAD whether anybody is there."""
    if _browses(call.headers) and DASHBOARD in call.gateway.mounted:
        return Reply(b"", 303, headers={"location": DASHBOARD})
    if call.scope["method"] == "HEAD":
        return Reply(b"")
    await _key(call.gateway, call.headers)
    raise Refused(404, "GET / is not served here.", "not_found")


async def _websocket(call: EndpointCall) -> Reply:
    if "sec-websocket-key" in call.headers:
        raise Refused(426, NO_WEBSOCKET, "upgrade_required", {"upgrade": "HTTP/1.1"})
    await _key(call.gateway, call.headers)
    return await _not_served(call)


async def _openapi(call: EndpointCall) -> Reply:
    site = call.gateway.site
    known = not site.settings.keys or await _shown(call.gateway, call.headers) is not None
    return Reply(orjson.dumps(openapi.document(site.models() if known else ())))


async def _passed(call: EndpointCall) -> Reply:
    return await passed_on(call.gateway, call.scope["path"], call.headers, call.receive)


async def _stored(call: EndpointCall) -> Reply:
    scope = call.scope
    return await stored_response(
        call.gateway, scope["method"], scope["path"], scope["query_string"], call.headers
    )


async def _metrics(call: EndpointCall) -> Reply:
    if call.key is not None and not call.key.admin:
        raise Refused(403, ADMIN, "not_allowed")
    return Reply(await telemetry.metrics(call.gateway), kind="text/plain; version=0.0.4; charset=utf-8")


async def _key(gateway: Gateway, headers: Mapping[str, str]) -> Key | None:
    """The client's key; None where keys are not needed. Raises `Refused` with 401."""
    if not gateway.site.settings.keys:
        return None
    key, _ = await identify(gateway.store, headers, time.time())
    return key


async def _shown(gateway: Gateway, headers: Mapping[str, str]) -> Key | None:
    """The client's key for an endpoint that also answers without one; None if it is missing or unknown."""
    if not ("authorization" in headers or "x-api-key" in headers):
        return None
    with contextlib.suppress(Refused):
        return await _key(gateway, headers)
    return None


def _browses(headers: Mapping[str, str]) -> bool:
    """Whether a person opened the address in a browser: API clients do not ask for HTML."""
    return "text/html" in headers.get("accept", "")


async def _ready(call: EndpointCall) -> Reply:
    """Whether requests can be answered; for holders of an admin key the artifact and circuits as well."""
    gateway = call.gateway
    reader = await _shown(gateway, call.headers)
    named = not gateway.site.settings.keys or (reader is not None and reader.admin)
    site = gateway.site
    try:
        await gateway.store.run(lambda open_: open_.rows("SELECT 1"), short=True)
        store = "ok"
    except Exception as error:
        store = f"failing ({type(error).__name__})"
    now = time.monotonic()
    live = {name: gateway.circuits[name].state(now) for name in site.names}
    ready = store == "ok" and any(state != "open" for state in live.values())
    state = {
        "ready": ready,
        "worker": os.getpid(),
        "generation": site.generation,
        "hash": site.hash,
        "store": store,
    }
    if named:
        state |= {"artifact": None if site.router is None else site.router.id, "specialists": live}
        state["looks"] = [outlook.sentence for outlook in gateway.outlooks()]
    return Reply(orjson.dumps(state), 200 if ready else 503)


async def _models(call: EndpointCall) -> Reply:
    data = [_model(call.gateway, name) for name in call.gateway.site.models()]
    return Reply(orjson.dumps({"object": "list", "data": data}))


async def _model_named(call: EndpointCall) -> Reply:
    """One name that clients may use, also one that an alias explains; raises `Refused` (404)."""
    gateway, name = call.gateway, call.scope["path"].removeprefix("/v1/models/")
    try:
        gateway.site.profile(gateway.site.meant(name))
    except UsageError as error:
        raise Refused(404, str(error), "model_not_found") from None
    return Reply(orjson.dumps(_model(gateway, name)))


def _model(gateway: Gateway, name: str) -> dict[str, Any]:
    """A name in the form of both OpenAI (object, created) and Anthropic (type, created_at)."""
    made = datetime.fromtimestamp(int(gateway.started), UTC).isoformat()
    openai = {"id": name, "object": "model", "created": int(gateway.started), "owned_by": "pandora-router"}
    return {**openai, "type": "model", "display_name": name, "created_at": made}


def _wire(scope: Scope, headers: Mapping[str, str], body: object) -> Wire:
    """The wire of a request to decide about: stated as `?wire=`, else the one that its body looks like.

    Only Responses have `input`. Only Messages have `system` beside their messages, and their clients send the
    header `anthropic-version`. Everything else is chat. Raises `Refused` with 400 for a wire that is not
    known.
    """
    stated = parse_qs(scope["query_string"].decode("latin-1")).get("wire")
    if stated is not None:
        if stated[0] not in BY_NAME:
            raise Refused(400, f"wire: expected {', '.join(BY_NAME)}.", "invalid_request")
        return BY_NAME[stated[0]]
    members = body if isinstance(body, dict) else {}
    if "input" in members:
        return BY_NAME["responses"]
    return BY_NAME["messages" if "system" in members or "anthropic-version" in headers else "chat"]


async def _decide(call: EndpointCall) -> Reply:
    """Decide for a request of any wire (see `_wire`); no specialist is called."""
    gateway, headers, settings = call.gateway, call.headers, call.gateway.site.settings
    await admitted(gateway, headers, time.time())
    body = await read_body(call.receive, settings.largest_request, settings.patience)
    wire = _wire(call.scope, headers, read_object(body))
    return Reply(orjson.dumps(await decided(gateway, wire, headers, body)))


async def decided(gateway: Gateway, wire: Wire, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """Who would answer the request `body`, and why; no specialist is called. Raises `Refused`."""
    exchange = gateway.exchange(wire, headers)
    exchange.body = body
    exchange.read()
    await exchange.identify()
    await exchange.choose()
    choice = exchange.choice
    assert choice is not None
    return {
        "specialist": choice.specialist,
        "ranked": choice.ranked,
        "proposed": choice.proposed,
        "policy": choice.policy,
        "propensity": choice.propensity,
        "declined_because": choice.declined,
        "excluded": exchange.excluded,
        "decision": choice.detail,
    }


async def _recorded(call: EndpointCall) -> Reply:
    key = None if call.key is None else call.key.id
    return Reply(orjson.dumps(await recorded(call.gateway, call.last, key)))


async def recorded(gateway: Gateway, id_: str, key: str | None) -> dict[str, Any]:
    """A decision of the log that the API key `key` may read, None for any. Raises `Refused` with 404."""
    if not _ID.fullmatch(id_):
        raise Refused(404, "No decision has this id.", "not_found")
    row = await gateway.store.run(lambda open_: log.decision(open_, id_), short=True)
    if row is None or (key is not None and row["key"] != key):
        raise Refused(404, "No decision has this id.", "not_found")
    if key is not None:  # clients do not learn where specialists run
        for attempt in row["attempts"]:
            attempt["reason"] = _ADDRESS.sub("its endpoint", attempt["reason"] or "")
    return dict(row)


async def _feedback(call: EndpointCall) -> Reply:
    """Append feedback, and its texts where those of requests are kept; the reply says whether they were."""
    gateway, headers = call.gateway, call.headers
    key = None if call.key is None else call.key.id
    body = read_object(await read_body(call.receive, SMALL, gateway.site.settings.patience))
    feedback = _read_feedback(body, headers.get("idempotency-key"))
    session = body.get("scope") == "session"
    texts: dict[str, str] = {}
    if feedback.comment is not None or feedback.correction is not None:
        kept = gateway.site.settings.bodies
        feedback = feedback if kept else replace(feedback, comment=None, correction=None)
        texts = {"texts": "kept" if kept else "not kept"}
    judge = await gateway.store.run(functools.partial(_settles, secret=secret_of(headers)), short=True)
    owner = None if judge else key
    give = functools.partial(_given, feedback=feedback, key=owner, settles=judge, session=session)
    result = await gateway.store.run(give, short=not judge, of=feedback.decision)
    if result in ("unknown", "foreign"):  # nobody learns which decisions of others exist
        raise Refused(404, "No decision of yours has this id.", "not_found")
    if result == "full":
        message = f"This decision has {versions.RATINGS} ratings, and takes no more."
        raise Refused(429, message, "too_many_ratings")
    return Reply(orjson.dumps({"id": feedback.id, "status": result, **texts}))


def _settles(open_: Transaction, secret: str) -> bool:
    """Whether `secret` is an admin key, whose rewards are paid."""
    judge = accounts.identify(open_, secret) if secret else None
    return isinstance(judge, Key) and auctions.may_settle(open_, judge)


def _given(open_: Transaction, feedback: Feedback, key: str | None, settles: bool, session: bool) -> str:
    """Write feedback on a decision of `key`, None for any; with `session` on the others of its session too.

    At most `SESSION` decisions of a session get it, the newest ones.

    A reward that `settles` also settles the auction of the decision, where one was held. The reward of a
    client's key does not: it could be that of a bidder, which would pay itself.
    """
    result = log.give_feedback(open_, feedback, key)
    if result == "added" and feedback.metric == "reward" and settles:
        auctions.grade(open_, feedback.decision, feedback.value, feedback.at)
    if session and result not in ("unknown", "foreign"):
        silent = replace(feedback, comment=None, correction=None)  # these speak of one answer
        for other in _same_session(open_, feedback.decision):
            log.give_feedback(open_, replace(silent, id=f"{feedback.id}/{other}", decision=other), key)
    return result


def _same_session(open_: Transaction, decision: str) -> list[str]:
    """The other decisions of its session, sorted, so that concurrent feedback locks them in one order."""
    row = log.decision(open_, decision)
    if row is None or row["session"] is None:
        return []
    rows = log.recent(open_, most=SESSION, session=row["session"])
    return sorted(other["id"] for other in rows if other["id"] != decision and other["key"] == row["key"])


def _read_feedback(body: Any, idempotency: str | None) -> Feedback:
    given: dict[str, Any] = body if isinstance(body, dict) else {}
    score = given.keys() & {"score", "reward"}  # one metric: clients that are older say reward
    metric, value = ("reward", given[min(score)]) if score else (given.get("metric"), given.get("value"))
    observed, texts = given.get("observed_at"), (given.get("comment"), given.get("correction"))
    fits = (
        set(given) <= set(openapi.FEEDBACK["properties"])
        and len(score) < 2
        and given.get("scope", "decision") in ("decision", "session")
        and all(isinstance(text, str) and _ID.fullmatch(text) for text in (given.get("decision_id"), metric))
        and _number(value, 1.0)
        and isinstance(given.get("source", ""), str)
        and len(given.get("source", "")) <= 100
        and (observed is None or _number(observed, LATEST))
        and all(isinstance(text, str) and len(text) <= openapi.REMARK for text in texts if text is not None)
    )
    if not fits:
        message = (
            'Expected {"decision_id": ..., "score": 0.0 to 1.0} or {"decision_id": ..., "metric": ..., '
            '"value": 0.0 to 1.0}, and optionally "source" (a text), "observed_at" (Unix seconds), "scope" '
            '("decision", or "session" for all answers of a conversation), "comment" and "correction" '
            f"(texts of at most {openapi.REMARK:,} characters)."
        )
        raise Refused(400, message, "invalid_request")
    id_ = f"{given['decision_id']}/{idempotency[:100]}" if idempotency else new_id()
    source = given.get("source", "client")
    rated = id_, given["decision_id"], time.time(), str(metric), float(str(value))
    return Feedback(*rated, source, observed, *texts)


def _number(value: object, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value <= most


STORED = r"/v1/responses/[\w.-]{1,100}"
ROUTES = (
    Route(".*", "/healthz", _alive, keyed=False),
    Route("GET|HEAD", "/", _front, keyed=False),
    Route("GET", "/openapi.json", _openapi, keyed=False),
    Route("GET", "/readyz", _ready, keyed=False),
    Route("GET", "/metrics", _metrics),
    Route("GET", "/v1/models", _models),
    Route("GET", "/v1/models/.*", _model_named),
    *(Route("POST", path, _passed, keyed=False) for path in PASSED_ON),
    Route("GET", "/v1/responses", _websocket, keyed=False),
    Route("GET|DELETE", f"{STORED}(/input_items)?", _stored, keyed=False),
    Route("POST", f"{STORED}/cancel", _stored, keyed=False),
    Route("POST", "/v1/routing/decision", _decide),
    Route("GET", "/v1/routing/decisions/.*", _recorded),
    Route("POST", "/v1/feedback", _feedback),
)
"""All endpoints other than the wires; of several that fit a request the first one answers."""

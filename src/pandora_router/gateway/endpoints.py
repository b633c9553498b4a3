"""Endpoints other than the wires: models, decisions, feedback, health, metrics."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from pandora_router.gateway import description, metrics
from pandora_router.gateway.ledger import identify
from pandora_router.gateway.members import read_object
from pandora_router.gateway.passing import PASSED_ON, admitted, passed_on
from pandora_router.gateway.wires import BY_NAME
from pandora_router.router.decision import new_id
from pandora_router.store import auctions, log
from pandora_router.store.database import Transaction
from pandora_router.store.rows import Feedback
from pandora_router.transport.asgi import Receive, Refused, Reply, Scope, read_body

if TYPE_CHECKING:
    from pandora_router.gateway.app import Gateway

SMALL = 64 * 2**10
"""Most bytes of a request that is not passed on."""
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,100}")


async def answer(gateway: Gateway, scope: Scope, headers: Mapping[str, str], receive: Receive) -> Reply:
    """Answer a request to one of these endpoints; raises `Refused`."""
    method, path = scope["method"], scope["path"]
    if path == "/healthz":
        return Reply(b'{"status":"ok"}')
    if (method, path) == ("GET", "/openapi.json"):
        return Reply(orjson.dumps(description.document(gateway.site.models())))
    if (method, path) == ("GET", "/readyz"):
        return await _ready(gateway)
    if path in PASSED_ON and method == "POST":
        return await passed_on(gateway, path, headers, receive)
    key = await _key(gateway, headers)
    if (method, path) == ("GET", "/metrics"):
        return Reply(await metrics.text(gateway), kind="text/plain; version=0.0.4; charset=utf-8")
    if (method, path) == ("GET", "/v1/models"):
        return _models(gateway)
    if (method, path) == ("POST", "/v1/routing/decision"):
        await admitted(gateway, headers, time.time())
        return await _decide(gateway, headers, receive)
    if method == "GET" and path.startswith("/v1/routing/decisions/"):
        return await _decision(gateway, path.rsplit("/", 1)[-1], key)
    if (method, path) == ("POST", "/v1/feedback"):
        return await _feedback(gateway, headers, receive, key)
    known = path in KNOWN
    raise Refused(
        405 if known else 404, f"{method} {path[:200]} is not served here.", "not_found" if not known else ""
    )


KNOWN = frozenset(
    {
        "/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens",
        "/v1/embeddings", "/v1/models", "/v1/routing/decision", "/v1/feedback", "/readyz", "/metrics",
        "/openapi.json",
    }
)  # fmt: skip


async def _key(gateway: Gateway, headers: Mapping[str, str]) -> str | None:
    """The id of the client's key; None where keys are not needed. Raises `Refused` with 401."""
    if not gateway.site.settings.keys:
        return None
    key, _ = await identify(gateway.store, headers, time.time())
    return key.id


async def _ready(gateway: Gateway) -> Reply:
    site = gateway.site
    try:
        await gateway.store.run(lambda open_: open_.rows("SELECT 1"))
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
        "artifact": None if site.router is None else site.router.id,
        "store": store,
        "specialists": live,
    }
    return Reply(orjson.dumps(state), 200 if ready else 503)


def _models(gateway: Gateway) -> Reply:
    made = int(gateway.started)
    data = [
        {"id": name, "object": "model", "created": made, "owned_by": "pandora-router"}
        for name in gateway.site.models()
    ]
    return Reply(orjson.dumps({"object": "list", "data": data}))


async def _decide(gateway: Gateway, headers: Mapping[str, str], receive: Receive) -> Reply:
    """Decide for a request of any wire, given by `?wire=` or detected; no specialist is called."""
    body = await read_body(receive, gateway.site.settings.largest_request, gateway.site.settings.patience)
    wire = BY_NAME["responses" if "input" in read_object(body) else "chat"]
    exchange = gateway.exchange(wire, headers)
    exchange.body = body
    exchange.read()
    await exchange.identify()
    await exchange.choose()
    choice = exchange.choice
    assert choice is not None
    reply = {
        "specialist": choice.specialist,
        "ranked": choice.ranked,
        "proposed": choice.proposed,
        "policy": choice.policy,
        "propensity": choice.propensity,
        "declined_because": choice.declined,
        "excluded": exchange.excluded,
        "decision": choice.detail,
    }
    return Reply(orjson.dumps(reply))


async def _decision(gateway: Gateway, id_: str, key: str | None) -> Reply:
    if not _ID.fullmatch(id_):
        raise Refused(404, "No decision has this id.", "not_found")
    row = await gateway.store.run(lambda open_: log.decision(open_, id_))
    if row is None or (key is not None and row["key"] != key):
        raise Refused(404, "No decision has this id.", "not_found")
    return Reply(orjson.dumps(row))


async def _feedback(gateway: Gateway, headers: Mapping[str, str], receive: Receive, key: str | None) -> Reply:
    """Append feedback: {decision_id, reward} or {decision_id, metric, value}, source and observed_at."""
    body = await read_body(receive, SMALL, gateway.site.settings.patience)
    feedback = _read_feedback(read_object(body), headers.get("idempotency-key"))
    result = await gateway.store.run(lambda open_: _given(open_, feedback, key))
    if result in ("unknown", "foreign"):  # nobody learns which decisions of others exist
        raise Refused(404, "No decision of yours has this id.", "not_found")
    return Reply(orjson.dumps({"id": feedback.id, "status": result}))


def _given(open_: Transaction, feedback: Feedback, key: str | None) -> str:
    """Write feedback; a reward also settles the auction of the decision, where one was held."""
    result = log.give_feedback(open_, feedback, key)
    if result == "added" and feedback.metric == "reward":
        auctions.grade(open_, feedback.decision, feedback.value, feedback.at)
    return result


def _read_feedback(body: Any, idempotency: str | None) -> Feedback:
    given: dict[str, Any] = body if isinstance(body, dict) else {}
    metric, value = (
        ("reward", given["reward"]) if "reward" in given else (given.get("metric"), given.get("value"))
    )
    observed = given.get("observed_at")
    fits = (
        set(given) <= {"decision_id", "reward", "metric", "value", "source", "observed_at"}
        and all(isinstance(text, str) and _ID.fullmatch(text) for text in (given.get("decision_id"), metric))
        and _number(value)
        and (metric != "reward" or 0.0 <= float(str(value)) <= 1.0)
        and isinstance(given.get("source", ""), str)
        and len(given.get("source", "")) <= 100
        and (observed is None or _number(observed))
    )
    if not fits:
        message = (
            'Expected {"decision_id": ..., "reward": 0.0 to 1.0} or {"decision_id": ..., "metric": ..., '
            '"value": a finite number}, and optionally "source" (a text) and "observed_at" (Unix seconds).'
        )
        raise Refused(400, message, "invalid_request")
    id_ = f"{given['decision_id']}/{idempotency[:100]}" if idempotency else new_id()
    source = given.get("source", "client")
    return Feedback(id_, given["decision_id"], time.time(), str(metric), float(str(value)), source, observed)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)

"""The gateway's interface as an OpenAPI 3.1 document, served at GET /openapi.json.

Requests of the three wires are described as far as the gateway reads them; every other member is passed on,
so the schemas allow it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pandora_router import __version__
from pandora_router.wires.wire import MOST_COPIES, MOST_TOKENS

Json = dict[str, Any]
TEXT: Json = {"type": "string", "minLength": 1}
COUNT: Json = {"type": "integer", "minimum": 1, "maximum": MOST_TOKENS}
REMARK = 8000
"""Characters of a comment or of a correction, at most."""
COPIES: Json = {"type": "integer", "minimum": 1, "maximum": MOST_COPIES}


def _object(required: tuple[str, ...], **members: Json) -> Json:
    return {"type": "object", "required": list(required), "properties": members}


MESSAGE = _object(
    ("role",), role=TEXT, content={"type": ["string", "array", "null"], "items": {"type": "object"}}
)
MESSAGES: Json = {"type": "array", "minItems": 1, "items": MESSAGE}
COMMON: Json = {"model": TEXT, "stream": {"type": ["boolean", "null"]}, "metadata": {"type": "object"}}
CHAT = _object(
    ("model", "messages"),
    **COMMON,
    messages=MESSAGES,
    max_tokens=COUNT,
    max_completion_tokens=COUNT,
    n=COPIES,
    tools={"type": "array", "items": {"type": "object"}},
    response_format={"type": "object"},
    stream_options={"type": ["object", "null"]},
)
RESPONSES = _object(
    ("model", "input"),
    **COMMON,
    input={"type": ["string", "array"], "items": {"type": "object"}},
    instructions={"type": ["string", "null"]},
    previous_response_id={"type": ["string", "null"]},
    max_output_tokens=COUNT,
)
MESSAGES_REQUEST = _object(
    ("model", "messages", "max_tokens"),
    **COMMON,
    messages=MESSAGES,
    max_tokens=COUNT,
    system={"type": ["string", "array"], "items": {"type": "object"}},
)
ASKED: Json = {
    "type": "object",
    "required": ["model"],
    "properties": {**CHAT["properties"], **RESPONSES["properties"], **MESSAGES_REQUEST["properties"]},
}
"""A request on any of the three wires."""
NAMED = _object(("model",), model=TEXT)
SCORE: Json = {"type": "number", "minimum": 0, "maximum": 1}
FEEDBACK = _object(
    ("decision_id",),
    decision_id={"type": "string", "pattern": "^[A-Za-z0-9_.:-]{1,100}$"},
    score=SCORE,
    reward=SCORE | {"description": "Another name of `score`."},
    metric={"type": "string", "pattern": "^[A-Za-z0-9_.:-]{1,100}$"},
    value={"type": "number"},
    source={"type": "string", "maxLength": 100},
    observed_at={"type": ["number", "null"]},
    scope={"type": "string", "enum": ["decision", "session"]},
    comment={"type": ["string", "null"], "maxLength": REMARK},
    correction={"type": ["string", "null"], "maxLength": REMARK},
)
FEEDBACK["additionalProperties"] = False

HEADERS = {
    "x-pandora-allow": "Only these specialists may answer: names with commas between.",
    "x-pandora-deny": "These specialists may not answer.",
    "x-pandora-max-fee": "The most that the answer may cost, in dollars.",
    "x-pandora-router": "`off`: the default specialist answers, nothing is decided.",
    "x-pandora-session": "The conversation that this request belongs to.",
}
WIRE: Json = {
    "name": "wire",
    "in": "query",
    "description": "The format of the body; without it, the one that the body looks like.",
    "schema": {"type": "string", "enum": ["chat", "responses", "messages"]},
}


def document(models: Sequence[str]) -> Json:
    """The OpenAPI document.

    `models` are the names that a request may give as `model`; empty if the reader may not see them.
    """
    answered = {
        "/v1/chat/completions": ("Answer a chat completion", CHAT),
        "/v1/responses": ("Answer a Responses request", RESPONSES),
        "/v1/messages": ("Answer a Messages request", MESSAGES_REQUEST),
    }
    asked = {
        "/v1/messages/count_tokens": ("Count tokens, by the named specialist", NAMED),
        "/v1/responses/input_tokens": ("Count tokens of a Responses request", NAMED),
        "/v1/responses/compact": ("Shorten a conversation, by the specialist that holds it", NAMED),
        "/v1/embeddings": ("Embed texts, by the named specialist", NAMED),
        "/v1/routing/decision": ("Decide who would answer; nobody is called", ASKED),
        "/v1/feedback": ("Say what an answer was worth", FEEDBACK),
    }
    read = {
        "/v1/models": "What may be named as model",
        "/healthz": "Whether the process is alive",
        "/openapi.json": "This document",
    }
    paths: Json = {}
    for path, (what, body) in (answered | asked).items():
        named = body["properties"]
        if "model" in named and models:
            body = {**body, "properties": {**named, "model": {"type": "string", "enum": list(models)}}}
        paths[path] = {"post": _post(what, body, HEADERS if path in answered else {})}
    paths["/v1/routing/decision"]["post"]["parameters"].append(WIRE)
    paths |= {path: {"get": _get(what)} for path, what in read.items()}
    ready = "Whether requests can be answered and with which generation; for admin keys also by whom"
    paths["/readyz"] = {"get": _get(ready)}
    paths["/metrics"] = {
        "get": _get("Metrics for Prometheus; with an admin key if keys are required", "text/plain")
    }
    id_ = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    paths["/v1/routing/decisions/{id}"] = {
        "get": _get("One decision with its attempts and feedback") | {"parameters": [id_]}
    }
    paths["/v1/models/{id}"] = {"get": _get("One name, also an alias") | {"parameters": [id_]}}
    stored = "a stored response, at the specialist that wrote it"
    paths["/v1/responses/{id}"] = {
        verb: _get(f"{verb.capitalize()} {stored}") | {"parameters": [id_]} for verb in ("get", "delete")
    }
    bearer = {"type": "http", "scheme": "bearer"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "pandora-router gateway", "version": __version__},
        "paths": paths,
        "components": {"securitySchemes": {"key": bearer}},
        "security": [{}, {"key": []}],
    }


def _get(summary: str, kind: str = "application/json") -> Json:
    return {"summary": summary, "responses": _responses(kind)}


def _post(summary: str, body: Json, headers: dict[str, str]) -> Json:
    parameters = [
        {"name": name, "in": "header", "description": what, "schema": {"type": "string"}}
        for name, what in headers.items()
    ]
    return {
        "summary": summary,
        "parameters": parameters,
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": _responses("application/json"),
    }


def _responses(kind: str) -> Json:
    error = {"description": "An error in the shape of the wire", "content": {"application/json": {}}}
    stream: Json = {"text/event-stream": {}} if kind == "application/json" else {}
    answer = {"description": "The answer", "content": {kind: {}, **stream}}
    return {"200": answer, "4XX": error, "502": error, "503": error, "504": error}

"""The gateway as an MCP server at /mcp: an agent asks who would answer a prompt, and why one was chosen.

Streamable HTTP without sessions: each POST is one JSON-RPC message and its reply one JSON object, so that any
worker process answers. Nobody is called and nothing is charged; API keys are needed as everywhere.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from pandora_router.gateway.http.endpoints import decided, recorded
from pandora_router.gateway.request.eligible import read_object
from pandora_router.gateway.request.passthrough import admitted
from pandora_router.transport.asgi import Receive, Refused, Reply, Scope, read_body
from pandora_router.wires.known import BY_NAME

if TYPE_CHECKING:
    from pandora_router.gateway.http.app import Gateway

PATH = "/mcp"
LARGEST = 2**20
"""Most bytes of a message."""
VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26")
"""Versions of the protocol that are spoken, newest first."""
PARSE, INVALID, NO_METHOD, PARAMETERS = -32700, -32600, -32601, -32602
POST_ONLY = "Send JSON-RPC messages by POST: this server begins no messages and keeps no sessions."
READS = {"readOnlyHint": True, "openWorldHint": False}


def _tool(name: str, what: str, members: Mapping[str, str], needed: str) -> dict[str, Any]:
    properties = {member: {"type": "string", "description": about} for member, about in members.items()}
    schema = {
        "type": "object",
        "properties": properties,
        "required": [needed],
        "additionalProperties": False,
    }
    return {"name": name, "description": what, "inputSchema": schema, "annotations": READS}


TOOLS = (
    _tool(
        "route",
        "Which specialist (model, tool or agent) should answer a prompt, the ranking of the others, who is "
        "excluded and why. Calls nobody and costs nothing.",
        {"prompt": "The prompt to decide about.", "model": "A name of GET /v1/models; left out: auto."},
        "prompt",
    ),
    _tool(
        "explain",
        "A decision of the past: candidates, estimates that were bought, the choice, attempts and costs.",
        {"decision_id": "The header x-pandora-decision-id of an answer."},
        "decision_id",
    ),
)


class WrongCall(Exception):
    """A message that gets a JSON-RPC error with this code."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(message)


async def answer(gateway: Gateway, scope: Scope, headers: Mapping[str, str], receive: Receive) -> Reply:
    """Answer one HTTP request to /mcp; raises `Refused` where no JSON-RPC message can answer."""
    if scope["method"] != "POST":
        raise Refused(405, POST_ONLY, "", {"allow": "POST"})
    holder = await admitted(gateway, headers, time.time())
    key = None if holder is None else holder.id
    stated = headers.get("mcp-protocol-version")
    if stated is not None and stated not in VERSIONS:
        raise Refused(400, f"mcp-protocol-version: expected {', '.join(VERSIONS)}.", "invalid_request")
    body = await read_body(receive, LARGEST, gateway.site.settings.patience)
    message: dict[str, Any] = {}
    try:
        message = _message(body)
        if "id" not in message or "method" not in message:
            return Reply(b"", 202)  # a notification, or an answer to a question that was not asked
        result = await _result(gateway, headers, key, str(message["method"]), message.get("params"))
    except WrongCall as wrong:
        error = {"code": wrong.code, "message": str(wrong)}
        return _reply(message.get("id"), {"error": error}, 400 if wrong.code in (PARSE, INVALID) else 200)
    return _reply(message["id"], {"result": result})


def _reply(id_: object, said: Mapping[str, Any], status: int = 200) -> Reply:
    return Reply(orjson.dumps({"jsonrpc": "2.0", "id": id_, **said}), status)


def _message(body: bytes) -> dict[str, Any]:
    """The JSON-RPC message in a body; raises `WrongCall`."""
    try:
        message = read_object(body)
    except Refused as refused:
        raise WrongCall(PARSE, str(refused)) from None
    if message.get("jsonrpc") != "2.0":
        raise WrongCall(INVALID, "Expected one JSON-RPC 2.0 message.")
    if not isinstance(message.get("id", 0), int | str) or isinstance(message.get("id"), bool):
        raise WrongCall(INVALID, "id: expected a number or a text.")
    return message


async def _result(
    gateway: Gateway, headers: Mapping[str, str], key: str | None, method: str, params: object
) -> dict[str, Any]:
    """The result of a request; raises `WrongCall`."""
    given = params if isinstance(params, dict) else {}
    if method == "initialize":
        wanted = given.get("protocolVersion")
        return {
            "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "pandora-router", "version": "1"},
        }
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return await _called(gateway, headers, key, given)
    raise WrongCall(NO_METHOD, f"{method[:80]} is not served here.")


async def _called(
    gateway: Gateway, headers: Mapping[str, str], key: str | None, params: Mapping[str, Any]
) -> dict[str, Any]:
    """The result of a tool; what the gateway refuses is an error of the tool, which the agent can read."""
    tool = next((tool for tool in TOOLS if tool["name"] == params.get("name")), None)
    if tool is None:
        raise WrongCall(PARAMETERS, "name: expected " + " or ".join(tool["name"] for tool in TOOLS) + ".")
    arguments = params.get("arguments")
    given: dict[str, Any] = arguments if isinstance(arguments, dict) else {}
    schema = tool["inputSchema"]
    texts = all(isinstance(value, str) for value in given.values())
    if not texts or not set(schema["required"]) <= set(given) <= set(schema["properties"]):
        raise WrongCall(PARAMETERS, f"arguments: expected the texts {', '.join(schema['properties'])}.")
    try:
        if tool["name"] == "explain":
            said = await recorded(gateway, given["decision_id"], key)
        else:
            asked = {"role": "user", "content": given["prompt"]}
            body = orjson.dumps({"model": given.get("model", "auto"), "messages": [asked]})
            said = await decided(gateway, BY_NAME["chat"], headers, body)
    except Refused as refused:
        return {"content": [{"type": "text", "text": str(refused)}], "isError": True}
    text = orjson.dumps(said).decode()
    return {"content": [{"type": "text", "text": text}], "structuredContent": orjson.loads(text)}

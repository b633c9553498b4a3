"""A model that nobody trained: it calls tools, fills JSON schemas and talks, on a real socket, on all wires.

It behaves as clients expect a capable model to behave, by rule: if tools are offered and no tool has answered
yet, it calls one (the one that `tool_choice` names) with arguments made from the prompt; if a JSON schema is
asked for, it fills it; else it talks. Numbers and quoted texts of the prompt become arguments.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from aiohttp import web

from pandora_router.wires.events import framed
from pandora_router.wires.known import BY_PATH
from pandora_router.wires.wire import WireAnswer
from tests.support.web_server import WebServer

TEXT = "This is an answer of several words, one after the other, until it stops."


class Model(WebServer):
    """The running model; `url` ends in /v1."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/v1/messages/count_tokens":
            return await count(request)
        if request.path == "/v1/embeddings":
            return await embed(request)
        if request.path not in BY_PATH:
            raise web.HTTPNotFound
        return await answer(request)


async def count(request: web.Request) -> web.Response:
    return web.json_response({"input_tokens": len((await request.text()).split())})


async def embed(request: web.Request) -> web.Response:
    body = await request.json()
    if "input" not in body:
        return web.json_response({"error": {"message": "input is missing"}}, status=400)
    texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
    data = [{"object": "embedding", "index": i, "embedding": [0.5, -0.5]} for i in range(len(texts))]
    usage = {"prompt_tokens": 3, "total_tokens": 3}
    return web.json_response({"object": "list", "data": data, "model": body["model"], "usage": usage})


async def answer(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    wire = BY_PATH[request.path]
    try:
        turn = wire.read(body)
    except Exception as error:
        return web.json_response(wire.error(400, str(error), "invalid_request"), status=400)
    calls = tool_calls(body, turn.prompt) if wire.name == "chat" else []
    text = "" if calls else spoken(body, turn.prompt)
    most = turn.max_output or 10_000
    words = text.split(" ")
    said = WireAnswer(
        "1", body["model"], 1, " ".join(words[:most]), 7, min(len(words), most), len(words) > most
    )
    speech = wire.speech()
    if not turn.stream:
        whole = speech.whole(said)
        return web.json_response(called(whole, calls) if calls else whole)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(speech.head(said))
    for index, call in enumerate(calls):
        for delta in call_deltas(index, call):
            await response.write(chunk(said, delta))
    half = len(said.text) // 2
    words = re.findall(r"\s*\S+", said.text)
    for word in words if len(words) > 1 else (said.text[:half], said.text[half:]):
        try:
            await response.write(speech.delta(said, word))
        except ConnectionResetError:  # the client has left
            return response
        await asyncio.sleep(0.01)  # so that a gateway which withholds a stream is noticed
    tail = speech.tail(said, usage=turn.wants_usage)
    if calls:
        tail = tail.replace(b'"finish_reason":"stop"', b'"finish_reason":"tool_calls"')
    await response.write(tail)
    return response


def tool_calls(body: dict[str, Any], prompt: str) -> list[dict[str, str]]:
    """Name and arguments of the tools that are called: one, or all where parallel calls are asked for."""
    tools = [one["function"] for one in body.get("tools") or [] if one.get("type") == "function"]
    choice = body.get("tool_choice", "auto")
    if not tools or choice == "none" or body["messages"][-1]["role"] == "tool":
        return []
    wanted = choice["function"]["name"] if isinstance(choice, dict) else None
    named = [one for one in tools if one["name"] == wanted]
    chosen = named or (tools if body.get("parallel_tool_calls") else tools[:1])
    return [
        {"name": one["name"], "arguments": json.dumps(filled(one.get("parameters") or {}, prompt))}
        for one in chosen
    ]


def spoken(body: dict[str, Any], prompt: str) -> str:
    shape = body.get("response_format") or (body.get("text") or {}).get("format") or {}
    if shape.get("type") == "json_schema":
        return json.dumps(filled((shape.get("json_schema") or shape)["schema"], prompt))
    if shape.get("type") == "json_object":
        return json.dumps(dict.fromkeys(re.findall(r"'(\w+)'", prompt), "a text") or {"answer": 1})
    if "PONG" in prompt:
        return "PONG"
    return TEXT * 20 if (body.get("max_tokens") or 0) > 100 else TEXT


def filled(schema: dict[str, Any], prompt: str) -> Any:
    """A value that fits a JSON schema; numbers and quoted texts come from the prompt."""
    if "enum" in schema or "const" in schema:
        return schema.get("const", (schema.get("enum") or [None])[0])
    if "anyOf" in schema:
        return filled(schema["anyOf"][0], prompt)
    kind = schema.get("type")
    if kind == "object" or "properties" in schema:
        return {name: filled(one, prompt) for name, one in schema.get("properties", {}).items()}
    if kind == "array":
        return [filled(schema.get("items") or {}, prompt)]
    if kind in ("integer", "number"):
        return int((re.findall(r"\d+", prompt) or ["3"])[0])
    if kind == "boolean":
        return True
    return (re.findall(r"'([^']+)'", prompt) or ["a text"])[0]


def called(whole: dict[str, Any], calls: list[dict[str, str]]) -> dict[str, Any]:
    tools = [{"id": f"call_{i}", "type": "function", "function": one} for i, one in enumerate(calls)]
    message = {"role": "assistant", "content": None, "tool_calls": tools}
    return {**whole, "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}


def call_deltas(index: int, call: dict[str, str]) -> list[dict[str, Any]]:
    """A tool call in three parts: the name only in the first, arguments in pieces, keyed by index."""
    half = len(call["arguments"]) // 2
    named = {"name": call["name"], "arguments": ""}
    first = {"index": index, "id": f"call_{index}", "type": "function", "function": named}
    rest = (call["arguments"][:half], call["arguments"][half:])
    return [first, *({"index": index, "function": {"arguments": part}} for part in rest)]


def chunk(said: WireAnswer, delta: dict[str, Any]) -> bytes:
    choice = {"index": 0, "delta": {"tool_calls": [delta]}, "finish_reason": None}
    head = {"id": said.id, "object": "chat.completion.chunk", "created": said.created, "model": said.model}
    return framed(None, {**head, "choices": [choice]})

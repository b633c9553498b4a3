"""A model that nobody trained: it calls tools, fills JSON schemas and talks, behind the fake provider.

It behaves as clients expect a capable model to behave, by rule: if tools are offered and no tool has answered
yet, it calls one (the one that `tool_choice` names) with arguments made from the prompt; if a JSON schema is
asked for, it fills it; else it talks. Numbers and quoted texts of the prompt become arguments.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tests.support.provider import Provider
from tests.support.provider_models import Asked, Model
from tests.support.provider_replies import Said

TEXT = "This is an answer of several words, one after the other, until it stops."


def capable() -> Provider:
    """The running provider of the models "small" and "large"; `url` ends in /v1."""
    model = Model(says=said, each=0.002)
    return Provider({"small": model, "large": model})


def said(asked: Asked) -> Said:
    calls = tool_calls(asked.body, asked.prompt) if asked.wire == "chat/completions" else ()
    text = "" if calls else spoken(asked.body, asked.prompt)
    return Said(tuple(re.findall(r"\S+\s*", text)), calls=calls)


def tool_calls(body: dict[str, Any], prompt: str) -> tuple[tuple[str, str], ...]:
    """Name and arguments of the tools that are called: one, or all where parallel calls are asked for."""
    tools = [one["function"] for one in body.get("tools") or [] if one.get("type") == "function"]
    choice = body.get("tool_choice", "auto")
    if not tools or choice == "none" or body["messages"][-1]["role"] == "tool":
        return ()
    wanted = choice["function"]["name"] if isinstance(choice, dict) else None
    named = [one for one in tools if one["name"] == wanted]
    chosen = named or (tools if body.get("parallel_tool_calls") else tools[:1])
    return tuple((one["name"], json.dumps(filled(one.get("parameters") or {}, prompt))) for one in chosen)


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

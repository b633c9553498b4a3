"""The JSON object in the body of a request."""

from __future__ import annotations

from typing import Any

import orjson

from pandora_router.errors import UsageError
from pandora_router.gateway.providers.cost_bound import refuse_other_models, refuse_other_spellings
from pandora_router.transport.asgi import Refused
from pandora_router.wires.json_text import unambiguous


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object in a body; raises `Refused` with status 400 if there is none."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refused(400, f"The body is not JSON: {error}", "invalid_json") from None
    if not isinstance(parsed, dict):
        raise Refused(400, "The body is not a JSON object.", "invalid_json")
    return parsed


def read_request(body: bytes) -> tuple[bytes, dict[str, Any]]:
    """A request, `unambiguous`, and the JSON object in it.

    Raises `Refused` (400) if there is none, if the name of a member is ambiguous, or if a member names other
    models.
    """
    parsed = read_object(body)
    refuse_other_spellings(parsed)
    refuse_other_models(parsed)
    try:
        return unambiguous(body, parsed), parsed
    except UsageError as error:
        raise Refused(400, str(error), "invalid_request") from None

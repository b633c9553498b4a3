"""Logs as JSON lines: events of the server, and one line per request.

Bodies are written only if configured, truncated to `LONGEST` characters and without secrets and mail
addresses. Otherwise the line of a request has no text of the client except the name of the model.
"""

from __future__ import annotations

import logging
import re
import time
from typing import Any, TextIO

import orjson

from pandora_router.gateway.request.exchange import Exchange
from pandora_router.store.money import dollars

LONGEST = 10_000
_HIDDEN = re.compile(
    r"(?i)(?:bearer\s+\S+)|\b(?:sk|pk|rk|ghp|gho|xox[a-z]|AKIA|AIza)[-_A-Za-z0-9]{12,}"
    r"|[\w.+-]{1,64}@[\w-]+\.[\w.-]+|\b\d(?:[ -]?\d){11,18}\b"
)


def redacted(text: str) -> str:
    """The text without keys, bearer tokens, mail addresses and long numbers such as those of cards.

    >>> redacted("mail bob@example.org with sk-abcdefghijklmnop")
    'mail [redacted] with [redacted]'
    """
    return _HIDDEN.sub("[redacted]", text)


class JsonLines(logging.Formatter):
    """Formats log records as JSON objects."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        entry = {"at": record.created, "level": record.levelname.lower(), "message": record.getMessage()}
        if isinstance(record.args, dict) and record.name.endswith(".requests"):
            entry = {"at": record.created, "level": "info", "event": "request", **record.args}
        return orjson.dumps(entry, default=str).decode()


def as_json(stream: TextIO) -> None:
    """Write the logs of the gateway to `stream` as JSON lines, requests included."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    for name in ("pandora_router.gateway", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
    logging.getLogger("pandora_router.gateway").setLevel(logging.INFO)


def of_request(exchange: Exchange, status: str, code: int | None, *, bodies: bool) -> dict[str, Any]:
    """The line of one request; `code` is the HTTP status that was sent, None if none was."""
    last = exchange.answered
    line: dict[str, Any] = {
        "decision": exchange.id,
        "wire": exchange.wire.name,
        "status": status,
        "code": code,
        "model": None if exchange.turn is None else exchange.turn.model[:200],
        "stream": exchange.turn is not None and exchange.turn.stream,
        "specialist": None if last is None else last.backend.name,
        "policy": None if exchange.choice is None else exchange.choice.policy,
        "key": None if exchange.key is None else exchange.key.name,
        "attempts": len(exchange.attempts),
        "cost": dollars(sum(attempt.cost for attempt in exchange.attempts)),
        "overhead_ms": round(1000.0 * exchange.overhead, 2),
        "seconds": round(time.time() - exchange.begun, 4),
        "generation": exchange.site.generation,
    }
    if bodies:
        line["request"] = redacted(exchange.body[:LONGEST].decode("utf-8", "replace"))
    return line

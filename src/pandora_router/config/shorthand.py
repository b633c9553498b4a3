"""Entries of pandora.yaml that stand for longer ones: `efforts`, and `prices: catalogue`.

    large: {kind: chat, endpoint: there, model: m, efforts: [low, high], prices: catalogue}

stands for the specialists large-low and large-high, each with `with: {reasoning_effort: ...}`, and for the
prices of m in the catalogue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pandora_router.config.document import Document
from pandora_router.errors import UsageError
from pandora_router.prices import catalogue
from pandora_router.wires.own_members import EFFORT

CATALOGUE = "catalogue"


def expanded(document: Document) -> Document:
    """The document with all entries written out; raises `UsageError` for one that cannot be."""
    laddered = with_efforts(document)
    entries = _entries(laddered)
    if not any(_from_catalogue(entry) for entry in entries.values()):
        return laddered
    endpoints = laddered.content.get("endpoints")
    priced = {name: _priced(entry, endpoints) for name, entry in entries.items()}
    return replace(laddered, content={**laddered.content, "specialists": priced})


def with_efforts(document: Document) -> Document:
    """The document with one specialist for each effort of an entry with `efforts`."""
    before = _entries(document)
    if not any(isinstance(entry, dict) and "efforts" in entry for entry in before.values()):
        return document
    after: dict[str, Any] = {}
    lines = dict(document.lines)
    for name, entry in before.items():
        made = _ladder(name, entry, document)
        for step in set(made) & (set(after) | (set(before) - {name})):
            raise _mistake(document, name, f"no specialist {step} beside this ladder", repr(step))
        after |= made
        for step in made:
            old, new = ("specialists", name), ("specialists", step)
            lines |= {(*new, *at[2:]): line for at, line in document.lines.items() if at[:2] == old}
    return Document(document.name, {**document.content, "specialists": after}, lines)


def _entries(document: Document) -> dict[str, Any]:
    content = document.content if isinstance(document.content, dict) else {}
    entries = content.get("specialists")
    return entries if isinstance(entries, dict) else {}


def _ladder(name: str, entry: Any, document: Document) -> dict[str, Any]:
    """The specialists that an entry stands for, by name."""
    if not isinstance(entry, dict) or "efforts" not in entry:
        return {name: entry}
    efforts, members = entry["efforts"], entry.get("with", {})
    words = isinstance(efforts, list) and all(isinstance(effort, str) and effort for effort in efforts)
    if not words or not efforts or len(set(efforts)) < len(efforts):
        raise _mistake(
            document, name, "efforts as a list of different words: [low, high]", repr(efforts)[:80]
        )
    if entry.get("kind") != "chat":
        raise _mistake(document, name, "efforts of a specialist of kind: chat", f"kind: {entry.get('kind')}")
    if not isinstance(members, dict) or EFFORT in members:
        raise _mistake(document, name, f"efforts, or {EFFORT} under `with`", "both")
    plain = {key: value for key, value in entry.items() if key not in ("efforts", "with")}
    return {f"{name}-{effort}": {**plain, "with": {**members, EFFORT: effort}} for effort in efforts}


def _mistake(document: Document, name: str, expected: str, came: str) -> UsageError:
    line = document.line(("specialists", name, "efforts"))
    return UsageError(f"{document.name}, line {line}", expected=expected, came=came, do="Change the entry.")


def _from_catalogue(entry: Any) -> bool:
    prices = entry.get("prices") if isinstance(entry, dict) else None
    return prices == CATALOGUE or (isinstance(prices, dict) and prices.get("from") == CATALOGUE)


def _priced(entry: Any, endpoints: Any) -> Any:
    """The entry with prices from the catalogue, if it asks for them; what it states itself wins."""
    if not _from_catalogue(entry):
        return entry
    stated: Mapping[str, Any] = {} if entry["prices"] == CATALOGUE else entry["prices"]
    endpoint = endpoints.get(entry.get("endpoint")) if isinstance(endpoints, dict) else None
    address = endpoint.get("base_url") if isinstance(endpoint, dict) else None
    model = str(stated.get("model") or entry.get("model"))
    provider = stated.get("provider")
    found = catalogue.listed(model, str(address), None if provider is None else str(provider))
    own = {key: value for key, value in stated.items() if key not in ("from", "provider", "model")}
    return {**entry, "prices": found | own}

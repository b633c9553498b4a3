"""What `pandora doctor` says about the prices of a specialist: what is missing, what is out of date."""

from __future__ import annotations

import datetime
import importlib.util
from collections.abc import Mapping
from typing import Any

from pandora_router.config.specialists import ChatSettings
from pandora_router.errors import UsageError
from pandora_router.prices import catalogue

OLD = 60
"""Days after which the catalogue is called old."""


def price_notes(stated: ChatSettings, written: object, address: str) -> list[str]:
    """Notes on the prices of one specialist; `written` is the key `prices` as it is in the file."""
    if stated.prices == "free":
        return []
    notes = _gaps(stated, stated.prices.model_dump(by_alias=True, exclude_defaults=True))
    if importlib.util.find_spec("genai_prices") is None:
        return notes
    if written == "catalogue" or (isinstance(written, dict) and "from" in written):
        return [f"Its prices are from {catalogue.edition()}{_age()}.", *notes]
    try:
        listed = catalogue.listed(stated.model, address)
    except UsageError:
        return notes
    now = stated.prices.model_dump(by_alias=True, exclude_defaults=True)
    return notes + _differences(now, listed)


def _gaps(stated: ChatSettings, prices: Mapping[str, Any]) -> list[str]:
    """What clients with a budget will be refused because it has no price."""
    able = stated.supports or ()
    asked = {
        "image_in": "images" in able,
        "audio_in": "audio" in able,
        "cached_in": "messages" in stated.wires,
        "cached_write": "messages" in stated.wires,
    }
    lacks = [name for name, may in asked.items() if may and prices.get("in") and name not in prices]
    if not lacks:
        return []
    lines = ", ".join(f"{name}: ..." for name in lacks)
    return [f"Keys with a budget cannot ask for what has no price: add {lines} to its prices."]


def _differences(now: Mapping[str, Any], listed: Mapping[str, Any]) -> list[str]:
    other = [
        f"{name}: {listed[name]:g} (here {now[name]:g})"
        for name in listed
        if isinstance(now.get(name), float) and isinstance(listed[name], float) and now[name] != listed[name]
    ]
    lacks = [name for name in listed if name not in now and name != "image_in"]
    notes = [f"{catalogue.edition()}{_age()}, has other prices: {', '.join(other)}."] if other else []
    if lacks:
        notes.append(f"The catalogue also prices {', '.join(lacks)}; `prices: catalogue` takes all of them.")
    return notes


def _age() -> str:
    days = (datetime.datetime.now(datetime.UTC).date() - catalogue.as_of()).days
    return f" ({days} days old: pip install --upgrade {catalogue.PACKAGE})" if days > OLD else ""

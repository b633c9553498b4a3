"""Prices from the package genai-prices (extra [prices]): a file of it, read offline, in US dollars.

The package is imported when a price is looked up. Prices are those of `as_of`: the day of the newest change
that it knows and that is not in the future. So they change with its version, and on days that it announces.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from pandora_router.errors import UsageError, missing_package

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo, ModelPrice

PACKAGE = "genai-prices"
TOKENS = {
    "input_mtok": "in",
    "output_mtok": "out",
    "cache_read_mtok": "cached_in",
    "cache_write_mtok": "cached_write",
    "cache_write_1h_mtok": "cached_write_hour",
    "input_audio_mtok": "audio_in",
    "input_image_mtok": "image_in",
    "output_audio_mtok": "audio_out",
    "output_image_mtok": "image_out",
}
"""Its prices per million tokens -> ours."""
TOOLS = {"web_searches_kcount": "web_search", "storage_searches_kcount": "file_search"}
"""Its prices of a thousand calls of a tool -> the tool."""
CALL = "requests_kcount"
PLACES = {"service_tier": "service_tier", "speed": "speed", "processing": "service_tier"}
"""What may change its prices -> where our prices have it."""
UNUSED = ("cache_audio_read_mtok", "cache_image_read_mtok", "input_video_mtok", "output_video_mtok")
"""Its prices of what is charged as other input here, or cannot be asked for."""


def listed(model: str, address: str, provider: str | None = None) -> dict[str, Any]:
    """The prices of `model` at the endpoint `address`, in the form of the key `prices` of pandora.yaml.

    `provider` is the catalogue's name of the provider, for an address that it does not know. Raises
    `UsageError` if the package is not installed, does not know the model, or prices it by what is not
    counted here.
    """
    snapshot = _snapshot()
    try:
        _, found = snapshot.find_provider_model(model, None, provider, None if provider else address)
    except LookupError:
        raise UsageError(
            f"prices: catalogue, for the model {model}",
            expected=f"a model of {provider or address} in {PACKAGE} {version(PACKAGE)}",
            came="none",
            do="State the prices, or name it as there: prices: {from: catalogue, provider: ..., model: ...}",
        ) from None
    return {**_parts(found, {}), **_tiers(found)}


def edition() -> str:
    """The version of the catalogue and the day of its prices."""
    return f"{PACKAGE} {version(PACKAGE)}, prices of {as_of().isoformat()}"


@functools.cache
def as_of() -> datetime.date:
    """The day of the newest change of a price in the catalogue that is not to come."""
    today = datetime.datetime.now(datetime.UTC).date()
    return max(day for day in _days(_snapshot()) if day <= today)


def _snapshot() -> DataSnapshot:
    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError:
        raise missing_package("prices: catalogue", PACKAGE, "prices") from None
    return get_snapshot()


def _days(snapshot: DataSnapshot) -> Iterator[datetime.date]:
    from genai_prices.types import ConditionalPrice, StartDateConstraint

    yield datetime.date.min
    for model in (model for provider in snapshot.providers for model in provider.models):
        plain = model.prices if isinstance(model.prices, list) else []
        conditional: list[ConditionalPrice | Any] = [*plain, *(model.price_variants or ())]
        for price in conditional:
            if isinstance(price.constraint, StartDateConstraint):
                yield price.constraint.start_date


def _tiers(model: ModelInfo) -> dict[str, Any]:
    """The prices of each service tier and speed that differ from the usual ones."""
    tiers: dict[str, dict[str, Any]] = {}
    for when in [variant.when for variant in model.price_variants or ()]:
        for key, place in PLACES.items():
            if set(when) == {key} and when[key] not in ("default", "standard"):
                served = _parts(model, when)
                own = {name: part for name, part in served.items() if name not in ("tools", "call")}
                tiers.setdefault(place, {})[when[key]] = own
    return tiers


def _parts(model: ModelInfo, when: Mapping[str, str]) -> dict[str, Any]:
    """The prices in the tier `when`, with those of long requests; an image costs what other input costs."""
    from genai_prices.types import TieredPrices, TimeOfDateConstraint

    if any(isinstance(one.constraint, TimeOfDateConstraint) for one in _conditional(model)):
        raise _unusable(model, "prices that change during the day")
    at = datetime.datetime.combine(as_of(), datetime.time(12), datetime.UTC)
    stated = _stated(model.get_prices(at, dict(when)))
    if unknown := sorted(set(stated) - {*TOKENS, *TOOLS, CALL, *UNUSED}):
        raise _unusable(model, f"a price for {', '.join(unknown)}")
    steps = sorted(
        {t.start for price in stated.values() if isinstance(price, TieredPrices) for t in price.tiers}
    )

    def over(threshold: int) -> dict[str, float]:
        prices = {TOKENS[key]: _at(price, threshold) for key, price in stated.items() if key in TOKENS}
        return {"image_in": prices["in"], **prices} if "in" in prices else prices

    parts: dict[str, Any] = over(0)
    if steps:
        parts["above"] = {str(step): over(step + 1) for step in steps}
    if tools := {tool: _at(stated[key], 0) / 1000 for key, tool in TOOLS.items() if key in stated}:
        parts["tools"] = tools
    return parts | ({"call": _at(stated[CALL], 0) / 1000} if CALL in stated else {})


def _conditional(model: ModelInfo) -> list[Any]:
    plain: list[Any] = model.prices if isinstance(model.prices, list) else []
    return plain


def _stated(prices: ModelPrice) -> dict[str, Any]:
    return {key: price for key, price in vars(prices).items() if price is not None and key[0] != "_"}


def _at(price: Any, tokens: int) -> float:
    """A price for an input of so many tokens."""
    from genai_prices.types import TieredPrices

    if not isinstance(price, TieredPrices):
        return float(price)
    reached = [tier.price for tier in price.tiers if tokens > tier.start]
    return float(reached[-1] if reached else price.base)


def _unusable(model: ModelInfo, came: str) -> UsageError:
    return UsageError(
        f"prices: catalogue, for the model {model.id}",
        expected="prices of tokens, of calls and of searches",
        came=came,
        do="State its prices in pandora.yaml.",
    )

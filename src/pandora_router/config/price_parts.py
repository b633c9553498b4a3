"""The key `prices` of a specialist: prices in money, of each part of a call that is billed."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from pandora_router.config.shared import Amount, Closed, Text, shape
from pandora_router.prices import CACHED, FREE, Tariff


class TokenPrices(Closed):
    """Prices per million tokens: `in` and `out`, and of parts of them that cost something else.

    cached_in: input read from the provider's cache. cached_write, cached_write_hour: input written to it for
    five minutes, for an hour. audio_in, image_in, audio_out, image_out: tokens of sounds and images. A part
    that is not stated costs `in` or `out`; a request that asks for it is refused where money is limited.
    """

    tokens_in: Amount | None = Field(default=None, alias="in")
    tokens_out: Amount | None = Field(default=None, alias="out")
    cached_in: Amount | None = None
    cached_write: Amount | None = None
    cached_write_hour: Amount | None = None
    audio_in: Amount | None = None
    image_in: Amount | None = None
    audio_out: Amount | None = None
    image_out: Amount | None = None

    @property
    def by_token(self) -> bool:
        """Whether tokens are priced; raises `ValueError` if only one side of them is."""
        if (self.tokens_in is None) != (self.tokens_out is None):
            raise ValueError("prices with both in and out")
        return self.tokens_in is not None

    def tokens(self) -> Tariff:
        """The prices of tokens; 0 where none are stated."""
        return Tariff(
            self.tokens_in or 0.0,
            self.tokens_out or 0.0,
            cached_in=self.cached_in,
            cached_write=self.cached_write,
            cached_write_hour=self.cached_write_hour,
            audio_in=self.audio_in,
            image_in=self.image_in,
            audio_out=self.audio_out,
            image_out=self.image_out,
        )


class LongPrices(TokenPrices):
    """Prices of tokens of long requests, both `in` and `out`."""

    @model_validator(mode="after")
    def _both(self) -> LongPrices:
        if not self.by_token:
            raise ValueError("prices with both in and out")
        return self


class TierPrices(LongPrices):
    """Prices of tokens in a tier; `above`: those of requests with more input tokens than each threshold."""

    above: dict[str, LongPrices] = Field(default_factory=dict)

    @field_validator("above")
    @classmethod
    def _thresholds(cls, above: dict[str, LongPrices]) -> dict[str, LongPrices]:
        return _whole(above)

    def tariff(self) -> Tariff:
        """The prices."""
        return _longer(self.tokens(), self.above)


class PriceParts(TokenPrices):
    """Prices in money: per million tokens, per `second`, per `call`, per call of one of the `tools`.

    The provider's cache keeps input for `cached_seconds`. above: prices of requests with more input tokens
    than each threshold. service_tier, speed: prices of answers that were served so, by its name.
    """

    cached_seconds: Amount = CACHED
    second: Amount | None = None
    call: Amount | None = None
    tools: dict[Text, Amount] = Field(default_factory=dict)
    above: dict[str, LongPrices] = Field(default_factory=dict)
    service_tier: dict[Text, TierPrices] = Field(default_factory=dict)
    speed: dict[Text, TierPrices] = Field(default_factory=dict)

    @field_validator("above")
    @classmethod
    def _thresholds(cls, above: dict[str, LongPrices]) -> dict[str, LongPrices]:
        return _whole(above)

    @model_validator(mode="after")
    def _stated(self) -> PriceParts:
        if not self.by_token and self.second is None and self.call is None:
            raise ValueError("prices with both in and out, or with second, or with call")
        return self

    def build(self) -> Tariff:
        """The prices; what is not stated is 0."""
        tiers: dict[str, Any] = {
            name: tuple((tier, prices.tariff()) for tier, prices in stated.items())
            for name, stated in (("service_tier", self.service_tier), ("speed", self.speed))
        }
        beside: dict[str, Any] = {"per_second": self.second or 0.0, "per_call": self.call or 0.0}
        more: dict[str, Any] = {"cached_seconds": self.cached_seconds, "tools": tuple(self.tools.items())}
        return replace(_longer(self.tokens(), self.above), **beside, **more, **tiers)


def _whole(above: dict[str, LongPrices]) -> dict[str, LongPrices]:
    if not all(threshold.isdecimal() for threshold in above):
        raise ValueError("whole numbers of input tokens, such as 200000")
    return above


def _longer(prices: Tariff, above: dict[str, LongPrices]) -> Tariff:
    steps = [(int(threshold), above[threshold].tokens()) for threshold in sorted(above, key=int)]
    return replace(prices, above=tuple(steps))


Priced = Annotated[
    Annotated[PriceParts, Tag("parts")]
    | Annotated[Literal["free"], Tag("plain")]
    | Annotated[Literal["free"], Tag("list")],
    Discriminator(shape),
]
"""Prices have no default; specialists without cost must be marked `free`."""


def prices_of(stated: PriceParts | Literal["free"]) -> Tariff:
    """Build the prices from their settings."""
    return FREE if stated == "free" else stated.build()

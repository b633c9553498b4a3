"""Embeddings from an OpenAI-compatible /embeddings endpoint; no other embedder uses the network."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pandora_router.errors import UpstreamError
from pandora_router.estimators.embedders.embedder import Vectors, checked_texts, normalised
from pandora_router.specialists.threads import wait_for
from pandora_router.transport.client import post
from pandora_router.transport.endpoint import Endpoint
from pandora_router.transport.failures import RateLimit, retried


@dataclass(frozen=True)
class RemoteEmbedder:
    """Embeddings of the model `model` behind `endpoint`, requested for `batch` texts at a time.

    limit: the rate limiter of the endpoint; batches are requested concurrently as far as it allows.
    """

    endpoint: Endpoint
    model: str
    batch: int = 128
    limit: RateLimit = field(default_factory=lambda: RateLimit(at_once=4), repr=False, compare=False)

    @property
    def name(self) -> str:
        """The model and the host that serves it."""
        return f"remote:{self.endpoint.host}:{self.model}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row of length 1 per text. Blocks the calling thread, so it must not run on an event loop.

        Raises `UpstreamError` if the endpoint gives no valid reply after all retries.
        """
        given = checked_texts(texts)
        return wait_for(self.fetch(given)) if given else np.zeros((0, 0), dtype=np.float32)

    async def fetch(self, texts: Sequence[str]) -> Vectors:
        """As `embed`, for use on an event loop."""
        starts = range(0, len(texts), self.batch)
        parts = await asyncio.gather(*(self._rows(texts[start : start + self.batch]) for start in starts))
        rows = [row for part in parts for row in part]
        if len({len(row) for row in rows}) > 1:
            raise UpstreamError(f"{self.name} answered with embeddings of different widths")
        return await asyncio.to_thread(normalised, rows)

    async def _rows(self, texts: Sequence[str]) -> list[list[float]]:
        # Endpoints refuse the empty string; a space stands for it.
        body = {"model": self.model, "input": [text or " " for text in texts]}

        async def once() -> dict[str, Any]:
            async with self.limit.enter():
                return await post(self.endpoint, "embeddings", body)

        return self._ordered((await retried(once, self.endpoint, self.limit)).value, len(texts))

    def _ordered(self, reply: Mapping[str, Any], count: int) -> list[list[float]]:
        """The vectors of a reply in the order of the texts, sorted by the `index` of each item."""
        try:
            vectors = {int(item["index"]): [float(x) for x in item["embedding"]] for item in reply["data"]}
            return [vectors[i] for i in range(count)]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise UpstreamError(
                f"{self.name} did not answer with {count} embeddings ({type(error).__name__})"
            ) from None

"""Vectors from an OpenAI-compatible /embeddings endpoint; `specialists.endpoint` tells how it is asked."""

from __future__ import annotations

import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pandora_router.errors import UpstreamError
from pandora_router.estimators.embedders import Vectors, checked_texts, normalised
from pandora_router.specialists.endpoint import Endpoint

__all__ = ["Endpoint", "RemoteEmbedder"]


@dataclass(frozen=True)
class RemoteEmbedder:
    """Vectors from an OpenAI-compatible /embeddings endpoint. The only embedder that uses the network."""

    endpoint: Endpoint
    model: str
    batch: int = 128

    @property
    def name(self) -> str:
        """The model and the host it was asked from."""
        return f"remote:{urllib.parse.urlsplit(self.endpoint.base_url).netloc}:{self.model}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One unit row per text, asked in batches, put back in order by the `index` of each answer."""
        given = checked_texts(texts)
        rows: list[list[float]] = []
        for start in range(0, len(given), self.batch):
            # Endpoints refuse the empty string; a space stands for it.
            batch = [text or " " for text in given[start : start + self.batch]]
            answer = self.endpoint.post("embeddings", {"model": self.model, "input": batch})
            rows.extend(self._ordered(answer, len(batch)))
        return normalised(rows) if rows else np.zeros((0, 0), dtype=np.float32)

    def _ordered(self, answer: dict[str, Any], count: int) -> list[list[float]]:
        try:
            found = {int(item["index"]): [float(x) for x in item["embedding"]] for item in answer["data"]}
            ordered = [found[i] for i in range(count)]
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise UpstreamError(
                f"{self.name} did not answer with {count} embeddings ({type(error).__name__})"
            ) from error
        if len({len(row) for row in ordered}) != 1:
            raise UpstreamError(f"{self.name} answered with embeddings of different widths")
        return ordered

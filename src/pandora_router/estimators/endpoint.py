"""One way to ask an OpenAI-compatible HTTP endpoint: JSON in, JSON out, with a deadline and retries.

Nothing here runs unless a caller builds an `Endpoint`. The key is read from the environment variable named by
`key_from` at the moment of the call; it is never stored, printed, or sent anywhere but to `base_url`
(redirects are refused, since they would carry it to another host). Answers are read up to a fixed size.
"""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import UpstreamError, UsageError
from .embedders import Vectors, checked_texts, normalised

AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
LARGEST = 256 * 1024 * 1024


class _Refuse(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True)
class Endpoint:
    """Where to ask: `base_url` ends before /embeddings or /chat/completions, usually in /v1.

    `timeout` seconds for each try; `retries` further tries after a timeout, a broken connection or a status
    that may pass (429, 5xx), waiting `pause` seconds doubled each time, or what Retry-After asks up to 30 s.
    """

    base_url: str
    key_from: str | None = "OPENAI_API_KEY"
    timeout: float = 30.0
    retries: int = 2
    pause: float = 0.5

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.base_url)
        if parts.scheme not in {"http", "https"} or not parts.netloc or parts.username or parts.password:
            raise UsageError(
                "base_url of an endpoint",
                expected="http:// or https:// with a host and no password in it",
                came=f"{parts.scheme or 'no scheme'}://{parts.hostname or ''}",
                do="Give for example http://127.0.0.1:8000/v1 and name the key's environment variable.",
            )

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The parsed answer to one POST; raises `UpstreamError` when all tries failed."""
        last = ""
        for attempt in range(self.retries + 1):
            try:
                return self._once(path, body)
            except urllib.error.HTTPError as error:
                last, wait = f"status {error.code}", error.headers.get("Retry-After")
                error.close()
                if error.code not in AGAIN:
                    break
            except (OSError, http.client.HTTPException) as error:
                last, wait = f"{type(error).__name__}: {getattr(error, 'reason', error)}", None
            if attempt < self.retries:
                time.sleep(_seconds(wait, self.pause * 2**attempt))
        raise UpstreamError(f"{self._url(path)} did not answer: {last} (tries: {attempt + 1})")

    def _once(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        key = os.environ.get(self.key_from) if self.key_from else None
        if key:
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(self._url(path), json.dumps(body).encode(), headers, method="POST")
        opener = urllib.request.build_opener(_Refuse)
        with opener.open(request, timeout=self.timeout) as answer:
            raw = answer.read(LARGEST + 1)
        try:
            parsed = json.loads(raw) if len(raw) <= LARGEST else None
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            raise UpstreamError(f"{self._url(path)} did not answer with a JSON object")
        return parsed

    def _url(self, path: str) -> str:
        return f"{self.base_url.rstrip('/')}/{path.lstrip('/')}"


def _seconds(asked: str | None, otherwise: float) -> float:
    try:
        return min(max(float(asked or ""), 0.0), 30.0)
    except ValueError:
        return otherwise


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

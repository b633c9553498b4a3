"""One way to ask an OpenAI-compatible HTTP endpoint: JSON in, JSON out, with a deadline and retries.

Nothing here runs unless a caller builds an `Endpoint`. The key is read from the environment variable named by
`key_from` at the moment of the call; it is never stored, printed, or sent anywhere but to `base_url`
(redirects are refused, since they would carry it to another host). Answers are read up to a fixed size.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..errors import UpstreamError, UsageError
from .answer import Failure
from .endpoint_failures import Failed as Failed
from .streaming import events, whole

AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
DEAD = frozenset({401, 402, 403, 404, 405})
LARGEST = 256 * 1024 * 1024
BUSY = frozenset({429, 503, 529})
LONGEST_WAIT = 120.0


class _Refuse(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True)
class Endpoint:
    """Where to ask: `base_url` ends before /embeddings or /chat/completions, usually in /v1.

    `timeout` seconds for each try; `retries` further tries after a timeout, a broken connection or a status
    that may pass (429, 5xx), waiting `pause` seconds doubled each time, or what Retry-After asks up to 120 s.
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

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The parsed answer to one POST; raises `UpstreamError` when all tries failed."""
        for attempt in range(self.retries + 1):
            try:
                return self.once(path, body)
            except Failed as error:
                last = error
                if not error.again or error.failure in {"broken json", "content type"}:
                    break
            if attempt < self.retries:
                time.sleep(self.pause * 2**attempt if last.wait is None else last.wait)
        raise UpstreamError(f"{last} (tries: {attempt + 1})") from last

    def once(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """The parsed answer to one try; raises `Failed`."""
        with self._opened(path, body, headers or {}) as answer:
            return self._object(path, answer)

    def streamed(
        self, path: str, body: Mapping[str, Any], tokens: int, characters: int
    ) -> tuple[dict[str, Any], float | None]:
        """One try whose answer comes in pieces: the whole, and after how many seconds its context was there.

        An endpoint that answers in one piece all the same is taken at its word.
        """
        begun = time.monotonic()
        with self._opened(path, body, {"Accept": "text/event-stream, application/json"}) as answer:
            if answer.headers.get_content_type() != "text/event-stream":
                return self._object(path, answer), None
            pieces = events(answer, begun + self.timeout)
            reply, seen = whole(pieces, tokens, characters)
            return reply, None if seen is None else seen - begun

    @contextmanager
    def _opened(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str]
    ) -> Iterator[http.client.HTTPResponse]:
        """The response to a request; whatever goes wrong while it is read is `Failed`."""
        url, request = self.url(path), self._request(path, body, headers)
        opener = urllib.request.build_opener(_Refuse)
        try:
            with opener.open(request, timeout=self.timeout) as answer:
                yield answer
        except urllib.error.HTTPError as error:
            raise self._refused(url, error) from None
        except (OSError, http.client.HTTPException) as error:
            raise _unheard(url, error) from None

    def _object(self, path: str, answer: http.client.HTTPResponse) -> dict[str, Any]:
        """The JSON object in a response."""
        url, raw = self.url(path), _read(answer, time.monotonic() + self.timeout)
        kind = answer.headers.get_content_type() if "Content-Type" in answer.headers else None
        if kind is not None and "json" not in kind:
            what = f"{url} did not answer with a JSON object but with {kind}"
            raise Failed(what, "content type", again=True, charged=True)
        try:
            parsed = json.loads(raw)
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            raise Failed(f"{url} did not answer with a JSON object", "broken json", again=True, charged=True)
        return parsed

    def url(self, path: str) -> str:
        """The whole address of a path."""
        return f"{self.base_url.rstrip('/')}/{path.lstrip('/')}"

    def _request(self, path: str, body: Mapping[str, Any], more: Mapping[str, str]) -> urllib.request.Request:
        headers = {"Content-Type": "application/json", "Accept": "application/json", **more}
        key = os.environ.get(self.key_from) if self.key_from else None
        if key:
            headers["Authorization"] = f"Bearer {key}"
        return urllib.request.Request(self.url(path), json.dumps(body).encode(), headers, method="POST")

    def _refused(self, url: str, error: urllib.error.HTTPError) -> Failed:
        """A status other than 2xx. Of its body only a short code is repeated: the rest may hold anything."""
        with error:
            code, again = error.code, error.code in AGAIN
            try:
                said = json.loads(error.read(100_000))["error"]["code"]
            except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
                said = None
        key = os.environ.get(self.key_from) if self.key_from else None
        shown = isinstance(said, str) and re.fullmatch(r"[a-z_]{1,60}", said) and said != key
        what = f"{url} did not answer: status {code}" + (f" ({said})" if shown else "")
        wait = waited(error.headers.get("Retry-After")) if again else None
        return Failed(what, "status", again=again, busy=code in BUSY, dead=code in DEAD, wait=wait)


def waited(asked: str | None, now: float | None = None) -> float | None:
    """The seconds a Retry-After header asks for (a number or a date), at most `LONGEST_WAIT`, or None."""
    if asked is None:
        return None
    try:
        seconds = float(asked)
    except ValueError:
        try:
            moment = email.utils.parsedate_to_datetime(asked).timestamp()
        except (TypeError, ValueError):
            return None
        seconds = moment - (time.time() if now is None else now)
    return min(max(seconds, 0.0), LONGEST_WAIT) if seconds == seconds else None


def _read(answer: http.client.HTTPResponse, deadline: float) -> bytes:
    """The whole body before the deadline, however slowly it drips; a short one is an `IncompleteRead`."""
    parts, size = [], 0
    while part := answer.read1(1 << 20):
        parts.append(part)
        size += len(part)
        if size > LARGEST:
            raise http.client.HTTPException("the body is too large")
        if time.monotonic() > deadline:
            raise TimeoutError("timed out in the middle of the body")
    if answer.length:
        raise http.client.IncompleteRead(b"", answer.length)
    return b"".join(parts)


def _unheard(url: str, error: OSError | http.client.HTTPException) -> Failed:
    reason = getattr(error, "reason", error)
    late = isinstance(error, TimeoutError) or isinstance(reason, TimeoutError)
    unsent = isinstance(reason, ConnectionRefusedError)
    what = f"{url} did not answer: {type(error).__name__}: {reason}"
    cut = isinstance(error, http.client.IncompleteRead)
    failure: Failure = "timeout" if late else "cut" if cut else "connection"
    return Failed(what, failure, again=True, charged=not unsent)

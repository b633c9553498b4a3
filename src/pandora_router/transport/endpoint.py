"""Where a model is served: the address, where its key is read from, how long a call may take, size limits."""

from __future__ import annotations

import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from pandora_router.errors import UsageError
from pandora_router.transport.secrets import read_key


@dataclass(frozen=True)
class ReplyLimits:
    """The most bytes that are read of a reply: its body, the body of an error, one event, a whole stream.

    A reply beyond a limit is a failure ("not as agreed"); nothing beyond the limit is kept in memory. Header
    lines are limited by the client to 8 KiB each and 128 in number.
    """

    body: int = 64 * 2**20
    error: int = 64 * 2**10
    event: int = 2**20
    stream: int = 64 * 2**20


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible HTTP endpoint.

    base_url: the address before /chat/completions or /embeddings, usually ending in /v1.
    key_from: the environment variable that holds the key, None if no key is needed.
    timeout: seconds for one call, from its beginning to the last byte of the reply.
    retries: how many further calls are made after a failure that may pass.
    pause: seconds before the first of these, doubled each time, unless the server says how long to wait.
    key_file: a file that holds the key, read if `key_from` is not given or not set.
    use_proxy: whether calls go through the proxy that the environment names (http_proxy, https_proxy). The
        proxy of an http:// address sees the key, so this is off unless it is asked for.
    """

    base_url: str
    key_from: str | None = None
    timeout: float = 30.0
    retries: int = 2
    pause: float = 0.5
    key_file: Path | None = None
    use_proxy: bool = False
    limits: ReplyLimits = field(default_factory=ReplyLimits)

    def __post_init__(self) -> None:
        try:
            parts = urllib.parse.urlsplit(self.base_url)
            usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
            secret = parts.username is not None or parts.password is not None
        except ValueError:
            usable, secret = False, False
        shown = self.base_url.isprintable() and " " not in self.base_url
        if not usable or secret or not shown or parts.query or parts.fragment:
            raise UsageError(
                "base_url of an endpoint",
                expected="http:// or https:// with a host, and no password, query or white space in it",
                came="another address (not shown, since it may hold a password)",
                do="Give for example http://127.0.0.1:8000/v1 and name the key's environment variable.",
            )
        if not (0.0 < self.timeout < 86400.0 and 0 <= self.retries <= 100 and 0.0 <= self.pause < 3600.0):
            raise UsageError(
                "the limits of an endpoint",
                expected="timeout above 0 and below a day, retries from 0 to 100, pause from 0 to an hour",
                came=f"timeout {self.timeout}, retries {self.retries}, pause {self.pause}",
                do="Leave them out for the defaults.",
            )

    @property
    def host(self) -> str:
        """Host and port, as the address says them."""
        return urllib.parse.urlsplit(self.base_url).netloc

    def url(self, path: str) -> str:
        """The whole address of `path` below the base."""
        return f"{self.base_url.rstrip('/')}/{path.lstrip('/')}"

    def key(self) -> str | None:
        """The key now, None if there is none; raises `UsageError` if it cannot stand in a header."""
        return read_key(self.key_from, self.key_file)

    def proxy(self) -> str | None:
        """The proxy to use, None for a direct connection."""
        if not self.use_proxy or urllib.request.proxy_bypass(
            urllib.parse.urlsplit(self.base_url).hostname or ""
        ):
            return None
        return urllib.request.getproxies().get(urllib.parse.urlsplit(self.base_url).scheme)

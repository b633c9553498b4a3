"""An endpoint that serves models: its address, where its key is read from, timeouts and size limits."""

from __future__ import annotations

import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from pandora_router.errors import UsageError
from pandora_router.transport.secrets import read_key


@dataclass(frozen=True)
class ReplyLimits:
    """Most bytes that are read of a reply: of its body, of an error's body, of one event, of a whole stream.

    A larger reply is a failure ("invalid reply"), and what exceeds the limit is not kept in memory. The
    status line and the headers may have 64 KiB together.
    """

    body: int = 64 * 2**20
    error: int = 64 * 2**10
    event: int = 2**20
    stream: int = 64 * 2**20


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible HTTP endpoint.

    base_url: the address before /chat/completions or /embeddings, usually ending in /v1.
    key_from: environment variable with the key, None if no key is needed.
    timeout: seconds for one call, from its start to the last byte of the reply.
    retries: number of further calls after a transient failure.
    pause: seconds before the first retry, doubled each time, unless the server says how long to wait.
    key_file: file with the key, read if `key_from` is None or not set.
    use_proxy: whether to use the proxy in the environment (http_proxy, https_proxy, no_proxy). The proxy of
        an http:// address sees the key, so the default is false.
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
        """Host and port of the address."""
        return urllib.parse.urlsplit(self.base_url).netloc

    def url(self, path: str) -> str:
        """The full URL of `path` below the base URL."""
        return f"{self.base_url.rstrip('/')}/{path.lstrip('/')}"

    def key(self) -> str | None:
        """The current key, or None; raises `UsageError` if it is not valid in a header."""
        return read_key(self.key_from, self.key_file)

    def proxy(self) -> str | None:
        """The proxy to use, None for a direct connection."""
        if not self.use_proxy or urllib.request.proxy_bypass(
            urllib.parse.urlsplit(self.base_url).hostname or ""
        ):
            return None
        return urllib.request.getproxies().get(urllib.parse.urlsplit(self.base_url).scheme)

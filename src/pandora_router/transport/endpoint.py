"""An endpoint: its address, its key and how the key is kept out of all output, timeouts and size limits.

A key is read from an environment variable or a file at the time of a call and is only in the header of that
call. A server knows the key and may send it back: in a status line, an error or an answer, encoded or plain.
`Redaction` removes it from every text that comes from a server.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import re
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pandora_router.errors import UsageError

REMOVED = "[key removed]"
SHORTEST = 8
"""Shorter keys are placeholders such as "EMPTY" for a local server; they are not secret and not removed."""
LONGEST = 8192
_PLAIN = re.compile(r"[\x21-\x7e]+")


def read_key(variable: str | None, file: Path | None) -> str | None:
    """The key in the environment variable `variable`, else in `file`, else None.

    One line break at the end of the file is removed, since editors add it. A key with other white space,
    control characters or non-ASCII characters is refused, because it would break the header. Raises
    `UsageError`, which names the source and never shows the key.
    """
    if variable is not None and os.environ.get(variable):
        return checked_key(os.environ[variable], f"the key in ${variable}")
    if file is None:
        return None
    place = f"the key in {file}"
    try:
        with Path(file).open("rb") as source:
            raw = source.read(LONGEST + 1)
    except OSError as error:
        raise UsageError(
            place, expected="a file", came=type(error).__name__, do="Check path and permissions."
        ) from None
    return checked_key(raw.decode("latin-1").removesuffix("\n").removesuffix("\r"), place)


def checked_key(key: str, place: str) -> str:
    """The key, if it is valid in a header.

    Otherwise raises `UsageError`, which names `place`, not the key.
    """
    if not _PLAIN.fullmatch(key) or len(key) > LONGEST:
        raise UsageError(
            place,
            expected=f"1 to {LONGEST} printable ASCII characters without spaces or line ends",
            came=f"{len(key)} characters, some of them others (not shown, since it is a key)",
            do="Remove white space and line ends, for example with: printf %s \"$KEY\" | tr -d '[:space:]'",
        )
    return key


@dataclass(frozen=True)
class Redaction:
    """Removes one key from texts, in all forms in which a server may repeat it.

    These are: plain; URL-quoted; base64 and URL-safe base64 at each of the three alignments (so also inside
    an encoded "Bearer ..."); hexadecimal; with JSON or HTML escapes. Case is ignored.
    """

    key: str | None = field(repr=False)

    def text(self, text: str) -> str:
        """`text` with every form of the key replaced by `REMOVED`."""
        forms = self._forms()
        if not forms:
            return text
        folded = text.casefold()  # a search for plain texts is far faster than for a pattern
        if not any(form in folded for form in forms):
            return text
        pattern = "|".join(re.escape(form) for form in forms)
        return re.sub(pattern, REMOVED, text, flags=re.IGNORECASE)

    def tree(self, value: Any) -> Any:
        """A parsed JSON value with the key removed from all its strings and member names."""
        return self._cleaned(value) if self._forms() else value

    def _cleaned(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(name): self._cleaned(part) for name, part in value.items()}
        if isinstance(value, list):
            return value if _numbers(value) else [self._cleaned(part) for part in value]
        return value

    def _forms(self) -> list[str]:
        """All forms in lower case, longest first; empty if there is no key to hide."""
        if self.key is None or len(self.key) < SHORTEST:
            return []
        return _folded(self.key)


@functools.lru_cache(maxsize=64)
def _folded(key: str) -> list[str]:
    return sorted({form.casefold() for form in forms_of(key)}, key=len, reverse=True)


def _numbers(values: list[Any]) -> bool:
    """Whether a list has only numbers, like an embedding, and needs no search."""
    return set(map(type, values)) <= {int, float}


def forms_of(key: str) -> set[str]:
    """The texts in which `key` may appear."""
    raw = key.encode()
    forms = {key, urllib.parse.quote(key), urllib.parse.quote(key, safe=""), urllib.parse.quote_plus(key)}
    forms |= {"".join(f"%{byte:02x}" for byte in raw), raw.hex(), json.dumps(key)[1:-1]}
    forms |= {"".join(f"\\u{byte:04x}" for byte in raw), key.replace("&", "&amp;").replace("/", "\\/")}
    for shift in range(3):
        # Characters that also depend on the bytes around the key are cut off at both ends.
        coded = base64.b64encode(b"\0" * shift + raw).decode().rstrip("=")
        end = len(coded) - ((shift + len(raw)) % 3 != 0)
        middle = coded[(0, 2, 3)[shift] : end]
        forms |= {middle, middle.translate(str.maketrans("+/", "-_"))}
    return {form for form in forms if len(form) >= SHORTEST}


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

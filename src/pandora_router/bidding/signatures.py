r"""Signatures: requests and replies carry an HMAC of their bytes with a key that both parties share.

    x-pandora-time        seconds since 1970, as decimal text
    x-pandora-nonce       a random text, never used twice
    x-pandora-signature   hex of HMAC-SHA256(key, path \n time \n nonce \n body)

A reply has only `x-pandora-signature`: HMAC-SHA256(key, nonce of the request \n body), so that it is valid
for that request alone. A receiver refuses a time more than `WINDOW` seconds away, a time before it started
(when it did not record nonces) and a nonce that it has seen.

The platform stores no keys of bidders: each is derived from its one secret, the bidder's name and a version.
"""

from __future__ import annotations

import hmac
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pandora_router.errors import PandoraError

TIME, NONCE, SIGNATURE = "x-pandora-time", "x-pandora-nonce", "x-pandora-signature"
WINDOW = 30.0
"""Most seconds of clock difference and transmission time together."""
MOST_NONCES = 1_000_000
_TIME = re.compile(r"\d{1,12}(\.\d{1,9})?")


class Forged(PandoraError):
    """A message with a wrong signature, or a repeated one."""


def bidder_key(secret: bytes, name: str, version: int = 1) -> bytes:
    """The key that the platform shares with the bidder `name`; another version makes another key."""
    return hmac.digest(secret, f"bidder\n{version}\n{name}".encode(), "sha256").hex().encode()


def signature(key: bytes, *parts: bytes) -> str:
    """HMAC-SHA256 over the parts, joined by line feeds; no part but the last may contain one."""
    return hmac.digest(key, b"\n".join(parts), "sha256").hex()


def signed(key: bytes, path: str, body: bytes, now: float) -> dict[str, str]:
    """The headers of a request."""
    at, nonce = f"{now:.3f}", secrets.token_hex(12)
    return {
        TIME: at,
        NONCE: nonce,
        SIGNATURE: signature(key, path.encode(), at.encode(), nonce.encode(), body),
    }


def check_reply(key: bytes, nonce: str, body: bytes, stated: str | None) -> None:
    """Raise `Forged` unless `stated` is the signature of a reply to the request with this nonce."""
    expected = signature(key, nonce.encode(), body).encode()
    if not hmac.compare_digest(expected, (stated or "").encode(errors="replace")):
        raise Forged("the reply is not signed by the bidder")


@dataclass
class RequestVerifier:
    """Accepts requests that are signed with `key`, each once."""

    key: bytes
    clock: Callable[[], float] = time.time
    _seen: OrderedDict[str, float] = field(default_factory=OrderedDict)
    _opened: float = 0.0

    def __post_init__(self) -> None:
        self._opened = self.clock()

    def check(self, path: str, headers: Mapping[str, str], body: bytes) -> str:
        """The nonce of a request; raises `Forged` if it is not signed, too old, or was seen before."""
        at, nonce, stated = (headers.get(name, "") for name in (TIME, NONCE, SIGNATURE))
        expected = signature(self.key, path.encode(), at.encode(), nonce.encode(), body)
        if not hmac.compare_digest(expected.encode(), stated.encode()):
            raise Forged("the signature does not fit")
        now = self.clock()
        sent = float(at) if _TIME.fullmatch(at) else 0.0
        if abs(now - sent) > WINDOW or sent < self._opened - 1.0:
            raise Forged("the message is too old, or its clock is wrong")
        while self._seen and (next(iter(self._seen.values())) < now - 2 * WINDOW):
            self._seen.popitem(last=False)
        if nonce in self._seen or len(self._seen) >= MOST_NONCES:
            raise Forged("the message was sent before")
        self._seen[nonce] = now
        return nonce

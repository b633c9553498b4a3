"""Access to the dashboard: holders of an admin key, with a signed cookie.

The cookie has the key's id and an expiry, signed by HMAC-SHA256 with a secret that all processes of the store
share. It is HttpOnly and SameSite=Strict; revoking a key ends its sessions. A gateway without keys listens
only on the loopback interface and needs no login; then a request must use a loopback host name, which
prevents DNS rebinding (another site's name that points to 127.0.0.1).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from pandora_router.dashboard.page_request import ROOT
from pandora_router.store import accounts
from pandora_router.store.database import Transaction
from pandora_router.store.rows import Key, Refusal

COOKIE = "pandora-dashboard"
LASTS = 12 * 3600
"""Seconds until a login expires."""


def sign(secret: str, key: str, expires: int) -> str:
    """The value of the cookie for a key."""
    claim = f"{key}.{expires}"
    return f"{claim}.{hmac.new(bytes.fromhex(secret), claim.encode(), hashlib.sha256).hexdigest()}"


def key_in(secret: str, cookie: str, now: float) -> str | None:
    """The id of the key that a cookie was signed for; None if it was not, or has expired."""
    key, _, rest = cookie.partition(".")
    expires = rest.partition(".")[0]
    if not (expires.isascii() and expires.isdigit() and len(expires) < 15):
        return None
    real = hmac.compare_digest(sign(secret, key, int(expires)).encode(), cookie.encode("utf-8", "replace"))
    return key if real and now < int(expires) else None


def session(open_: Transaction, secret: str, cookie: str, now: float) -> Key | None:
    """The admin key that is logged in, or None; a revoked key does not count."""
    id_ = key_in(secret, cookie, now)
    key = accounts.key_of(open_, id_) if id_ else None
    return key if key is not None and key.admin and key.revoked_at is None else None


def enter(open_: Transaction, secret: str, shown: str, now: float) -> str | None:
    """The cookie for the secret of an admin key; None if `shown` is not one."""
    identified = accounts.identify(open_, shown)
    if isinstance(identified, Refusal) or not identified.admin:
        return None
    return sign(secret, identified.id, int(now) + LASTS)


def cookies(headers: Mapping[str, str]) -> dict[str, str]:
    """The cookies of a request; none if they cannot be read."""
    try:
        jar: SimpleCookie = SimpleCookie(headers.get("cookie", "")[:8000])
    except CookieError:
        return {}
    return {name: morsel.value for name, morsel in jar.items()}


def set_cookie(value: str, *, secure: bool, seconds: int = LASTS) -> str:
    """The header that sets the cookie, or removes it with 0 seconds."""
    parts = [f"{COOKIE}={value}", f"Path={ROOT}", f"Max-Age={seconds}", "HttpOnly", "SameSite=Strict"]
    return "; ".join([*parts, *(["Secure"] if secure else [])])


def same_origin(headers: Mapping[str, str]) -> bool:
    """Whether a form was sent by a page of this server, as browsers say."""
    if headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return False
    try:
        return urlsplit(headers.get("origin", "")).netloc == headers.get("host", "-")
    except ValueError:
        return False

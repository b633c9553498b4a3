"""A parsed request: page, time window and filters, links that keep them, and who may ask.

Number and length of parameters are limited; unknown parameters and invalid values are ignored, so that old
links still open a page.

Holders of an admin key may ask, with a signed cookie. The cookie has the key's id and an expiry, signed by
HMAC-SHA256 with a secret that all processes of the store share. It is HttpOnly and SameSite=Strict; revoking
a key ends its sessions. A gateway without keys listens only on the loopback interface and needs no login;
then a request must use a loopback host name, which prevents DNS rebinding (another site's name that points to
127.0.0.1).
"""

from __future__ import annotations

import hashlib
import hmac
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from pandora_router.store import accounts
from pandora_router.store.database import Transaction
from pandora_router.store.money import UNIT
from pandora_router.store.queries import Filter, Window
from pandora_router.store.rows import Key, Refusal

ROOT = "/dashboard"
RANGES = {"1h": 3600, "6h": 21_600, "24h": 86_400, "7d": 604_800, "30d": 2_592_000, "90d": 7_776_000}
USUAL = "24h"
METRIC = "reward"
"""The metric of feedback that the API takes for the score."""
LONGEST = 300
"""Most characters of a value in a URL."""
MEMBERS = (
    "range", "since", "until", "specialist", "policy", "key", "status", "declined", "inspected", "changed",
    "least", "most", "text", "before", "csv", "metric",
)  # fmt: skip
SWITCHES = {"yes": True, "no": False}


@dataclass(frozen=True)
class PageRequest:
    """A request: its path below the root, its parameters, and its time (Unix seconds)."""

    path: str
    query: Mapping[str, str]
    now: float
    theme: str = ""

    @classmethod
    def read(cls, scope: Mapping[str, Any], theme: str = "") -> PageRequest:
        """Read an ASGI request."""
        query = scope["query_string"][:20_000].decode("ascii", "replace")
        try:
            pairs = parse_qsl(query, max_num_fields=60, errors="replace")
        except ValueError:
            pairs = []
        members = {name: clean(value) for name, value in pairs if name in MEMBERS}
        path = str(scope["path"]).removeprefix(ROOT).strip("/")
        return cls(path, {name: value for name, value in members.items() if value}, time.time(), theme)

    @property
    def window(self) -> Window:
        """The window of time: `since` to `until` if both are given, else the last `range`."""
        since, until = moment(self.query.get("since")), moment(self.query.get("until"))
        if since is not None and until is not None and since < until:
            return Window(since, min(until, since + 400 * 86_400))
        return Window(self.now - RANGES[self.range or USUAL], self.now)

    @property
    def range(self) -> str:
        """The name of the range that is shown, "" for a window with stated ends."""
        if moment(self.query.get("since")) is not None and moment(self.query.get("until")) is not None:
            return ""
        stated = self.query.get("range", USUAL)
        return stated if stated in RANGES else USUAL

    @property
    def metric(self) -> str:
        """The metric of feedback that counts as quality."""
        return self.query.get("metric", METRIC)

    def scored(self, what: str) -> str:
        """A heading, followed by the metric that counts as the score if it is not the usual one."""
        return what if self.metric == METRIC else f"{what} ({self.metric})"

    @property
    def filter(self) -> Filter:
        """Which decisions are listed."""
        query = self.query
        return Filter(
            specialist=query.get("specialist", ""),
            policy=query.get("policy", ""),
            key=query.get("key", ""),
            status=query.get("status", ""),
            declined=SWITCHES.get(query.get("declined", "")),
            inspected=SWITCHES.get(query.get("inspected", "")),
            changed=SWITCHES.get(query.get("changed", "")),
            least=_amount(query.get("least")),
            most=_amount(query.get("most")),
            text=query.get("text", ""),
        )

    @property
    def before(self) -> tuple[float, str] | None:
        """Time and id of the last decision of the page before this one."""
        at, _, id_ = self.query.get("before", "").partition("_")
        seconds = moment(at)
        return None if seconds is None or not id_ else (seconds, id_)

    def link(self, path: str | None = None, **changes: str | None) -> str:
        """The URL of a page with the parameters of this request and changes; None removes one.

        The position within a list and the file format are never kept.
        """
        kept = {name: value for name, value in self.query.items() if name not in ("before", "csv")}
        query = {name: value for name, value in {**kept, **changes}.items() if value}
        where = self.path if path is None else path
        address = f"{ROOT}/{where}".rstrip("/")
        return f"{address}?{urlencode(query)}" if query else address


def clean(value: str) -> str:
    """A value without control characters (PostgreSQL refuses a zero byte) and not too long."""
    return "".join(letter for letter in value if letter.isprintable()).strip()[:LONGEST]


def moment(text: str | None) -> float | None:
    """Unix seconds, or a date and time of ISO 8601 (UTC unless it states a zone); None if it is neither.

    >>> moment("60"), moment("1970-01-01T00:01"), moment("1970-01-01T01:01+01:00"), moment("x"), moment("nan")
    (60.0, 60.0, 60.0, None, None)
    """
    if not text:
        return None
    try:
        at = float(text)
    except ValueError:
        try:
            read = datetime.fromisoformat(text)
            at = (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    return at if math.isfinite(at) and 0 <= at < 1e11 else None


def _amount(text: str | None) -> int | None:
    """Dollars as nanodollars; None if it is no amount."""
    try:
        amount = float(text or "nan")
    except ValueError:
        return None
    return round(amount * UNIT) if math.isfinite(amount) and 0 <= amount < 1e9 else None


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


def cookies_in(headers: Mapping[str, str]) -> dict[str, str]:
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

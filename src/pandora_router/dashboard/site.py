"""The dashboard as one ASGI application: paths, access, security headers, errors.

    GET  /dashboard, /dashboard/{page}, /dashboard/decisions/{id}     pages; `?csv=TABLE` for a table as CSV
    POST /dashboard/learning/back                                     serve the router of before
    POST /dashboard/reconcile                                         a bill to compare; nothing is stored
    POST /dashboard/login, /dashboard/logout
    GET  /dashboard/assets/{name}                                     fixed files

Forms are accepted only from pages of the same origin. Error messages have no text of the request; a bug is
logged with an id.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qs

from pandora_router.bidding.rules import Reputation
from pandora_router.dashboard import learnt
from pandora_router.dashboard.auctions import auction, market
from pandora_router.dashboard.calibration import calibration
from pandora_router.dashboard.decision import decision
from pandora_router.dashboard.decisions import decisions
from pandora_router.dashboard.keys import keys
from pandora_router.dashboard.layout import KINDS, Page, asset, document, render
from pandora_router.dashboard.looks import looks
from pandora_router.dashboard.markup import tag
from pandora_router.dashboard.page_request import (
    COOKIE,
    ROOT,
    PageRequest,
    clean,
    cookies_in,
    enter,
    same_origin,
    session,
    set_cookie,
)
from pandora_router.dashboard.reconcile import LARGEST, read_bill, reconcile
from pandora_router.dashboard.specialists import specialists
from pandora_router.dashboard.today import today
from pandora_router.errors import UpstreamError, UsageError
from pandora_router.router.curve import Curve
from pandora_router.store import accounts, versions
from pandora_router.store.database import Transaction
from pandora_router.store.promises import Promise, watched
from pandora_router.store.rows import Key
from pandora_router.store.worker import Reader, Store
from pandora_router.transport.asgi import (
    Gone,
    Receive,
    Refused,
    Reply,
    Scope,
    Send,
    frames_of,
    on_loopback,
    read_body,
)

View = Callable[[Transaction, PageRequest], Page | None]

logger = logging.getLogger("pandora_router.dashboard")
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,100}")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SAFE = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
HTML = "text/html; charset=utf-8"
TITLES = {
    403: "Not allowed",
    404: "Not found",
    405: "Not possible",
    409: "Not done",
    413: "Too large",
    503: "No answer",
}


@dataclass(frozen=True)
class Serving:
    """What the process serves now: circuit states and the providers' model names, by specialist."""

    circuits: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    keys: bool = False
    """Whether clients need a key; then the dashboard asks for an admin key."""
    reputation: Reputation = field(default_factory=Reputation)
    """How claims of bidders become handicaps."""
    market: bool = False
    """Whether requests are auctioned; otherwise no link leads to the market's page."""
    bodies: bool = False
    """Whether prompts and answers are stored."""
    right_answer: float | None = None
    """What a score of 1 is worth in dollars, None if no router says so."""
    curve: Curve | None = None
    """Quality against cost as the fit of the router measured it."""
    profiles: Mapping[str, float] = field(default_factory=dict)
    """What a score of 1 is worth to each profile, by the name that clients use."""
    looks: Sequence[str] = ()
    """A sentence for each specialist: whether looks at it are made, what they cost, or why none is made."""
    promises: Sequence[Promise] = ()
    """What goals promise of live requests."""
    metric: str = "reward"
    """The feedback that is the score of such a promise."""


class Dashboard:
    """The application. It reads the store at `url` over its own connection.

    `store` is used for logins only.
    """

    def __init__(self, url: str, store: Store, serving: Callable[[], Serving]) -> None:
        self._reader = Reader(url)
        self._store = store
        self._serving = serving
        self._secret: str | None = None

    def close(self) -> None:
        """Close the connection to the store."""
        self._reader.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        cookies = cookies_in(headers)
        request = PageRequest.read(scope, cookies.get("pandora-theme", ""))
        try:
            answer = await self._answer(scope, headers, cookies, request, receive)
        except UpstreamError as error:
            answer = _problem(request, 503, f"The store did not answer: {error}. Choose a shorter window.")
        except Refused as refused:
            answer = _problem(request, refused.status, refused.message)
        except Gone:
            return
        except Exception as error:
            id_ = f"{time.time_ns():x}"
            logger.error("bug %s: %s at %s", id_, type(error).__name__, frames_of(error))
            answer = _problem(request, 500, f"A bug in the dashboard: {id_}.")
        headers = {"cache-control": "no-store", **SAFE, **answer.headers}
        await replace(answer, headers=headers).send(send, head=scope["method"] == "HEAD")

    async def _answer(
        self,
        scope: Scope,
        headers: Mapping[str, str],
        cookies: Mapping[str, str],
        request: PageRequest,
        receive: Receive,
    ) -> Reply:
        method, path = scope["method"], request.path
        if path.startswith("assets/"):
            return _asset(request)
        serving = self._serving()
        if not serving.keys and not on_loopback(headers.get("host", "")):
            return _problem(
                request, 403, "Without keys the dashboard answers to 127.0.0.1 and localhost only."
            )
        if method == "POST" and not same_origin(headers):
            return _problem(request, 403, "Forms are accepted from pages of this server only.")
        secure = scope.get("scheme") == "https" or headers.get("x-forwarded-proto") == "https"
        if path == "login":
            return await self._login(method, request, receive, secure=secure)
        person = await self._person(cookies, request) if serving.keys else None
        if serving.keys and person is None:
            return Reply(b"", 303, HTML, {"location": f"{ROOT}/login"})
        if (method, path) == ("POST", "logout"):
            gone = set_cookie("", secure=secure, seconds=0)
            return Reply(b"", 303, HTML, {"location": f"{ROOT}/login", "set-cookie": gone})
        if (method, path) == ("POST", learnt.PATH):
            return await self._go_back(request, receive)
        bill = await _form(receive, LARGEST) if (method, path) == ("POST", "reconcile") else None
        if bill is None and method not in ("GET", "HEAD"):
            return _problem(request, 405, "This page can only be read.")
        page = await self._page(request, serving, bill)
        if page is None:
            return _problem(request, 404, "There is no such page, or nothing with this id.")
        hidden = () if serving.market else ("market",)
        return _page(page, request, None if person is None else person.name, hidden)

    async def _page(
        self, request: PageRequest, serving: Serving, bill: Mapping[str, str] | None
    ) -> Page | None:
        name, _, rest = request.path.partition("/")
        if name == "decisions" and rest:
            known = _ID.fullmatch(rest) is not None
            return (
                await self._reader.run(lambda open_: decision(open_, request, rest, bodies=serving.bodies))
                if known
                else None
            )
        if name == "market" and rest:
            known = _ID.fullmatch(rest) is not None
            return await self._reader.run(lambda open_: auction(open_, request, rest)) if known else None
        if request.path == "reconcile":
            return await self._reconcile(request, serving, bill)
        views: dict[str, View] = {
            "": lambda open_, request: today(
                *(open_, request, serving.right_answer, serving.curve, serving.profiles),
                promised=watched(open_, serving.promises, serving.metric, request.window.since),
            ),
            "decisions": lambda open_, request: decisions(open_, request, bodies=serving.bodies),
            "specialists": lambda open_, request: specialists(
                open_, request, serving.circuits, serving.right_answer, serving.looks
            ),
            "looks": lambda open_, request: looks(open_, request, serving.right_answer, serving.looks),
            "calibration": calibration,
            "learning": learnt.learning,
            "keys": keys,
            "market": lambda open_, request: market(open_, request, serving.reputation),
        }
        view = views.get(request.path)
        return None if view is None else await self._reader.run(lambda open_: view(open_, request))

    async def _reconcile(
        self, request: PageRequest, serving: Serving, sent: Mapping[str, str] | None
    ) -> Page:
        bill, wrong = None, ""
        if sent is not None:
            try:
                bill = read_bill(sent.get("bill", ""))
            except UsageError as error:
                wrong = str(error)
        return await self._reader.run(lambda open_: reconcile(open_, request, serving.models, bill, wrong))

    async def _go_back(self, request: PageRequest, receive: Receive) -> Reply:
        """Serve the version of before, if the present one is still the one that the form named."""
        sure = (await _form(receive, 4096)).get("confirm", "")

        def change(open_: Transaction) -> bool:
            known = versions.versions(open_, 1)
            if known and str(known[0].number) == sure:
                versions.go_back(open_, "went back by hand, on the dashboard", request.now)
                return True
            return False

        if await self._store.run(change):
            return Reply(b"", 303, HTML, {"location": f"{ROOT}/learning"})
        return _problem(request, 409, "Another version is served by now, or nothing was confirmed.")

    async def _shared_secret(self) -> str:
        if self._secret is None:
            self._secret = await self._store.run(lambda open_: accounts.shared_secret(open_, "dashboard"))
        return self._secret

    async def _person(self, cookies: Mapping[str, str], request: PageRequest) -> Key | None:
        cookie = cookies.get(COOKIE, "")
        if not cookie:
            return None
        secret = await self._shared_secret()
        return await self._reader.run(lambda open_: session(open_, secret, cookie, request.now))

    async def _login(self, method: str, request: PageRequest, receive: Receive, *, secure: bool) -> Reply:
        wrong = ""
        if method == "POST":
            sent = await _form(receive, 4096)
            secret, shown = await self._shared_secret(), sent.get("key", "").strip()
            cookie = await self._reader.run(lambda open_: enter(open_, secret, shown, request.now))
            if cookie is not None:
                told_ = {"location": ROOT, "set-cookie": set_cookie(cookie, secure=secure)}
                return Reply(b"", 303, HTML, told_)
            wrong = "This is not an admin key."
        field_ = tag(
            "input",
            type="password",
            name="key",
            id="key",
            autocomplete="current-password",
            required=True,
            autofocus=True,
        )
        inside = [
            tag("h1", "pandora-router"),
            tag("p", wrong, class_="bad", role="alert") if wrong else None,
            tag("label", "Admin key", field_),
            tag("button", "Log in"),
            tag(
                "p",
                "No admin key yet? Make one where the gateway runs, with its pandora.yaml: ",
                tag("code", "pandora keys add NAME --admin"),
                class_="dim",
            ),
        ]
        form = tag("form", inside, method="post", action=f"{ROOT}/login", class_="login", id="main")
        return Reply(document("Log in", request, form), 403 if wrong else 200, HTML)


def _page(page: Page, request: PageRequest, person: str | None, hidden: Collection[str]) -> Reply:
    wanted = request.query.get("csv")
    if wanted is None:
        return Reply(render(page, request, person, hidden), 200, HTML)
    table = page.table(wanted)
    if table is None:
        return _problem(request, 404, "This page has no such table.")
    name = f'attachment; filename="{table.name}.csv"'
    return Reply(
        table.csv().encode("utf-8", "replace"), 200, "text/csv; charset=utf-8", {"content-disposition": name}
    )


def _asset(request: PageRequest) -> Reply:
    name = request.path.removeprefix("assets/")
    content = asset(name)
    if content is None:
        return _problem(request, 404, "There is no such file.")
    lasting = {"cache-control": "public, max-age=31536000, immutable"}
    return Reply(content, 200, KINDS[name.rpartition(".")[2]], lasting)


def _problem(request: PageRequest, status: int, message: str) -> Reply:
    title = TITLES.get(status, "Something went wrong")
    back = tag("p", tag("a", "To the first page", href=ROOT))
    body = tag("main", tag("h1", title), tag("p", message), back, id="main")
    return Reply(document(title, request, body), status, HTML)


async def _form(receive: Receive, largest: int) -> dict[str, str]:
    """The fields of a form of up to `largest` characters, empty if it is no form; raises `Refused` (413)."""
    sent = await read_body(receive, 3 * largest)  # a character may be written as three
    try:
        fields = parse_qs(sent.decode("ascii", "replace"), max_num_fields=20, errors="replace")
    except ValueError:
        return {}
    return {clean(name): values[0] for name, values in fields.items()}

"""The frame of a page, tables (also as CSV), tiles, charts, and number formats."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from pandora_router import text
from pandora_router.dashboard.markup import Child, Html, markup, tag
from pandora_router.dashboard.page_request import RANGES, ROOT, PageRequest
from pandora_router.router.picture import style_sheet
from pandora_router.store.money import dollars
from pandora_router.store.queries import Window

PAGES = {
    "": "Today",
    "decisions": "Decisions",
    "specialists": "Specialists",
    "looks": "Looks",
    "calibration": "Calibration",
    "learning": "Learning",
    "keys": "Keys",
    "reconcile": "Reconcile",
    "market": "Market",
}
LEAST = 0.001
"""Amounts of fewer dollars than this are written in cents."""
COLUMN = 0.01
"""A column of amounts is written in cents if none of them reaches this number of dollars."""
KINDS = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
FILES = ("htmx.min.js", "uplot.min.js", "uplot.min.css", "board.js", "board.css")
PICTURE = "picture.css"
HTMX = (
    '{"includeIndicatorStyles":false,"allowEval":false,"allowScriptTags":false,"selfRequestsOnly":true,'
    '"historyCacheSize":0,"refreshOnHistoryMiss":true}'
)


@cache
def asset(name: str) -> bytes | None:
    """The content of an asset; None for every name that is not one of the known files."""
    if name == PICTURE:
        return style_sheet().encode()
    return files(__package__).joinpath("assets", name).read_bytes() if name in FILES else None


@cache
def _address(name: str) -> str:
    """The address of an asset with a hash of its content, so that it can be cached for ever."""
    return f"{ROOT}/assets/{name}?v={sha256(asset(name) or b'').hexdigest()[:12]}"


@dataclass(frozen=True)
class Entry:
    """A number or text of a table: `value` in a CSV file, `shown` on a page (the value itself if None)."""

    value: str | float | int | None
    shown: Child = None

    @property
    def child(self) -> Child:
        """What the page shows."""
        if self.shown is not None:
            return self.shown
        return "" if self.value is None else str(self.value)


@dataclass(frozen=True)
class PageTable:
    """A table of a page. `name` is its file name; the first `words` columns are text, the others numbers."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Entry]]
    words: int = 1
    empty: str = "Nothing in this window."
    folded: bool = False

    def html(self, request: PageRequest) -> Html:
        """The table with its title and a link to the CSV file."""
        export = tag("a", "CSV", href=csv_link(request, self.name), class_="csv", download=True)
        head = tag("h2", self.title, " ", export, id=self.name)
        if not self.rows:
            return tag("section", head, tag("p", self.empty, class_="dim"))
        top = (tag("th", column, scope="col", class_=self._kind(i)) for i, column in enumerate(self.columns))
        body = (
            tag("tr", (tag("td", c.child, class_=self._kind(i)) for i, c in enumerate(row)), data_row=True)
            for row in self.rows
        )
        table = tag("table", tag("thead", tag("tr", top)), tag("tbody", body))
        shown = tag("div", table, class_="wide", tabindex="0", role="region", aria_label=self.title)
        rows = tag("summary", f"{len(self.rows):,} {'row' if len(self.rows) == 1 else 'rows'}")
        return tag("section", head, tag("details", rows, shown) if self.folded else shown)

    def _kind(self, column: int) -> str | None:
        return None if column < self.words else "number"

    def csv(self) -> str:
        """The table as a CSV file; a text that a spreadsheet takes for a formula gets a quote before it."""
        file = io.StringIO()
        sheet = csv.writer(file)
        sheet.writerow(self.columns)
        sheet.writerows([[_harmless(cell.value) for cell in row] for row in self.rows])
        return file.getvalue()


def _harmless(value: str | float | int | None) -> str | float | int | None:
    return f"'{value}" if isinstance(value, str) and value[:1] in set("=+-@\t\r") else value


@dataclass(frozen=True)
class Page:
    """A page: its title and its parts; tables among them can be had as CSV."""

    title: str
    parts: Sequence[Html | PageTable]
    live: bool = False
    ranged: bool = True

    def table(self, name: str) -> PageTable | None:
        """The table of this name."""
        return next((part for part in self.parts if isinstance(part, PageTable) and part.name == name), None)


def csv_link(request: PageRequest, name: str) -> str:
    """The address of a table of this page as CSV, with its filters."""
    return request.link(csv=name)


def render(page: Page, request: PageRequest, person: str | None, hidden: Collection[str] = ()) -> bytes:
    """The whole document; `person` is the name of the key that is logged in, `hidden` pages have no link."""
    inside = [part.html(request) if isinstance(part, PageTable) else part for part in page.parts]
    again: dict[str, Any] = (
        {"hx_get": request.link(), "hx_trigger": "every 5s", "hx_select": "#live", "hx_swap": "outerHTML"}
        if page.live and request.range
        else {}
    )
    content = tag("div", inside, id="live", **again)
    ranges = _ranges(request) if page.ranged else None
    main = tag(
        "main", tag("div", tag("h1", page.title), ranges, class_="head"), content, id="main", tabindex=-1
    )
    return document(page.title, request, _navigation(request, person, hidden), main)


def document(title: str, request: PageRequest, *body: Child) -> bytes:
    """An HTML document with the style and script of the dashboard."""
    theme = request.theme if request.theme in ("dark", "light") else None
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("title", f"{title} · pandora-router"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="data:,"),
        tag("meta", name="htmx-config", content=HTMX),
        (
            tag("link", rel="stylesheet", href=_address(file))
            for file in ("uplot.min.css", "board.css", PICTURE)
        ),
        (
            tag("script", src=_address(file), defer=True)
            for file in ("htmx.min.js", "uplot.min.js", "board.js")
        ),
    )
    skip = tag("a", "Skip to content", href="#main", class_="skip")
    whole = tag("html", head, tag("body", skip, body), lang="en", data_theme=theme)
    return f"<!doctype html>\n{whole}\n".encode("utf-8", "replace")


def _navigation(request: PageRequest, person: str | None, hidden: Collection[str]) -> Html:
    kept = dict.fromkeys(("specialist", "policy", "key", "status", "text", "least", "most"))
    kept |= dict.fromkeys(("declined", "inspected", "changed"))
    here = request.path.partition("/")[0]
    links = (
        tag(
            "a",
            title,
            href=request.link(path, **kept),
            aria_current="page" if path == here else None,
            data_key=str(number),
        )
        for number, (path, title) in enumerate(PAGES.items(), start=1)
        if path not in hidden or path == here
    )
    out = (
        tag(
            "form",
            tag("button", f"Log out {person}", class_="plain"),
            method="post",
            action=f"{ROOT}/logout",
        )
        if person
        else None
    )
    switch = tag("button", "Dark / light", type="button", class_="plain", id="theme", title="Key: d")
    help_ = tag("button", "Shortcuts", type="button", class_="plain", id="help", title="Key: ?")
    return tag(
        "header",
        tag("strong", "pandora-router", class_="brand"),
        tag("nav", links, aria_label="Pages"),
        tag("div", tag("span", "times: UTC", id="zone", class_="dim"), switch, help_, out, class_="tools"),
        _shortcuts(),
    )


def _shortcuts() -> Html:
    keys = {
        "1 to 9": "open a page",
        "j, k": "next, previous row",
        "Enter": "open the row",
        "/": "to the filters",
        "d": "dark or light",
        "?": "this list",
        "Esc": "close",
    }
    rows = [(tag("dt", tag("kbd", key)), tag("dd", what)) for key, what in keys.items()]
    return tag("dialog", tag("h2", "Keys"), tag("dl", rows), id="shortcuts")


def _ranges(request: PageRequest) -> Html:
    links = [
        tag(
            "a",
            name,
            href=request.link(range=name, since=None, until=None),
            aria_current="true" if name == request.range else None,
        )
        for name in RANGES
    ]
    window = request.window
    stated = (
        None if request.range else tag("span", when(window.since).child, " to ", when(window.until).child)
    )
    return tag("div", links, stated, class_="ranges", role="group", aria_label="Window of time")


def tile(title: str, value: Child, note: Child = None, *, kind: str | None = None) -> Html:
    """A headline number with a note below it; `kind` is `good` or `bad`, which is also shown as text."""
    shown = tag("dd", tag("span", value, class_="value"), tag("span", note, class_="note") if note else None)
    return tag("div", tag("dt", title), shown, class_=f"tile {kind}" if kind else "tile")


def tiles(*inside: Html) -> Html:
    """Headline numbers in a row."""
    return tag("dl", inside, class_="tiles")


def chart(
    title: str,
    at: Sequence[float],
    lines: Mapping[str, Sequence[float | None]],
    unit: str = "",
    ends: Window | None = None,
    *,
    means: bool = False,
) -> Html:
    """A chart over time, drawn by the script from the data in its attribute.

    `ends` are those of the time axis; by default the first and the last time of the data. If all values
    are unknown, or zero unless they are `means` (a mean score of zero is something), a sentence says so.
    """
    caption = tag("figcaption", title, f" ({unit})" if unit else None)
    known = [value for values in lines.values() for value in values if value is not None]
    if not (known if means else any(known)):
        return tag("figure", caption, tag("p", "Nothing in this window.", class_="dim"))
    data = {
        "at": list(at),
        "ends": None if ends is None else [ends.since, ends.until],
        "unit": unit,
        "lines": [{"name": name, "values": list(values)} for name, values in lines.items()],
    }
    payload = json.dumps(data, allow_nan=False)
    plot = tag("div", class_="plot", data_plot=payload, role="img", aria_label=f"{title} over time")
    return tag("figure", caption, plot)


def charts(*inside: Html) -> Html:
    """Charts side by side if there is room."""
    return tag("div", inside, class_="charts")


def note(*children: Child) -> Html:
    """A paragraph that explains."""
    return tag("p", *children, class_="dim")


def count(number: float) -> Entry:
    """A whole number."""
    return Entry(int(number), f"{int(number):,}")


def money(nano: float | None) -> Entry:
    """Nanodollars as dollars, with enough digits for small amounts."""
    if nano is None:
        return Entry(None, "–")
    return Entry(dollars(int(nano)), amount(dollars(int(nano))))


def amount(value: float) -> str:
    """Dollars with as many decimals as show three digits of them; less than a tenth of a cent in cents.

    >>> amount(1234.5), amount(0.25), amount(0.00123), amount(-0.5), amount(0), amount(-0.00000863)
    ('$1,234.50', '$0.25', '$0.00123', '-$0.50', '$0.00', '-0.00086 ¢')
    """
    if text.SMALLEST <= abs(value) < LEAST:
        return f"{text.money(100.0 * value, '')} ¢"
    return text.money(value, significant=3)


def amounts(values: Sequence[float]) -> list[str]:
    """Dollars that are read one below the other: all in dollars, or all in cents if all are below `COLUMN`.

    >>> amounts([0.0625, 0.00085, 0.0]), amounts([0.00203, 0.00003, 0.0])
    (['$0.0625', '$0.00085', '$0.00'], ['0.203 ¢', '0.003 ¢', '0 ¢'])
    """
    if max(map(abs, values), default=COLUMN) >= COLUMN:
        return [text.money(value, significant=3 if abs(value) >= COLUMN else 2) for value in values]
    return [f"{100 * value:.3g} ¢" if abs(value) >= 1e-8 else "0 ¢" for value in values]


def money_column(nano: Sequence[float | None]) -> list[Entry]:
    """Nanodollars that stand one below the other in a table, all in one unit; see `amounts`."""
    known = [dollars(int(value)) for value in nano if value is not None]
    shown = iter(zip(known, amounts(known), strict=True))
    return [Entry(None, "–") if value is None else Entry(*next(shown)) for value in nano]


def per_1000(value: float | None) -> Entry:
    """Dollars of one request, written for a thousand of them, in which people compare prices.

    >>> per_1000(0.00000863).shown
    '$0.00863'
    """
    return Entry(None, "–") if value is None else Entry(1000 * value, amount(1000 * value))


def seconds(value: float | None) -> Entry:
    """A time that something took."""
    if value is None:
        return Entry(None, "–")
    return Entry(value, f"{1000 * value:,.0f} ms" if value < 1 else f"{value:,.2f} s")


def share(part: float, whole: float) -> Entry:
    """A part of a whole in percent."""
    if not whole:
        return Entry(None, "–")
    return Entry(part / whole, f"{100 * part / whole:.1f}%")


def number(value: float | None, digits: int = 3) -> Entry:
    """A plain number.

    >>> number(-1815.5).shown, number(0.25, 2).shown, number(None).shown
    ('−1,815.500', '0.25', '–')
    """
    return Entry(None, "–") if value is None else Entry(value, f"{value:,.{digits}f}".replace("-", "−"))


def when(at: float) -> Entry:
    """A moment: UTC in files and without scripts, the reader's zone on pages."""
    time = datetime.fromtimestamp(at, UTC)
    iso = time.isoformat(timespec="seconds").replace("+00:00", "Z")
    return Entry(iso, tag("time", time.strftime("%Y-%m-%d %H:%M:%S UTC"), datetime=iso))


def cut(text: str, most: int = 40) -> Child:
    """A text that may be long: its beginning, the whole of it on request."""
    return text if len(text) <= most else tag("span", text[: most - 1] + "…", title=text[:500])


def joined(*parts: Child) -> Html:
    """Markup of several parts."""
    return markup(*parts)

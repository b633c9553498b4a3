"""The dashboard in a real Chromium: click, filter, open a decision, dark mode, keyboard, narrow screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dashboard.conftest import EVIL, NOW, Running, board
from tests.support.chromium import Chromium, browser
from tests.support.traffic import fill

__all__ = ["board"]
pytestmark = browser


@pytest.fixture(scope="module")
def page() -> Iterator[Chromium]:
    chromium = Chromium()
    yield chromium
    chromium.close()


def test_charts_are_drawn_and_times_are_in_the_readers_zone(board: Running, page: Chromium) -> None:
    page.problems.clear()
    page.screen(1280, 900)
    page.open(board.url)
    assert page.until("document.querySelectorAll('.plot canvas').length") == 4
    assert page.run("document.querySelector('#zone').textContent").startswith("times: Asia/")
    said, utc = page.run(
        "(() => { const t = document.querySelector('td time'); return [t.textContent, t.dateTime] })()"
    )
    minutes = (int(utc[11:13]) * 60 + int(utc[14:16]) + 330) % 1440
    assert f"{minutes // 60:02}:{minutes % 60:02}" in said
    assert page.run("document.title") == "Today · pandora-router"
    assert page.problems == []


def test_somebody_filters_opens_a_decision_and_comes_back(board: Running, page: Chromium) -> None:
    page.problems.clear()
    page.screen(1280, 900)
    page.open(board.url)
    page.click("nav a[data-key='2']")
    page.until("document.querySelectorAll('tr[data-row]').length === 50")
    page.choose("select[name=specialist]", "large")
    page.until("location.search.includes('specialist=large')")
    page.until(
        "[...document.querySelectorAll('tr[data-row]')].every((r) => r.cells[3].textContent === 'large')"
    )
    page.choose("select[name=inspected]", "yes")
    page.until("location.search.includes('inspected=yes') && location.search.includes('specialist=large')")
    looks = (
        "[...document.querySelectorAll('tr[data-row]')].map((r) => r.querySelector('.number').textContent)"
    )
    page.until(f"{looks}.every((number) => number > '0')")
    first = page.run("document.querySelector('tr[data-row] a').title")
    page.click("tr[data-row] a")
    page.until("document.querySelector('.picture svg')")
    assert page.run("document.querySelector('.facts dd').textContent") == first
    rows = page.run("document.querySelectorAll('.picture circle.sealed').length")
    assert rows == 5
    assert page.run("document.querySelectorAll('.picture circle.opened').length") >= 1
    fill = page.run("getComputedStyle(document.querySelector('.picture .chosen')).fill")
    assert fill != "rgb(0, 0, 0)"  # the rules of the picture came from a file of their own
    page.run("history.back()")
    page.until("location.search.includes('specialist=large') && document.querySelector('tr[data-row]')")
    assert page.problems == []


def test_the_theme_follows_the_reader_and_stays(board: Running, page: Chromium) -> None:
    page.screen(1280, 900)
    page.open(f"{board.url}/specialists")
    light = page.run("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    page.until(f"getComputedStyle(document.body).backgroundColor !== {light!r}")
    page.open(f"{board.url}/looks")
    assert page.run("document.documentElement.dataset.theme") == "dark"
    assert page.run("getComputedStyle(document.body).backgroundColor") != light
    page.press("d")
    page.until(f"getComputedStyle(document.body).backgroundColor === {light!r}")


def test_the_keyboard_reaches_everything(board: Running, page: Chromium) -> None:
    page.screen(1280, 900)
    page.open(board.url)
    page.press("2")
    page.until("document.title.startsWith('Decisions') && document.readyState === 'complete'")
    page.press("j")
    page.press("j")
    assert page.run("[...document.querySelectorAll('tr[data-row]')].findIndex((r) => r.className)") == 1
    page.press("/")
    assert page.run("document.activeElement.name") in ("specialist", "least")
    page.press("Escape")
    page.press("?")
    page.until("document.getElementById('shortcuts').open")
    page.press("Escape")
    page.until("!document.getElementById('shortcuts').open")
    page.press("k")
    page.press("Enter")
    page.until("document.title.startsWith('One decision')")


@pytest.mark.parametrize(
    "name", ["", "decisions", "specialists", "looks", "calibration", "keys", "reconcile", "market"]
)
def test_a_narrow_screen_shows_all_of_it(board: Running, page: Chromium, name: str) -> None:
    page.problems.clear()
    page.screen(390, 800)
    page.open(f"{board.url}/{name}".rstrip("/"))
    assert page.run("document.documentElement.scrollWidth") <= 390
    left, right = page.run(
        "(() => { const b = document.querySelector('nav a[aria-current]').getBoundingClientRect();"
        " return [b.left, b.right] })()"
    )
    assert left >= 0  # the name of the page that is shown has not scrolled away
    assert right <= 390
    assert page.problems == []


def test_lines_of_a_chart_differ_without_colour(board: Running, page: Chromium) -> None:
    page.screen(1280, 900)
    page.open(board.url)
    page.until("document.querySelectorAll('.plot canvas').length === 4")
    styles = page.run(
        "[...document.querySelectorAll('.charts figure')].map((f) => [...f.querySelectorAll('.u-marker')]"
        ".slice(1).map((m) => getComputedStyle(m).borderTopStyle))"
    )
    assert [len(set(lines)) for lines in styles] == [1, 2, 2, 2]


def test_a_wide_screen_shows_the_last_column_and_legends_their_values(board: Running, page: Chromium) -> None:
    page.screen(1100, 900)
    page.open(f"{board.url}/decisions?specialist=large")
    wide, room = page.run(
        "(() => { const w = document.querySelector('.wide'); return [w.scrollWidth, w.clientWidth] })()"
    )
    assert wide <= room
    page.open(board.url)
    page.until("document.querySelectorAll('.plot canvas').length === 4")
    shown = page.run("[...document.querySelectorAll('.u-legend .u-value')].map((v) => v.textContent)")
    assert shown
    assert not [text for text in shown if text in ("", "--", "–")]


def test_a_chart_of_one_point_spans_the_window(page: Chromium, tmp_path: Path) -> None:
    running = Running(tmp_path / "store.sqlite")
    try:
        running.store.submit(lambda open_: fill(open_, 1, NOW - 300, NOW - 10, feedback=1.0)).result()
        page.screen(1280, 900)
        page.open(f"{running.url}?range=24h")
        page.until("document.querySelectorAll('.plot canvas').length === 4")
        left, top, wide = page.run(
            "(() => { const e = document.querySelector('.u-over'); e.scrollIntoView({block: 'center'});"
            " const b = e.getBoundingClientRect(); return [b.left, b.top + b.height / 2, b.width] })()"
        )
        page.drag((left + 0.25 * wide, top), (left + 0.75 * wide, top))
        page.until("location.search.includes('since=')")
        since, until = page.run(
            "['since', 'until'].map((name) => Number(new URL(location.href).searchParams.get(name)))"
        )
        assert until - since == pytest.approx(43_200, rel=0.02)  # half of the axis that is drawn
    finally:
        running.close()


def test_what_users_typed_stays_text(board: Running, page: Chromium) -> None:
    page.problems.clear()
    page.screen(1280, 900)
    page.open(f"{board.url}/decisions?text=document.title")
    assert page.run("document.querySelectorAll('tr[data-row]').length") == 5
    page.click("tr[data-row] a")
    page.until("document.querySelector('pre')")
    assert page.run("document.querySelector('pre').textContent").startswith(EVIL)
    assert page.run("document.title") == "One decision · pandora-router"
    assert page.run("document.querySelectorAll('img').length") == 0
    assert page.problems == []


def test_a_bill_is_read_from_a_file(board: Running, page: Chromium) -> None:
    page.problems.clear()
    page.screen(1280, 900)
    page.open(f"{board.url}/reconcile")
    page.run(
        "(() => { const d = new DataTransfer(); d.items.add(new File(['model,cost\\nlarge,1'], 'bill.csv'));"
        " const f = document.getElementById('bill-file'); f.files = d.files;"
        " f.dispatchEvent(new Event('change')) })()"
    )
    page.until("document.getElementById('bill').value.startsWith('model')")
    page.click("form.bill button")
    page.until("document.getElementById('compared')")
    assert page.problems == []


def test_somebody_opens_an_auction_and_sees_who_looked_bid_and_won(board: Running, page: Chromium) -> None:
    page.problems.clear()
    page.screen(1280, 900)
    page.open(board.url)
    page.press("9")
    page.until("document.title === 'Market · pandora-router'")
    assert page.run("document.querySelectorAll('#bidders ~ div tr[data-row]').length") == 3
    assert page.run("document.querySelectorAll('#auctions ~ div tr[data-row]').length") == 50
    page.click("#older")
    page.until("document.querySelectorAll('#auctions ~ div tr[data-row]').length === 20")
    page.click("#auctions ~ div tr[data-row] a")
    page.until("document.querySelector('.picture svg')")
    drawn = "document.querySelector('.picture svg')"
    assert page.run(f"{drawn}.querySelectorAll('g').length") == 5  # a mark for each call
    assert page.run(f"{drawn}.textContent.includes('★')")
    ink = page.run(f"getComputedStyle({drawn}.querySelector('text')).fill")
    page.press("d")
    page.until(f"getComputedStyle({drawn}.querySelector('text')).fill !== {ink!r}")
    page.press("d")
    page.screen(390, 800)
    page.open(page.run("location.href"))
    assert page.run("document.documentElement.scrollWidth") <= 390
    page.open(f"{board.url}/market")
    assert page.run("document.documentElement.scrollWidth") <= 390
    assert page.run("document.title") == "Market · pandora-router"  # names of bidders are only texts
    assert page.problems == []

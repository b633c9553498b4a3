"""The pages over HTTP: their numbers, their files, and everything a hostile client or prompt may try."""

from __future__ import annotations

import csv
import html
import io
import re
from pathlib import Path
from urllib.parse import quote

import pytest

from pandora_router.dashboard.layout import PAGES, amount
from pandora_router.dashboard.page_request import ROOT, key_in, sign
from pandora_router.dashboard.reconcile import read_bill
from pandora_router.dashboard.today import whole_steps
from pandora_router.errors import UsageError
from pandora_router.store import accounts, queries
from pandora_router.store.database import Transaction
from pandora_router.store.queries import Filter, Window
from tests.dashboard.conftest import EVIL, NOW, OUTLOOKS, Running
from tests.support.elements import Elements
from tests.support.traffic import PROMPTS, RIGHT, fill

ALL = [f"{ROOT}/{name}".rstrip("/") for name in PAGES]


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("path", ALL)
def test_every_page_is_whole_loads_only_ours_and_has_nothing_inline(board: Running, path: str) -> None:
    answer = board.ask(f"{path}?range=7d")
    assert answer.status == 200, answer.text[:500]
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    found = Elements(answer.text)
    assert not [tag for tag, _ in found.all if tag == "style"]
    for tag, attributes in found.all:
        assert not [name for name in attributes if name == "style" or name.startswith("on")], (
            tag,
            attributes,
        )
        for name in ("src", "href", "action", "hx-get"):
            value = attributes.get(name, ROOT)
            assert value.startswith((ROOT, "#main", "data:,")), (tag, value)
        if tag == "script":
            assert attributes["src"].startswith(f"{ROOT}/assets/")
    for _, attributes in found.all:
        if "assets" in attributes.get("src", attributes.get("href", "")):
            asset = board.ask(attributes.get("src") or attributes["href"])
            assert asset.status == 200
            assert "immutable" in asset.headers["cache-control"]


@pytest.mark.parametrize("path", [*ALL, "one"])
def test_a_prompt_a_name_or_a_key_cannot_become_markup(board: Running, path: str) -> None:
    if path == "one":
        (row, *_) = board.store.submit(
            lambda open_: queries.listed(open_, Window(NOW - 55, NOW), Filter())
        ).result()
        path = f"{ROOT}/decisions/{row['id']}"
    for more in ("", f"?specialist={quote(EVIL)}&text={quote(EVIL)}&key={quote(EVIL)}&policy={quote(EVIL)}"):
        answer = board.ask(path + more)
        assert answer.status == 200
        assert "<script>document" not in answer.text
        assert "<img" not in answer.text
        assert not [a for _, a in Elements(answer.text).all if "onerror" in a]


def test_a_spreadsheet_gets_no_formula(board: Running) -> None:
    named = {row["specialist"] for row in rows(board.ask(f"{ROOT}/specialists?csv=specialists").text)}
    assert "'=cmd|' /C calc'!A0" in named


@pytest.mark.parametrize(
    "member", ["specialist", "policy", "key", "status", "text", "before", "since", "least", "metric", "range"]
)
@pytest.mark.parametrize(
    "value", ["'", "' OR 1=1 --", "\x00", "%", "1;DROP TABLE decisions", "\ud800", "9" * 400, "nan", "-1e999"]
)
def test_a_filter_is_a_value_never_sql(board: Running, member: str, value: str) -> None:
    sent = quote(value.encode("utf-8", "surrogatepass"))
    for page in ("decisions", "", "calibration"):
        answer = board.ask(f"{ROOT}/{page}?{member}={sent}&{member}2={sent}")
        assert answer.status == 200, answer.text[-300:]
    assert board.ask(f"{ROOT}/decisions").text.count("data-row") == 50


@pytest.mark.parametrize(
    "path",
    [
        "assets/../app.py", "assets/%2e%2e/app.py", "assets/..%2fapp.py", "assets//etc/passwd", "assets/",
        "assets/board.css/..", "assets/htmx.LICENSE.txt%00.css", "decisions/../../x", "decisions/%27",
        "decisions/" + "a" * 5000, "keys/1", "nothing",
    ],
)  # fmt: skip
def test_only_known_paths_are_answered(board: Running, path: str) -> None:
    answer = board.ask(f"{ROOT}/{path}")
    assert answer.status == 404
    assert "import" not in answer.text


def test_pages_stay_small_whatever_is_asked(board: Running) -> None:
    for page in PAGES:
        assert len(board.ask(f"{ROOT}/{page}?range=90d").text) < 200_000
    long = board.ask(f"{ROOT}/decisions?" + "&".join(f"text={'x' * 500}" for _ in range(50)))
    assert long.status == 200
    assert len(long.text) < 100_000
    assert (
        board.ask(f"{ROOT}/reconcile", "POST", "bill=" + "a" * 9_000_000, origin=board.origin).status == 413
    )


def test_numbers_on_pages_are_the_numbers_of_the_store(board: Running) -> None:
    (paid, count, saved) = board.store.submit(
        lambda open_: open_.rows("SELECT sum(cost), count(*), sum(baseline) - sum(cost) FROM decisions")
    ).result()[0]
    text = board.ask(ROOT).text
    assert f">{count}</span>" in text
    assert amount(paid / 1e9) in text
    assert f"{amount(abs(saved) / 1e9)} {'less' if saved >= 0 else 'more'} than the best single" in text
    table = rows(board.ask(f"{ROOT}?csv=over-time").text)
    assert sum(int(row["requests"]) for row in table) == count
    assert sum(float(row["money"]) for row in table) == pytest.approx(paid / 1e9)
    listed = rows(board.ask(f"{ROOT}/decisions?csv=decisions").text)
    assert len(listed) == count
    assert sum(float(row["money per 1,000"]) for row in listed) / 1000 == pytest.approx(paid / 1e9)
    changed = rows(board.ask(f"{ROOT}/decisions?csv=decisions&changed=yes").text)
    assert [row["decision"] for row in changed] == [r["decision"] for r in listed if r["changed"] == "1"]
    assert 0 < len(changed) < count


def test_charts_leave_out_steps_that_the_window_cuts() -> None:
    window = Window(1000.0, 1400.0)
    steps = [{"at": at, "requests": n} for at, n in ((900, 2), (1000, 5), (1200, 4), (1300, 9), (1400, 1))]
    shown = [row["at"] for row in whole_steps(steps, 100, window)]
    assert shown == [1000, 1200, 1300]
    alone = [{"at": 900, "requests": 3}, {"at": 1000, "requests": 0}]
    assert whole_steps(alone, 100, window) == alone


def test_links_keep_filters(board: Running) -> None:
    answer = board.ask(f"{ROOT}/decisions?range=7d&specialist=large&inspected=yes&csv2=x")
    for wanted in ("range=7d", "specialist=large", "inspected=yes"):
        for place in ("csv=decisions", "decisions/", "before="):
            links = [a["href"] for _, a in Elements(answer.text).all if place in a.get("href", "")]
            assert links
            assert all(wanted in link for link in links), (place, wanted)


def test_forms_of_other_sites_and_other_names_are_refused(board: Running) -> None:
    bill = "bill=" + quote("date,model,cost\n")
    assert board.ask(f"{ROOT}/reconcile", "POST", bill, origin=board.origin).status == 200
    for headers in (
        {},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": board.origin, "sec_fetch_site": "cross-site"},
    ):
        assert board.ask(f"{ROOT}/reconcile", "POST", bill, **headers).status == 403
    assert board.ask(ROOT, host="evil.example").status == 403  # a name that was pointed at 127.0.0.1
    assert board.ask(ROOT, host="localhost:80").status == 200
    assert board.ask(ROOT, "DELETE", origin=board.origin).status == 405
    assert board.ask(ROOT, "HEAD").text == ""


def test_a_bill_stands_beside_our_sums(board: Running) -> None:
    ours = rows(board.ask(f"{ROOT}/reconcile?range=7d&csv=ours").text)
    large = [row for row in ours if row["specialist"] == "large"]
    lines = ["Day;Model;Cost (USD)", *(f"{r['day (UTC)']};provider-large;${r['cost']}" for r in large[:-1])]
    lines += [f"{large[-1]['day (UTC)']};provider-large;1000", "2020-01-01;unknown;5", "x;y;z"]
    sent = "bill=" + quote("\n".join(lines))
    answer = board.ask(f"{ROOT}/reconcile?range=7d", "POST", sent, origin=board.origin).text
    assert answer.count(">agrees<") == len(large) - 1
    assert answer.count(">differs<") == 1
    assert "only on the bill" in answer
    assert "1 rows could not be read" in answer
    wrong = board.ask(f"{ROOT}/reconcile", "POST", "bill=" + quote(EVIL), origin=board.origin)
    assert "date,model,cost" in wrong.text
    assert "<script>document" not in wrong.text


def test_a_bill_needs_a_header_and_survives_anything() -> None:
    found = read_bill("\ufeffmodel,amount\na,1.5\na,0.5\nb,$2\n\n")
    assert dict(found.sums) == {(None, "a"): 2 * 10**9, (None, "b"): 2 * 10**9}
    for text in ("", "a,b\n1,2", '"', "\x00", "cost\n1"):
        with pytest.raises(UsageError):
            read_bill(text)
    with pytest.raises(UsageError, match="field"):
        read_bill('model,cost\n"a\n' + "x" * 200_000)
    assert read_bill("model,cost\n" + "a\n" * 60_000).skipped == 60_000


def test_without_an_admin_key_nothing_is_seen(tmp_path: Path) -> None:
    running = Running(tmp_path / "store.sqlite", keys=True)
    try:
        admin, secret = running.store.submit(
            lambda open_: accounts.add_key(open_, "operator", NOW, admin=True)
        ).result()
        _, plain = running.store.submit(lambda open_: accounts.add_key(open_, "team", NOW)).result()
        for path in ALL:
            assert running.ask(path).status == 303
        for wrong in (plain, "x", "", secret + "x"):
            refused = running.ask(f"{ROOT}/login", "POST", f"key={quote(wrong)}", origin=running.origin)
            assert refused.status == 403
            assert "set-cookie" not in refused.headers
        assert running.ask(f"{ROOT}/login", "POST", f"key={secret}").status == 403  # not from our page
        entered = running.ask(f"{ROOT}/login", "POST", f"key={secret}", origin=running.origin)
        assert entered.status == 303
        cookie = entered.headers["set-cookie"]
        assert all(word in cookie for word in ("HttpOnly", "SameSite=Strict", f"Path={ROOT}"))
        assert secret not in cookie
        value = cookie.partition(";")[0]
        assert running.ask(ROOT, cookie=value, host="board.example").status == 200
        assert "Log out operator" in running.ask(ROOT, cookie=value).text
        name, _, signed = value.partition("=")
        key, expires, mark = signed.split(".")
        later = f"{key}.{int(expires) + 1}.{mark}"
        for forged in (later, f"{key}.{expires}.{'0' * 64}", f"{key}.x.{mark}", key, "..", "é.1.é"):
            assert running.ask(ROOT, cookie=f"{name}={quote(forged)}").status == 303
        assert key_in("00" * 32, sign("00" * 32, "k", 100), 99.0) == "k"
        assert key_in("00" * 32, sign("00" * 32, "k", 100), 100.0) is None
        out = running.ask(f"{ROOT}/logout", "POST", "", origin=running.origin, cookie=value)
        assert "Max-Age=0" in out.headers["set-cookie"]
        secure = running.ask(
            f"{ROOT}/login", "POST", f"key={secret}", origin=running.origin, x_forwarded_proto="https"
        )
        assert "Secure" in secure.headers["set-cookie"]
        running.store.submit(lambda open_: accounts.revoke_key(open_, admin.name, NOW)).result()
        assert running.ask(ROOT, cookie=value).status == 303
    finally:
        running.close()


def test_an_empty_store_has_pages_too(tmp_path: Path) -> None:
    running = Running(tmp_path / "store.sqlite")
    try:
        for path in ALL:
            answer = running.ask(path)
            assert answer.status == 200
            assert re.search(r"<h1>\w+</h1>", answer.text)
        assert "POST /v1/chat/completions" in running.ask(ROOT).text
        assert "No decision in this window." in running.ask(f"{ROOT}/decisions").text
        assert "No decision fits the filters." in running.ask(f"{ROOT}/decisions?status=error").text
    finally:
        running.close()


def test_the_market_has_a_link_only_where_there_is_one(board: Running, tmp_path: Path) -> None:
    running = Running(tmp_path / "store.sqlite")
    try:
        assert f'href="{ROOT}/market"' in board.ask(ROOT).text
        assert "Market" not in running.ask(ROOT).text
        assert running.ask(f"{ROOT}/market").status == 200  # an old link still opens
    finally:
        running.close()


def test_the_list_shows_prompts_or_how_to_store_them(board: Running, tmp_path: Path) -> None:
    listed = rows(board.ask(f"{ROOT}/decisions?csv=decisions&specialist=large").text)
    assert all(any(row["prompt"].startswith(text) for text in PROMPTS) for row in listed)
    assert "KnowledgeGradient()" not in re.sub(
        r'(title|value)="[^"]*"', "", board.ask(f"{ROOT}/decisions").text
    )
    running = Running(tmp_path / "store.sqlite")
    try:
        running.store.submit(lambda open_: fill(open_, 3, NOW - 50, NOW - 10)).result()
        running.store.submit(lambda open_: open_.run("DELETE FROM bodies")).result()
        page = running.ask(f"{ROOT}/decisions").text
        assert "serve: {bodies: true}" in page
        link = next(a["href"] for _, a in Elements(page).all if "decisions/" in a.get("href", ""))
        assert "serve: {bodies: true}" in running.ask(link).text
        assert "prompt" not in rows(running.ask(f"{ROOT}/decisions?csv=decisions").text)[0]
    finally:
        running.close()


def test_the_policy_has_a_column_where_there_are_several(tmp_path: Path) -> None:
    running = Running(tmp_path / "store.sqlite")
    try:
        running.store.submit(lambda open_: fill(open_, 3, NOW - 50, NOW - 10)).result()
        assert ">policy</th>" not in running.ask(f"{ROOT}/decisions").text
        assert "policy" in rows(running.ask(f"{ROOT}/decisions?csv=decisions").text)[0]
        running.store.submit(
            lambda open_: open_.run(
                "UPDATE decisions SET policy = 'named' WHERE id IN (SELECT id FROM decisions LIMIT 1)"
            )
        ).result()
        assert ">policy</th>" in running.ask(f"{ROOT}/decisions").text
    finally:
        running.close()


def test_amounts_of_one_column_have_one_unit(board: Running) -> None:
    """Cents beside dollars in one column cannot be compared at a glance."""
    for path in ("specialists", "looks", "reconcile", "keys"):
        table = board.ask(f"{ROOT}/{path}?range=30d").text
        for body in re.findall(r"<tbody>(.*?)</tbody>", table, re.S):
            columns = zip(
                *(re.findall(r"<td[^>]*>(.*?)</td>", row) for row in body.split("</tr>")[:-1]), strict=True
            )
            assert not [
                column
                for column in columns
                if any("¢" in x for x in column) and any("$" in x for x in column)
            ]


def test_amounts_of_one_tile_have_one_unit_and_scores_of_zero_are_drawn(tmp_path: Path) -> None:
    """An hour in which every answer was rated wrong is not an hour without ratings."""
    running = Running(tmp_path / "store.sqlite")
    try:
        running.store.submit(lambda open_: fill(open_, 1, NOW - 300, NOW - 60, feedback=1.0)).result()
        assert running.store.submit(lambda open_: open_.rows("SELECT value FROM feedback")).result() == [
            (0.0,)
        ]
        page = running.ask(ROOT).text
        notes = re.findall(r"<dt>([^<]*)</dt><dd>(.*?)</dd>", page, re.S)
        mixed = [title for title, said in notes if "$" in said and "¢" in said and title != "Net value"]
        assert len(notes) > 6
        assert mixed == []
        assert 'aria-label="Score over time"' in page
    finally:
        running.close()


def test_the_login_says_how_to_make_an_admin_key(tmp_path: Path) -> None:
    running = Running(tmp_path / "store.sqlite", keys=True)
    try:
        assert "pandora keys add NAME --admin" in running.ask(f"{ROOT}/login").text
    finally:
        running.close()


@pytest.mark.parametrize("name", ["specialists", "looks"])
def test_pages_say_whether_looks_are_made_and_why_not(board: Running, name: str) -> None:
    shown = html.unescape(board.ask(f"/dashboard/{name}").text)
    assert all(sentence[1:] in shown for sentence in OUTLOOKS)
    assert "<b>code</b>" not in board.ask(f"/dashboard/{name}").text


def test_what_looks_gained_is_shown_in_dollars(board: Running) -> None:
    """The sum is counted anew from the stored decisions, in the worth of a right answer."""

    def gained(open_: Transaction) -> float:
        return float(open_.rows("SELECT SUM(gained) AS gained FROM decisions")[0][0])

    whole = RIGHT * board.store.submit(gained).result()
    assert whole > 0.0
    shown = board.ask("/dashboard/looks?range=90d").text
    tile = shown.partition("Expected gain</dt>")[2].partition("</dd>")[0]
    assert f">{amount(whole)}<" in tile

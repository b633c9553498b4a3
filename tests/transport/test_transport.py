"""The HTTP client against servers of plain sockets that drip, lie, repeat the key and never end."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import math
import sys
import threading
import time
import urllib.parse
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pandora_router.errors import UsageError
from pandora_router.specialists.threads import wait_for
from pandora_router.transport import connections
from pandora_router.transport.client import HttpCall, parse, post, probe, too_deep
from pandora_router.transport.endpoint import REMOVED, Endpoint, Redaction, ReplyLimits, checked_key
from pandora_router.transport.failures import Failed, GaveUp, RateLimit, retried, waited
from pandora_router.wires.events import EventTooLarge, Frames, data_of
from tests.support.raw_server import for_ever, raw_server, reply

SECRET = "sk-Zm9v/never+print=this~0123456789"
TIMEOUT = 0.4
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", SECRET)


def endpoint(url: str, **settings: Any) -> Endpoint:
    return Endpoint(url, **{"key_from": "TEST_KEY", "timeout": 30.0, "pause": 0.01, **settings})


def failure(url: str, **settings: Any) -> Failed:
    with pytest.raises(Failed) as caught:
        asyncio.run(post(endpoint(url, **settings), "x", {}))
    return caught.value


async def listen(place: Endpoint) -> list[bytes]:
    call = await HttpCall.open(place, "x", {}, accept="text/event-stream")
    try:
        return [event async for event in call.events()]
    finally:
        call.close()


DRIPS: dict[str, Any] = {
    "nothing": lambda _: (b"" for _ in for_ever(b"")),
    "a status line": lambda _: for_ever(b"H"),
    "headers": lambda _: chain([HEAD], (f"X-{i}: y\r\n".encode() for i in range(10**9))),
    "one header": lambda _: chain([HEAD + b"X: "], for_ever(b"y")),
    "100 continue": lambda _: for_ever(b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a body": lambda _: chain([HEAD + b"Content-Length: 1000000\r\n\r\n"], for_ever(b" ")),
    "a body to the end of the connection": lambda _: chain([HEAD + b"\r\n"], for_ever(b" ")),
    "chunks": lambda _: chain([CHUNKED], for_ever(b"1\r\n \r\n")),
    "a chunk size": lambda _: chain([CHUNKED], for_ever(b"0")),
    "chunk extensions": lambda _: chain([CHUNKED + b"1;"], for_ever(b"x")),
    "trailers": lambda _: chain([CHUNKED + b"2\r\n{}\r\n0\r\n"], for_ever(b"X: y\r\n")),
    "an error body": lambda _: chain([b"HTTP/1.1 500 No\r\nContent-Length: 100000\r\n\r\n"], for_ever(b"{")),
}


@pytest.mark.parametrize("pause", [0.005, 0.0], ids=["slowly", "fast"])
@pytest.mark.parametrize("what", DRIPS)
def test_no_call_outlives_its_deadline(what: str, pause: float) -> None:
    """Servers that drip for ever are left, whatever they drip; memory does not grow with what they send."""
    # the status of an error is known only once its head has come, which a busy machine may delay
    timeout = 5.0 if what == "an error body" else TIMEOUT
    with raw_server(DRIPS[what], pause if what != "nothing" else 0.005) as server:
        begun = time.monotonic()
        error = failure(server.url, timeout=timeout, limits=ReplyLimits(body=10**6, error=10**4))
        assert time.monotonic() - begun < timeout + 5.0
    assert error.failure in {"timeout", "invalid reply", "status", "cut"}
    if what == "an error body":
        assert error.failure == "status"
    elif pause and what in {"nothing", "100 continue", "a body", "chunks"}:
        assert error.failure == "timeout"


@pytest.mark.parametrize("pause", [0.005, 0.0], ids=["slowly", "fast"])
@pytest.mark.parametrize(
    "piece", [b"4\r\naaaa\r\n", b"9\r\n: comment\r\n", b"7\r\ndata: x\r\n", b"8\r\ndata: x\n\r\n"]
)
def test_no_stream_outlives_its_deadline(piece: bytes, pause: float) -> None:
    """A stream without line ends, of comments only, of one endless event."""
    with raw_server(lambda _: chain([STREAM], for_ever(piece)), pause) as server:
        begun = time.monotonic()
        with pytest.raises(Failed) as caught:
            asyncio.run(
                listen(endpoint(server.url, timeout=TIMEOUT, limits=ReplyLimits(event=10**5, stream=10**7)))
            )
        assert time.monotonic() - begun < TIMEOUT + 5.0
    assert caught.value.failure in {"timeout", "invalid reply"}


def test_a_dripped_answer_that_ends_in_time_is_an_answer() -> None:
    body = reply(b'{"a": 1}')
    with raw_server(lambda _: (body[i : i + 1] for i in range(len(body))), 0.0005) as server:
        assert asyncio.run(post(endpoint(server.url, timeout=20.0), "x", {})) == {"a": 1}


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (reply(b"{" + b" " * 2000 + b"}"), "invalid reply"),
        (reply(b'{"a": ' + b"[" * 100_000), "invalid reply"),
        (reply(b'{"a": ' + b"9" * 401 + b"}"), "invalid reply"),
        (reply(b"{}", Content_Encoding="gzip"), "invalid reply"),
        (reply(b"{}", "text/html"), "content type"),
        (reply(b"{}", status="302 Found", Location="http://127.0.0.1:9/"), "status"),
        (reply(b"[1]"), "broken json"),
        (reply(b'{"a": "\xff"}'), "broken json"),
        (reply(b"{}")[:-1], "cut"),
        (b"SSH-2.0-server\r\n", "invalid reply"),
        (b"", "connection"),
    ],
)
def test_replies_that_are_none(said: bytes, kind: str) -> None:
    with raw_server(lambda _: [said], 0.0) as server:
        error = failure(server.url, limits=ReplyLimits(body=200_000 if b"[" in said else 1000), timeout=5.0)
    assert error.failure == kind
    assert error.charged or kind == "status"


def test_what_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with raw_server(lambda _: [reply(b"{}")], 0.0) as server:
        asyncio.run(post(endpoint(server.url), "/embeddings", {"a": "\u00e9\ud83d"}))
        request = server.requests[0]
    head, _, body = request.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/embeddings HTTP/1.1\r\n")
    assert b"Accept-Encoding: identity" in head
    assert f"Authorization: Bearer {SECRET}".encode() in head
    assert json.loads(body) == {"a": "\u00e9?"}


def test_a_proxy_is_used_only_when_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_server(lambda _: [reply(b'{"from": "proxy"}')], 0.0) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/v1"))
        monkeypatch.setenv("no_proxy", "")
        with raw_server(lambda _: [reply(b'{"from": "server"}')], 0.0) as server:
            assert asyncio.run(post(endpoint(server.url), "x", {})) == {"from": "server"}
            assert proxy.requests == []
            told = asyncio.run(post(endpoint(server.url, use_proxy=True), "x", {}))
    assert told == {"from": "proxy"}
    assert proxy.requests[0].startswith(f"POST {server.url}/x ".encode())


@pytest.mark.parametrize(
    "bad", [f"{SECRET}\n", f"{SECRET}\r", f"a\0{SECRET}", f"{SECRET} x", "", "clé-secrète"]
)
def test_a_key_that_cannot_stand_in_a_header_is_refused_and_not_shown(
    bad: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="the key in") as caught:
        checked_key(bad, "the key in $TEST_KEY")
    assert SECRET not in str(caught.value)
    if bad and "\0" not in bad:
        monkeypatch.setenv("TEST_KEY", bad)
        with pytest.raises(UsageError) as caught:
            asyncio.run(post(endpoint("http://127.0.0.1:9/v1"), "x", {}))
        assert SECRET not in str(caught.value)
    (tmp_path / "key").write_text(f"{SECRET}\n")
    assert Endpoint("http://h/v1", key_file=tmp_path / "key").key() == SECRET
    (tmp_path / "key").write_text(f"{SECRET}\n\n")
    with pytest.raises(UsageError) as caught:
        Endpoint("http://h/v1", key_file=tmp_path / "key").key()
    assert SECRET not in str(caught.value) + repr(Endpoint("http://h/v1", key_file=tmp_path / "key"))


ECHOES = {
    "status line": lambda s: b"HTTP/1.1 400 " + s + b"\r\nContent-Length: 0\r\n\r\n",
    "no HTTP": lambda s: s + b"\r\n\r\n",
    "header": lambda s: b"HTTP/1.1 200 OK\r\n" + s + b"\r\n\r\n",
    "broken header": lambda s: b"HTTP/1.1 200 OK\r\n\0" + s + b": \x01\r\n\r\n",
    "error code": lambda s: reply(json.dumps({"error": {"code": s.decode()}}).encode(), status="401 No"),
    "error": lambda s: reply(s, status="500 No"),
    "content type": lambda s: reply(b"{}", kind=s.decode()),
    "location": lambda s: reply(b"", status="307 Go", Location=s.decode()),
    "broken JSON": lambda s: reply(b"{" + s),
    "chunk size": lambda s: CHUNKED + s + b"\r\n",
    "encoding": lambda s: reply(b"{}", Content_Encoding=s.decode()),
}


@pytest.mark.parametrize("place", ECHOES)
def test_a_key_that_is_sent_back_is_in_no_error_and_no_log(
    place: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    with raw_server(lambda _: [ECHOES[place](f"Bearer {SECRET}".encode())], 0.0) as server:
        try:
            asyncio.run(post(endpoint(server.url), "x", {}))
        except Failed as error:
            seen = [error, error.__cause__] + ([] if error.__suppress_context__ else [error.__context__])
            assert not any(SECRET in str(one) + repr(one) for one in seen)
    assert SECRET not in caplog.text + str(capfd.readouterr())


@pytest.mark.parametrize("before", ["", "x", "ab", "Bearer "])
def test_the_key_is_removed_in_all_its_forms(before: str) -> None:
    clean = Redaction(SECRET)
    said = before + SECRET + " end"
    coded = [
        said,
        base64.b64encode(said.encode()).decode(),
        base64.urlsafe_b64encode(said.encode()).decode(),
        urllib.parse.quote(said),
        urllib.parse.quote_plus(said, safe=""),
        said.encode().hex(),
        said.encode().hex().upper(),
        json.dumps(said),
        "".join(f"\\u{ord(c):04x}" for c in said),
    ]
    for text in coded:
        assert REMOVED in clean.text(text), text
    tree = {"a": [{SECRET: said, "n": 1.5}], "numbers": [1.0, 2.0]}
    assert SECRET not in json.dumps(clean.tree(tree))
    assert clean.tree(tree)["numbers"] == [1.0, 2.0]
    assert SECRET not in repr(clean)
    assert Redaction(None).text(said) == said
    assert Redaction("EMPTY").text("EMPTY") == "EMPTY"


@given(
    st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S"]), min_size=12, max_size=60),
    st.binary(),
)
def test_a_key_inside_base64_is_found_whatever_stands_around_it(secret: str, around: bytes) -> None:
    for prefix in (around, around + b"a", around + b"ab"):
        coded = base64.b64encode(prefix + secret.encode() + around).decode()
        assert REMOVED in Redaction(secret).text(coded)


def test_answers_are_cleaned() -> None:
    def echo(request: bytes) -> list[bytes]:
        return [reply(json.dumps({"said": request.decode("latin-1")}).encode())]

    with raw_server(echo, 0.0) as server:
        said = asyncio.run(post(endpoint(server.url), "x", {}))["said"]
    assert SECRET not in said
    assert REMOVED in said


def test_calls_without_a_loop_share_one_and_work_from_threads() -> None:
    with raw_server(lambda _: [reply(b'{"a": 1}')], 0.0) as server:
        found: list[Any] = []

        def ask() -> None:
            found.append(wait_for(post(endpoint(server.url), "x", {})))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10.0)
        ask()
    assert found == [{"a": 1}] * 5


def test_a_closed_call_frees_the_server() -> None:
    with raw_server(lambda _: chain([STREAM], for_ever(b"9\r\ndata: x\n\n\r\n")), 0.001) as server:

        async def look() -> int:
            call = await HttpCall.open(
                endpoint(server.url, timeout=30.0), "x", {}, accept="text/event-stream"
            )
            events = call.events()
            for _ in range(3):
                assert await anext(events) == b"x"
            call.close()
            call.close()
            with pytest.raises(Failed, match="closed"):
                await anext(events)
            for _ in range(400):
                before = server.sent
                await asyncio.sleep(0.01)
                if server.sent == before:
                    return server.sent
            return -1

        assert asyncio.run(look()) > 0


@pytest.mark.parametrize(
    ("status", "fine"), [("200 OK", True), ("404 No", True), ("401 No", False), ("403 No", False)]
)
def test_a_probe_tells_whether_address_and_key_are_good(status: str, fine: bool) -> None:
    with raw_server(lambda _: [reply(b"{}", status=status)], 0.0) as server:
        if fine:
            asyncio.run(probe(endpoint(server.url)))
        else:
            with pytest.raises(Failed, match=status[:3]):
                asyncio.run(probe(endpoint(server.url)))
        assert server.requests[0].startswith(b"GET /v1/models HTTP/1.1\r\n")
    with pytest.raises(Failed, match="could not be reached"):
        asyncio.run(probe(endpoint("http://127.0.0.1:9/v1")))


def test_without_httptools_an_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httptools", None)
    connections.library.cache_clear()
    try:
        with raw_server(lambda _: [reply(b"{}")], 0.0) as server:
            with pytest.raises(UsageError, match=r"pip install '\.\[http\]'"):
                asyncio.run(post(endpoint(server.url), "x", {}))
            assert not any(server.requests)
    finally:
        connections.library.cache_clear()


# --- JSON -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ['{"a": ' * 50 + "1" + "}" * 50, '{"a": "' + "[" * 500 + '"}', '{"a": "\\"[[["}']
)
def test_depth_counts_no_brackets_in_strings(text: str) -> None:
    assert not too_deep(text.encode())
    assert parse(text.encode(), "it") == json.loads(text)


@given(
    st.recursive(
        st.text('[]{}"\\a') | st.integers(),
        lambda kids: st.lists(kids) | st.dictionaries(st.text('[\\"'), kids),
    )
)
def test_depth_is_that_of_the_value(value: Any) -> None:
    def measure(part: Any) -> int:
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else None
        return 0 if inner is None else 1 + max((measure(one) for one in inner), default=0)

    raw, deep = json.dumps(value).encode(), measure(value)
    assert not too_deep(raw, deep)
    assert deep == 0 or too_deep(raw, deep - 1)


@pytest.mark.parametrize(
    "raw", [b'{"a":' * 100_000, b"[" * 10**6, b'{"a":' + b"1" * 5000 + b"}", b'{"a":-' + b"1" * 400 + b"}"]
)
def test_bad_json_is_one_failure(raw: bytes) -> None:
    limit = sys.getrecursionlimit()
    with pytest.raises(Failed) as caught:
        parse(raw, "it")
    assert caught.value.failure in {"invalid reply", "broken json"}
    assert sys.getrecursionlimit() == limit


# --- events -----------------------------------------------------------------------------------------------

TEXT = (
    "\ufeffdata: h\u00e9llo \U0001f600\r\n\r\n: comment\nevent: other\r\ndata:two\r\ndata:  lines\r\n\r\n"
    "data: a\rdata: b\r\rid: 7\nretry: 5\n\ndata\n\ndata: mixed\n\r\ndata: z\n"
)
EVENTS = ["h\u00e9llo \U0001f600", "two\n lines", "a\nb", "mixed", "z"]


def check_events(cuts: list[int]) -> None:
    """The frames are the bytes of the stream, and the data in them that of its events."""
    raw, frames = TEXT.encode(), Frames()
    ends = [0, *sorted(cuts), len(raw)]
    cut = [frame for a, b in pairwise(ends) for frame in frames.feed(raw[a:b])] + [frames.rest]
    assert b"".join(cut) == raw
    assert [data.decode() for frame in cut if (data := data_of(frame))] == EVENTS


@given(st.lists(st.integers(0, len(TEXT.encode()))))
def test_events_do_not_depend_on_where_bytes_are_split(cuts: list[int]) -> None:
    check_events(cuts)


def test_events_do_not_depend_on_any_single_split() -> None:
    for cut in range(len(TEXT.encode()) + 1):
        check_events([cut])
    check_events(list(range(len(TEXT.encode()))))


@pytest.mark.parametrize("piece", [b"x", b"data: x\n", b": x", b"event: x"])
def test_an_endless_event_is_refused(piece: bytes) -> None:
    frames = Frames(1000)

    def endless() -> None:
        for _ in range(2000):
            frames.feed(piece)

    with pytest.raises(EventTooLarge, match="too large"):
        endless()


# --- retries and limits -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ("3", 3.0),
        ("-1", 0.0),
        ("9999", 9999.0),
        ("1e400", math.inf),
        ("9" * 5000, math.inf),
        (None, None),
        ("soon", None),
        ("nan", None),
        ("Thu, 01 Jan 100000000000000000000 00:00:00 GMT", None),
        ("Thu, 99 Foo 9999 99:99:99 GMT", None),
        ("Thu, 01 Jan 1970 00:01:00 GMT", 30.0),
    ],
)
def test_retry_after(asked: str | None, seconds: float | None) -> None:
    assert waited(asked, now=30.0) == seconds


def test_retries_count_what_may_be_charged() -> None:
    place = Endpoint("http://h/v1", retries=5, pause=0.0)
    said = iter([Failed("a", "status", again=True), Failed("b", "cut", again=True, charged=True), None])

    async def call() -> int:
        error = next(said)
        if error is not None:
            raise error
        return 7

    tried = asyncio.run(retried(call, place, RateLimit()))
    assert (tried.value, tried.charged) == (7, 1)

    async def charging() -> int:
        raise Failed("c", "cut", again=True, charged=True)

    with pytest.raises(GaveUp, match="tries: 4") as caught:
        asyncio.run(retried(charging, place, RateLimit()))
    assert caught.value.charged_calls == 4


@pytest.mark.parametrize(
    ("timeout", "asked", "calls"), [(1.0, 1e30, 1), (1.0, math.inf, 1), (1.0, 50.0, 3), (200.0, 50.0, 5)]
)
def test_one_purchase_waits_no_longer_in_all_than_two_minutes_or_its_timeout(
    timeout: float, asked: float, calls: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The calls take no place under the limit, so no time passes: only what was asked for is added up."""
    made = 0

    async def busy() -> int:
        nonlocal made
        made += 1
        raise Failed("http://h/v1 did not answer: status 429", "status", again=True, busy=True, wait=asked)

    with pytest.raises(GaveUp, match=r"too long \(tries: "):
        asyncio.run(retried(busy, Endpoint("http://h/v1", timeout=timeout, retries=6), RateLimit()))
    assert made == calls
    said = [record.getMessage() for record in caplog.records]
    together = ["http://h/v1 did not answer: status 429; the next call there is in 50 s"]
    assert said == (together if calls > 1 else [])


def test_a_place_that_does_not_become_free_in_time_is_a_failure() -> None:
    async def both() -> None:
        limit = RateLimit(at_once=1)
        place = await limit.take()
        with pytest.raises(Failed, match=r"within 0\.02 s") as caught:
            await limit.take(within=0.02)
        assert caught.value.failure == "busy"
        assert not caught.value.charged
        place.release()
        place.release()
        (await limit.take(within=0.02)).release()
        async with limit.enter():
            with pytest.raises(Failed):
                await limit.take(within=0.01)

    asyncio.run(both())

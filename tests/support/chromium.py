"""A real Chromium, driven over the DevTools protocol: open pages, click, type, take pictures.

Everything waits for a condition inside the page, never for a fixed time.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import shutil
import subprocess
import tempfile
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import aiohttp
import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
browser = pytest.mark.skipif(
    CHROMIUM is None and not os.environ.get("CI"),
    reason="no Chromium: `apt-get install chromium` (CI installs it)",
)
PATIENCE = 60.0
"""Seconds until a condition inside a page must hold; generous, since machines are slow at times."""


class Chromium:
    """A browser with one page. `problems` collects errors of scripts and violations of the page's policy."""

    def __init__(self) -> None:
        if CHROMIUM is None:
            pytest.fail("no Chromium in CI")
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        words = ["--headless=new", "--disable-gpu", "--remote-debugging-port=0", "--no-first-run"]
        words += [f"--user-data-dir={self._folder.name}", "--disable-background-networking", "--lang=en-GB"]
        words += ["--disable-component-update", "--disable-sync"]
        words += ["--no-sandbox"] if os.geteuid() == 0 else []
        self._process = subprocess.Popen(
            [CHROMIUM, *words, "about:blank"],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "TZ": "Asia/Kolkata"},
        )
        self._port = self._listening()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._numbers = iter(range(1, 10**9))
        self.problems: list[str] = []
        self._ask(self._connect())
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def _listening(self) -> int:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if found := re.search(r"listening on ws://127\.0\.0\.1:(\d+)/", line):
                self._drain = threading.Thread(target=self._process.stderr.read, daemon=True)
                self._drain.start()
                return int(found[1])
        raise RuntimeError("Chromium did not start")

    def _ask(self, job: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(job, self._loop).result(PATIENCE)

    async def _connect(self) -> None:
        self._session = aiohttp.ClientSession()
        async with self._session.get(f"http://127.0.0.1:{self._port}/json/list") as answer:
            (page,) = [one for one in await answer.json() if one["type"] == "page"]
        self._socket = await self._session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=2**27)
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            told = message.json()
            if "id" in told:
                self._waiting.pop(told["id"]).set_result(told)
            elif told["method"] == "Runtime.exceptionThrown":
                self.problems.append(str(told["params"]["exceptionDetails"]))
            elif told["method"] == "Log.entryAdded" and told["params"]["entry"]["level"] == "error":
                self.problems.append(str(told["params"]["entry"]))

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command of the protocol and return its result."""
        number = next(self._numbers)
        answer: Future[dict[str, Any]] = Future()
        self._waiting[number] = answer
        self._ask(self._socket.send_json({"id": number, "method": method, "params": params}))
        told = answer.result(PATIENCE)
        assert "error" not in told, told
        return dict(told["result"])

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        told = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def until(self, condition: str) -> Any:
        """Wait until an expression is true in the page, and return its value."""
        script = (
            f"new Promise((done, fail) => {{ const end = Date.now() + {PATIENCE * 800};"
            f" const look = () => {{ let v; try {{ v = ({condition}) }} catch (e) {{ v = null }}"
            " if (v) done(v); else if (Date.now() > end) fail(new Error('never: ' + document.title));"
            " else setTimeout(look, 20) }; look() })"
        )
        try:
            return self.run(script)
        except AssertionError as error:
            if "navigat" in str(error) or "destroyed" in str(error):  # the page changed while we looked
                return self.until(condition)
            raise

    def open(self, url: str) -> None:
        """Open an address and wait until its scripts have run."""
        self.run("document.documentElement.dataset.old = 'yes'")
        self.send("Page.navigate", url=url)
        self.until("!document.documentElement.dataset.old && document.readyState === 'complete'")

    def click(self, selector: str) -> None:
        """Click with the mouse in the middle of an element."""
        self.until(f"document.querySelector({selector!r})")
        x, y = self.run(
            f"(() => {{ const e = document.querySelector({selector!r});"
            " e.scrollIntoView({block: 'center'});"
            " const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2] })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Drag with the left button from one point of the page to another."""
        for kind, (x, y) in (("Moved", start), ("Pressed", start), ("Moved", end), ("Released", end)):
            button = {} if kind == "Moved" and (x, y) == start else {"button": "left", "clickCount": 1}
            self.send("Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, **button)

    def press(self, key: str) -> None:
        """Press a key on the keyboard."""
        text = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
        code = {"Enter": 13, "Escape": 27}.get(key, ord(key[0].upper()))
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def choose(self, selector: str, value: str) -> None:
        """Choose an option of a list, as a person does: the list says that it changed."""
        self.run(
            f"(() => {{ const e = document.querySelector({selector!r}); e.value = {value!r};"
            " e.dispatchEvent(new Event('change', {bubbles: true})) })()"
        )

    def screen(self, width: int, height: int) -> None:
        """Set the size of the screen."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """Write a PNG of the page; of all of it unless `whole` is false."""
        told = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(told["data"]))

    def close(self) -> None:
        """End the browser and everything that belongs to it."""
        self._ask(self._finish())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()
        self._process.wait(PATIENCE)
        self._drain.join(PATIENCE)
        assert self._process.stderr is not None
        self._process.stderr.close()
        self._folder.cleanup()

    async def _finish(self) -> None:
        await self._socket.send_json({"id": 0, "method": "Browser.close"})
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        await self._socket.close()
        await self._session.close()

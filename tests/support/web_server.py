"""An aiohttp server on a free port of 127.0.0.1, in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import threading

from aiohttp import web


class WebServer:
    """Serves POST /v1/... by `answer`, which sub-classes write; running once it is made, until `close`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(30)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        raise NotImplementedError

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v1/{wire:.*}", self.answer)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        self._loop.run_until_complete(runner.setup())
        self._loop.run_until_complete(web.TCPSite(runner, "127.0.0.1", 0).start())
        self.port = runner.addresses[0][1]
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

"""Streams at a steady pace, for little processor time: clients and a probe, written on sockets.

    python -m benchmarks.paced URL     ask /healthz twenty times a second until stdin closes

They do little per event, so that the gateway is the busiest part and 256 streams fit on the core that it does
not have. The probe is a process that only waits: its delays are those of the gateway's event loop, not of a
load generator that is busy itself.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import select
import sys
import time
import urllib.parse
from dataclasses import dataclass, field
from typing import cast

END = b"0\r\n\r\n"
"""The last bytes of a chunked body."""


@dataclass
class Count:
    """Streams that were read to their end, and replies that were anything else."""

    answered: int = 0
    failed: int = 0
    open: int = 0
    stop: bool = False
    idle: asyncio.Event = field(default_factory=asyncio.Event)


class Client(asyncio.Protocol):
    """One client: sends `request` again as soon as the reply to it has ended, until `count.stop`."""

    def __init__(self, request: bytes, count: Count) -> None:
        self.request, self.count = request, count
        self.good = True
        self.tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.count.open += 1
        self.ask()

    def ask(self) -> None:
        """Send the request, or close if the run is over."""
        if self.count.stop:
            self.transport.close()
            return
        self.tail = b""
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        if not self.tail:
            self.good = data.startswith(b"HTTP/1.1 200")
        self.tail = (self.tail + data)[-len(END) - 16 :]
        if self.tail.endswith(END) or not self.good:
            self.count.answered += self.good
            self.count.failed += not self.good
            self.ask()

    def connection_lost(self, error: Exception | None) -> None:
        self.count.open -= 1
        if not self.count.stop:
            self.count.failed += 1
        if self.count.open == 0:
            self.count.idle.set()


async def steady(url: str, body: bytes, streams: int, seconds: float) -> Count:
    """Keep `streams` open for so many seconds and let the last ones end."""
    place = urllib.parse.urlsplit(url)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {place.netloc}\r\ncontent-type: application/json\r\n"
    request = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
    loop, count = asyncio.get_running_loop(), Count()
    for _ in range(streams):
        await loop.create_connection(lambda: Client(request, count), place.hostname, place.port)
        await asyncio.sleep(min(seconds / 10, 2.0) / streams)
    await asyncio.sleep(seconds)
    count.stop = True
    await asyncio.wait_for(count.idle.wait(), 120)
    return count


def probe(url: str) -> None:
    """Print, once standard input is closed, how many seconds every request to /healthz took."""
    place = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
    delays = []
    while not select.select([sys.stdin], [], [], 0.05)[0]:
        begun = time.perf_counter()
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        delays.append(time.perf_counter() - begun)
    print(json.dumps(delays))


if __name__ == "__main__":
    probe(sys.argv[1])

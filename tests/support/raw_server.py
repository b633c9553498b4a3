"""A server of plain sockets on 127.0.0.1 that speaks as badly as a test wants, for ever if need be."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

Script = Callable[[bytes], Iterable[bytes]]
"""What to send after a request was read, piece by piece; may be endless."""
PAUSE = 0.005


class RawServer:
    """Answers every connection with `script(request)`, one piece every `pause` seconds, then closes it."""

    def __init__(self, script: Script, pause: float = PAUSE) -> None:
        self.script, self.pause = script, pause
        self.requests: list[bytes] = []
        self.sent = 0
        self.over = threading.Event()
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=32)
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}/v1"

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:
                return
            threading.Thread(target=self.talk, args=(connection,), daemon=True).start()

    def talk(self, connection: socket.socket) -> None:
        with connection:
            request = read_request(connection)
            self.requests.append(request)
            try:
                for piece in self.script(request):
                    if self.over.is_set():
                        return
                    connection.sendall(piece)
                    self.sent += len(piece)
                    if self.pause:
                        time.sleep(self.pause)
            except OSError:
                return


def read_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return data
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    while len(body) < int(fields.get(b"content-length", b"0")):
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@contextmanager
def raw_server(script: Script, pause: float = PAUSE) -> Iterator[RawServer]:
    server = RawServer(script, pause)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.listening.shutdown(socket.SHUT_RDWR)
        server.listening.close()
        thread.join(5.0)


def reply(body: bytes, kind: str = "application/json", status: str = "200 OK", **headers: str) -> bytes:
    fields = {"Content-Type": kind, "Content-Length": str(len(body)), "Connection": "close", **headers}
    lines = [f"HTTP/1.1 {status}", *(f"{name.replace('_', '-')}: {value}" for name, value in fields.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def for_ever(piece: bytes) -> Iterator[bytes]:
    while True:
        yield piece

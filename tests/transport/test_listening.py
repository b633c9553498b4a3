"""Sockets that services listen on."""

from __future__ import annotations

import socket
from contextlib import closing

from pandora_router.transport.asgi import Address


def test_connections_send_small_parts_at_once() -> None:
    """Without it the body of an answer waits for the acknowledgement of its headers: 40 ms a request."""
    with closing(Address("127.0.0.1", 0).bind(keys=False)) as listening:
        with socket.create_connection(listening.getsockname()), closing(listening.accept()[0]) as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert listening.proto == socket.IPPROTO_TCP  # what asyncio asks before it sets the option

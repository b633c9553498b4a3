"""Connections that are given up while they are opened."""

from __future__ import annotations

import asyncio

import pytest

from pandora_router.transport.asgi import run_event_loop
from pandora_router.transport.connection_pool import ConnectionPool, target_of


@pytest.mark.parametrize("run", [run_event_loop, asyncio.run], ids=["uvloop", "asyncio"])
def test_a_connection_that_is_given_up_while_it_is_opened_is_forgotten(run):
    """A deadline may pass between the connection and its use; the loop must still come to its end."""

    async def give_up():
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        pool = ConnectionPool()
        target = target_of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        given_up = 0
        for _ in range(20):
            opening = asyncio.ensure_future(pool.connect(target))
            while not pool.opened and not opening.done():
                await asyncio.sleep(0)
            given_up += opening.cancel()
            await asyncio.wait([opening])
        await asyncio.wait_for(pool.close(), 10.0)
        server.close()
        return given_up

    assert run(give_up()), "every connection was in use before it could be given up"

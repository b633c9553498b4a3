"""The least that a gateway can do: a Starlette application that passes bytes on with aiohttp.

The yardstick of `python -m benchmarks.gateway`: no reading of requests, no decision, no store. Run with
`uvicorn benchmarks.bare:app`; UPSTREAM names the address that requests are passed to. With STORE, the path of
a SQLite database, every request also writes a row before it is passed on and completes it afterwards, each in
a transaction of its own in a thread: the least that durable rows cost if no two requests share a commit.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
import uuid
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import aiohttp
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

UPSTREAM = os.environ.get("UPSTREAM", "")
STORE = os.environ.get("STORE", "")
SESSION: list[aiohttp.ClientSession] = []
THREAD = ThreadPoolExecutor(1)
DATABASE: list[sqlite3.Connection] = []


def connect() -> None:
    database = sqlite3.connect(STORE, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    database.execute("CREATE TABLE requests (id TEXT PRIMARY KEY, at REAL, ended REAL)")
    DATABASE.append(database)


def write(sql: str, *values: object) -> None:
    DATABASE[0].execute(sql, values)


async def stored(sql: str, *values: object) -> None:
    if STORE:
        await asyncio.get_running_loop().run_in_executor(THREAD, write, sql, *values)


async def answer(request: Request) -> Response:
    body = await request.body()
    id_ = uuid.uuid4().hex
    await stored("INSERT INTO requests (id, at) VALUES (?, ?)", id_, time.time())
    headers = {"Content-Type": "application/json"}
    sent = await SESSION[0].post(UPSTREAM + request.url.path, data=body, headers=headers)
    kind = sent.headers.get("Content-Type", "application/json")
    if not kind.startswith("text/event-stream"):
        async with sent:
            whole = await sent.read()
        await stored("UPDATE requests SET ended = ? WHERE id = ?", time.time(), id_)
        return Response(whole, sent.status, media_type=kind)

    async def parts() -> AsyncIterator[bytes]:
        async with sent:
            async for part in sent.content.iter_any():
                yield part
        await stored("UPDATE requests SET ended = ? WHERE id = ?", time.time(), id_)

    return StreamingResponse(parts(), sent.status, media_type=kind)


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        SESSION.append(session)
        if STORE:
            await asyncio.get_running_loop().run_in_executor(THREAD, connect)
        yield


app = Starlette(routes=[Route("/v1/chat/completions", answer, methods=["POST"])], lifespan=lifespan)

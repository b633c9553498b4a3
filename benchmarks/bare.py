"""The least that a gateway can do: a Starlette application that passes bytes on with aiohttp.

The yardstick of `python -m benchmarks.gateway`: no reading of requests, no decision, no store. Run with
`uvicorn benchmarks.bare:app`; UPSTREAM names the address that requests are passed to.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

UPSTREAM = os.environ.get("UPSTREAM", "")
SESSION: list[aiohttp.ClientSession] = []


async def answer(request: Request) -> Response:
    body = await request.body()
    headers = {"Content-Type": "application/json"}
    sent = await SESSION[0].post(UPSTREAM + request.url.path, data=body, headers=headers)
    kind = sent.headers.get("Content-Type", "application/json")
    if not kind.startswith("text/event-stream"):
        async with sent:
            return Response(await sent.read(), sent.status, media_type=kind)

    async def parts() -> AsyncIterator[bytes]:
        async with sent:
            async for part in sent.content.iter_any():
                yield part

    return StreamingResponse(parts(), sent.status, media_type=kind)


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        SESSION.append(session)
        yield


app = Starlette(routes=[Route("/v1/chat/completions", answer, methods=["POST"])], lifespan=lifespan)

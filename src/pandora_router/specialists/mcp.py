"""One tool of an MCP server as a specialist: the prompt is an argument, the text of the result the answer.

The part of the Model Context Protocol (2025-06-18 and 2025-11-25) that a call of a tool needs: initialize,
tools/call, and answers to what the server asks meanwhile. Each call has a session of its own, which ends with
it: prompts share nothing, and nothing has to be closed later. A server on standard input and output is
started for each call.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from pandora_router.errors import UpstreamError
from pandora_router.transport.client import HttpCall, encoded, parse
from pandora_router.transport.endpoint import Endpoint
from pandora_router.transport.failures import RateLimit

VERSION = "2025-11-25"
"""The version that is asked for; a server may answer with an older one, which is then used."""
LARGEST = 2**20
"""Most bytes of one message from a server on standard output."""
INHERITED = ("PATH", "HOME", "LANG", "TMPDIR", "SYSTEMROOT")
"""Variables that a started server has beside those that the file names: keys of others are not passed on."""
ENDING = 2.0
"""Seconds that a server may take to end after its input was closed, and again after it was told to."""
INITIALIZE = {
    "protocolVersion": VERSION,
    "capabilities": {},
    "clientInfo": {"name": "pandora-router", "version": "1"},
}
Message = Mapping[str, Any]


class Channel(Protocol):
    """One open session with a server."""

    def send(self, message: Message) -> AbstractAsyncContextManager[AsyncIterator[Message]]:
        """Send a message; what the server says after it, until it has answered or ends."""
        ...

    def agreed(self, version: str) -> None:
        """Take note of the version of the protocol that the server speaks."""
        ...


class Server(Protocol):
    """Where the tool runs."""

    def opened(self) -> AbstractAsyncContextManager[Channel]:
        """A new session, ended on the way out; raises `UpstreamError` or `OSError`."""
        ...


@dataclass(frozen=True)
class McpTool:
    """A tool of a server. The prompt is its argument `argument`; `arguments` are the others, always alike."""

    server: Server
    tool: str
    argument: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    async def answer(self, prompt: str) -> str:
        """The text of the result; raises `UpstreamError` if the server reports an error."""
        async with self.server.opened() as channel:
            hello = await _result(channel, {"id": 1, "method": "initialize", "params": INITIALIZE})
            channel.agreed(str(hello.get("protocolVersion", VERSION)))
            await _said(channel, {"method": "notifications/initialized"})
            asked = {"name": self.tool, "arguments": {**self.arguments, self.argument: prompt}}
            result = await _result(channel, {"id": 2, "method": "tools/call", "params": asked})
        content = result.get("content")
        parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
        text = "\n".join(str(part["text"]) for part in parts if part.get("type") == "text" and "text" in part)
        if result.get("isError"):
            raise UpstreamError(f"the tool {self.tool} reports an error")
        return text


async def _said(channel: Channel, message: Message) -> None:
    """Send a message to which nothing is answered."""
    async with channel.send({"jsonrpc": "2.0", **message}):
        pass


async def _result(channel: Channel, request: Message) -> dict[str, Any]:
    """The result of a request; meanwhile questions of the server are answered.

    Raises `UpstreamError` for an error, and if the server ends before it has answered.
    """
    async with channel.send({"jsonrpc": "2.0", **request}) as messages:
        async for message in messages:
            if message.get("id") == request["id"] and "method" not in message:
                result = message.get("result")
                if isinstance(result, dict):
                    return result
                raise UpstreamError(f"{request['method']} was refused")
            if "method" in message and "id" in message:
                await _said(channel, {"id": message["id"], **_reply(str(message["method"]))})
    raise UpstreamError(f"the server ended before it answered {request['method']}")


def _reply(method: str) -> dict[str, Any]:
    """What a server gets that asks something of its client: only whether it is there."""
    if method == "ping":
        return {"result": {}}
    return {"error": {"code": -32601, "message": "not offered by this client"}}


@dataclass(frozen=True)
class Command:
    """A server on standard input and output, started for each session; its error output is not read.

    variables: names of environment variables that it gets beside `INHERITED`.
    """

    command: Sequence[str]
    variables: Sequence[str] = ()

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[Channel]:
        """The session with a process of its own, which is ended on the way out."""
        kept = {name: os.environ[name] for name in (*INHERITED, *self.variables) if name in os.environ}
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            *self.command, stdin=pipe, stdout=pipe, stderr=nothing, env=kept, limit=LARGEST
        )
        try:
            yield _Lines(process)
        finally:
            await asyncio.shield(_ended(process))


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Close the input of the process; end it if it does not end by itself."""
    assert process.stdin is not None
    process.stdin.close()
    for stop in (process.terminate, process.kill):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ENDING):
                await process.wait()
                return
        with contextlib.suppress(ProcessLookupError):
            stop()
    await process.wait()


class _Lines:
    """A session over standard input and output: one message per line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    def agreed(self, version: str) -> None:
        """Nothing: the version is not repeated here."""

    @contextlib.asynccontextmanager
    async def send(self, message: Message) -> AsyncIterator[AsyncIterator[Message]]:
        """Write one line; then all that the server writes."""
        assert self._process.stdin is not None
        self._process.stdin.write(encoded(message) + b"\n")
        await self._process.stdin.drain()
        yield self._messages()

    async def _messages(self) -> AsyncIterator[Message]:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            if line.strip():
                yield parse(line, "a message of the server")


@dataclass(frozen=True)
class HttpServer:
    """A server with streamable HTTP at a path of an endpoint."""

    endpoint: Endpoint
    path: str
    limit: RateLimit

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[Channel]:
        """The session; a server that gave it a name is told when it ends."""
        async with self.limit.enter():
            channel = _Posts(self.endpoint, self.path)
            try:
                yield channel
            finally:
                await asyncio.shield(channel.close())


class _Posts:
    """A session over HTTP: each message is a POST, answered by one JSON object or by a stream."""

    def __init__(self, endpoint: Endpoint, path: str) -> None:
        self._endpoint, self._path = endpoint, path
        self._headers: dict[str, str] = {}

    def agreed(self, version: str) -> None:
        """Repeat the version in each further request."""
        self._headers["mcp-protocol-version"] = version

    @contextlib.asynccontextmanager
    async def send(self, message: Message) -> AsyncIterator[AsyncIterator[Message]]:
        """Post the message; then what the reply holds."""
        accept = "application/json, text/event-stream"
        call = await HttpCall.open(self._endpoint, self._path, message, accept=accept, headers=self._headers)
        try:
            session = call.opened.headers.get("mcp-session-id")
            if session is not None:
                self._headers["mcp-session-id"] = session
            yield self._messages(call)
        finally:
            call.close()

    async def _messages(self, call: HttpCall) -> AsyncIterator[Message]:
        if not call.streamed:
            yield await call.json()
            return
        async for data in call.events():
            if data.strip():
                yield call.redaction.tree(parse(data, "an event of the server"))

    async def close(self) -> None:
        """End a session that has a name; a server that does not want to be told is left alone."""
        if "mcp-session-id" not in self._headers:
            return
        with contextlib.suppress(UpstreamError):
            call = await HttpCall.open(
                self._endpoint, self._path, None, method="DELETE", headers=self._headers
            )
            call.close()

"""Connection errors and timeouts as `Failed`; also the place where aiohttp is imported."""

from __future__ import annotations

import asyncio
from types import ModuleType, TracebackType

from pandora_router.errors import PandoraError, missing_package
from pandora_router.transport.connections import Broken, Unreachable
from pandora_router.transport.failures import Failed


class Guard:
    """Context manager that turns errors of aiohttp, of the system and of the deadline into `Failed`."""

    def __init__(self, url: str, deadline: float, timeout: float) -> None:
        self._url, self._timeout = url, timeout
        self._clock = asyncio.timeout_at(deadline)

    async def __aenter__(self) -> None:
        await self._clock.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._clock.__aexit__(kind, error, trace)
        except TimeoutError:
            raise late(self._url, self._timeout) from None
        if error is not None and not isinstance(error, PandoraError) and isinstance(error, wire_errors()):
            raise unheard(self._url, error) from None


def wire_errors() -> tuple[type[Exception], ...]:
    """Exceptions that a connection can raise."""
    aiohttp = library()
    return (aiohttp.ClientError, OSError, ValueError, asyncio.IncompleteReadError)


def late(url: str, timeout: float) -> Failed:
    """The failure of a server that was silent for `timeout` seconds."""
    return Failed(f"{url} did not answer within {timeout:g} s", "timeout", again=True, charged=True)


def unheard(url: str, error: BaseException) -> Failed:
    """What went wrong on the wire, in our own words."""
    aiohttp = library()
    name = type(error).__name__
    if isinstance(error, Unreachable):
        return Failed(f"{url} could not be reached ({error})", "connection", again=True)
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ClientConnectionResetError):
        reason = type(error.os_error).__name__ if isinstance(error, aiohttp.ClientConnectorError) else name
        return Failed(f"{url} could not be reached ({reason})", "connection", again=True)
    if isinstance(error, aiohttp.ClientPayloadError) or (isinstance(error, Broken) and error.begun):
        return Failed(f"the reply of {url} was cut off", "cut", again=True, charged=True)
    if isinstance(error, aiohttp.ClientResponseError | ValueError):
        return Failed(f"{url} did not answer in HTTP ({name})", "invalid reply", again=True, charged=True)
    return Failed(f"the connection to {url} broke ({name})", "connection", again=True, charged=True)


def library() -> ModuleType:
    """aiohttp, imported on first use; `UsageError` if it is not installed."""
    try:
        import aiohttp
    except ImportError:
        raise missing_package("a call to an endpoint", "aiohttp", "http") from None
    return aiohttp

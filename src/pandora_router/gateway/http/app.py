"""The gateway as one ASGI application: the three wires, routing endpoints, health and metrics.

    POST /v1/chat/completions, /v1/responses, /v1/messages      answered by a specialist
    POST /v1/messages/count_tokens, /v1/embeddings,
         /v1/responses/input_tokens, /v1/responses/compact      passed to one specialist
    GET, DELETE /v1/responses/{id}                              passed to the specialist that wrote it
    GET  /v1/models, /v1/models/{id}                            what may be named as `model`
    POST /v1/routing/decision                                   decide, call nobody
    GET  /v1/routing/decisions/{id}                             one decision with its attempts
    POST /v1/feedback                                           what an answer was worth
    GET  /healthz, /readyz, /metrics, /openapi.json

Errors have the shape of the wire they happen on. A request that ends in a bug is answered with status 500 and
an id that is also in the log; no text of the request is logged.
"""

from __future__ import annotations

import logging
import random
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pandora_router.errors import PandoraError, UpstreamError
from pandora_router.gateway.generation import Site
from pandora_router.gateway.http import endpoints, mcp_tools
from pandora_router.gateway.http.client_stream import Sending
from pandora_router.gateway.http.telemetry import Traces, log_line
from pandora_router.gateway.providers.backend import Circuit
from pandora_router.gateway.request.exchange import Exchange
from pandora_router.gateway.request.looks import LookOutlook, outlooks, starting
from pandora_router.prices import Lengths
from pandora_router.store import log
from pandora_router.store.worker import Store
from pandora_router.transport.asgi import (
    ON_DISCONNECT,
    Application,
    Gone,
    OnDisconnect,
    Receive,
    Refused,
    Scope,
    Send,
    frames_of,
    from_a_website,
    read_body,
    watched,
)
from pandora_router.wires.known import BY_NAME, BY_PATH
from pandora_router.wires.wire import Wire

logger = logging.getLogger("pandora_router.gateway")
requests = logging.getLogger("pandora_router.gateway.requests")
WEBSITE = "Without keys a request must be addressed to 127.0.0.1 or localhost and not come from a website."


@dataclass
class Gateway:
    """The application. A reload replaces `site`; circuit breakers and measurements are kept.

    `mounted` are other applications by the first part of their paths, such as `/dashboard`. `worker` is the
    name of this process in the store; None if it is not registered there.
    """

    site: Site
    store: Store
    rng: random.Random = field(default_factory=random.SystemRandom)
    circuits: dict[str, Circuit] = field(default_factory=lambda: defaultdict(Circuit))
    measured: dict[str, Lengths] = field(default_factory=lambda: defaultdict(Lengths))
    started: float = field(default_factory=time.time)
    busy: int = 0
    traces: Traces | None = None
    worker: str | None = None
    mounted: dict[str, Application] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.install(self.site)

    def install(self, site: Site) -> None:
        """Use another site from the next request on; the store assigns its generation number.

        Specialists that were not called yet start from the lengths and speeds of the fit.
        """
        artifact = "" if site.router is None else site.router.id
        number = self.store.submit(
            lambda open_: log.generation(open_, site.hash, artifact, time.time())
        ).result()
        for name, lengths in starting(site).items():
            self.measured.setdefault(name, lengths)
        shared: dict[tuple[str, str], Circuit] = {}
        for backend in site.backends:  # the same model at several efforts fails as one
            place = backend.endpoint.base_url, backend.model
            self.circuits[backend.name] = shared.setdefault(place, self.circuits[backend.name])
        self.site = replace(site, generation=number)

    def outlooks(self) -> tuple[LookOutlook, ...]:
        """What looks at each specialist cost with the present site, as far as this worker has measured."""
        return outlooks(self.site, self.measured)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request; other protocols except `lifespan` are closed."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        mounted = self.mounted.get("/" + scope["path"].lstrip("/").partition("/")[0])
        if mounted is not None:
            await mounted(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        wire = BY_PATH.get(scope["path"])
        self.busy += 1
        try:
            if scope["path"] != "/healthz" and not self.site.settings.keys and from_a_website(headers):
                await Sending(send, wire or BY_NAME["chat"], 0.0).refuse(Refused(403, WEBSITE, "website"), {})
            elif wire is not None and scope["method"] == "POST":
                notify = scope.get("extensions", {}).get(ON_DISCONNECT, {}).get("notify")
                await self._serve(wire, headers, receive, send, notify)
            else:
                await self._question(scope, headers, receive, send)
        finally:
            self.busy -= 1

    def exchange(self, wire: Wire, headers: Mapping[str, str]) -> Exchange:
        """One request to the present site."""
        shared = (self.site, self.store, self.circuits, self.measured)
        return Exchange(*shared, wire, headers, self.rng, worker=self.worker)

    async def _serve(
        self,
        wire: Wire,
        headers: Mapping[str, str],
        receive: Receive,
        send: Send,
        notify: OnDisconnect | None,
    ) -> None:
        exchange = self.exchange(wire, headers)
        sending = Sending(send, wire, self.site.settings.ping)
        status = "error"
        try:
            body = await read_body(receive, self.site.settings.largest_request, self.site.settings.patience)
            await watched(receive, exchange.serve(body, sending), notify)
            status = "error" if exchange.answered is None else exchange.answered.status
        except Refused as refused:
            await sending.refuse(refused, {"x-pandora-decision-id": exchange.id})
        except Gone:
            status = "cancelled"
        except Exception as error:
            _log_bug(exchange.id, error)
            await sending.refuse(Refused(500, f"A bug in the gateway: {exchange.id}.", "bug"), {})
        finally:
            sending.close()
            exchange.abandon(status)
            self._tell(exchange, status, sending.status)

    def _tell(self, exchange: Exchange, status: str, code: int | None) -> None:
        """Log and trace a finished request, if switched on."""
        settings = self.site.settings
        if settings.log == "json":
            requests.info("request", log_line(exchange, status, code, bodies=settings.log_bodies))
        if self.traces is not None:
            self.traces.record(exchange, status, time.time())

    async def _question(self, scope: Scope, headers: Mapping[str, str], receive: Receive, send: Send) -> None:
        """Requests that no wire answers; see `questions`."""
        path = scope["path"]
        wire = BY_NAME["messages" if path.startswith("/v1/messages") else "chat"]
        sending = Sending(send, wire, 0.0)
        try:
            asked = mcp_tools.answer if path == mcp_tools.PATH else endpoints.answer
            answer = await asked(self, scope, headers, receive)
            await answer.send(sending)
        except Refused as refused:
            await sending.refuse(refused, {})
        except Gone:
            return
        except UpstreamError as error:
            await sending.refuse(Refused(503, str(error), "store_failed"), {})
        except PandoraError as error:
            await sending.refuse(Refused(400, str(error), "invalid_request"), {})
        except Exception as error:
            id_ = f"{time.time_ns():x}"
            _log_bug(id_, error)
            await sending.refuse(Refused(500, f"A bug in the gateway: {id_}.", "bug"), {})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def _log_bug(id_: str, error: Exception) -> None:
    logger.error("bug %s: %s at %s", id_, type(error).__name__, frames_of(error))

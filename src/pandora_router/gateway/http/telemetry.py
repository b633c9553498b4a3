"""What is recorded of requests: lines of a log, OpenTelemetry spans, metrics for Prometheus.

Logs are JSON lines: events of the server, and one line per request. Bodies are written only if configured,
truncated to `LONGEST` characters and without secrets and mail addresses. Otherwise the line of a request has
no text of the client except the name of the model.

Spans (extra `[otel]`) have the names of the conventions for generative AI. A request is a span of kind
server, each call to a specialist a child of kind client. Spans are created from measurements after the
request has ended, so they do not delay it. A `traceparent` header continues the client's trace. Spans never
contain texts of prompts and answers.

Metrics are read from the store, so that all workers report the same counters: sums over the roll-ups per
hour, which retention never deletes, so they only grow. Gauges describe the worker that answered.
"""

from __future__ import annotations

import logging
import os
import re
import time
from typing import TYPE_CHECKING, Any, TextIO

import orjson

from pandora_router.errors import missing_package
from pandora_router.gateway.request.exchange import Exchange
from pandora_router.learn.mix import MixState
from pandora_router.store import alerts
from pandora_router.store.database import Row, Transaction
from pandora_router.store.money import dollars
from pandora_router.wires.usage import Usage
from pandora_router.wires.wire import Name

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

    from pandora_router.gateway.http.app import Gateway

LONGEST = 10_000
_HIDDEN = re.compile(
    r"(?i)(?:bearer\s+\S+)|\b(?:sk|pk|rk|ghp|gho|xox[a-z]|AKIA|AIza)[-_A-Za-z0-9]{12,}"
    r"|[\w.+-]{1,64}@[\w-]+\.[\w.-]+|\b\d(?:[ -]?\d){11,18}\b"
)


def redacted(text: str) -> str:
    """The text without keys, bearer tokens, mail addresses and long numbers such as those of cards.

    >>> redacted("mail bob@example.org with sk-abcdefghijklmnop")
    'mail [redacted] with [redacted]'
    """
    return _HIDDEN.sub("[redacted]", text)


class JsonLines(logging.Formatter):
    """Formats log records as JSON objects."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        entry = {"at": record.created, "level": record.levelname.lower(), "message": record.getMessage()}
        if isinstance(record.args, dict) and record.name.endswith(".requests"):
            entry = {"at": record.created, "level": "info", "event": "request", **record.args}
        return orjson.dumps(entry, default=str).decode()


def log_as_json(stream: TextIO) -> None:
    """Write the logs of the gateway to `stream` as JSON lines, requests included."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    for name in ("pandora_router.gateway", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
    logging.getLogger("pandora_router.gateway").setLevel(logging.INFO)


def log_line(exchange: Exchange, status: str, code: int | None, *, bodies: bool) -> dict[str, Any]:
    """The line of one request; `code` is the HTTP status that was sent, None if none was."""
    last = exchange.answered
    line: dict[str, Any] = {
        "decision": exchange.id,
        "wire": exchange.wire.name,
        "status": status,
        "code": code,
        "model": None if exchange.turn is None else exchange.turn.model[:200],
        "stream": exchange.turn is not None and exchange.turn.stream,
        "specialist": None if last is None else last.backend.name,
        "policy": None if exchange.choice is None else exchange.choice.policy,
        "key": None if exchange.ledger.key is None else exchange.ledger.key.name,
        "attempts": len(exchange.attempts),
        "cost": dollars(sum(attempt.cost for attempt in exchange.attempts)),
        "overhead_ms": round(1000.0 * exchange.overhead, 2),
        "seconds": round(time.time() - exchange.begun, 4),
        "generation": exchange.site.generation,
    }
    if bodies:
        line["request"] = redacted(exchange.body[:LONGEST].decode("utf-8", "replace"))
    return line


PROVIDERS: dict[Name, str] = {"chat": "openai", "responses": "openai", "messages": "anthropic"}


class Traces:
    """Spans go to `exporter`; without one to the OTLP collector that the OTEL_* variables name."""

    def __init__(self, exporter: SpanExporter | None = None) -> None:
        """Raises `UsageError` if OpenTelemetry is not installed."""
        try:
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

            if exporter is None:
                from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

                exporter = OTLPSpanExporter()
        except ImportError as error:
            raise missing_package("serve.traces", error.name or "opentelemetry", "otel") from error
        self._provider = TracerProvider(resource=Resource.create({"service.name": "pandora-router"}))
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("pandora_router.gateway")
        self._context = TraceContextTextMapPropagator()

    def record(self, exchange: Exchange, status: str, now: float) -> None:
        """Make the spans of a request that has ended with `status` at the Unix time `now`."""
        from opentelemetry.trace import SpanKind, set_span_in_context
        from opentelemetry.trace.status import Status, StatusCode

        if exchange.turn is None:
            return
        about = _about(exchange)
        span = self._tracer.start_span(
            f"chat {exchange.turn.model[:100]}",
            context=self._context.extract(dict(exchange.headers)),
            kind=SpanKind.SERVER,
            attributes={**about, **_answered(exchange)},
            start_time=_nanoseconds(exchange.begun),
        )
        inside = set_span_in_context(span)
        for attempt in exchange.attempts:
            attributes = {
                **about,
                "gen_ai.request.model": attempt.backend.model,
                "pandora.specialist": attempt.backend.name,
                "pandora.attempt.kind": attempt.kind,
                "pandora.cost": dollars(attempt.cost),
                **_counts(attempt.reader.usage),
            }
            call = self._tracer.start_span(
                f"chat {attempt.backend.model}",
                context=inside,
                kind=SpanKind.CLIENT,
                attributes=attributes,
                start_time=_nanoseconds(attempt.begun),
            )
            if attempt.status == "error":
                call.set_attribute("error.type", "upstream")
                call.set_status(Status(StatusCode.ERROR))
            call.end(_nanoseconds(attempt.ended or now))
        if status not in ("ok", "cancelled"):
            span.set_attribute("error.type", status)
            span.set_status(Status(StatusCode.ERROR))
        span.end(_nanoseconds(now))

    def close(self) -> None:
        """Export what is waiting and stop."""
        self._provider.shutdown()


def _about(exchange: Exchange) -> dict[str, Any]:
    turn = exchange.asked
    about: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": PROVIDERS[exchange.wire.name],
        "gen_ai.request.model": turn.model[:200],
        "pandora.decision.id": exchange.id,
        "pandora.wire": exchange.wire.name,
    }
    if turn.max_output is not None:
        about["gen_ai.request.max_tokens"] = turn.max_output
    return about


def _answered(exchange: Exchange) -> dict[str, Any]:
    attributes: dict[str, Any] = {"pandora.overhead": exchange.overhead}
    if exchange.choice is not None:
        attributes |= {
            "pandora.policy": exchange.choice.policy,
            "pandora.inspected": list(exchange.choice.inspected),
        }
    last = exchange.answered
    if last is not None:
        attributes |= {"gen_ai.response.model": last.backend.model, "pandora.specialist": last.backend.name}
        attributes |= _counts(last.reader.usage)
        if last.reader.response is not None:
            attributes["gen_ai.response.id"] = last.reader.response
    return attributes


def _counts(usage: Usage | None) -> dict[str, int]:
    if usage is None:
        return {}
    whole = usage.fresh + usage.cached + usage.written
    return {"gen_ai.usage.input_tokens": whole, "gen_ai.usage.output_tokens": usage.output}


def _nanoseconds(at: float) -> int:
    return int(at * 1e9)


# name -> (column of the roll-ups, unit factor, help)
COUNTERS = {
    "requests_total": ("requests", 1.0, "Requests that were answered or failed."),
    "errors_total": ("errors", 1.0, "Requests that ended in an error."),
    "declined_total": ("declined", 1.0, "Requests that the router could not judge."),
    "cost_dollars_total": ("cost", dollars(1), "Money paid for answers and looks."),
    "inspection_cost_total": (
        "inspection_cost",
        dollars(1),
        "Dollars for lost looks and estimates.",
    ),
    "overhead_seconds_total": ("overhead", 1.0, "Seconds between a request and the call upstream."),
    "first_token_seconds_total": ("first_token", 1.0, "Seconds to the first content, summed."),
    "first_tokens_total": ("first_tokens", 1.0, "Requests with a first content."),
    "seconds_total": ("seconds", 1.0, "Seconds to the end of answers, summed."),
}


def _sums(open_: Transaction) -> list[Row]:
    columns = ", ".join(f"sum({column})" for column, _, _ in COUNTERS.values())
    return open_.rows(f"SELECT specialist, {columns} FROM hours GROUP BY specialist ORDER BY specialist")


def _looked(open_: Transaction) -> list[Row]:
    return open_.rows("SELECT specialist, sum(looks) FROM looked GROUP BY specialist ORDER BY specialist")


async def metrics(gateway: Gateway) -> bytes:
    """All metrics in Prometheus's text format."""
    rows, looked, raised, states, mixes = await gateway.store.run(
        lambda open_: (
            *(_sums(open_), _looked(open_), alerts.totals(open_)),
            *(alerts.drifts(open_), alerts.mixes(open_)),
        )
    )
    lines = [
        "# HELP pandora_looks_total Looks at a specialist before deciding.",
        "# TYPE pandora_looks_total counter",
        *(f'pandora_looks_total{{specialist="{_escaped(row[0])}"}} {int(row[1])}' for row in looked),
    ]
    for at, (name, (_, unit, help_)) in enumerate(COUNTERS.items(), start=1):
        lines += [f"# HELP pandora_{name} {help_}", f"# TYPE pandora_{name} counter"]
        lines += [
            f'pandora_{name}{{specialist="{_escaped(row[0])}"}} {float(row[at]) * unit:.9g}' for row in rows
        ]
    lines += ["# HELP pandora_alerts_total Alerts that were raised.", "# TYPE pandora_alerts_total counter"]
    lines += [f'pandora_alerts_total{{kind="{kind}"}} {many}' for kind, many in raised.items()]
    lines += [
        "# HELP pandora_trust_moved By how much alarms moved the worth of a specialist, in right answers.",
        "# TYPE pandora_trust_moved gauge",
    ]
    for (artifact, name), state in states.items():
        labels = f'specialist="{_escaped(name)}",router="{_escaped(artifact)}"'
        lines.append(f"pandora_trust_moved{{{labels}}} {state['shift']:.9g}")
    lines += [
        "# HELP pandora_mix_evidence Evidence that the mix of prompts has changed; 10,000 raises an alert.",
        "# TYPE pandora_mix_evidence gauge",
    ]
    for name, state in mixes.items():
        lines.append(f'pandora_mix_evidence{{known="{name}"}} {MixState.from_dict(state).evidence:.9g}')
    now = time.monotonic()
    lines += [
        "# HELP pandora_circuit_open Whether a specialist is left alone.",
        "# TYPE pandora_circuit_open gauge",
    ]
    for name, circuit in gateway.circuits.items():
        broken = int(circuit.state(now) == "open")
        lines.append(f'pandora_circuit_open{{specialist="{_escaped(name)}",worker="{os.getpid()}"}} {broken}')
    lines += [
        "# HELP pandora_look_share Expected cost of a look over that of a whole answer; 0 if none is made.",
        "# TYPE pandora_look_share gauge",
    ]
    for look in gateway.outlooks():
        share = 0.0 if look.off or not look.fare.whole else look.fare.money / look.fare.whole
        labels = f'specialist="{_escaped(look.specialist)}",worker="{os.getpid()}"'
        lines.append(f"pandora_look_share{{{labels}}} {share:.9g}")
    lines += [
        "# HELP pandora_requests_in_flight Requests that are being answered.",
        "# TYPE pandora_requests_in_flight gauge",
        f'pandora_requests_in_flight{{worker="{os.getpid()}"}} {gateway.busy}',
        "# HELP pandora_generation Number of the configuration that is served.",
        "# TYPE pandora_generation gauge",
        f'pandora_generation{{worker="{os.getpid()}"}} {gateway.site.generation}',
    ]
    return ("\n".join(lines) + "\n").encode()


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

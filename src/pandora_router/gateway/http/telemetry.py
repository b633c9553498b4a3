"""OpenTelemetry spans of requests, with the names of the conventions for generative AI (extra `[otel]`).

A request is a span of kind server, each call to a specialist a child of kind client. Spans are created from
measurements after the request has ended, so they do not delay it. A `traceparent` header continues the
client's trace. Spans never contain texts of prompts and answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pandora_router.errors import missing_package
from pandora_router.gateway.request.exchange import Exchange
from pandora_router.store.money import dollars
from pandora_router.wires.usage import Usage
from pandora_router.wires.wire import Name

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

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
                **_counts(attempt.usage),
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
        attributes |= _counts(last.usage)
        if last.response is not None:
            attributes["gen_ai.response.id"] = last.response
    return attributes


def _counts(usage: Usage | None) -> dict[str, int]:
    if usage is None:
        return {}
    whole = usage.fresh + usage.cached + usage.written
    return {"gen_ai.usage.input_tokens": whole, "gen_ai.usage.output_tokens": usage.output}


def _nanoseconds(at: float) -> int:
    return int(at * 1e9)

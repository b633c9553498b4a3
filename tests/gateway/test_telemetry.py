"""Spans of requests, read back from OpenTelemetry's in-memory exporter."""

from __future__ import annotations

import pytest

pytest.importorskip("opentelemetry.sdk", reason="pip install 'pandora-router[otel]'")

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pandora_router.gateway.http.telemetry import Traces
from tests.gateway.conftest import Serve, backend
from tests.gateway.stub import Stub
from tests.gateway.test_wires import PATHS, post, request

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize("wire", PATHS)
def test_a_request_is_a_span_with_its_calls_below_it(serve: Serve, stub: Stub, wire: str) -> None:
    gateway = serve(backend(stub, "broken"), backend(stub, "small"))
    kept = InMemorySpanExporter()
    gateway.gateway.traces = Traces(kept)
    headers = post(gateway, PATHS[wire], request(wire, "auto", stream=True), traceparent=PARENT)[1]
    gateway.settled(headers["x-pandora-decision-id"])
    gateway.close()
    gateway.gateway.traces.close()
    spans = {span.name: span for span in kept.get_finished_spans()}
    assert set(spans) == {"chat auto", "chat broken", "chat small"}
    whole, failed, answered = (spans[name] for name in ("chat auto", "chat broken", "chat small"))
    assert whole.parent is not None
    assert whole.attributes is not None
    assert whole.context.trace_id == int("0af7651916cd43dd8448eb211c80319c", 16)
    assert whole.attributes["gen_ai.operation.name"] == "chat"
    assert whole.attributes["gen_ai.provider.name"] == ("anthropic" if wire == "messages" else "openai")
    assert whole.attributes["gen_ai.response.model"] == "small"
    assert whole.attributes["gen_ai.usage.input_tokens"] == 20
    assert whole.attributes["gen_ai.usage.output_tokens"] == 4
    assert whole.attributes["pandora.decision.id"] == headers["x-pandora-decision-id"]
    for call in (failed, answered):
        assert call.parent is not None
        assert call.parent.span_id == whole.context.span_id
    assert (failed.status.is_ok, answered.status.is_ok, whole.status.is_ok) == (False, True, True)
    assert "hi" not in [value for span in spans.values() for value in (span.attributes or {}).values()]

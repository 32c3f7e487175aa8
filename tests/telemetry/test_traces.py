"""Windows as traces, read with the published messages of OpenTelemetry."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from google.protobuf import json_format  # type: ignore[import-untyped]  # its stubs are another package
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from dagflow.engine.run import run
from dagflow.journal.windows import PHASES, Window, WindowIntent, WindowPlan
from dagflow.runtime.inline import InlineRuntime
from dagflow.telemetry.traces import WindowTrace, otlp_request
from tests.telemetry.app import orders
from tests.telemetry.http_receiver import receiving


def parsed(body: object) -> ExportTraceServiceRequest:
    """A request as a collector reads it; ids are hex in OTLP's JSON, and base64 in that of protobuf."""
    text = json.dumps(body)
    for match in {span[key] for span in spans_of(body) for key in ("traceId", "spanId")}:
        text = text.replace(match, base64.b64encode(bytes.fromhex(match)).decode())
    request = ExportTraceServiceRequest()
    json_format.Parse(text, request)
    return request


def spans_of(body: object) -> list[dict[str, str]]:
    """The spans of a request."""
    assert isinstance(body, dict)
    return [span for each in body["resourceSpans"] for scope in each["scopeSpans"] for span in scope["spans"]]


def test_each_window_of_a_run_is_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a span for each phase below that of the window, in the order of time."""
    monkeypatch.chdir(tmp_path)
    with receiving() as server:
        done = run(orders(tmp_path, f"traces: {{url: '{server.url}', headers: {{Key: k}}}}"), runtime=InlineRuntime)
    requests = [parsed(body) for body in server.bodies]
    resource = {each.key: each.value.string_value for each in requests[0].resource_spans[0].resource.attributes}
    assert resource["service.name"] == "orders"
    assert resource["dagflow.checkpoint"] == str(tmp_path / "journal")
    assert server.headers[0]["Key"] == "k"
    spans = [
        span for each in requests for of in each.resource_spans for scope in of.scope_spans for span in scope.spans
    ]
    by_trace: dict[bytes, list[str]] = {}
    for span in spans:
        assert len(span.trace_id) == 16 and len(span.span_id) == 8
        assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
        by_trace.setdefault(span.trace_id, []).append(span.name)
    assert len(by_trace) == done.windows > 1
    assert set(map(tuple, by_trace.values())) == {("window", *(f"window {phase}" for phase in PHASES))}
    roots = {span.span_id for span in spans if span.name == "window"}
    assert {span.parent_span_id for span in spans if span.name != "window"} == roots


def test_no_phase_ends_before_it_begins() -> None:
    """Whatever the clocks of tasks say, and where a time is not known."""
    intent = WindowIntent(3, started_ms=900, finished_ms=0, committed_ms=2_000)
    trace = WindowTrace.of(Window(WindowPlan(3, planned_ms=1_000), intent, published_ms=1_500))
    assert trace.moments_ms == (1_000, 1_000, 1_000, 1_000, 2_000, 2_000)
    assert len(spans_of(json.loads(otlp_request([trace, trace], [("a", "b")], "1")))) == 12

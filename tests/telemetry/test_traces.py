"""Windows as traces, read with the published messages of OpenTelemetry."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from dagflow.engine.run import run
from dagflow.journal.windows import PHASES, Window, WindowIntent, WindowPlan
from dagflow.runtime.local import InlineRuntime
from dagflow.telemetry.traces import spans_of
from tests.telemetry.app import orders
from tests.telemetry.http_receiver import receiving


def test_each_window_of_a_run_is_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a span for each phase below that of the window, in the order of time."""
    monkeypatch.chdir(tmp_path)
    with receiving() as server:
        done = run(orders(tmp_path, f"traces: {{url: '{server.url}', headers: {{Key: k}}}}"), runtime=InlineRuntime)
    requests = [ExportTraceServiceRequest.FromString(body) for body in server.bodies]
    resource = {each.key: each.value.string_value for each in requests[0].resource_spans[0].resource.attributes}
    assert resource["service.name"] == "orders"
    assert resource["dagflow.checkpoint"] == str(tmp_path / "journal")
    assert (server.headers[0]["Key"], server.headers[0]["Content-Type"]) == ("k", "application/x-protobuf")
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
    window = Window(WindowPlan(3, planned_ms=1_000), intent, published_ms=1_500)
    spans = spans_of(window, Resource({}), InstrumentationScope("dagflow"))
    assert [(span.start_time, span.end_time) for span in spans[1:]] == [
        (start * 1_000_000, end * 1_000_000) for start, end in pairwise([1_000, 1_000, 1_000, 1_000, 2_000, 2_000])
    ]

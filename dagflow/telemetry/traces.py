"""Windows as traces of OpenTelemetry: OTLP over HTTP.

Each window is a trace of its own, with a span for the window and one below it for each phase. A trace that spanned a
run that follows its input for months could be neither sampled nor shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext

from dagflow.journal.windows import PHASES, Window
from dagflow.metrics import names
from dagflow.spec.app_spec import HttpTarget
from dagflow.telemetry.event_queue import EventQueue, post


def spans_of(window: Window, resource: Resource, scope: InstrumentationScope) -> list[ReadableSpan]:
    """The span of a committed window, and those of its phases below it."""
    plan, did = window.plan, window.intent
    if did is None:
        raise ValueError(f"window {plan.window_id} is not committed")
    emitted_ms = plan.emitted_ms or plan.planned_ms
    times_ms = [emitted_ms, plan.planned_ms, did.started_ms, did.finished_ms, did.committed_ms, window.published_ms]
    # Times of tasks come from other clocks, or are unknown: no phase ends before it begins.
    moments_ms = list(accumulate(times_ms, max))
    figures = {
        "dagflow.input.bytes": did.counters.total(names.BYTES),
        "dagflow.input.blocks": did.counters.total(names.BLOCKS),
        "dagflow.output.files": len(did.files),
        "dagflow.output.records": sum(file.records for file in did.files),
        "dagflow.rejects": did.counters.total(names.REJECTED),
    }
    ids = RandomIdGenerator()
    trace_id, root = ids.generate_trace_id(), ids.generate_span_id()

    def span(name: str, span_id: int, start_ms: int, end_ms: int, **attributes: int) -> ReadableSpan:
        return ReadableSpan(
            name,
            SpanContext(trace_id, span_id, is_remote=False),
            None if span_id == root else SpanContext(trace_id, root, is_remote=False),
            resource,
            {"dagflow.window": plan.window_id, **attributes},
            start_time=start_ms * 1_000_000,
            end_time=end_ms * 1_000_000,
            instrumentation_scope=scope,
        )

    phases = zip(PHASES, pairwise(moments_ms), strict=True)
    return [
        span("window", root, moments_ms[0], moments_ms[-1], **figures),
        *(span(f"window {phase}", ids.generate_span_id(), *ends_ms) for phase, ends_ms in phases),
    ]


class TraceReporter:
    """Sends the traces of a run's windows; no call waits.

    The HTTP is dagflow's own: OpenTelemetry's exporter shows the URL, logs each failure, takes a redirection for a
    success, and adds headers from the environment, which may be meant for another collector.
    """

    def __init__(self, target: HttpTarget, app: str, checkpoint: str, run_id: str, version: str) -> None:
        self._target = target
        service = {"name": app, "namespace": "dagflow", "version": version, "instance.id": run_id}
        attributes = {f"service.{name}": value for name, value in service.items()}
        self._resource = Resource({**attributes, "dagflow.checkpoint": checkpoint})
        self._scope = InstrumentationScope("dagflow", version)
        self._queue = EventQueue("traces", str(target), self._send)

    def committed(self, window: Window) -> None:
        self._queue.add(spans_of(window, self._resource, self._scope))

    def close(self, by_s: float) -> None:
        """Wait until all traces are sent, or until by_s by time.monotonic()."""
        self._queue.close(by_s)

    def _send(self, traces: Sequence[list[ReadableSpan]]) -> str:
        spans = [span for trace in traces for span in trace]
        return post(self._target, encode_spans(spans).SerializeToString(), content_type="application/x-protobuf")

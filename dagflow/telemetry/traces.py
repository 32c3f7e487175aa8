"""Windows as traces of OpenTelemetry: OTLP over HTTP.

Each window is a trace of its own, with a span for the window and one below it for each phase. A trace that spanned a
run that follows its input for months could be neither sampled nor shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

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


@dataclass(frozen=True, slots=True)
class WindowTrace:
    """The trace of one window; small, because many may wait to be sent.

    Attributes:
        moments_ms: When each phase began, and the last one ended, in milliseconds since 1970.
        figures: Its figures by the name of the attribute.
    """

    window_id: int
    moments_ms: tuple[int, ...]
    figures: dict[str, int]

    @classmethod
    def of(cls, window: Window) -> WindowTrace:
        plan, did = window.plan, window.intent
        if did is None:
            raise ValueError(f"window {plan.window_id} is not committed")
        emitted_ms = plan.emitted_ms or plan.planned_ms
        moments = [emitted_ms, plan.planned_ms, did.started_ms, did.finished_ms, did.committed_ms, window.published_ms]
        # Times of tasks come from other clocks, or are unknown: no phase ends before it begins.
        for index in range(1, len(moments)):
            moments[index] = max(moments[index], moments[index - 1])
        figures = {
            "dagflow.input.bytes": did.counters.total(names.BYTES),
            "dagflow.input.blocks": did.counters.total(names.BLOCKS),
            "dagflow.output.files": len(did.files),
            "dagflow.output.records": sum(file.records for file in did.files),
            "dagflow.rejects": did.counters.total(names.REJECTED),
        }
        return cls(plan.window_id, tuple(moments), figures)

    def spans(self, resource: Resource, scope: InstrumentationScope) -> Iterator[ReadableSpan]:
        """The span of the window, and those of its phases below it."""
        ids = RandomIdGenerator()
        trace_id, root = ids.generate_trace_id(), ids.generate_span_id()

        def span(name: str, span_id: int, start_ms: int, end_ms: int, **attributes: int) -> ReadableSpan:
            return ReadableSpan(
                name,
                SpanContext(trace_id, span_id, is_remote=False),
                None if span_id == root else SpanContext(trace_id, root, is_remote=False),
                resource,
                {"dagflow.window": self.window_id, **attributes},
                start_time=start_ms * 1_000_000,
                end_time=end_ms * 1_000_000,
                instrumentation_scope=scope,
            )

        yield span("window", root, self.moments_ms[0], self.moments_ms[-1], **self.figures)
        for phase, moments_ms in zip(PHASES, pairwise(self.moments_ms), strict=True):
            yield span(f"window {phase}", ids.generate_span_id(), *moments_ms)


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
        self._queue.add(WindowTrace.of(window))

    def close(self, by_s: float) -> None:
        """Wait until all traces are sent, or until by_s by time.monotonic()."""
        self._queue.close(by_s)

    def _send(self, traces: Sequence[WindowTrace]) -> str:
        spans = [span for trace in traces for span in trace.spans(self._resource, self._scope)]
        return post(self._target, encode_spans(spans).SerializeToString(), content_type="application/x-protobuf")

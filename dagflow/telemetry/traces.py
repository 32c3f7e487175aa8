"""Windows as traces of OpenTelemetry: OTLP over HTTP, in JSON.

Each window is a trace of its own, with a span for the window and one below it for each phase. A trace that spanned a
run that follows its input for months could be neither sampled nor shown.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dagflow.journal.windows import PHASES, Window
from dagflow.metrics import names
from dagflow.spec.signal_settings import HttpTarget
from dagflow.telemetry.event_queue import EventQueue
from dagflow.telemetry.http_post import post

_INTERNAL = 1
_SCOPE = "dagflow"


@dataclass(frozen=True, slots=True)
class WindowTrace:
    """The trace of one window; small, because many may wait to be sent.

    Attributes:
        window_id: The window.
        moments_ms: When each phase began, and the last one ended, in milliseconds since 1970.
        figures: Its figures by the name of the attribute.
    """

    window_id: int
    moments_ms: tuple[int, ...]
    figures: dict[str, int]

    @classmethod
    def of(cls, window: Window) -> WindowTrace:
        """The trace of a published window."""
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

    def spans(self) -> list[dict[str, Any]]:
        """The spans, as OTLP's JSON has them: ids in hex, times in nanoseconds as text."""
        trace, root = os.urandom(16).hex(), os.urandom(8).hex()
        attributes = [_attribute("dagflow.window", self.window_id)]
        whole = _span(trace, root, "window", self.moments_ms[0], self.moments_ms[-1])
        whole["attributes"] = attributes + [_attribute(name, value) for name, value in self.figures.items()]
        spans = [whole]
        for phase, (start_ms, end_ms) in zip(PHASES, pairwise(self.moments_ms), strict=True):
            span = _span(trace, os.urandom(8).hex(), f"window {phase}", start_ms, end_ms)
            spans.append({**span, "parentSpanId": root, "attributes": attributes})
        return spans


def _span(trace: str, span: str, name: str, start_ms: int, end_ms: int) -> dict[str, Any]:
    return {
        "traceId": trace,
        "spanId": span,
        "name": name,
        "kind": _INTERNAL,
        "startTimeUnixNano": str(start_ms * 1_000_000),
        "endTimeUnixNano": str(end_ms * 1_000_000),
    }


def _attribute(key: str, value: str | int) -> dict[str, Any]:
    return {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}


def otlp_request(traces: Sequence[WindowTrace], resource: Sequence[tuple[str, str]], version: str) -> bytes:
    """The body of an ExportTraceServiceRequest.

    Args:
        traces: The windows.
        resource: Attributes of the run.
        version: The version of dagflow.
    """
    spans = [span for trace in traces for span in trace.spans()]
    scoped = {"scope": {"name": _SCOPE, "version": version}, "spans": spans}
    described = {"attributes": [_attribute(key, value) for key, value in resource]}
    return json.dumps({"resourceSpans": [{"resource": described, "scopeSpans": [scoped]}]}).encode()


def trace_queue(target: HttpTarget, app: str, checkpoint: str, run_id: str, version: str) -> EventQueue[WindowTrace]:
    """A queue that sends the traces of a run's windows.

    Args:
        target: The address.
        app: The app.
        checkpoint: Its checkpoint, without credentials.
        run_id: The run's own id.
        version: The version of dagflow.
    """
    resource = [
        *(("service.name", app), ("service.namespace", _SCOPE), ("service.version", version)),
        *(("service.instance.id", run_id), ("dagflow.checkpoint", checkpoint)),
    ]
    return EventQueue("traces", str(target), lambda traces: post(target, otlp_request(traces, resource, version)))

"""Reports a run as OpenLineage events: START, RUNNING, and how it ended, over HTTP in JSON."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    output_statistics_output_dataset,
    processing_engine_run,
)
from openlineage.client.serde import Serde

from dagflow.errors import cut_text
from dagflow.plan.logical import LogicalPlan
from dagflow.report.snapshot import RunSnapshot
from dagflow.spec.signal_settings import HttpTarget, LineageSettings
from dagflow.telemetry.event_queue import EventQueue
from dagflow.telemetry.http_post import post
from dagflow.telemetry.lineage_datasets import PRODUCER, DatasetLocations, datasets_of

MOST_EVENT_BYTES: Final = 64 << 10
"""Bytes of the largest event: a larger one loses the lineage of its columns, then all columns, then its datasets."""

MOST_EVENTS: Final = 20
FIRST_RUNNING_S: Final = 60.0
"""When the first RUNNING event is due; each next one is after twice the time, so a month has sixteen."""

_MOST_ERROR_CHARACTERS: Final = 2000
_END: Final[Mapping[str, RunState]] = {"completed": RunState.COMPLETE, "stopped": RunState.ABORT}


class LineageReporter:
    """Reports one run.

    Guarantee: a run has one START, one end, and MOST_EVENTS events at most, each of MOST_EVENT_BYTES at most, whatever
    it reads. No call waits.

    Args:
        settings: Where events go.
        app: The app.
        locations: The locations that its operators read and publish.
        run_id: A UUID.
        version: The version of dagflow.
        follows: Whether the run keeps watching for input.
        redact: Makes a text fit to be sent.
        now: A clock, in seconds.
    """

    def __init__(
        self,
        settings: LineageSettings,
        app: LogicalPlan,
        locations: DatasetLocations,
        run_id: str,
        version: str,
        *,
        follows: bool = False,
        redact: Callable[[str], str] = str,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run_id = run_id
        self._engine = processing_engine_run.ProcessingEngineRunFacet(version, "dagflow", producer=PRODUCER)
        kind = "STREAMING" if follows else "BATCH"
        job_type = job_type_job.JobTypeJobFacet(kind, "DAGFLOW", "JOB", producer=PRODUCER)
        self._job = Job(settings.namespace, app.name, {"jobType": job_type})
        self._redact = redact
        self._inputs, self._outputs = datasets_of(app, locations)
        self._queue: EventQueue[bytes] = EventQueue("lineage events", str(settings.target), _sent_to(settings.target))
        self._events = 0
        self._now = now
        self._next_s = now() + FIRST_RUNNING_S
        self._interval_s = FIRST_RUNNING_S

    def started(self) -> None:
        """Report that the run has begun."""
        self._report(RunState.START, None)

    def progress(self, snapshot: RunSnapshot) -> None:
        """Report that the run is at work, if that is due; called a few times a second."""
        if self._now() < self._next_s or self._events >= MOST_EVENTS - 1:
            return
        self._interval_s *= 2
        self._next_s = self._now() + self._interval_s
        self._report(RunState.RUNNING, snapshot)

    def ended(self, last: RunSnapshot | None, state: str, error: str, by_s: float) -> None:
        """Report how the run ended, and wait a moment until that is sent.

        Args:
            last: Its newest figures.
            state: "completed", "stopped" or "failed".
            error: Why it failed.
            by_s: Until when to wait, by time.monotonic().
        """
        self._report(_END.get(state, RunState.FAIL), last, self._redact(error) if state == "failed" else "")
        self._queue.close(by_s)

    def _report(self, kind: RunState, snapshot: RunSnapshot | None, error: str = "") -> None:
        self._events += 1
        if snapshot is not None:
            self._add_statistics(snapshot)
        body = self._event(kind, error)
        for facet in ("columnLineage", "schema"):
            if len(body) > MOST_EVENT_BYTES:
                for dataset in (*self._inputs, *self._outputs):
                    (dataset.facets or {}).pop(facet, None)
                body = self._event(kind, error)
        if len(body) > MOST_EVENT_BYTES:
            self._inputs, self._outputs = [], []
            body = self._event(kind, error)
        self._queue.add(body)

    def _add_statistics(self, snapshot: RunSnapshot) -> None:
        """Give the figures of the run to its input and its output, where there is only one."""
        if len(self._inputs) == 1:
            read = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
                snapshot.records_read, snapshot.bytes, snapshot.files, producer=PRODUCER
            )
            self._inputs[0].inputFacets = {"inputStatistics": read}
        if len(self._outputs) == 1:
            published = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                fileCount=snapshot.published_files, producer=PRODUCER
            )
            self._outputs[0].outputFacets = {"outputStatistics": published}

    def _event(self, kind: RunState, error: str) -> bytes:
        run = Run(self._run_id, {"processing_engine": self._engine})
        if error and run.facets is not None:
            message = cut_text(error, _MOST_ERROR_CHARACTERS)
            run.facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(message, "PYTHON", producer=PRODUCER)
        event = RunEvent(
            eventType=kind,
            eventTime=datetime.now(UTC).isoformat(timespec="milliseconds"),
            producer=PRODUCER,
            run=run,
            job=self._job,
            inputs=self._inputs,
            outputs=self._outputs,
        )
        return Serde.to_json(event, ensure_ascii=False).encode(errors="replace")


def _sent_to(target: HttpTarget) -> Callable[[Sequence[bytes]], str]:
    """Sends each event by itself: the interface of OpenLineage takes one.

    The transport of OpenLineage's client would show the URL, and carry credentials to where an answer redirects it.
    """

    def send(events: Sequence[bytes]) -> str:
        refused = ""
        for event in events:
            refused = post(target, event) or refused
        return refused

    return send

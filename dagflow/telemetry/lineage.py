"""Reports a run as OpenLineage events: START, RUNNING, and how it ended, over HTTP in JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

from dagflow.errors import cut_text
from dagflow.plan.logical import LogicalPlan
from dagflow.report.snapshot import RunSnapshot
from dagflow.spec.signal_settings import HttpTarget, LineageSettings
from dagflow.telemetry.event_queue import EventQueue
from dagflow.telemetry.http_post import post
from dagflow.telemetry.lineage_datasets import Dataset, DatasetLocations, datasets_of

MOST_EVENT_BYTES: Final = 64 << 10
"""Bytes of the largest event: a larger one loses the lineage of its columns, then all columns, then its datasets."""

MOST_EVENTS: Final = 20
FIRST_RUNNING_S: Final = 60.0
"""When the first RUNNING event is due; each next one is after twice the time, so a month has sixteen."""

SPEC: Final = "https://openlineage.io/spec"
PRODUCER: Final = "urn:dagflow"
_SCHEMA_URL: Final = f"{SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
_MOST_ERROR_CHARACTERS: Final = 2000

EventType = Literal["START", "RUNNING", "COMPLETE", "ABORT", "FAIL"]
_END: Final[Mapping[str, EventType]] = {"completed": "COMPLETE", "stopped": "ABORT"}


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
        self._namespace = settings.namespace
        self._app = app.name
        self._run_id = run_id
        self._engine = _facet("1-1-1", "ProcessingEngineRunFacet", name="dagflow", version=version)
        kind = "STREAMING" if follows else "BATCH"
        self._job_type = _facet("2-0-4", "JobTypeJobFacet", processingType=kind, integration="DAGFLOW", jobType="JOB")
        self._redact = redact
        self._inputs, self._outputs = datasets_of(app, locations)
        self._queue: EventQueue[bytes] = EventQueue("lineage events", str(settings.target), _sent_to(settings.target))
        self._events = 0
        self._now = now
        self._next_s = now() + FIRST_RUNNING_S
        self._interval_s = FIRST_RUNNING_S

    def started(self) -> None:
        """Report that the run has begun."""
        self._report("START", None)

    def progress(self, snapshot: RunSnapshot) -> None:
        """Report that the run is at work, if that is due; called a few times a second."""
        if self._now() < self._next_s or self._events >= MOST_EVENTS - 1:
            return
        self._interval_s *= 2
        self._next_s = self._now() + self._interval_s
        self._report("RUNNING", snapshot)

    def ended(self, last: RunSnapshot | None, state: str, error: str, by_s: float) -> None:
        """Report how the run ended, and wait a moment until that is sent.

        Args:
            last: Its newest figures.
            state: "completed", "stopped" or "failed".
            error: Why it failed.
            by_s: Until when to wait, by time.monotonic().
        """
        self._report(_END.get(state, "FAIL"), last, self._redact(error) if state == "failed" else "")
        self._queue.close(by_s)

    def _report(self, kind: EventType, snapshot: RunSnapshot | None, error: str = "") -> None:
        self._events += 1
        inputs, outputs = self._inputs, self._outputs
        body = self._event(kind, snapshot, error, inputs, outputs)
        for smaller in (_without_sources, _without_columns, _without_datasets):
            if len(body) <= MOST_EVENT_BYTES:
                break
            inputs, outputs = smaller(inputs), smaller(outputs)
            body = self._event(kind, snapshot, error, inputs, outputs)
        self._queue.add(body)

    def _event(
        self,
        kind: EventType,
        snapshot: RunSnapshot | None,
        error: str,
        inputs: Sequence[Dataset],
        outputs: Sequence[Dataset],
    ) -> bytes:
        facets: dict[str, Any] = {"processing_engine": self._engine}
        if error:
            message = cut_text(error, _MOST_ERROR_CHARACTERS)
            facets["errorMessage"] = _facet(
                "1-0-1", "ErrorMessageRunFacet", message=message, programmingLanguage="PYTHON"
            )
        event = {
            "eventType": kind,
            "eventTime": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "producer": PRODUCER,
            "schemaURL": _SCHEMA_URL,
            "run": {"runId": self._run_id, "facets": facets},
            "job": {"namespace": self._namespace, "name": self._app, "facets": {"jobType": self._job_type}},
            "inputs": [_input(each, snapshot if len(inputs) == 1 else None) for each in inputs],
            "outputs": [_output(each, snapshot if len(outputs) == 1 else None) for each in outputs],
        }
        return json.dumps(event, ensure_ascii=False).encode(errors="replace")


def _sent_to(target: HttpTarget) -> Callable[[Sequence[bytes]], str]:
    """Sends each event by itself: the interface of OpenLineage takes one."""

    def send(events: Sequence[bytes]) -> str:
        refused = ""
        for event in events:
            refused = post(target, event) or refused
        return refused

    return send


def _facet(revision: str, kind: str, **values: Any) -> dict[str, Any]:
    return {"_producer": PRODUCER, "_schemaURL": f"{SPEC}/facets/{revision}/{kind}.json#/$defs/{kind}", **values}


def _dataset(dataset: Dataset) -> dict[str, Any]:
    facets: dict[str, Any] = {}
    if dataset.columns:
        fields = [{"name": name, "type": kind} for name, kind in dataset.columns]
        facets["schema"] = _facet("1-2-0", "SchemaDatasetFacet", fields=fields)
    if dataset.sources:
        made_of = {
            column: {
                "inputFields": [{"namespace": space, "name": name, "field": field} for space, name, field in parts]
            }
            for column, parts in dataset.sources
        }
        facets["columnLineage"] = _facet("1-2-0", "ColumnLineageDatasetFacet", fields=made_of)
    return {"namespace": dataset.namespace, "name": dataset.name, "facets": facets}


def _input(dataset: Dataset, snapshot: RunSnapshot | None) -> dict[str, Any]:
    """A dataset that is read; with the figures of the input if it is the only one."""
    described = _dataset(dataset)
    if snapshot is not None:
        read = {"rowCount": snapshot.records_read, "size": snapshot.bytes, "fileCount": snapshot.files}
        described["inputFacets"] = {"inputStatistics": _facet("1-0-0", "InputStatisticsInputDatasetFacet", **read)}
    return described


def _output(dataset: Dataset, snapshot: RunSnapshot | None) -> dict[str, Any]:
    """A dataset that is published into; the only one with how many files."""
    described = _dataset(dataset)
    if snapshot is not None:
        published = {"fileCount": snapshot.published_files}
        described["outputFacets"] = {
            "outputStatistics": _facet("1-0-2", "OutputStatisticsOutputDatasetFacet", **published)
        }
    return described


def _without_sources(datasets: Sequence[Dataset]) -> list[Dataset]:
    return [replace(each, sources=()) for each in datasets]


def _without_columns(datasets: Sequence[Dataset]) -> list[Dataset]:
    return [replace(each, columns=()) for each in datasets]


def _without_datasets(datasets: Sequence[Dataset]) -> list[Dataset]:
    return []

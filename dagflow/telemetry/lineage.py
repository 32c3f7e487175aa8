"""Reports a run as OpenLineage events: START, RUNNING, and how it ended, over HTTP in JSON."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    DatasetFacet,
    column_lineage_dataset,
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    output_statistics_output_dataset,
    processing_engine_run,
    schema_dataset,
)
from openlineage.client.serde import Serde

from dagflow.api.columns.column_typing import ColumnTraced
from dagflow.api.refused_records import REJECTS
from dagflow.errors import cut_text
from dagflow.plan.logical import LogicalPlan, reached
from dagflow.plan.physical import Edge, PortRef
from dagflow.plan.stream_columns import stream_columns
from dagflow.report.snapshot import RunSnapshot
from dagflow.report.statistics import is_record_source
from dagflow.spec.app_spec import LineageSettings
from dagflow.spec.problems import Problems
from dagflow.storage.location import absolute, is_local, redacted
from dagflow.telemetry.event_queue import EventQueue, post

MOST_DATASETS: Final = 50
"""How many inputs, and how many outputs, are reported at most: an app names roots, and seldom many."""

MOST_COLUMNS: Final = 300
DatasetLocations = Mapping[str, tuple[Sequence[str], Sequence[str]]]
"""The locations that each operator reads, and those that it publishes into."""

PRODUCER: Final = "urn:dagflow"

FieldOfInput = tuple[str, str, str]
"""A column of an input: the namespace and the name of the dataset, and its own name."""

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
        self._target = settings.target
        self._queue: EventQueue[bytes] = EventQueue("lineage events", str(settings.target), self._send)
        self._events = 0
        self._now = now
        self._next_s = now() + FIRST_RUNNING_S
        self._interval_s = FIRST_RUNNING_S

    def started(self) -> None:
        self._report(RunState.START, None)

    def progress(self, snapshot: RunSnapshot) -> None:
        """Report that the run is at work, if that is due; called a few times a second."""
        if self._now() < self._next_s or self._events >= MOST_EVENTS - 1:
            return
        self._interval_s *= 2
        self._next_s = self._now() + self._interval_s
        self._report(RunState.RUNNING, snapshot)

    def ended(self, last: RunSnapshot | None, state: str, error: str, by_s: float) -> None:
        """Report how the run ended, and wait until that is sent, or until by_s by time.monotonic().

        Args:
            state: "completed", "stopped" or "failed".
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
                fileCount=sum(each.files for each in snapshot.published), producer=PRODUCER
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

    def _send(self, events: Sequence[bytes]) -> str:
        """Send each event by itself: the interface of OpenLineage takes one.

        The transport of OpenLineage's client would show the URL, and carry credentials to where an answer redirects it.
        """
        refused = ""
        for event in events:
            refused = post(self._target, event) or refused
        return refused


def dataset_name(url: str) -> tuple[str, str]:
    shown = redacted(absolute(url))
    if is_local(shown):
        return "file", shown
    scheme, _, rest = shown.partition("://")
    authority, _, path = rest.partition("/")
    # Buckets hold keys, which begin with no slash; other stores hold paths.
    return f"{scheme}://{authority}", (f"/{path}" if scheme in ("hdfs", "sftp", "ssh") else path) or "/"


def datasets_of(app: LogicalPlan, locations: DatasetLocations) -> tuple[list[InputDataset], list[OutputDataset]]:
    columns = _Columns(app, locations)
    inputs = [
        InputDataset(*dataset_name(url), facets=columns.read_by(name))
        for name, (read, _) in locations.items()
        for url in dict.fromkeys(read)
    ]
    outputs = [
        OutputDataset(*dataset_name(url), facets=columns.published_by(name))
        for name, (_, published) in locations.items()
        for url in dict.fromkeys(published)
    ]
    return inputs[:MOST_DATASETS], outputs[:MOST_DATASETS]


class _Columns:
    """Follows the columns of an app from its roots to its output."""

    def __init__(self, app: LogicalPlan, locations: DatasetLocations) -> None:
        self._app = app
        self._locations = locations
        self._known = stream_columns(app, Problems())
        self._arcs = app.arcs

    def read_by(self, splitter: str) -> dict[str, DatasetFacet]:
        """The columns of the records that are read from the files of a splitter."""
        for name in reached(splitter, self._arcs):
            operator = self._app.operators[name].operator
            if is_record_source(operator):
                for port in operator.output_ports:
                    if port != REJECTS and (known := self._known.get(PortRef(name, port))) is not None:
                        return _described(known.schema)
        return {}

    def published_by(self, sink: str) -> dict[str, DatasetFacet]:
        """The columns that arrive at a sink, and the sources of each."""
        arriving = [(edge.source, self._known.get(edge.source)) for edge in self._into(sink)]
        schema = next((known.schema for _, known in arriving if known is not None), pa.schema([]))
        facets = _described(schema)
        made_of = {
            name: dict.fromkeys(part for source, _ in arriving for part in self._sources(source, name))
            for name in schema.names[:MOST_COLUMNS]
        }
        sources = {
            name: column_lineage_dataset.Fields(
                [column_lineage_dataset.InputField(*part, transformations=None) for part in parts]
            )
            for name, parts in made_of.items()
            if parts
        }
        if sources:
            lineage = column_lineage_dataset.ColumnLineageDatasetFacet(sources, dataset=None, producer=PRODUCER)
            facets["columnLineage"] = lineage
        return facets

    def _sources(self, port: PortRef, column: str) -> Iterator[FieldOfInput]:
        """The columns of inputs that a column of a stream is made of."""
        passed = [(port, column)]
        seen = {*passed}
        while passed:
            above = []
            port, column = passed.pop()
            operator = self._app.operators[port.operator].operator
            if is_record_source(operator):
                for name in reached(port.operator, [(end, begin) for begin, end in self._arcs]):
                    yield from ((*dataset_name(url), column) for url in self._locations.get(name, ((), ()))[0])
            # Columns of an author's code have no known sources.
            elif isinstance(operator, ColumnTraced):
                for edge in self._into(port.operator):
                    if (arriving := self._known.get(edge.source)) is not None:
                        used = operator.columns_used(port.port, column, arriving)
                        above += [(edge.source, name) for name in used if (edge.source, name) not in seen]
            seen.update(above)
            passed += reversed(above)

    def _into(self, operator: str) -> list[Edge]:
        return [edge for edge in self._app.edges if edge.target.operator == operator]


def _described(schema: pa.Schema) -> dict[str, DatasetFacet]:
    fields = [
        schema_dataset.SchemaDatasetFacetFields(field.name, str(field.type), fields=None)
        for field in list(schema)[:MOST_COLUMNS]
    ]
    return {"schema": schema_dataset.SchemaDatasetFacet(fields, producer=PRODUCER)} if fields else {}

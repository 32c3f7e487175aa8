"""Shows the first records that reach a port of an app: in this process, without a journal, without output."""

from __future__ import annotations

import contextlib
import html
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dagflow.api.columns.column_typing import type_name
from dagflow.api.columns.json_values import readable_rows
from dagflow.api.context import Skipped
from dagflow.api.records import UNKNOWN, RecordBatch
from dagflow.api.refused_records import REJECTS
from dagflow.api.sources import url_of
from dagflow.engine.placed_app import PlacedApp
from dagflow.engine.preparation import LocationCollector, prepare_operator
from dagflow.engine.preview_chain import PreviewChain, PreviewLimits, PreviewReject, PreviewResults
from dagflow.engine.preview_port import PreviewPort, find_port, part_before
from dagflow.engine.preview_source import PreviewInput
from dagflow.errors import DagflowError, OperatorError, PlanError, Problem, own_name
from dagflow.execution.program import Program
from dagflow.plan.logical import LogicalPlan, own_port
from dagflow.plan.physical import PortRef
from dagflow.storage.location import redacted

DEFAULT_RECORDS = 20
DEFAULT_READ_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class PreviewOptions:
    """What a preview shows.

    Attributes:
        at: "operator.port"; None for the records that the app's output would get.
        records: How many records to show.
        file: The only file to read, which may be no input of the app; None for the app's input.
        offset: Where to begin in the file: at the first record that begins at this offset or after it.
        read_bytes: Bytes to read at most, where fewer records arrive.
    """

    at: str | None = None
    records: int = DEFAULT_RECORDS
    file: str | None = None
    offset: int = 0
    read_bytes: int = DEFAULT_READ_BYTES


@dataclass(frozen=True, slots=True)
class PreviewRecord:
    """A record that reached the port.

    Attributes:
        file: The file that it was read from; "" where that is not known, as for records that an operator made.
        offset: Its first byte in the content of the file; -1 where that is not known.
        values: Its values by column; for a raw record its bytes, as `record`.
    """

    file: str
    offset: int
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OperatorPreview:
    """The records that one operator took in and emitted.

    Attributes:
        name: The operator.
        taken: Records that it took in; None where it takes none in.
        given: Records that it emitted, by port; only ports of records that lead to the previewed port.
    """

    name: str
    taken: int | None
    given: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Preview:
    """The first records that reach a port.

    Attributes:
        app: The app's name.
        port: The port, as "operator.port".
        columns: The type of each column, by name.
        records: The records.
        count: How many records reached the port.
        at_end: How many of them were emitted at the end of the input: results of what was read.
        operators: What each operator did, upstream first.
        files: The files that were read.
        size_bytes: Bytes that were read, about.
        is_complete: Whether all of the input was read.
        rejects: Refused records, as many as are shown.
        reject_count: How many records readers refused.
        ends_run: Operators that would end a run, because they refused records and no stream takes these.
        left_out: Ranges that were left out of files that cannot be read.
        error: The error that ended the preview early; it would end a run as well.
    """

    app: str
    port: str
    columns: Mapping[str, str]
    records: tuple[PreviewRecord, ...]
    count: int
    at_end: int
    operators: tuple[OperatorPreview, ...]
    files: tuple[str, ...]
    size_bytes: int
    is_complete: bool
    rejects: tuple[PreviewReject, ...] = ()
    reject_count: int = 0
    ends_run: tuple[str, ...] = ()
    left_out: tuple[Skipped, ...] = ()
    error: DagflowError | None = None

    def notes(self) -> Iterator[str]:
        """Why a run would end with the refused records: one line for each operator that refused some."""
        for name in self.ends_run:
            yield f"operator '{name}': a run ends at the first record that is refused; connect its port errors"

    def _repr_html_(self) -> str:
        """The records as a table, for a notebook; and what ended the preview."""
        names = ["", *(f"{name} ({kind})" for name, kind in self.columns.items())]
        rows = [
            [f"{record.file}:{record.offset}" if record.file else "", *map(record.values.get, self.columns)]
            for record in self.records
        ]
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>" for row in rows)
        why = "" if self.error is None else f"<pre>{html.escape(str(self.error))}</pre>"
        return f"<table><tr>{head}</tr>{body}</table>{why}"


def _cell(value: Any) -> str:
    text = value.decode(errors="backslashreplace") if isinstance(value, bytes) else "" if value is None else str(value)
    return html.escape(text)


def preview(app: LogicalPlan, options: PreviewOptions = PreviewOptions()) -> Preview:
    """Run an app up to a port until there are enough records to show.

    The operators start without state, as in a first run; the app's own instances are left unchanged. No journal is
    read or written, and nothing is published. What operators print goes to stderr.

    Raises:
        PlanError: The port, or the file to read, does not exist.
        DagflowError: The preview failed before anything was read.
    """
    if options.offset and options.file is None:
        raise PlanError([Problem("--offset", 0, 0, "says where to begin in one file, and --file says in which")])
    port = find_port(app, options.at)
    part = part_before(app, port, options.file)
    with contextlib.redirect_stdout(sys.stderr):
        placed = PlacedApp.of(part, app.attributes.storage_context())
        for name, operator in placed.operators.items():
            prepare_operator(name, operator, LocationCollector(placed.storage))
        program = Program.of(app.name, placed.plan, placed.operators, placed.storage)
        with PreviewInput(placed, program, options.offset) as source:
            return _Run(app, placed, program, port, options).run(source)


class _Run:
    """One preview under way."""

    def __init__(
        self, app: LogicalPlan, placed: PlacedApp, program: Program, port: PreviewPort, options: PreviewOptions
    ) -> None:
        self._app = app
        self._placed = placed
        self._program = program
        self._port = port
        self._limits = PreviewLimits(options.records, options.read_bytes, options.offset)
        self._seen = PreviewResults()
        self._chain: PreviewChain | None = None
        self._is_complete = False

    def run(self, source: PreviewInput) -> Preview:
        error: DagflowError | None = None
        try:
            self._is_complete = all(self._feed_step(source, tuples) for tuples in source.steps())
            chain = self._chain_of(source)
            self._is_complete = self._is_complete and not chain.has_waiting
            chain.finish()
        except DagflowError as raised:
            error = raised
            if isinstance(error, OperatorError):
                error.window_id = error.partition = -1  # a preview has neither
        finally:
            if self._chain is not None:
                self._chain.close(error)
        return self._result(error)

    def _chain_of(self, source: PreviewInput) -> PreviewChain:
        """The chain; a new one where a pre-scan has found more before anything was read."""
        if self._chain is None or not self._chain.has_read:
            if self._chain is not None:
                self._chain.close()
            self._chain = PreviewChain(
                self._app,
                self._placed,
                self._program,
                self._port,
                self._limits,
                source.prescan_states(),
                self._seen,
            )
        return self._chain

    def _feed_step(self, source: PreviewInput, tuples: Mapping[PortRef, list[Any]]) -> bool:
        """Feed a step; returns whether more is needed."""
        chain = self._chain_of(source)
        for target, items in tuples.items():
            for item in items:
                if not chain.feed(target, item) or chain.is_enough:
                    return False
        return True

    def _result(self, error: DagflowError | None) -> Preview:
        chain, seen = self._chain, self._seen
        connected = {edge.source for edge in self._app.edges} | {self._port.ref, *self._port.sources}
        records = tuple(record for batch in seen.batches for record in _records_of(batch))
        return Preview(
            app=self._app.name,
            port=str(self._port.ref),
            columns=_columns_of(seen.batches),
            records=records,
            count=seen.count,
            at_end=seen.at_end,
            operators=tuple(self._operators(seen).values()),
            files=tuple(seen.urls),
            size_bytes=0 if chain is None else chain.size_bytes,
            is_complete=self._is_complete and error is None,
            rejects=tuple(seen.rejects),
            reject_count=seen.reject_count,
            ends_run=tuple(
                dict.fromkeys(own_name(name) for name in seen.rejecting if PortRef(name, REJECTS) not in connected)
            ),
            left_out=tuple(replace(each, url=redacted(each.url)) for each in seen.left_out),
            error=error,
        )

    def _operators(self, seen: PreviewResults) -> dict[str, OperatorPreview]:
        stages = self._placed.plan.stages
        takers = {edge.target.operator for stage in stages for edge in (*stage.edges, *stage.outputs)}
        used = {edge.source for stage in stages for edge in (*stage.edges, *stage.outputs)} | set(self._port.sources)
        found: dict[str, OperatorPreview] = {}
        for name in (name for stage in stages for name in stage.operators):
            ports = {ref: own_port(ref, self._app.own_ports) for ref in sorted(used, key=str) if ref.operator == name}
            given = {own.port: seen.given[ref] for ref, own in ports.items() if own is not None}
            first = found.get(own_name(name))
            taken = first.taken if first is not None else seen.taken[name] if name in takers else None
            earlier = first.given if first is not None else {}
            found[own_name(name)] = OperatorPreview(own_name(name), taken, {**earlier, **given})
        return found


def _records_of(batch: RecordBatch) -> Iterator[PreviewRecord]:
    """The records of a batch, each with its place."""
    rows = batch.to_pylist() if batch.is_raw else readable_rows(batch.to_arrow())
    for position, (row, offset) in enumerate(zip(rows, batch.offsets().tolist(), strict=True)):
        url = url_of(batch.block_of(position))
        yield PreviewRecord(redacted(url), offset if url else UNKNOWN, {"record": row} if batch.is_raw else row)


def _columns_of(batches: list[RecordBatch]) -> dict[str, str]:
    """The columns in order of appearance; a column that batches type differently has all its types."""
    found: dict[str, dict[str, None]] = {}
    for batch in batches:
        for column in batch.to_arrow().schema:
            found.setdefault(column.name, {})[type_name(column.type)] = None
    return {name: " or ".join([each for each in types if each != "null"] or types) for name, types in found.items()}

"""Shows the first records that reach a port of an app: in this process, without a journal, without output."""

from __future__ import annotations

import contextlib
import copy
import html
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from dagflow.api.capabilities import TupleReader
from dagflow.api.columns.column_typing import StreamColumns, type_name
from dagflow.api.columns.column_values import readable_rows
from dagflow.api.context import Skipped
from dagflow.api.control import ControlOperator
from dagflow.api.operator import defines
from dagflow.api.records import RECORD, UNKNOWN, RecordBatch
from dagflow.api.refused_records import REJECTS, TAKE_REJECTS
from dagflow.api.sources import url_of
from dagflow.engine.preparation import LocationCollector
from dagflow.engine.preview_chain import PreviewChain, PreviewOptions, PreviewPort, PreviewReject, preview_input
from dagflow.errors import DagflowError, PlanError, Problem, own_name
from dagflow.execution.messages import Program
from dagflow.frozen import frozen
from dagflow.plan.logical import LogicalPlan, own_port, reached
from dagflow.plan.physical import PortRef
from dagflow.plan.placement import PlacedApp
from dagflow.plan.stream_columns import asks_for_columns, stream_columns
from dagflow.spec.problems import Problems, listed, quoted
from dagflow.storage.location import redacted
from dagflow.suggestions import did_you_mean

_RECORDS = "messages"
"""The port at which readers emit records."""

_RAW = pa.schema([(RECORD, pa.binary())])


@frozen
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


@frozen
class OperatorPreview:
    """The records that one operator took in and emitted.

    Attributes:
        taken: Records that it took in; None where it takes none in.
        given: Records that it emitted, by port; only ports of records that lead to the previewed port.
    """

    name: str
    taken: int | None
    given: Mapping[str, int]


@frozen
class Preview:
    """The first records that reach a port.

    Attributes:
        port: The port, as "operator.port".
        columns: The type of each column, by name.
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
            yield f"operator '{name}': a run ends where a record is refused; {TAKE_REJECTS}"

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


def preview(app: LogicalPlan, options: PreviewOptions = PreviewOptions()) -> Preview:  # noqa: B008  # frozen
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
        LocationCollector(placed.storage).prepare(placed.operators)
        program = Program.of(app.name, placed.plan, placed.operators, placed.storage)
        chain = PreviewChain(app, placed, program, port, options)
        with preview_input(placed, program, options.offset) as source:
            error = chain.run(source)
    connected = {edge.source for edge in app.edges} | {port.ref, *port.sources}
    return Preview(
        app=app.name,
        port=str(port.ref),
        columns=_columns_of(chain.batches),
        records=tuple(record for batch in chain.batches for record in _records_of(batch)),
        count=chain.count,
        at_end=chain.at_end,
        operators=tuple(_operators(app, placed, port, chain).values()),
        files=tuple(chain.urls),
        size_bytes=chain.size_bytes,
        is_complete=chain.is_complete,
        rejects=tuple(chain.rejects),
        reject_count=chain.reject_count,
        ends_run=tuple(
            dict.fromkeys(own_name(name) for name in chain.rejecting if PortRef(name, REJECTS) not in connected)
        ),
        left_out=tuple(replace(skipped, url=redacted(skipped.url)) for skipped in chain.left_out),
        error=error,
    )


def _operators(app: LogicalPlan, part: PlacedApp, port: PreviewPort, chain: PreviewChain) -> dict[str, OperatorPreview]:
    """What each operator of the app did, or its parts did together, by name."""
    edges = [edge for stage in part.plan.stages for edge in (*stage.edges, *stage.outputs)]
    takers = {edge.target.operator for edge in edges}
    used = {edge.source for edge in edges} | set(port.sources)
    operators: dict[str, OperatorPreview] = {}
    for part_of, name in ((own_name(name), name) for stage in part.plan.stages for name in stage.operators):
        ports = {ref: own_port(ref, app.own_ports) for ref in sorted(used, key=str) if ref.operator == name}
        given = {own.port: chain.given[ref] for ref, own in ports.items() if own is not None}
        first = operators.get(part_of, OperatorPreview(part_of, chain.taken[name] if name in takers else None, {}))
        operators[part_of] = replace(first, given={**first.given, **given})
    return operators


def _records_of(batch: RecordBatch) -> Iterator[PreviewRecord]:
    rows = batch.to_pylist() if batch.is_raw else readable_rows(batch.to_arrow())
    for position, (row, offset) in enumerate(zip(rows, batch.offsets().tolist(), strict=True)):
        url = url_of(batch.block_of(position))
        yield PreviewRecord(redacted(url), offset if url else UNKNOWN, {"record": row} if batch.is_raw else row)


def _columns_of(batches: list[RecordBatch]) -> dict[str, str]:
    """The columns in order of appearance; a column that batches type differently has all its types."""
    found: dict[str, dict[str, None]] = {}
    for batch in batches:
        for column in _RAW if batch.is_raw else batch.to_arrow().schema:
            found.setdefault(column.name, {})[type_name(column.type)] = None
    return {name: " or ".join([each for each in types if each != "null"] or types) for name, types in found.items()}


def header_problems(app: LogicalPlan) -> list[Problem]:
    """The problems of an app with the columns of the first file, such as the names in the header of CSV.

    This includes problems that operators find only once they are prepared, as writers of tables do. Input that
    does not exist, has no records, or cannot be read gives no problems.

    Args:
        app: The app, checked as far as it declares columns, with its operators prepared as far as possible.
    """
    seen: dict[PortRef, StreamColumns] = {}
    files: dict[str, None] = {}
    for port, declared in _open_ports(app):
        try:
            found = preview(app, PreviewOptions(at=str(port), records=1, read_bytes=1))
        except DagflowError:
            continue
        if declared.others is not None and found.records and found.files:
            named = declared.with_names(found.columns)
            seen[port] = StreamColumns(pa.schema([named.field(name).with_metadata(None) for name in found.columns]))
            files[found.files[0]] = None
    problems = Problems()
    stream_columns(app, problems, seen)
    source = f" (columns of {' and '.join(files)})" if files else ""
    return [replace(each, message=f"{each.message}{source}") for each in problems.found]


def first_errors(app: LogicalPlan) -> Iterator[DagflowError]:
    """The errors at the beginning of the first file, which would end a run, as of a file that its format cannot read.

    Only readers run: other operators may touch the world.
    """
    for name, node in app.operators.items():
        if isinstance(node.operator, TupleReader) and _RECORDS in node.operator.output_ports:
            try:
                error = preview(app, PreviewOptions(at=f"{name}.{_RECORDS}", records=1, read_bytes=1)).error
            except DagflowError as raised:
                error = raised
            if error is not None:
                yield error


def _open_ports(app: LogicalPlan) -> Iterator[tuple[PortRef, StreamColumns]]:
    """The ports of readers that declare only some of their columns, and lead to an operator that asks for columns."""
    for port, columns in stream_columns(app, Problems()).items():
        is_reader = "input" not in app.operators[port.operator].operator.input_ports
        targets = [edge.target.operator for edge in app.edges if edge.source == port]
        is_asked = any(asks_for_columns(app.operators[target]) for target in targets)
        if is_reader and columns.others is not None and is_asked:
            yield port, columns


def find_port(app: LogicalPlan, at: str | None) -> PreviewPort:
    """The port that a preview shows; a PlanError where there is none, or no records flow.

    Args:
        at: "operator.port", or an operator for its only port of records; None for the records that the app's output
            gets.
    """
    if at is None:
        return _default_port(app)
    name, ref = _split(app, at)
    if parts := [part for part, own in app.own_ports.items() if own == PortRef(name, ref or "output")]:
        seen = [_seen_at(app, part) for part in parts]
        return PreviewPort(seen[0].ref, tuple(source for each in seen for source in each.sources))
    if name not in app.operators:
        known = dict.fromkeys(map(own_name, app.operators))
        raise _mistake(f"there is no operator {quoted(name)}{did_you_mean(name, known)}", app)
    operator = app.operators[name].operator
    ports = {**operator.input_ports, **operator.output_ports}
    if ref and ref not in ports:
        raise _mistake(f"operator {quoted(name)} has no port {quoted(ref)}{did_you_mean(ref, ports)}", app)
    found = [port for port in _ports_of(app, name) if ref in ("", port.port)]
    if not found:
        raise _mistake(f"no records pass {quoted(at)}", app)
    return _seen_at(app, found[0])


def _split(app: LogicalPlan, at: str) -> tuple[str, str]:
    """The operator and the port that a text names; operators of a module have dots in their names."""
    if at in app.operators:
        return at, ""
    name, _, port = at.rpartition(".")
    return (name, port) if name else (port, "")


def _ports_of(app: LogicalPlan, name: str) -> Iterator[PortRef]:
    """The ports of an operator where records pass: output ports first, and that of its rejects last."""
    operator = app.operators[name].operator
    outputs = [PortRef(name, port) for port, each in operator.output_ports.items() if each.carries_records]
    connected = {edge.target for edge in app.edges}
    inputs = (PortRef(name, port) for port, each in operator.input_ports.items() if each.carries_records)
    ports = [*outputs, *(ref for ref in inputs if ref in connected)]
    yield from sorted(ports, key=lambda ref: ref.port == REJECTS)


def _seen_at(app: LogicalPlan, ref: PortRef) -> PreviewPort:
    shown = own_port(ref, app.own_ports) or ref
    if ref.port in app.operators[ref.operator].operator.output_ports:
        return PreviewPort(shown, (ref,))
    return PreviewPort(shown, tuple(edge.source for edge in app.edges if edge.target == ref))


def _mistake(text: str, app: LogicalPlan) -> PlanError:
    refs = [own_port(ref, app.own_ports) for name in app.operators for ref in _ports_of(app, name)]
    ports = list(dict.fromkeys(str(ref) for ref in refs if ref is not None))
    return PlanError([Problem("--at", 0, 0, text)], hint=f"records pass {', '.join(ports)}" if ports else "")


def _default_port(app: LogicalPlan) -> PreviewPort:
    """The input of the first operator whose records go nowhere else, except for rejects; else a reader's output."""
    given = {name: node.operator.output_ports for name, node in app.operators.items()}
    outputs = [edge for edge in app.edges if given[edge.source.operator][edge.source.port].carries_records]
    accepted = [edge for edge in outputs if edge.source.port != REJECTS]
    inner = {edge.source.operator for edge in accepted}
    ends = [edge.target for edge in accepted if edge.target.operator not in inner]
    if ends:
        order = list(app.operators)
        return _seen_at(app, min(ends, key=lambda ref: order.index(ref.operator)))
    emitted = [ref for name in app.operators for ref in _ports_of(app, name) if ref.port != REJECTS]
    if not emitted:
        raise _mistake("the app has no operator that emits records", app)
    return _seen_at(app, emitted[-1])


def part_before(app: LogicalPlan, port: PreviewPort, file: str | None) -> LogicalPlan:
    """The part of an app that leads to a port, with new operator instances, ready to run.

    Raises:
        PlanError: The file has no reader, or several.
    """
    back = [arc[::-1] for arc in app.arcs]
    names = {name for ref in port.sources for name in reached(ref.operator, back)}
    nodes = {
        name: replace(node, operator=copy.copy(node.operator)) for name, node in app.operators.items() if name in names
    }
    edges = tuple(edge for edge in app.edges if {*edge.arc} <= names)
    sources = {
        name: node.operator
        for name, node in nodes.items()
        if isinstance(node.operator, ControlOperator) and defines(node.operator, "begin_preview")
    }
    if file is not None and len(sources) != 1:
        names_of = f"operators {listed(sources)} give files" if sources else "no operator gives files"
        raise PlanError([Problem("--file", 0, 0, f"{names_of} to {port.ref}, and one has to")])
    for source in sources.values():
        source.begin_preview(file)
    return replace(app, operators=nodes, edges=edges)

"""Checks an app against the columns that its input has now, where the app does not name all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from dagflow.api.columns.column_typing import StreamColumns
from dagflow.engine.preview import preview
from dagflow.engine.preview_chain import PreviewOptions
from dagflow.errors import DagflowError, Problem
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.physical import PortRef
from dagflow.plan.stream_columns import asks_for_columns, stream_columns
from dagflow.spec.problems import Problems


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


def _open_ports(app: LogicalPlan) -> Iterator[tuple[PortRef, StreamColumns]]:
    """The ports of readers that declare only some of their columns, and lead to an operator that asks for columns."""
    for port, columns in stream_columns(app, Problems()).items():
        is_reader = "input" not in app.operators[port.operator].operator.input_ports
        targets = [edge.target.operator for edge in app.edges if edge.source == port]
        is_asked = any(asks_for_columns(app.operators[target]) for target in targets)
        if is_reader and columns.others is not None and is_asked:
            yield port, columns

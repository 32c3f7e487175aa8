"""Plans a DataFrame: lists the files, cuts them, and shares the blocks out to tasks of Spark."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from dagflow.api.columns.column_typing import ColumnTyped, StreamColumns
from dagflow.api.control import ControlOperator
from dagflow.api.ports import TupleBatch, unbatched
from dagflow.api.records import RecordBatch
from dagflow.api.sources import url_of
from dagflow.engine.preparation import LocationCollector
from dagflow.engine.preview_chain import PreviewInput, preview_input
from dagflow.errors import DagflowError
from dagflow.execution.messages import Program, WindowJob
from dagflow.execution.routing import distribute, size_bytes_of
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.placement import PlacedApp
from dagflow.spark.read_task import ReadTask
from dagflow.spark.source_options import BLOCK_BYTES, BLOCKS, FILES, READER, ROWS, SourceOptions
from dagflow.spark.spark_rows import spark_type
from dagflow.spec.spark_master import usable_cores
from dagflow.storage.location import redacted

TASK_BYTES = 8 * BLOCK_BYTES
"""Bytes that a task of Spark reads, about, as those of Spark's own sources do."""

LEAST_BYTES = 1 << 20
"""Bytes below which a task is not worth its cost, where cores are free."""

FileFilter = Callable[[str], bool]


class _Raw:
    """Parses as a format does, and leaves the records as they are in the file."""

    def __init__(self, format: Any) -> None:
        self._format = format

    def __call__(self, batch: RecordBatch, accounting: Any) -> Any:
        """Parse a batch."""
        return replace(type(self._format).parse(self._format, batch, accounting), columns=None)


@contextlib.contextmanager
def _input_of(app: LogicalPlan) -> Iterator[tuple[Program, PreviewInput]]:
    placed = PlacedApp.of(app, app.attributes.storage_context())
    LocationCollector(placed.storage).prepare(placed.operators)
    program = Program.of(app.name, placed.plan, placed.operators, placed.storage)
    with preview_input(placed, program) as source:
        yield program, source


def read_tasks(
    options: SourceOptions,
    keeps: FileFilter | None = None,
    columns: Sequence[str] | None = None,
    *,
    is_raw: bool = False,
) -> list[ReadTask]:
    """The tasks that read all files once.

    Where a format must know how each block begins, as CSV with quoted newlines, or an archive is cut, this process
    reads the files first.

    Args:
        options: Those of the source.
        keeps: Whether rows of a file are wanted, by the value of the column `_file`; None for all.
        columns: The columns that rows have; None for all.
        is_raw: Whether records stay bytes, where they are parts of a file; their columns only decide which are refused.

    Raises:
        AppError: The options have mistakes.
        DagflowError: A location cannot be listed, or a file cannot be pre-scanned.
    """
    app = options.app(columns)
    if is_raw:
        format: Any = vars(app.operators[READER].operator)["format"]
        format.parse = _Raw(format)
    with _input_of(app) as (program, source):
        items: list[Any] = []
        for tuples in source.steps():
            items += _kept(tuples.get(BLOCKS, []), keeps)
        job = WindowJob(1, "", {READER: 1, ROWS: 1}, {}, prescans=source.prescan_states())
    return shared_out(program, job, items)


def shared_out(program: Program, job: WindowJob, items: Sequence[Any]) -> list[ReadTask]:
    """Tasks of about the same size for these blocks, in order."""
    total, cores = sum(map(size_bytes_of, items)), usable_cores()
    # As many for each core: it would wait at the end for the others.
    count = max(1, min(cores * -(-total // (cores * TASK_BYTES)), -(-total // LEAST_BYTES)))
    pickled = pickle.dumps(program, protocol=5)
    job = WindowJob(job.window_id, job.tag, {READER: count, ROWS: 1}, {}, prescans=job.prescans)
    shares = distribute(items, count)
    return [ReadTask(pickled, job, slot, [(BLOCKS, share)]) for slot, share in enumerate(shares) if share]


def _kept(items: list[Any], keeps: FileFilter | None) -> list[Any]:
    if keeps is None:
        return items
    kept: list[Any] = []
    for item in items:
        members = list(unbatched([item])) if isinstance(item, TupleBatch) else [item]
        wanted = [member for member in members if keeps(redacted(url_of(member)))]
        kept += [item] if len(wanted) == len(members) else wanted
    return kept


def columns_of(options: SourceOptions) -> pa.Schema:
    """The columns of rows, in types that Spark has: those that the options declare, otherwise of the first records.

    Raises:
        AppError: The options have mistakes.
        DagflowError: No column is declared, and no file has a record.
    """
    app = options.app()
    declared = declared_columns(app)
    schema = declared.schema if declared is not None and declared.others is None else _first_columns(app)
    return pa.schema([*((field.name, spark_type(field.type, field.name)) for field in schema), *options.added])


def declared_columns(app: LogicalPlan) -> StreamColumns | None:
    """The columns of records as far as options declare them; None where that is not known."""
    reader = app.operators[READER].operator
    assert isinstance(reader, ColumnTyped)
    return reader.columns_at("messages", None)


def _first_columns(app: LogicalPlan) -> pa.Schema:
    splitter = app.operators[FILES].operator
    assert isinstance(splitter, ControlOperator)
    splitter.begin_preview(None)
    with _input_of(app) as (program, source):
        for tuples in source.steps():
            items = tuples.get(BLOCKS, [])
            job = WindowJob(1, "", {READER: 1, ROWS: 1}, {}, prescans=source.prescan_states())
            task = ReadTask(pickle.dumps(program, protocol=5), job, 0, [(BLOCKS, items)])
            first = next((batch for _, batch in task.batches() if len(batch)), None)
            if first is not None:
                return first.to_arrow().schema
    raise DagflowError(
        "no file has a record, so that the columns are not known",
        hint="declare them: .option('columns', '{id: int64, name: string}'), or .schema('id bigint, name string')",
    )

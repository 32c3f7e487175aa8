"""The schema of a DataFrame of files; and DataFrames and RDDs of files without Spark's data sources of 4.0."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from dagflow.errors import PlanError, Problem
from dagflow.execution.task_process import warm
from dagflow.spark.read_plan import columns_of, declared_columns, read_tasks
from dagflow.spark.read_task import ReadTask
from dagflow.spark.source_options import READER, SourceOptions
from dagflow.spark.spark_rows import ADDED, RECORDS, RowShape
from dagflow.suggestions import did_you_mean


def schema_of(given: Mapping[str, Any]) -> StructType:
    """The schema of the rows that options ask for."""
    return from_arrow_schema(columns_of(SourceOptions.of(given)), prefer_timestamp_ntz=True)


def shape_of(given: Mapping[str, Any], schema: StructType, *, is_whole: bool) -> RowShape:
    """The rows of a schema.

    Raises:
        PlanError: The schema names a column that records do not have.
    """
    options = SourceOptions.of(given)
    app = options.app()
    declared = declared_columns(app)
    if declared is not None and declared.others is None:
        known = declared.schema.names
        for name in schema.names:
            if name not in known and name not in ADDED:
                hint = did_you_mean(name, [*known, *ADDED]) or ";"
                raise PlanError([Problem("", 0, 0, f"there is no column '{name}'{hint} it has {', '.join(known)}")])
    found = getattr(getattr(app.operators[READER].operator, "format", None), "columns", None)
    return RowShape(
        arrow_schema(schema),
        is_whole=is_whole,
        may_lack=found in ("infer", "as_found"),
        has_rejects=options.on_bad_record == "column",
    )


def arrow_schema(schema: StructType) -> pa.Schema:
    """The schema in which Spark takes rows from Python."""
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # before 4.1
        return to_arrow_schema(schema)


def frame_of(session: Any, given: Mapping[str, Any]) -> Any:
    """A DataFrame whose tasks read the blocks that are planned now."""
    options = SourceOptions.of(given)
    options.require_batch()
    schema = schema_of(given)
    shape, tasks = shape_of(given, schema, is_whole=True), read_tasks(options)

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with warm():
            for batch in batches:
                for index in batch.column(0).to_pylist():
                    yield from tasks[index].rows(shape)

    return session.range(0, len(tasks), 1, max(len(tasks), 1)).mapInArrow(rows, schema)


def pairs_of(context: Any, given: Mapping[str, Any]) -> Any:
    """An RDD of (offset, record), whose tasks bring dagflow's modules to executors that lack them."""
    # It needs classic Spark.
    from dagflow.runtime.spark_context import SentSources

    tasks = read_tasks(SourceOptions.of(given), is_raw=True)
    packages = [Path(sys.modules[name].__path__[0]) for name in ("dagflow", "operators")]
    sources = SentSources(context, packages)
    rdd = sources.context.parallelize(list(map(pickle.dumps, tasks)), max(len(tasks), 1))
    return rdd.mapPartitions(sources.bring(pairs))


def pairs(tasks: Iterable[bytes]) -> Iterator[tuple[int, Any]]:
    """The records of pickled tasks, each with its offset."""
    for task in tasks:
        read: ReadTask = pickle.loads(task)
        for port, batch in read.batches():
            if port == RECORDS:
                yield from zip(batch.offsets().tolist(), batch.to_pylist(), strict=True)

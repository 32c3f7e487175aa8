"""DataFrames and RDDs of files without Spark's data sources, which came with 4.0."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from dagflow.execution.task_process import warm
from dagflow.spark.read_plan import read_tasks
from dagflow.spark.read_task import ReadTask
from dagflow.spark.row_schema import schema_of, shape_of
from dagflow.spark.source_options import SourceOptions
from dagflow.spark.spark_rows import RECORDS


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

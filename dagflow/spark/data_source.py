"""The data source `dagflow` of Spark: records of files, exact at every cut, as a DataFrame.

Tasks import this module as well. What only the planning needs is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from dagflow.execution.task_process import warm
from dagflow.spark.file_filters import FileFilters
from dagflow.spark.read_task import ReadTask
from dagflow.spark.stream_reader import StreamReader


class DagflowSource(DataSource):
    """Reads files as `spark.read.format("dagflow")` and `spark.readStream.format("dagflow")`."""

    _has_own_schema = False

    @classmethod
    def name(cls) -> str:
        """The format to read."""
        return "dagflow"

    def schema(self) -> StructType:
        """The columns of the format, and those that were asked for beside them."""
        # Tasks do not plan.
        from dagflow.spark.row_schema import schema_of

        self._has_own_schema = True
        return schema_of(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a DataFrame, with these columns."""
        return BatchReader(self.options, schema, is_whole=self._has_own_schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # Spark's name
        """The reader of a stream, with these columns."""
        return StreamReader(self.options, schema, is_whole=self._has_own_schema)


@dataclass(frozen=True)
class SourcePartition(InputPartition):
    """The blocks of one task."""

    value: ReadTask


class BatchReader(DataSourceReader):
    """Plans the tasks in a process of Spark's driver, and reads in those of its executors."""

    def __init__(self, given: Mapping[str, Any], schema: StructType, *, is_whole: bool) -> None:
        # Tasks do not plan.
        from dagflow.spark.row_schema import shape_of
        from dagflow.spark.source_options import SourceOptions

        SourceOptions.of(given).require_batch()
        self._given = given
        self._shape = shape_of(given, schema, is_whole=is_whole)
        self._filters = FileFilters()
        # Spark looks at the instance: see FileFilters.
        vars(self)["pushFilters"] = self._filters

    def partitions(self) -> Sequence[InputPartition]:
        """One for each task."""
        # Tasks do not plan.
        from dagflow.spark.read_plan import read_tasks
        from dagflow.spark.source_options import SourceOptions

        filters = self._filters
        columns = None if self._shape.is_whole else self._shape.schema.names
        with warm():
            tasks = read_tasks(SourceOptions.of(self._given), filters.keeps if filters else None, columns)
        return [SourcePartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a task, as Arrow's record batches."""
        # Spark calls it without blocks where there are none.
        if isinstance(partition, SourcePartition):
            with warm():
                yield from partition.value.rows(self._shape)

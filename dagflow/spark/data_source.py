"""The data source `dagflow` of Spark: records of files, exact at every cut, as a DataFrame.

Tasks import this module as well. What only the planning needs is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from dagflow.errors import JournalError, PlanError, Problem
from dagflow.execution.task_process import warm
from dagflow.spark.read_task import ReadTask
from dagflow.spark.spark_rows import FILE

if TYPE_CHECKING:
    from dagflow.spark.stream_windows import StreamTask, StreamWindows


# Of 4.1 and later.
_TESTS: dict[str, Callable[[str, Any], bool]] = {
    "EqualTo": str.__eq__,
    "EqualNullSafe": str.__eq__,
    "In": lambda url, values: url in values,
    "IsNotNull": lambda url, _: True,
    "IsNull": lambda url, _: False,
    "StringStartsWith": str.startswith,
    "StringEndsWith": str.endswith,
    "StringContains": str.__contains__,
    "GreaterThan": str.__gt__,
    "GreaterThanOrEqual": str.__ge__,
    "LessThan": str.__lt__,
    "LessThanOrEqual": str.__le__,
}


class FileFilters:
    """Takes in filters that Spark pushes down.

    Spark refuses a reader with a pushFilters of its own where spark.sql.python.filterPushdown.enabled is false. An
    instance of this class stands for that method, and is to Spark that of the base class.
    """

    __func__: Any = staticmethod(getattr(datasource.DataSourceReader, "pushFilters", len))

    def __init__(self) -> None:
        self._tests: list[Callable[[str], bool]] = []

    def __call__(self, filters: Iterable[Any]) -> Iterator[Any]:
        """Take in the filters that only ask for the file; yields the others, which Spark applies itself."""
        for filter in filters:
            if (test := _test_of(filter)) is not None:
                self._tests.append(test)
            else:
                yield filter

    def keeps(self, url: str) -> bool:
        """Whether rows of a file are wanted."""
        return all(test(url) for test in self._tests)

    def __bool__(self) -> bool:
        return bool(self._tests)


def _test_of(filter: Any) -> Callable[[str], bool] | None:
    name = type(filter).__name__
    if name == "Not":
        inner = _test_of(filter.child)
        return None if inner is None else lambda url: not inner(url)
    if name not in _TESTS or filter.attribute != (FILE,):
        return None
    test, value = _TESTS[name], getattr(filter, "value", None)
    return lambda url: test(url, value)


try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # before 4.2

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]  # stands for it
        """Not known to this Spark."""


@dataclass(frozen=True)
class StreamPartition(InputPartition):
    """The blocks of one task of one window."""

    value: StreamTask


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches in a process of Spark's driver, and reads them in those of its executors.

    An offset is the number of the last window of a batch.
    """

    def __init__(self, given: Mapping[str, Any], schema: StructType, *, is_whole: bool) -> None:
        # Tasks do not plan.
        from dagflow.spark.dataframes import shape_of

        self._given = given
        self._shape = shape_of(given, schema, is_whole=is_whole)
        self._is_finite = False
        self._opened: StreamWindows | None = None
        # The last answer to a Spark before 4.2, which does not say where a batch starts.
        self._answered: int | None = None

    def _windows(self) -> StreamWindows:
        if self._opened is None:
            # Tasks do not plan.
            from dagflow.spark.source_options import SourceOptions
            from dagflow.spark.stream_windows import StreamWindows

            options = SourceOptions.of(self._given)
            if not options.state:
                text = (
                    "a stream needs a place for its state: give .option('checkpoint', LOCATION), the same as the "
                    "query's checkpointLocation, or another place in .option('state', LOCATION)"
                )
                raise PlanError([Problem("", 0, 0, text)])
            columns = None if self._shape.is_whole else self._shape.schema.names
            self._opened = StreamWindows(options, columns, is_finite=self._is_finite)
        return self._opened

    def prepareForTriggerAvailableNow(self) -> None:  # Spark's name
        """Read what is there now, and nothing that comes later."""
        self.stop()
        self._is_finite = True

    def initialOffset(self) -> dict[str, int]:  # Spark's name
        """Where a new query begins."""
        if committed := self._windows().last_committed:
            raise JournalError(
                f"this state has {committed} committed windows, and the query is new",
                hint="the state belongs to a query with another checkpointLocation: go on with that one, or name "
                "another place in the option state to read all files again",
            )
        return {"window": 0}

    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:  # Spark's name
        """Plan the next batch, and journal it."""
        windows = self._windows()
        before = self._answered if start is None else start["window"]
        is_limited = type(limit).__name__ != "ReadAllAvailable" and self._has_limit()
        begin = windows.last_committed if before is None else before
        self._answered = windows.latest(begin, is_limited=is_limited)
        if self._is_finite and self._answered == begin:
            self.stop()  # all is read and committed, and Spark ends this process before it could say so
        return {"window": self._answered}

    def _has_limit(self) -> bool:
        # Tasks do not plan.
        from dagflow.spark.source_options import SourceOptions

        return SourceOptions.of(self._given).is_limited

    def getDefaultReadLimit(self) -> Any:  # Spark's name
        """The limit of a batch, which the splitter keeps."""
        # Of 4.2 and later.
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

        return ReadMaxRows(1) if self._has_limit() else ReadAllAvailable()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """One for each task of the batch: the same after a restart."""
        return [StreamPartition(task) for task in self._windows().tasks(start["window"], end["window"])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a task, as Arrow's record batches."""
        if isinstance(partition, StreamPartition):
            with warm():
                yield from partition.value.rows(self._shape)

    def commit(self, end: dict[str, int]) -> None:
        """Let go of the windows of a batch that Spark has committed; where the state is closed, they are."""
        if self._opened is not None:
            self._opened.commit(end["window"])

    def stop(self) -> None:
        """Let go of the state."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None


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
        from dagflow.spark.dataframes import schema_of

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
        from dagflow.spark.dataframes import shape_of
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

"""A partition of a DataFrame: reads its blocks in a task of Spark, as a task of dagflow would."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any

from dagflow.api.records import RecordBatch
from dagflow.api.refused_records import TAKE_REJECTS
from dagflow.errors import DagflowError
from dagflow.execution.messages import Program, TaskResult, WindowJob
from dagflow.execution.task import run_level
from dagflow.execution.task_watch import TaskMessage
from dagflow.frozen import frozen
from dagflow.plan.physical import PortRef
from dagflow.spark.spark_rows import RECORDS, RowShape


@frozen
class ReadTask:
    """The blocks that one task of Spark reads.

    Attributes:
        program: The pickled program of the source's app, which all tasks share.
        job: The window, without the blocks of other tasks.
        slot: The partition of the reader.
    """

    program: bytes
    job: WindowJob
    slot: int
    items: list[tuple[PortRef, list[Any]]]

    def batches(self, finish: Callable[[TaskResult], None] = lambda result: None) -> Iterator[tuple[str, RecordBatch]]:
        """The records, each batch with the port of SparkRows that it is for.

        Args:
            finish: Called with the result of the task, when all of it is read.

        Raises:
            DagflowError: A block cannot be read, or has a record that is refused, and the options do not say what to
                do about it.
        """
        program: Program = pickle.loads(self.program)
        for item in run_level(program, self.job, 0, [(self.slot, self.items)], _ignore):
            if isinstance(item, TaskResult):
                if item.error is not None:
                    raise _advised(item.error)
                finish(item)
            elif isinstance(item.payload, RecordBatch):
                yield item.target.port, item.payload

    def rows(self, shape: RowShape, finish: Callable[[TaskResult], None] = lambda result: None) -> Iterator[Any]:
        """The rows, as Arrow's record batches."""
        for port, batch in self.batches(finish):
            if len(batch) and (port == RECORDS or shape.has_rejects):
                yield shape.rows(port, batch)


def _advised(error: DagflowError) -> DagflowError:
    """The error with the advice that it has for an app in the words of the data source."""
    hint = error.hint.replace(TAKE_REJECTS, "give .option('on_bad_record', 'column'), or 'skip'")
    error.hint = _SETTING.sub(r".option('\1', '\2')", hint)
    return error


_SETTING = re.compile(r"(?:set )?(\w+): (\w+|\{[^}]*\}) on the (?:reader|splitter)")


def _ignore(message: TaskMessage) -> None:
    pass

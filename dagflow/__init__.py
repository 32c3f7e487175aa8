"""Files into a data platform, every record exactly once: an operator-based DAG framework on Spark."""

import os
import sys
from typing import TYPE_CHECKING, Any

_ALLOCATOR = "ARROW_DEFAULT_MEMORY_POOL"
_TASKS = {"pyspark.worker", "dagflow.runtime.worker_server"}
if _ALLOCATOR not in os.environ and _TASKS.isdisjoint(sys.orig_argv):
    # Arrow chooses while it is imported, and its Parquet writer never asks again. Its own allocator keeps what was
    # freed, 45 of 195 MiB of a driver; tasks are faster with it.
    os.environ[_ALLOCATOR] = "system"
    import pyarrow  # noqa: F401

    del os.environ[_ALLOCATOR]  # it is not meant for the processes that this one starts

from dagflow.api.accumulator import Accumulator
from dagflow.api.context import OperatorContext
from dagflow.api.control import CommitListener, ControlOperator, InputOperator
from dagflow.api.keyed_state import KeyedOperator, Rescalable
from dagflow.api.operator import Operator, Unified
from dagflow.api.partitioning import BacklogStats, PartitionPolicy, StatsResponse, StreamCodec
from dagflow.api.ports import InputPort, OutputPort
from dagflow.api.records import RecordBatch
from dagflow.errors import DagflowError

if TYPE_CHECKING:
    from dagflow.app.app import App

__version__ = "0.1.0"

__all__ = [
    "Accumulator",
    "App",
    "BacklogStats",
    "CommitListener",
    "ControlOperator",
    "DagflowError",
    "InputOperator",
    "InputPort",
    "KeyedOperator",
    "Operator",
    "OperatorContext",
    "OutputPort",
    "PartitionPolicy",
    "RecordBatch",
    "Rescalable",
    "StatsResponse",
    "StreamCodec",
    "Unified",
]


def __getattr__(name: str) -> Any:
    """Import what runs apps when it is asked for: tasks import this package as well, and run none."""
    if name == "App":
        # Imported late: it takes a third of a second.
        from dagflow.app.app import App

        return App
    raise AttributeError(f"module 'dagflow' has no attribute '{name}'")

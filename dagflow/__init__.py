"""Files into a data platform, every record exactly once: an operator-based DAG framework on Spark."""

from dagflow.api.codec import StreamCodec
from dagflow.api.context import OperatorContext
from dagflow.api.operator import ControlOperator, InputOperator, Operator
from dagflow.api.partitioner import BacklogStats, StatsResponse
from dagflow.api.policy import PartitionPolicy
from dagflow.api.ports import InputPort, OutputPort
from dagflow.api.records import RecordBatch
from dagflow.api.unifier import Unified
from dagflow.errors import DagflowError

__version__ = "0.1.0"

__all__ = [
    "BacklogStats",
    "ControlOperator",
    "DagflowError",
    "InputOperator",
    "InputPort",
    "Operator",
    "OperatorContext",
    "OutputPort",
    "PartitionPolicy",
    "RecordBatch",
    "StatsResponse",
    "StreamCodec",
    "Unified",
]

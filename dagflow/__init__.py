"""Files into a data platform, every record exactly once: an operator-based DAG framework on Spark."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dagflow.api.capabilities.accumulator import Accumulator
    from dagflow.api.context import OperatorContext
    from dagflow.api.control import CommitListener, ControlOperator, InputOperator
    from dagflow.api.keyed_state import KeyedOperator, Rescalable
    from dagflow.api.operator import Operator, Unified
    from dagflow.api.partitioning import BacklogStats, PartitionPolicy, StatsResponse, StreamCodec
    from dagflow.api.ports import InputPort, OutputPort
    from dagflow.api.records import RecordBatch
    from dagflow.app.app import App
    from dagflow.errors import DagflowError

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

_MODULE_BY_NAME = {
    "Accumulator": "dagflow.api.capabilities.accumulator",
    "App": "dagflow.app.app",
    "BacklogStats": "dagflow.api.partitioning",
    "CommitListener": "dagflow.api.control",
    "ControlOperator": "dagflow.api.control",
    "DagflowError": "dagflow.errors",
    "InputOperator": "dagflow.api.control",
    "InputPort": "dagflow.api.ports",
    "KeyedOperator": "dagflow.api.keyed_state",
    "Operator": "dagflow.api.operator",
    "OperatorContext": "dagflow.api.context",
    "OutputPort": "dagflow.api.ports",
    "PartitionPolicy": "dagflow.api.partitioning",
    "RecordBatch": "dagflow.api.records",
    "Rescalable": "dagflow.api.keyed_state",
    "StatsResponse": "dagflow.api.partitioning",
    "StreamCodec": "dagflow.api.partitioning",
    "Unified": "dagflow.api.operator",
}
"""Module of each public name: imported when it is used, because `--help` imports this package and needs none."""


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module 'dagflow' has no attribute '{name}'")
    value = getattr(importlib.import_module(_MODULE_BY_NAME[name]), name)
    globals()[name] = value
    return value

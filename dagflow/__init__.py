"""Files into a data platform, every record exactly once: an operator-based DAG framework on Spark."""

from __future__ import annotations

import importlib
import linecache
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dagflow.api.capabilities import Accumulator as Accumulator
    from dagflow.api.context import OperatorContext as OperatorContext
    from dagflow.api.control import CommitListener as CommitListener
    from dagflow.api.control import ControlOperator as ControlOperator
    from dagflow.api.control import InputOperator as InputOperator
    from dagflow.api.keyed_state import KeyedOperator as KeyedOperator
    from dagflow.api.keyed_state import Rescalable as Rescalable
    from dagflow.api.operator import Operator as Operator
    from dagflow.api.operator import Unified as Unified
    from dagflow.api.partitioning import BacklogStats as BacklogStats
    from dagflow.api.partitioning import PartitionPolicy as PartitionPolicy
    from dagflow.api.partitioning import StatsResponse as StatsResponse
    from dagflow.api.partitioning import StreamCodec as StreamCodec
    from dagflow.api.ports import InputPort as InputPort
    from dagflow.api.ports import OutputPort as OutputPort
    from dagflow.api.records import RecordBatch as RecordBatch
    from dagflow.app.app import App as App
    from dagflow.errors import DagflowError as DagflowError

__version__ = "0.1.0"

# Each public name is imported when it is first asked for: `--help` imports this package, and needs none of them. The
# list above, which type checkers know, is the only one; the loader finds its text in a zip file as well.
_SOURCE = "".join(linecache.getlines(__file__, globals()))
_MODULE_BY_NAME = {name: module for module, name in re.findall(r"^    from (\S+) import \w+ as (\w+)$", _SOURCE, re.M)}


def __getattr__(name: str) -> Any:
    """Import a public name."""
    if name == "__all__":
        return sorted(_MODULE_BY_NAME)
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module 'dagflow' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_BY_NAME[name]), name)
    globals()[name] = value
    return value

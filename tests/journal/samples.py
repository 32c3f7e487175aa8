"""Small plans and intents, as journals of tests hold them."""

from __future__ import annotations

from dagflow.journal.saved_state import CommittedState, ControlState
from dagflow.journal.windows import PlannedTuples, WindowIntent, WindowPlan
from dagflow.metrics.counters import Counters, OperatorCounters
from dagflow.storage.pending import PendingFile

PORT = "copy.input"


def file_of(url: str) -> PendingFile:
    """A file with that final name."""
    return PendingFile(final_url=url, pending_url=f"{url}.pending", size_bytes=1, records=1)


def plan_of(window_id: int, tuples: object = None, *, cursor: int = 0) -> WindowPlan:
    """A plan that gives tuples to one port, and leaves a cursor as control state."""
    inputs = {} if tuples is None else {PORT: PlannedTuples("builtins:int", tuples, None)}
    return WindowPlan(window_id, inputs=inputs, control_state=ControlState(operator_index={"cursor": cursor}))


def intent_of(window_id: int, *urls: str, total: int = 0) -> WindowIntent:
    """An intent that publishes files, and leaves a sum as state."""
    return WindowIntent(window_id, list(map(file_of, urls)), state=CommittedState(byte_accounting={"sum": total}))


def tuples_of(plan: WindowPlan) -> object:
    """What plan_of() was given."""
    return plan.inputs[PORT].tuples


def counted(operator: str, name: str, number: int) -> Counters:
    """One count of one operator."""
    return Counters.of_counts({operator: {name: number}})


def emitted(operator: str, port: str, number: int) -> Counters:
    """Records that left one port."""
    return Counters({operator: OperatorCounters(records={port: number})})

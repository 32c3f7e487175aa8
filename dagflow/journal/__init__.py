"""The durable record of every window: planned, then committed, then published."""

from dagflow.journal.app_facts import AppFacts, OperatorFacts
from dagflow.journal.events import Repair, Replan, Reprocess, ReprocessCancelled
from dagflow.journal.journal import Journal
from dagflow.journal.left_out import LeftOut
from dagflow.journal.reader import (
    committed_windows,
    read_journal,
    read_state,
    read_state_with_roots,
    read_window,
    with_roots_of_run,
)
from dagflow.journal.retention import JournalRetention, all_windows, find_window, newest_windows
from dagflow.journal.saved_state import (
    CommittedState,
    ControlState,
    LateTuples,
    SavedPart,
    SavedParts,
    SavedSegment,
    SavedState,
)
from dagflow.journal.start_over import set_aside
from dagflow.journal.state import JournalState, PartitionCounts, note_partitions
from dagflow.journal.windows import (
    ColumnHistory,
    PartitionDecision,
    PlannedTuples,
    ProducedFiles,
    Receipt,
    RefusedPart,
    SideVersion,
    Window,
    WindowIntent,
    WindowPlan,
)

__all__ = [
    "AppFacts",
    "ColumnHistory",
    "CommittedState",
    "ControlState",
    "Journal",
    "JournalRetention",
    "JournalState",
    "LateTuples",
    "LeftOut",
    "OperatorFacts",
    "PartitionCounts",
    "PartitionDecision",
    "PlannedTuples",
    "ProducedFiles",
    "Receipt",
    "RefusedPart",
    "Repair",
    "Replan",
    "Reprocess",
    "ReprocessCancelled",
    "SavedPart",
    "SavedParts",
    "SavedSegment",
    "SavedState",
    "SideVersion",
    "Window",
    "WindowIntent",
    "WindowPlan",
    "all_windows",
    "committed_windows",
    "find_window",
    "newest_windows",
    "note_partitions",
    "read_journal",
    "read_state",
    "read_state_with_roots",
    "read_window",
    "set_aside",
    "with_roots_of_run",
]

"""The durable record of every window: planned, then committed, then published."""

from dagflow.journal.journal import Journal
from dagflow.journal.reader import committed_windows, history, read_state, roots_of
from dagflow.journal.records import Reprocess, WindowIntent, WindowPlan
from dagflow.journal.retention import Retention
from dagflow.journal.start_over import set_aside
from dagflow.journal.state import JournalState, PartitionCounts

__all__ = [
    "Journal",
    "JournalState",
    "PartitionCounts",
    "Reprocess",
    "Retention",
    "WindowIntent",
    "WindowPlan",
    "committed_windows",
    "history",
    "read_state",
    "roots_of",
    "set_aside",
]

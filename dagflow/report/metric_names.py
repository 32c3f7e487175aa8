"""The metrics that dagflow exports to Prometheus: their names, types and meanings, which do not change.

Names follow the conventions of Prometheus: base units, the unit in the name, `_total` behind counters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

LABELS = ("app", "checkpoint")
"""Labels of every sample, beside the labels of its metric."""

STATES = ("running", "stalled", "completed", "stopped", "killed", "failed")
"""Possible states of the newest run on a checkpoint, see RunSnapshot.standing."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric that is exported."""

    name: str
    type: Literal["counter", "gauge", "summary"]
    help: str
    labels: tuple[str, ...] = ()

    @property
    def samples(self) -> Sequence[str]:
        """The names of its samples: what an expression of Prometheus may ask for."""
        return [f"{self.name}_sum", f"{self.name}_count"] if self.type == "summary" else [self.name]


READABLE = Metric(
    "dagflow_checkpoint_readable", "gauge", "Whether the journal can be read (1) or not (0); without it, app is empty."
)
STATE = Metric(
    "dagflow_run_state", "gauge", "1 for the state of the newest run on the checkpoint, 0 for all others.", ("state",)
)
STARTED = Metric("dagflow_run_started_timestamp_seconds", "gauge", "When the newest run began, by its clock.")
LAST_BEAT = Metric("dagflow_run_last_beat_timestamp_seconds", "gauge", "When the newest run last wrote its heartbeat.")
STALLS = Metric("dagflow_run_stalls", "gauge", "Stalled tasks, and stalled work of the driver.")
PLANNED = Metric("dagflow_windows_planned_total", "counter", "Windows that were planned.")
COMMITTED = Metric("dagflow_windows_committed_total", "counter", "Windows that were committed.")
PUBLISHED = Metric("dagflow_windows_published_total", "counter", "Windows that were published.")
LAST_COMMIT = Metric(
    "dagflow_last_commit_timestamp_seconds", "gauge", "When the last window was committed; 0 before the first."
)
LAST_PUBLICATION = Metric(
    "dagflow_last_publication_timestamp_seconds", "gauge", "When the last window was published; 0 before the first."
)
WINDOW = Metric(
    "dagflow_window_seconds",
    "summary",
    "How long published windows took, by phase: plan, queue (wait for a task), run, commit (with the wait for earlier "
    "windows), publish.",
    ("phase",),
)
BACKLOG = Metric("dagflow_backlog_bytes", "gauge", "Input that is known and not committed.")
OLDEST = Metric(
    "dagflow_oldest_unpublished_seconds", "gauge", "Age of the oldest input that is planned and not published, or 0."
)
FILES = Metric("dagflow_input_files_total", "counter", "Files that committed windows began.")
IN_PROGRESS = Metric("dagflow_input_files_in_progress", "gauge", "Files that were begun and are not cut to their end.")
BLOCKS = Metric("dagflow_input_blocks_total", "counter", "Blocks that committed windows read.")
BYTES = Metric("dagflow_input_bytes_total", "counter", "Bytes of these blocks as they are stored, compressed or not.")
CONTENT = Metric(
    "dagflow_content_bytes_total",
    "counter",
    "Bytes that must be accounted for, decompressed: equals the sum of dagflow_accounted_bytes_total.",
)
ACCOUNTED = Metric(
    "dagflow_accounted_bytes_total",
    "counter",
    "What became of these bytes: records, delimiters, skipped, rejected.",
    ("part",),
)
LEFT_OUT = Metric("dagflow_left_out_bytes", "gauge", "Input that was left out, and no later window has read.")
WAITING = Metric("dagflow_waiting_bytes", "gauge", "Bytes of records that wait for their end in files that may grow.")
RECORDS = Metric(
    "dagflow_records_total", "counter", "Records that left an output port in committed windows.", ("operator", "port")
)
REJECTS = Metric("dagflow_rejects_total", "counter", "Records that an operator refused.", ("operator",))
REJECTED_BYTES = Metric("dagflow_rejected_bytes_total", "counter", "Bytes in what an operator refused.", ("operator",))
BUSY = Metric(
    "dagflow_operator_busy_seconds_total", "counter", "Seconds that an operator worked, over all tasks.", ("operator",)
)
PARTITIONS = Metric("dagflow_partitions", "gauge", "Partitions of a stage in the last planned window.", ("stage",))
TABLE_WINDOW = Metric(
    "dagflow_table_window", "gauge", "The newest window that has added something to a table.", ("operator",)
)
TABLE_LAG_WINDOWS = Metric(
    "dagflow_table_lag_windows", "gauge", "Committed windows whose records a table does not show yet.", ("operator",)
)
TABLE_LAG = Metric(
    "dagflow_table_lag_seconds",
    "gauge",
    "Seconds since the oldest of these windows was committed, or 0.",
    ("operator",),
)

METRICS: tuple[Metric, ...] = (
    *(READABLE, STATE, STARTED, LAST_BEAT, STALLS),
    *(PLANNED, COMMITTED, PUBLISHED, LAST_COMMIT, LAST_PUBLICATION, WINDOW),
    *(BACKLOG, OLDEST, FILES, IN_PROGRESS, BLOCKS, BYTES, CONTENT, ACCOUNTED, LEFT_OUT, WAITING),
    *(RECORDS, REJECTS, REJECTED_BYTES, BUSY, PARTITIONS),
    *(TABLE_WINDOW, TABLE_LAG_WINDOWS, TABLE_LAG),
)
"""All of them, in the order in which they are exported."""

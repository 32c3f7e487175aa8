"""What a run, or a journal, amounts to."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from dagflow.journal import PartitionCounts, PartitionDecision
from dagflow.metrics import names


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """The account of a run so far, or of all runs on a checkpoint.

    Attributes:
        app: The app's name.
        state: "running", "completed", "stopped" or "failed".
        windows: Windows that were committed.
        files: Files that those windows began.
        blocks: Blocks that they read.
        bytes: Bytes of those blocks.
        records: Records that left each record port, by "operator.port".
        rejected: Records that were refused.
        counts: What else operators counted, by "operator:name".
        seconds: Wall time.
        partitions: Partition counts by stage head.
        backlog: Tuples that wait to be processed, by stage head.
        last_planned: Id of the last window that was planned, 0 for none.
        last_committed: Id of the last window that was committed, 0 for none.
        decisions: The newest changes of partition counts; only of a journal.
        waiting_bytes: Bytes of records in progress that all runs together have left to wait for their end.
    """

    app: str
    state: str = "running"
    windows: int = 0
    files: int = 0
    blocks: int = 0
    bytes: int = 0
    records: dict[str, int] = field(default_factory=dict)
    rejected: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    partitions: dict[str, PartitionCounts] = field(default_factory=dict)
    backlog: dict[str, int] = field(default_factory=dict)
    last_planned: int = 0
    last_committed: int = 0
    decisions: tuple[PartitionDecision, ...] = ()
    waiting_bytes: int = 0

    def account(self) -> dict[str, int]:
        """What became of the bytes of the input: as many as the others together are "bytes".

        What a compressed file holds counts, not what it takes. Records that wait for their end are skipped;
        a run that only reads the rest of earlier ones' records counts these whole.
        """
        total: Counter[str] = Counter()
        for key, value in self.counts.items():
            total[key.partition(":")[2]] += value
        waiting = max(total[names.WAITING_BYTES] - total[names.RESUMED_BYTES], 0)
        return {
            "bytes": total[names.CONTENT_BYTES] + total[names.LEFT_OUT_BYTES] + waiting,
            "records": total[names.RECORD_BYTES],
            "delimiters": total[names.DELIMITER_BYTES],
            "skipped": total[names.SKIPPED_BYTES] + waiting,
            "rejected": total[names.REJECTED_BYTES],
        }

    def to_json(self) -> dict[str, Any]:
        """The object that `dagflow run --json` prints."""
        return {
            "app": self.app,
            "state": self.state,
            "windows": self.windows,
            "files": self.files,
            "blocks": self.blocks,
            "bytes": self.bytes,
            "records": dict(self.records),
            "rejected": self.rejected,
            "account": self.account(),
            "seconds": round(self.seconds, 3),
            "partitions": {
                name: {"min": known.min, "max": known.max, "last": known.last}
                for name, known in self.partitions.items()
            },
        }

    def status_json(self) -> dict[str, Any]:
        """The object that `dagflow status --json` prints."""
        return {
            **self.to_json(),
            "counts": dict(self.counts),
            "last_planned": self.last_planned,
            "last_committed": self.last_committed,
            "decisions": [asdict(decision) for decision in self.decisions],
        }

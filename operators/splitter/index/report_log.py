"""The log of fingerprint reports that no durable snapshot of the index may have yet."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pyarrow as pa

from operators.splitter.index.file_index import FileIndex, LateEntries


@dataclass(frozen=True, slots=True)
class FingerprintState:
    """Fingerprints that readers reported, and that no durable snapshot of the index may have yet.

    Attributes:
        late: The completed entries, by report.
    """

    late: list[LateEntries] = field(default_factory=list)

    def __len__(self) -> int:
        """Number of reports; an empty state can be lost without harm."""
        return len(self.late)


class ReportLog:
    """Keeps the entries that reports have completed after the newest snapshot, until a later one has them.

    See InputOperator.
    """

    def __init__(self, index: FileIndex) -> None:
        self._index = index
        # Windows that a run emitted ahead and dropped have passed their ids to others, so reports are counted instead.
        self._count = 0
        self._snapshots: deque[tuple[int, int]] = deque()
        self._reported: deque[LateEntries] = deque()

    def note_snapshot(self, window_id: int) -> int:
        """Remember how many reports are in the snapshot of a window, and return that."""
        self._snapshots.append((window_id, self._count))
        return self._count

    def begin(self, window_id: int) -> None:
        """Count a report, and drop those in the snapshot of its window, which is about to be committed.

        Later runs restore this snapshot, or a newer one.
        """
        has = 0
        while self._snapshots and self._snapshots[0][0] <= window_id:
            has = self._snapshots.popleft()[1]
        while self._reported and self._reported[0].report <= has:
            self._reported.popleft()
        self._count += 1

    def record(self, completed: pa.Table) -> None:
        """Record in the index the entries that the last report has completed."""
        if completed.num_rows:
            self._reported.append(self._index.record_late(completed, self._count))

    def state(self) -> FingerprintState:
        return FingerprintState(list(self._reported))

    def resume(self, count: int) -> None:
        """Continue after a snapshot that was restored."""
        self._count = count
        self._snapshots.clear()

    def restore(self, state: FingerprintState) -> None:
        """Take back a state, after resume(): the reports that the snapshot does not have."""
        self._reported = deque(late for late in state.late if late.report > self._count)
        for late in self._reported:
            self._index.restore_late(late)
            self._count = late.report

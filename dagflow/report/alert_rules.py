"""The rules of an app's alerts, which a live run and `dagflow check` share."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple

from dagflow.errors import own_name
from dagflow.frozen import frozen
from dagflow.journal.reader import committed_windows
from dagflow.metrics import names
from dagflow.metrics.counters import Counters
from dagflow.report.reading import CheckpointReading
from dagflow.spec.app_spec import AlertSettings
from dagflow.storage.context import StorageContext

REJECT_WINDOWS: Final = 100
"""Number of newest windows of a run that the share of rejects is taken from: a burst shows, and passes when it is over.

What earlier runs have read hides nothing: a night of a job that runs every night is one run.
"""

Cause = Literal["freshness", "rejects", "backlog", "rescued", "failure"]


@frozen
class Finding:
    """A limit, and the value that it is compared with.

    Attributes:
        text: The problem if the limit is exceeded, as a sentence without its full stop.
        value: The measured value, in seconds, as a share, or in bytes; 1 for a failure.
    """

    cause: Cause
    text: str
    value: float = 1.0
    limit: float = 0.0


class _WindowRecords(NamedTuple):
    """The records of one window.

    Attributes:
        read: Records that readers have read; None where no operator has read blocks.
        retries: Windows whose refused records it took over; those that it accepted lower `rejected`, also below 0.
        rescued: The columns of which every value was rescued, each with its operator.
    """

    rejected: int
    read: int | None
    most: int
    window_id: int
    retries: tuple[int, ...]
    rescued: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def of(cls, counters: Counters, window_id: int, retries: tuple[int, ...]) -> _WindowRecords:
        if retries:
            # Records of retried windows were read in the windows that refused them.
            return cls(counters.total(names.REJECTED), None, 0, window_id, retries)
        most = max((n for each in counters.operators.values() for n in each.records.values()), default=0)
        readers = [each for each in counters.operators.values() if each.counts.get(names.BLOCKS)]
        accepted = sum(n for each in readers for port, n in each.records.items() if port != "errors")
        read = accepted + sum(each.counts.get(names.REJECTED, 0) for each in readers)
        rescued = frozenset(
            (own_name(name), count.removeprefix(names.ALL_RESCUED))
            for name, own in counters.operators.items()
            for count in own.counts
            if count.startswith(names.ALL_RESCUED)
        )
        return cls(counters.total(names.REJECTED), read if readers else None, most, window_id, retries, rescued)


class RecentRejects:
    """How many of the records of the newest windows of a run were refused."""

    def __init__(self) -> None:
        self._counts: deque[_WindowRecords] = deque(maxlen=REJECT_WINDOWS)

    def add(self, counters: Counters, window_id: int = 0, retries: Iterable[int] = ()) -> None:
        """Take in the counters of the operators of one more window."""
        self._counts.append(_WindowRecords.of(counters, window_id, tuple(retries)))

    @property
    def rejected(self) -> int:
        """Records that were refused in these windows, and that none of them has accepted later."""
        known: set[int] = set()
        rejected = 0
        for each in self._counts:
            # Records that came back from an older window are not among those that these windows refused.
            if known.issuperset(each.retries):
                known.add(each.window_id)
                rejected += each.rejected
        return max(rejected, 0)

    @property
    def read(self) -> int:
        """Records that were read, and those that were refused while they were.

        Where no operator reads blocks, the most that left any port. A window in which only results are published reads
        none.
        """
        read = [each.read for each in self._counts if each.read is not None]
        return sum(read) if read else sum(each.most for each in self._counts)

    @property
    def rescued(self) -> list[tuple[str, str]]:
        """The columns of which one of these windows has rescued every value, each with its operator."""
        return sorted({column for each in self._counts for column in each.rescued})

    @property
    def share(self) -> float:
        """Which share of them was refused, from 0 to 1."""
        return min(self.rejected / self.read, 1.0) if self.read else float(self.rejected > 0)


def recent_rejects(checkpoint: str, storage: StorageContext, run_start: int, last_committed: int) -> RecentRejects:
    """The rejects of the newest windows of a checkpoint.

    Args:
        run_start: The first window that may count.
        last_committed: The newest window that counts.
    """
    first = max(last_committed - REJECT_WINDOWS + 1, run_start, 1)
    recent = RecentRejects()
    for window in committed_windows(storage.objects(checkpoint), first) if last_committed else ():
        if window.intent is not None and window.plan.window_id <= last_committed:
            recent.add(window.intent.counters, window.plan.window_id, window.plan.retries)
    return recent


def exceeded_limits(reading: CheckpointReading, limits: AlertSettings, recent: RecentRejects) -> Iterator[Finding]:
    return (each for each in figures_of(reading, limits, recent) if each.value > each.limit)


def figures_of(reading: CheckpointReading, limits: AlertSettings, recent: RecentRejects) -> Iterator[Finding]:
    """The figures that limits are compared with.

    Args:
        reading: The checkpoint; one that cannot be read has no figures.
        recent: The rejects of its newest windows.
    """
    if reading.snapshot is None:
        return
    if limits.freshness_millis is not None:
        allowed_s = limits.freshness_millis / 1000
        text = f"the output is {_seconds(reading.age_s)} behind, {_seconds(allowed_s)} are allowed"
        yield Finding("freshness", text, reading.age_s, allowed_s)
    if limits.rejects is not None:
        text = (
            f"{recent.rejected:,} of the newest {recent.read:,} records were refused: {recent.share:.2%}, "
            f"{limits.rejects:.2%} are allowed"
        )
        yield Finding("rejects", text, recent.share, limits.rejects)
    if recent.rescued:
        named = ", ".join(f"'{column}' of {operator}" for operator, column in recent.rescued)
        yield Finding("rescued", f"every value of a window was rescued of column {named}", len(recent.rescued))
    if limits.backlog_bytes is not None:
        backlog = reading.snapshot.backlog_bytes
        text = f"{backlog:,} bytes of input are not committed, {limits.backlog_bytes:,} are allowed"
        yield Finding("backlog", text, backlog, limits.backlog_bytes)


def _seconds(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds >= 10 else f"{seconds:.1f} s"

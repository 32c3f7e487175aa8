"""Reads the state of a checkpoint at one moment, and compares it with the limits of an app's alerts."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, replace
from typing import Final, Literal, NamedTuple

from dagflow.errors import DagflowError, JournalError, MissingJournalError, own_name
from dagflow.frozen import frozen
from dagflow.journal.heartbeat import newest_heartbeat
from dagflow.journal.reader import committed_windows, read_journal, require_archives
from dagflow.journal.state import JournalState
from dagflow.metrics import names
from dagflow.metrics.counters import Counters
from dagflow.report.snapshot import DriverReport, RunSnapshot, snapshot_of_all, state_of_all
from dagflow.spec.app_spec import AlertSettings
from dagflow.storage.context import StorageContext
from dagflow.storage.location import absolute, redacted

WAIT_S = 3600.0
"""Seconds after which the end of a file has waited too long for the rest of its record."""


@frozen
class CheckpointReading:
    """A checkpoint at one moment.

    Attributes:
        checkpoint: Its URL, without credentials.
        snapshot: All runs on it together; None where the journal cannot be read.
        error: Why it cannot be read, or "".
        has_begun: Whether there is a journal: it begins with the first run.
        now_s: The moment, in seconds since 1970.
    """

    checkpoint: str
    snapshot: RunSnapshot | None
    error: str = ""
    has_begun: bool = True
    now_s: float = field(default_factory=time.time)

    @property
    def oldest_unpublished_s(self) -> float:
        """For how many seconds the oldest input waits that is planned and not published; 0 where nothing waits."""
        return 0.0 if self.snapshot is None else self._since(self.snapshot.oldest_unpublished_ms)

    @property
    def age_s(self) -> float:
        """How many seconds the output may be behind the input.

        The age of the oldest unpublished input, or the time since the last beat of a driver that is not at work, if
        that is longer.
        """
        driver = None if self.snapshot is None else self.snapshot.driver
        unwatched_s = 0.0 if driver is None or driver.is_at_work else self._since(driver.heartbeat.beat_ms)
        return max(self.oldest_unpublished_s, unwatched_s)

    def waits_too_long(self, allowed_s: float = WAIT_S) -> str:
        """Which end of a file has waited for more than some seconds, as a clause; "" for none.

        Only the end that has waited longest is named, with the number of others.
        """
        waiting = () if self.snapshot is None else self.snapshot.waiting
        late = [end for end in waiting if self._since(end.since_ms) > allowed_s]
        if not late:
            return ""
        oldest = min(late, key=lambda end: end.since_ms)
        others = f", and of {len(late) - 1:,} other files" if len(late) > 1 else ""
        waited = f"{self._since(oldest.since_ms):,.0f} s"
        return f"{oldest.waiting_bytes:,} bytes at the end of {redacted(oldest.url)}{others} wait for {waited}"

    def table_lags(self) -> dict[str, tuple[int, float]]:
        """How many committed windows a table does not show, and for how many seconds the oldest waits, by operator."""
        if self.snapshot is None:
            return {}
        lags = {name: (0, 0.0) for name in self.snapshot.targets}
        waiting = {name: (group.windows, self._since(group.since_ms)) for name, group in self.snapshot.groups.items()}
        return {**lags, **waiting}

    def _since(self, moment_ms: int) -> float:
        return max(self.now_s - moment_ms / 1000, 0.0) if moment_ms else 0.0


Source = Callable[[], CheckpointReading]
"""Reads a checkpoint now; it does not raise, and any thread may call it."""


def read_checkpoint(checkpoint: str, storage: StorageContext, *, with_archive: bool = False) -> CheckpointReading:
    """The current state in a checkpoint's journal and heartbeat; an unreadable one is a reading with an error.

    Args:
        with_archive: Whether a journal with a missing archive counts as unreadable; costs one listing.
    """
    shown = redacted(absolute(checkpoint))
    try:
        return CheckpointReading(shown, status(checkpoint, storage, with_archive=with_archive))
    except MissingJournalError as error:
        return CheckpointReading(shown, None, str(error), has_begun=False)
    except DagflowError as error:
        return CheckpointReading(shown, None, str(error))


class LiveSource:
    """Reads the checkpoint of a run in this process from the run's own memory; observes the run.

    The journal is not read again, however often this is asked: only the heartbeat is, which other processes see as
    well, so that a run whose driver is stalled is not called healthy.
    """

    def __init__(self, checkpoint: str, storage: StorageContext) -> None:
        self._checkpoint = checkpoint
        self._shown = redacted(absolute(checkpoint))
        self._storage = storage
        self._newest: RunSnapshot | None = None

    def progress(self, snapshot: RunSnapshot) -> None:
        """Keep the newest figures; called from the driver's thread."""
        if snapshot.all_runs is not None:
            self._newest = replace(snapshot.all_runs, progress=snapshot.progress)

    def from_memory(self) -> CheckpointReading:
        """The newest figures alone, without a look at the store; none before the first progress."""
        return CheckpointReading(self._shown, self._newest)

    def __call__(self) -> CheckpointReading:
        """The newest figures, with the state of the heartbeat."""
        newest = self._newest
        if newest is None:
            return read_checkpoint(self._checkpoint, self._storage)
        try:
            heartbeat = newest_heartbeat(self._storage.objects(absolute(self._checkpoint)))[1]
        except DagflowError as error:
            return CheckpointReading(self._shown, None, str(error))
        driver = DriverReport.of(heartbeat)
        state = "stalled" if driver is not None and driver.state == "stalled" else newest.state
        return CheckpointReading(self._shown, replace(newest, driver=driver, state=state))


def status(checkpoint: str, storage: StorageContext, *, with_archive: bool = False) -> RunSnapshot:
    """The snapshot of all runs on a checkpoint.

    Args:
        with_archive: Whether the archive of the journal is to be complete, which costs one listing.

    Returns:
        The sums over all committed windows. The state is "running" while a run is at work, else how the newest one
        ended; "completed" only where every planned window is committed and published, and no result is held back.
    """
    url = absolute(checkpoint)
    # Before the journal: a run that ends in between is called running a moment too long, and not completed too soon.
    heartbeat = newest_heartbeat(storage.objects(url))[1]
    driver = DriverReport.of(heartbeat)
    try:
        store, journal = read_journal(storage, url)
        if with_archive:
            require_archives(store, journal)
    except MissingJournalError:
        if heartbeat is None:
            raise
        journal = JournalState()
    if not journal.app:
        if heartbeat is not None and driver is not None and driver.is_at_work:
            return RunSnapshot(heartbeat.app, driver=driver)
        raise JournalError(
            "there is no journal here", url=redacted(url), hint="name the checkpoint of an app that was run"
        )
    is_unfinished = journal.planned or journal.intents or journal.reprocessing
    is_held = journal.committed_state.held_results or journal.held.waiting
    found = replace(
        snapshot_of_all(journal),
        state=state_of_all(driver, is_unfinished=bool(is_unfinished or is_held)),
        driver=driver,
    )
    if heartbeat is None or driver is None or not driver.is_at_work:
        return found
    # What a run has reported may be a few seconds old, and windows were planned and committed since.
    if heartbeat.progress is not None:
        found = replace(found, progress=heartbeat.progress.after(journal.last_committed))
    if heartbeat.backlog_bytes <= found.backlog_bytes:
        return found
    return replace(found, backlog_bytes=heartbeat.backlog_bytes, backlog_blocks=None)


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
    """The rejects of the newest windows of a checkpoint, from run_start to last_committed."""
    first = max(last_committed - REJECT_WINDOWS + 1, run_start, 1)
    recent = RecentRejects()
    for window in committed_windows(storage.objects(checkpoint), first) if last_committed else ():
        if window.intent is not None and window.plan.window_id <= last_committed:
            recent.add(window.intent.counters, window.plan.window_id, window.plan.retries)
    return recent


def exceeded_limits(reading: CheckpointReading, limits: AlertSettings, recent: RecentRejects) -> Iterator[Finding]:
    return (each for each in figures_of(reading, limits, recent) if each.value > each.limit)


def figures_of(reading: CheckpointReading, limits: AlertSettings, recent: RecentRejects) -> Iterator[Finding]:
    """The figures that limits are compared with; a checkpoint that cannot be read has none."""
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

"""Reads the state of a checkpoint at one moment, for metrics, health checks and alerts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import field, replace

from dagflow.errors import DagflowError, JournalError, MissingJournalError
from dagflow.frozen import frozen
from dagflow.journal.heartbeat import newest_heartbeat
from dagflow.journal.reader import read_journal, require_archives
from dagflow.journal.state import JournalState
from dagflow.report.snapshot import DriverReport, RunSnapshot, snapshot_of_all, state_of_all
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
        self._storage = storage
        self._newest: RunSnapshot | None = None

    def progress(self, snapshot: RunSnapshot) -> None:
        """Keep the newest figures; called from the driver's thread."""
        if snapshot.all_runs is not None:
            self._newest = replace(snapshot.all_runs, progress=snapshot.progress)

    def from_memory(self) -> CheckpointReading:
        """The newest figures alone, without a look at the store; none before the first progress."""
        return CheckpointReading(redacted(absolute(self._checkpoint)), self._newest)

    def __call__(self) -> CheckpointReading:
        """The newest figures, with the state of the heartbeat."""
        newest = self._newest
        if newest is None:
            return read_checkpoint(self._checkpoint, self._storage)
        shown = redacted(absolute(self._checkpoint))
        try:
            heartbeat = newest_heartbeat(self._storage.objects(absolute(self._checkpoint)))[1]
        except DagflowError as error:
            return CheckpointReading(shown, None, str(error))
        driver = DriverReport.of(heartbeat)
        is_stalled = driver is not None and driver.state == "stalled"
        return CheckpointReading(shown, replace(newest, driver=driver, state="stalled" if is_stalled else newest.state))


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

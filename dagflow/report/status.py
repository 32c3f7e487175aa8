"""Reads the state of a checkpoint from its journal and heartbeat, without taking it over."""

from __future__ import annotations

from dataclasses import replace

from dagflow.errors import JournalError, MissingJournalError
from dagflow.journal.archives import require_archives
from dagflow.journal.heartbeat import newest_heartbeat
from dagflow.journal.reader import read_journal
from dagflow.journal.state import JournalState
from dagflow.report.driver_report import DriverReport, state_of_all
from dagflow.report.snapshot import RunSnapshot, snapshot_of_all
from dagflow.storage.context import StorageContext
from dagflow.storage.location import absolute, redacted


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
    driver = None if heartbeat is None else DriverReport.of(heartbeat)
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
    reported = heartbeat if driver is not None and driver.is_at_work else None
    found = replace(
        snapshot_of_all(journal),
        state=state_of_all(driver, is_unfinished=bool(is_unfinished or is_held)),
        driver=driver,
    )
    if reported is None:
        return found
    # What a run has reported may be a few seconds old, and windows were planned and committed since.
    if reported.progress is not None:
        found = replace(found, progress=reported.progress.after(journal.last_committed))
    if reported.backlog_bytes <= found.backlog_bytes:
        return found
    return replace(found, backlog_bytes=reported.backlog_bytes, backlog_blocks=None)

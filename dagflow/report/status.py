"""What a checkpoint's journal says, without taking it over."""

from __future__ import annotations

from dataclasses import replace

from dagflow.errors import JournalError
from dagflow.journal import read_state, with_roots_of_run
from dagflow.report.snapshot import RunSnapshot, figures_of, snapshot_of
from dagflow.storage.context import StorageContext
from dagflow.storage.location import absolute, redacted


def status(checkpoint: str, storage: StorageContext) -> RunSnapshot:
    """The snapshot of all runs on a checkpoint.

    Args:
        checkpoint: Its URL.
        storage: Reaches it.

    Returns:
        The sums over all committed windows. The state is "completed" where every planned window is committed and
        published, and no result is held back; otherwise "stopped": a run may be at work, or one that ended has left
        something.

    Raises:
        JournalError: There is no journal, or it cannot be read.
        StorageError: The store failed.
    """
    url = absolute(checkpoint)
    journal = read_state(with_roots_of_run(storage, url))
    if not journal.app:
        raise JournalError(
            "there is no journal here", url=redacted(url), hint="name the checkpoint of an app that was run"
        )
    is_unfinished = journal.planned or journal.intents or journal.reprocessing or journal.committed_state.held_results
    return replace(
        snapshot_of(journal, journal.totals),
        state="stopped" if is_unfinished else "completed",
        windows=journal.last_committed,
        operators=tuple(
            figures_of(name, journal.totals, journal.busy_s.get(name, 0.0)) for name in sorted(journal.totals.operators)
        ),
        partitions=dict(journal.partitions),
        decisions=tuple(journal.decisions),
    )

import uuid

import pytest

from dagflow.errors import FencedError, JournalError
from dagflow.journal.journal import Journal, set_aside
from dagflow.journal.reader import JournalRetention, read_state
from dagflow.journal.windows import WindowPlan
from dagflow.storage.base import ObjectStore
from dagflow.storage.context import StorageContext
from tests.journal.samples import intent_of


def journal_with(store: ObjectStore, windows: int) -> Journal:
    journal = Journal.open(store, app="toy", retention=JournalRetention(finished_windows=2))
    for window_id in range(1, windows + 1):
        journal.append(WindowPlan(window_id))
        journal.append(intent_of(window_id, f"out/{window_id}"))
        if window_id < windows:
            journal.mark_done(window_id)
        journal.maintain()
    return journal


@pytest.fixture
def store() -> ObjectStore:
    return StorageContext.default().objects(f"memory://{uuid.uuid4().hex}")


def test_every_file_of_the_old_journal_is_named_once(store: ObjectStore) -> None:
    """Archived, finished, and those that were to be published."""
    journal_with(store, 7)
    assert list(set_aside(store)) == [f"out/{window_id}" for window_id in range(1, 8)]
    assert list(set_aside(store)) == []


def test_the_new_journal_begins_at_window_1_and_the_old_one_is_kept(store: ObjectStore) -> None:
    """Also for another app; the checkpoint's own name stays, so that leftovers are known for its own."""
    old = journal_with(store, 3).state.app_uuid
    list(set_aside(store))
    journal = Journal.open(store, app="other")
    assert (journal.state.app, journal.state.app_uuid, journal.state.next_window_id) == ("other", old, 1)
    assert list(journal.published()) == []
    journal.append(WindowPlan(1))
    assert len(list(store.list("aside/"))) == 1
    assert list(store.list("archive/000000/")) != []


def test_an_unfinished_start_over_must_be_finished(store: ObjectStore) -> None:
    """A run on top of half of the old files is refused, and the way on is named."""
    journal_with(store, 3)
    assert next(iter(set_aside(store))) == "out/1"
    with pytest.raises(JournalError, match="run again with --fresh; it continues"):
        Journal.open(store, app="toy")
    assert list(set_aside(store)) == ["out/1", "out/2", "out/3"]
    Journal.open(store, app="toy")


def test_where_there_is_no_journal_nothing_is_created(store: ObjectStore) -> None:
    """Starting over before the first run is no error."""
    assert list(set_aside(store)) == []
    assert list(store.list("epoch/")) == []


def test_the_old_driver_is_fenced(store: ObjectStore) -> None:
    """A run that is still under way cannot publish after its files were removed."""
    running = journal_with(store, 3)
    list(set_aside(store))
    with pytest.raises(FencedError, match="another driver has taken over"):
        running.append(WindowPlan(4))
    assert read_state(store).last_planned == 0

import os
import shutil
from pathlib import Path

import pytest

from dagflow.errors import FencedError, JournalError, MissingError, StorageError
from dagflow.journal.journal import Journal
from dagflow.journal.reader import read_state
from dagflow.journal.windows import WindowIntent, WindowPlan
from dagflow.storage.backends.local import LocalObjectStore
from dagflow.storage.base import ObjectStore
from dagflow.storage.context import StorageContext
from tests.faulty import Faults, FaultyStore


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    """A journal with three windows: done, committed, planned."""
    store = StorageContext.default().objects(str(tmp_path))
    journal = Journal.open(store, app="toy")
    for window_id in (1, 2, 3):
        journal.append(WindowPlan(window_id))
    for window_id in (1, 2):
        journal.append(WindowIntent(window_id))
    journal.mark_done(1)
    journal.flush()
    return store


def newest(store: ObjectStore) -> Path:
    return Path(store.url, max(store.list("log/")))


def test_a_torn_newest_record_is_passed_over_for_ever(store: ObjectStore) -> None:
    """Its writer died before it could act on it: the journal goes on behind it, and later readers know."""
    path = newest(store)
    whole = path.read_bytes()
    for cut in (0, 1, 20, len(whole) - 1):
        path.write_bytes(whole[:cut])
        assert sorted(read_state(store).intents) == [1, 2]
    journal = Journal.open(store, app="toy")
    assert sorted(journal.state.intents) == [1, 2]
    journal.mark_done(1)
    journal.append(WindowIntent(3))
    assert sorted(Journal.open(store, app="toy").state.intents) == [2, 3]


def test_a_torn_record_that_no_driver_passed_over_stops_everything(store: ObjectStore) -> None:
    """Only the newest record can be torn by a death: this one was damaged later, and a copy of it is needed."""
    for name in sorted(store.list("log/"))[:-1]:
        path = Path(store.url, name)
        whole = path.read_bytes()
        path.write_bytes(whole[:-1])
        for ask in (read_state, lambda store: Journal.open(store, app="toy")):
            with pytest.raises(JournalError, match=f"{name}: .*later ones exist\n.*restore the checkpoint from a copy"):
                ask(store)
        path.write_bytes(whole)
        for seq in list(store.list("log/"))[7:]:  # the fences of drivers that did not get in
            Path(store.url, seq).unlink()


@pytest.mark.parametrize("which", [0, 3, -1])
def test_a_damaged_record_stops_everything(store: ObjectStore, which: int) -> None:
    """Also the newest: it was whole once, and a driver may have acted on it."""
    path = Path(store.url, sorted(store.list("log/"))[which])
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(JournalError, match=f"{path.name}: the checksum does not fit"):
        Journal.open(store, app="toy")


def test_a_missing_record_stops_everything(store: ObjectStore) -> None:
    """A gap is named by the slot that is free."""
    names = sorted(store.list("log/"))
    store.delete([names[2]])
    with pytest.raises(JournalError, match="log record 3 is missing, record 4 is there"):
        read_state(store)


def test_a_record_in_another_slot_stops_everything(store: ObjectStore) -> None:
    """A copy under another name is no record."""
    shutil.copy(newest(store), Path(store.url, "log/000000000008"))
    with pytest.raises(JournalError, match="this is record 7: the object was renamed"):
        read_state(store)


def test_a_stray_file_among_the_records_is_named(store: ObjectStore) -> None:
    """It is not passed over in silence."""
    store.create("log/notes.txt", b"")
    with pytest.raises(JournalError, match=r"log/notes\.txt: this name does not belong into a journal"):
        read_state(store)


def test_a_journal_that_vanishes_is_noticed_at_the_next_record(store: ObjectStore) -> None:
    """A driver does not go on in an empty directory."""
    journal = Journal.open(store, app="toy")
    shutil.rmtree(store.url)
    with pytest.raises(JournalError, match="the journal has vanished: epoch 2"):
        journal.append(WindowPlan(4))


class FolderMovesDuringWrite(LocalObjectStore):
    """A store whose folder is moved aside while an object is on its way to its name."""

    moves = False

    def _make_directory(self, path: str, *, durable: bool) -> None:
        if self.moves and durable:
            os.rename(self.url, f"{self.url}-aside")
        super()._make_directory(path, durable=durable)


def test_a_journal_that_vanishes_under_a_record_is_named_as_the_reason(store: ObjectStore) -> None:
    """And not the folder that the system could not find."""
    vanishing = FolderMovesDuringWrite(store.url)
    journal = Journal.open(vanishing, app="toy")
    vanishing.moves = True
    with pytest.raises(JournalError, match="the journal has vanished: epoch 2"):
        journal.append(WindowPlan(4))
    shutil.rmtree(f"{store.url}-aside")


def test_a_lost_reply_makes_no_second_record(tmp_path: Path) -> None:
    """At whichever call the reply is lost, each window is in the log once."""
    for at in range(1, 30):
        store = StorageContext.default().objects(str(tmp_path / str(at)))
        faults = Faults(at, "lost_reply")
        try:
            journal = Journal.open(FaultyStore(store, faults), app="toy")
            for window_id in (1, 2):
                journal.append(WindowPlan(window_id))
        except StorageError as error:
            assert "reply was lost" in str(error)  # only a deletion has nothing to read back
            assert list(store.list("log/")) == []
            continue
        assert sorted(read_state(store).planned) == [1, 2]
        assert len(list(store.list("log/"))) == 3
        if not faults.has_struck:
            return
    pytest.fail("the run never came through")


def test_the_error_of_the_loser_names_the_winner(store: ObjectStore) -> None:
    """By host and process id."""
    first = Journal.open(store, app="toy")
    Journal.open(store, app="toy")
    with pytest.raises(FencedError, match=rf"process {os.getpid()} on .* \(epoch 3; this one has epoch 2\)"):
        first.check_epoch()


def test_where_there_is_no_journal_there_is_none(tmp_path: Path) -> None:
    """Reading creates nothing."""
    with pytest.raises(MissingError, match="there is no journal"):
        read_state(StorageContext.default().objects(str(tmp_path / "nothing")))
    assert os.listdir(tmp_path) == []

import random
from pathlib import Path
from typing import Any

import pytest

from dagflow.errors import FencedError, MissingError, StorageError
from dagflow.journal.events import WindowReplay
from dagflow.journal.journal import Journal
from dagflow.journal.log import EPOCHS_KEPT
from dagflow.journal.reader import (
    COMPACTED_ARCHIVES,
    JournalRetention,
    committed_windows,
    newest_windows,
    read_state,
    read_window,
)
from dagflow.journal.windows import Window, WindowIntent, WindowPlan
from dagflow.metrics.counters import Counters
from dagflow.storage.base import ObjectStore
from dagflow.storage.context import StorageContext
from tests.journal.samples import intent_of, plan_of, tuples_of


def run_windows(store: ObjectStore, first: int, last: int, retention: JournalRetention) -> Journal:
    journal = Journal.open(store, app="toy", retention=retention)
    for window_id in range(first, last + 1):
        journal.append(plan_of(window_id, [window_id]))
        journal.append(intent_of(window_id, f"out/{window_id}"))
        journal.mark_done(window_id)
        journal.maintain()
    return journal


def test_a_journal_keeps_a_bounded_number_of_records(tmp_path: Path) -> None:
    """However many windows there were, a start reads no more than those since the snapshot before the newest."""
    store = StorageContext.default().objects(str(tmp_path))
    retention = JournalRetention(finished_windows=4, records=20)
    run_windows(store, 1, 100, retention)
    assert len(list(store.list("log/"))) <= 2 * (2 * retention.finished_windows + 2)
    assert len(list(store.list("snap/"))) == 2
    assert len(list(store.list("archive/000000/"))) == 25


def test_starts_that_find_nothing_to_do_do_not_pile_up(tmp_path: Path) -> None:
    """Each leaves a record, and those are removed too."""
    store = StorageContext.default().objects(str(tmp_path))
    for _ in range(40):
        Journal.open(store, app="toy", retention=JournalRetention(records=5)).close()
    assert len(list(store.list("log/"))) <= 10
    assert len(list(store.list("epoch/"))) <= EPOCHS_KEPT + 5


def test_idle_windows_and_a_second_flush_write_nothing(tmp_path: Path) -> None:
    """What has nothing to say costs nothing durable."""
    store = StorageContext.default().objects(str(tmp_path))
    journal = run_windows(store, 1, 2, JournalRetention())
    journal.flush()
    before = list(store.list("log/"))
    for _ in range(10):
        journal.flush()
        journal.maintain()
    assert list(store.list("log/")) == before


def test_every_window_can_be_asked_for_later(tmp_path: Path) -> None:
    """Archived, finished, committed and planned ones alike; state is not kept for them."""
    store = StorageContext.default().objects(str(tmp_path))
    journal = run_windows(store, 1, 10, JournalRetention(finished_windows=4))
    journal.append(WindowPlan(11))
    journal.append(intent_of(11, "out/11"))
    journal.append(plan_of(12, "planned"))
    for window_id in range(1, 11):
        window = read_window(store, window_id)
        assert window == Window(plan_of(window_id, [window_id]).without_state(), window.intent, window.published_ms)
        assert window.published_ms > 0
        assert window.intent == intent_of(window_id, f"out/{window_id}").without_state()
    assert read_window(store, 11).intent == intent_of(11, "out/11")
    assert read_window(store, 12) == Window(plan_of(12, "planned"))
    assert [window.plan.window_id for window in committed_windows(store, 6)] == [6, 7, 8, 9, 10, 11]
    with pytest.raises(MissingError, match="window 13 is unknown, windows 1 to 12 are known"):
        read_window(store, 13)


def test_windows_that_were_archived_twice_are_read_once(tmp_path: Path) -> None:
    """A crash between archive and snapshot leaves ranges that overlap."""
    store = StorageContext.default().objects(str(tmp_path))
    run_windows(store, 1, 5, JournalRetention(finished_windows=100)).flush()
    frames = read_state(store).finished
    store.create("archive/000000/000000000001-000000000003", b"".join(frames[each] for each in (1, 2, 3)))
    journal = run_windows(store, 6, 12, JournalRetention(finished_windows=3))
    expected = [f"out/{window_id}" for window_id in range(1, 13)]
    assert list(journal.published()) == expected
    assert [window.plan.window_id for window in committed_windows(store)] == list(range(1, 13))


def test_a_torn_snapshot_is_replaced_by_the_one_before_it(tmp_path: Path) -> None:
    """The records behind that one are kept for this."""
    store = StorageContext.default().objects(str(tmp_path))
    run_windows(store, 1, 11, JournalRetention(finished_windows=4)).flush()
    before = read_state(store)
    newest = Path(store.url, max(store.list("snap/")))
    newest.write_bytes(newest.read_bytes()[:-3])
    after = read_state(store)
    assert (after.last_committed, after.planned, after.intents) == (11, {}, {})
    assert list(Journal.open(store, app="toy").published()) == [f"out/{each}" for each in range(1, 12)]
    assert after.totals == before.totals


def test_a_reader_is_not_misled_by_a_driver_that_trims(tmp_path: Path) -> None:
    """Records that vanish while a log is read are looked for in newer snapshots."""
    inner = StorageContext.default().objects(str(tmp_path))
    retention = JournalRetention(finished_windows=2)
    run_windows(inner, 1, 6, retention).flush()

    class Trimmed:
        """Goes on with the journal, once, between a look at the snapshots and a look at the log."""

        url, roots = inner.url, inner.roots
        read, create, delete, probe = inner.read, inner.create, inner.delete, inner.probe
        is_new = True

        def list(self, directory: str, after: str = "") -> object:
            if directory == "log/" and self.is_new:
                self.is_new = False
                run_windows(inner, 7, 30, retention).flush()
            return inner.list(directory, after)

    store = Trimmed()
    assert read_state(store).last_committed == 30  # type: ignore[arg-type]  # list is typed loosely
    assert not store.is_new


def test_a_driver_whose_epoch_was_forgotten_is_stopped(tmp_path: Path) -> None:
    """It slept while so many others came that neither its own epoch nor the next one is there; it says who came."""
    store = StorageContext.default().objects(str(tmp_path))
    sleeper = Journal.open(store, app="toy")
    for _ in range(2 * EPOCHS_KEPT):
        Journal.open(store, app="toy", retention=JournalRetention(records=1)).close()
    assert f"epoch/{sleeper.epoch + 1:012d}" not in set(store.list("epoch/"))
    with pytest.raises(FencedError, match="another driver has taken over"):
        sleeper.check_epoch()
    with pytest.raises(FencedError, match="another driver has taken over"):
        sleeper.append(WindowPlan(1))


def test_small_archives_are_folded_into_large_ones(tmp_path: Path) -> None:
    """Their number grows a thousand times slower than that of windows, and every window is still found."""
    store = StorageContext.default().objects(str(tmp_path))
    run_windows(store, 1, 300, JournalRetention(finished_windows=2))
    names = list(store.list("archive/000000/"))
    assert len(names) <= 150 / COMPACTED_ARCHIVES + COMPACTED_ARCHIVES
    assert [window.plan.window_id for window in committed_windows(store)] == list(range(1, 301))
    assert tuples_of(read_window(store, 77).plan) == [77]


class ArchiveReadCounter:
    """A store, and how often its archives were read."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.archives = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read(self, name: str) -> bytes:
        """Count it."""
        self.archives += name.startswith("archive/")
        return self._store.read(name)


def test_large_windows_are_not_held_till_there_are_many(tmp_path: Path) -> None:
    """Neither before they are archived nor, all at once, to be folded; and every one is found."""
    inner = StorageContext.default().objects(str(tmp_path))
    store = ArchiveReadCounter(inner)
    retention = JournalRetention(finished_bytes=1 << 20)
    journal = Journal.open(store, app="toy", retention=retention)  # type: ignore[arg-type]  # typed loosely
    dice, most = random.Random(7), 0
    for window_id in range(1, 141):
        # Numbers that no compression makes much smaller.
        journal.append(plan_of(window_id, dice.randbytes(300_000).hex()))
        journal.append(WindowIntent(window_id))
        journal.mark_done(window_id)
        journal.maintain()
        most = max(most, sum(map(len, journal.state.finished.values())))
    assert most < retention.finished_bytes
    archives = len(list(inner.list("archive/000000/")))
    assert archives > COMPACTED_ARCHIVES
    assert store.archives == archives - COMPACTED_ARCHIVES + 1
    assert [window.plan.window_id for window in committed_windows(inner)] == list(range(1, 141))


def test_a_fold_that_died_is_passed_over_and_cleared_away(tmp_path: Path) -> None:
    """Parts that lie beside the whole are not read twice, and go with the next maintenance."""
    store = StorageContext.default().objects(str(tmp_path))
    run_windows(store, 1, 8, JournalRetention(finished_windows=2)).close()
    parts = list(store.list("archive/000000/"))
    assert len(parts) == 4
    store.create(f"archive/000000/{1:012d}-{6:012d}", b"".join(store.read(name) for name in parts[:3]))
    assert [window.plan.window_id for window in committed_windows(store)] == list(range(1, 9))
    run_windows(store, 9, 10, JournalRetention(finished_windows=2))
    assert [window.plan.window_id for window in committed_windows(store)] == list(range(1, 11))
    assert [name.rpartition("/")[2].lstrip("0").partition("-")[0] for name in store.list("archive/000000/")] == [
        "1",
        "7",
        "9",
    ]


def test_what_a_power_loss_left_of_an_archive_is_written_anew(tmp_path: Path) -> None:
    """A death behind the archive, and before the snapshot that trusts it, leaves the records that say the same."""
    complete = StorageContext.default().objects(str(tmp_path / "complete"))
    run_windows(complete, 1, 4, JournalRetention(finished_windows=4)).close()
    [name] = complete.list("archive/000000/")
    whole = complete.read(name)
    frame_bytes = whole.index(b"dagflow-journal", 1)
    for cut in (0, 20, frame_bytes, len(whole) - 3):
        for lost in (b"", b"\0" * (len(whole) - cut)):
            store = StorageContext.default().objects(str(tmp_path / f"{cut}-{len(lost)}"))
            run_windows(store, 1, 4, JournalRetention()).flush()
            store.create(name, whole[:cut] + lost)
            Journal.open(store, app="toy", retention=JournalRetention(finished_windows=4)).close()
            assert len(list(store.list("snap/"))) == 1
            assert [window.plan.window_id for window in committed_windows(store)] == [1, 2, 3, 4]


def test_a_fold_that_a_power_loss_tore_goes_before_its_parts_do(tmp_path: Path) -> None:
    """The parts are all there is of these windows."""
    store = StorageContext.default().objects(str(tmp_path))
    run_windows(store, 1, 8, JournalRetention(finished_windows=2)).close()
    parts = list(store.list("archive/000000/"))
    fold = f"archive/000000/{1:012d}-{6:012d}"
    store.create(fold, b"".join(store.read(name) for name in parts[:3])[:-3])
    run_windows(store, 9, 10, JournalRetention(finished_windows=2))
    assert [window.plan.window_id for window in committed_windows(store)] == list(range(1, 11))
    assert fold not in store.list("archive/000000/")


def test_files_of_other_programs_are_left_alone(tmp_path: Path) -> None:
    """What a system or a person drops into a checkpoint is neither read as a part of it nor removed."""
    store = StorageContext.default().objects(str(tmp_path))
    retention = JournalRetention(finished_windows=2, kept_windows=10)
    run_windows(store, 1, 4, retention).close()
    archive = "archive/000000"
    strangers = [
        tmp_path / name
        for name in ("log/.nfs01", "snap/.DS_Store", "epoch/.nfs02", f"{archive}/.nfs03", f"{archive}/notes")
    ]
    for path in strangers:
        path.write_bytes(b"x")
    run_windows(store, 5, 100, retention).close()
    assert [window.plan.window_id for window in committed_windows(store)] == list(range(91, 101))
    assert all(path.exists() for path in strangers)


def test_windows_beyond_the_bound_are_forgotten_and_the_rest_is_kept(tmp_path: Path) -> None:
    """The archive stays as small as the bound says, sums count all windows, and the error names what is there."""
    store = StorageContext.default().objects(str(tmp_path))
    retention = JournalRetention(finished_windows=4, kept_windows=10)
    run_windows(store, 1, 100, retention).close()
    assert len(list(store.list("archive/000000/"))) <= 4
    state = read_state(store)
    assert (state.last_committed, state.forgotten) == (100, 90)
    assert [window.plan.window_id for window in committed_windows(store)] == list(range(91, 101))
    assert tuples_of(read_window(store, 91).plan) == [91]
    with pytest.raises(MissingError, match=r"(?s)window 90 is no longer kept, windows from 91 on are.*retain_windows"):
        read_window(store, 90)
    wider = run_windows(store, 101, 120, JournalRetention(finished_windows=4))
    assert wider.state.forgotten == 90
    assert list(wider.published()) == [f"out/{each}" for each in range(91, 121)]


def test_what_replays_leave_is_bounded_too(tmp_path: Path) -> None:
    """The last of several replays of a window is kept, none of a forgotten window; a decided one holds its window."""
    store = StorageContext.default().objects(str(tmp_path))
    journal = run_windows(store, 1, 8, JournalRetention(finished_windows=4))
    for number in range(3):
        for window_id in (2, 7):
            journal.append(WindowReplay(intent_of(window_id, f"new/{number}"), [], Counters(), {}))
            journal.end_replay(window_id)
    journal.append(WindowReplay(intent_of(6, "late/6"), [], Counters(), {}))
    journal = run_windows(store, 9, 16, JournalRetention(finished_windows=4, kept_windows=6))
    assert journal.state.forgotten == 5
    assert len(list(store.list("reprocessed/000000/"))) == 1
    assert read_window(store, 7).intent == intent_of(7, "new/2").without_state()
    journal.end_replay(6)
    journal = run_windows(store, 17, 24, JournalRetention(finished_windows=4, kept_windows=6))
    assert journal.state.forgotten == 18
    assert list(store.list("reprocessed/000000/")) == []


def test_a_store_that_refuses_to_be_tidied_stops_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Archives, snapshots and deletions fail for a while: windows go on, and later everything is made up for."""
    inner = StorageContext.default().objects(str(tmp_path))
    refusing: list[str] = []

    class Refusing:
        """Takes records, and nothing of certain kinds."""

        url, roots, read, list, probe = inner.url, inner.roots, inner.read, inner.list, inner.probe
        close_to_others = inner.close_to_others

        def create(self, name: str, data: bytes) -> None:
            """As the store does, or not."""
            if name.startswith(tuple(refusing)):
                raise StorageError("cannot create: no", url=name)
            inner.create(name, data)

        def delete(self, names: object) -> None:
            """As the store does, or not."""
            if "delete" in refusing:
                raise StorageError("cannot delete: no", url=inner.url)
            inner.delete(names)  # type: ignore[arg-type]  # typed loosely

    retention = JournalRetention(finished_windows=4, kept_windows=20)
    run_windows(Refusing(), 1, 10, retention).flush()  # type: ignore[arg-type]  # typed loosely  # type: ignore[arg-type]  # typed loosely  # type: ignore[arg-type]  # typed loosely
    last = 10
    for kind in ("archive/", "snap/", "delete"):
        refusing[:] = [kind]
        run_windows(Refusing(), last + 1, last + 60, retention).flush()  # type: ignore[arg-type]  # as above  # type: ignore[arg-type]  # as above  # type: ignore[arg-type]  # as above
        last += 60
        assert "the journal was not made smaller, will try again" in caplog.text
        caplog.clear()
        assert [window.plan.window_id for window in committed_windows(inner)][-1] == last
    refusing.clear()
    run_windows(inner, last + 1, last + 40, retention).flush()
    assert [window.plan.window_id for window in committed_windows(inner)] == list(range(last + 21, last + 41))
    assert len(list(inner.list("log/"))) <= 20
    assert len(list(inner.list("archive/000000/"))) <= 7


@pytest.mark.parametrize("windows", [0, 3, 9, 60])
def test_windows_are_read_newest_first_from_any_id_on(tmp_path: Path, windows: int) -> None:
    """They are those of the other direction, with the planned and unpublished ones, and each once."""
    store = StorageContext.default().objects(str(tmp_path))
    journal = run_windows(store, 1, windows, JournalRetention(finished_windows=4, records=20))
    journal.append(plan_of(windows + 1, [1]))
    journal.append(intent_of(windows + 1, "out/last"))
    journal.append(plan_of(windows + 2, [2]))
    journal.flush()
    state = read_state(store)
    found = list(newest_windows(store, state))
    assert [each.plan.window_id for each in found] == list(range(windows + 2, 0, -1))
    assert found[1:] == list(committed_windows(store))[::-1]
    for before in {1, 2, windows, windows + 1}:
        ids = [each.plan.window_id for each in newest_windows(store, state, before)]
        assert ids == list(range((before or windows + 3) - 1, 0, -1))


def test_a_few_new_windows_are_read_without_older_archives(tmp_path: Path) -> None:
    """However many windows there were, a page of the newest opens one archive at most."""
    store = StorageContext.default().objects(str(tmp_path))
    run_windows(store, 1, 60, JournalRetention(finished_windows=4, records=20)).flush()
    state = read_state(store)
    for name in sorted(store.list("archive/000000/"))[:-1]:
        (tmp_path / name).unlink()
    found = newest_windows(store, state)
    assert [next(found).plan.window_id for _ in range(4)] == [60, 59, 58, 57]

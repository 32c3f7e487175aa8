"""Drivers that die or freeze before any of their durable calls."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dagflow.errors import DagflowError, FencedError, JournalError
from dagflow.journal import reader
from dagflow.journal.journal import Journal, set_aside
from dagflow.journal.reader import JournalRetention, committed_windows
from dagflow.journal.windows import WindowPlan
from dagflow.storage.base import ObjectStore
from dagflow.storage.context import StorageContext
from dagflow.testing.faults import InjectedCrash, crashing_disk
from tests.faulty import Faults, FaultyStore, InjectedPause, Moment, counted_calls
from tests.journal.samples import plan_of
from tests.journal.toy import RETENTION, Toy, published_numbers, require_complete, require_partial
from tests.nightly import by_day, examples

MOST_PAUSES = 200


@pytest.mark.parametrize("later", [0, 30])
def test_a_driver_that_was_frozen_publishes_nothing_twice(tmp_path: Path, later: int) -> None:
    """Freeze a driver before each durable call in turn, let another finish, and let the first go on.

    With later numbers the other driver goes on so far that it removes the log slots which the first one would
    write next: their names are free again, and only the epoch tells it that its time is over.
    """
    endings = set()
    for at in range(1, MOST_PAUSES):
        store, out = StorageContext.default().objects(str(tmp_path / f"{at}/journal")), str(tmp_path / f"{at}/out")

        def finish(store: ObjectStore = store, out: str = out) -> None:
            Toy(store, out, 9 + later, cores=3).run()
            require_complete(store, out, 9 + later)

        pause = InjectedPause(at, finish)
        try:
            Toy(store, out, 9, faults=pause).run()
            endings.add("ended")
        except DagflowError as error:
            endings.add(type(error).__name__)
        if not pause.has_struck:
            assert at > 20
            assert endings >= {"ended", "FencedError"}
            return
        require_complete(store, out, 9 + later)
    pytest.fail("the run never came through")


def test_a_journal_that_refused_an_event_takes_no_other(tmp_path: Path) -> None:
    """Its state has what came before that event, and its log has not; the next one goes on behind the log."""
    store = StorageContext.default().objects(str(tmp_path / "journal"))
    with contextlib.closing(Journal.open(store, app="toy")) as journal:
        with pytest.raises(ValueError, match="window 5 is planned where window 2 is due"):
            journal.append(plan_of(1), plan_of(5))
        with pytest.raises(JournalError, match="refuses"):
            journal.append(plan_of(2))
    with contextlib.closing(Journal.open(store, app="toy")) as journal:
        journal.append(plan_of(1))


def test_a_freed_slot_does_not_let_a_dead_driver_back_in(tmp_path: Path) -> None:
    """Its creation succeeds there, and it is refused all the same."""
    store = StorageContext.default().objects(str(tmp_path / "journal"))
    zombie = Journal.open(store, app="toy")
    Toy(store, str(tmp_path / "out"), 60).run()
    assert min(store.list("log/")) > "log/000000000002"
    with pytest.raises(FencedError, match=r"another driver has taken over: process \d+ on .*, started .*epoch 2"):
        zombie.append(WindowPlan(1))
    assert "log/000000000002" in set(store.list("log/"))
    require_complete(store, str(tmp_path / "out"), 60)


def test_after_an_error_a_journal_takes_nothing_more(tmp_path: Path) -> None:
    """Who was fenced once cannot append by trying again."""
    store = StorageContext.default().objects(str(tmp_path))
    zombie = Journal.open(store, app="toy")
    Journal.open(store, app="toy")
    with pytest.raises(FencedError, match="another driver"):
        zombie.append(WindowPlan(1))
    for act in (zombie.flush, zombie.maintain, zombie.check_epoch, lambda: zombie.append(WindowPlan(2))):
        with pytest.raises(DagflowError, match=r"takes no more records after: .*another driver has taken over"):
            act()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_after_an_interrupted_write_a_journal_takes_nothing_more(tmp_path: Path, moment: Moment) -> None:
    """What came of it is not known here: the next driver reads that, and goes on behind it."""
    store = StorageContext.default().objects(str(tmp_path))
    faults = Faults(moment=moment)
    interrupted = Journal.open(FaultyStore(store, faults), app="toy")
    faults.at = faults.calls + 1
    with contextlib.suppress(InjectedCrash):
        interrupted.append(WindowPlan(1))
    faults.is_dead = False
    with pytest.raises(JournalError, match="takes no more records after: a write that was interrupted"):
        interrupted.append(WindowPlan(2))
    planned = {"before": 0, "after": 1}[moment]
    assert Journal.open(store, app="toy").state.last_planned == planned


def test_of_drivers_that_start_together_one_goes_on(tmp_path: Path) -> None:
    """Freeze a starting driver before each durable call, let another start: exactly one of them can append."""
    for at in range(1, 20):
        store = StorageContext.default().objects(str(tmp_path / str(at)))
        others: list[Journal] = []

        def start(store: ObjectStore = store, others: list[Journal] = others) -> None:
            others.append(Journal.open(store, app="toy"))

        pause = InjectedPause(at, start)
        with contextlib.suppress(FencedError):
            others.append(Journal.open(FaultyStore(store, pause), app="toy"))
        winners = 0
        for journal in others:
            with contextlib.suppress(FencedError):
                journal.append(WindowPlan(1))
                winners += 1
        assert winners == 1
        if not pause.has_struck:
            return
    pytest.fail("the driver never started")


def test_a_driver_that_is_being_fenced_is_believed_up_to_the_fence(tmp_path: Path) -> None:
    """What it appends between the other's look at the log and its fence is in the log, and is replayed."""
    store = StorageContext.default().objects(str(tmp_path))
    old = Journal.open(store, app="toy", retention=RETENTION)

    def append() -> None:
        with contextlib.suppress(FencedError):
            old.append(plan_of(1, cursor=7))

    # The probe, its end, the epoch, and then the fence.
    pause = InjectedPause(5, append)
    new = Journal.open(FaultyStore(store, pause), app="toy")
    assert new.state.planned == {1: plan_of(1, cursor=7)}
    new.append(WindowPlan(2))


NUMBERS = 12
MOST_CALLS = 400


def test_an_undisturbed_run_publishes_everything_once(root: str) -> None:
    """On every store, for the journal and for the output."""
    store = StorageContext.default().objects(f"{root}/journal")
    Toy(store, f"{root}/out", NUMBERS).run()
    require_complete(store, f"{root}/out", NUMBERS)


@pytest.mark.parametrize("moment", by_day(1, ["before", "after", "lost_reply"]))
def test_every_number_is_published_once_whichever_call_is_the_last(tmp_path: Path, moment: Moment) -> None:
    """Die at call 1, 2, 3, … until a run comes through; after each death start again with other settings."""
    for at in range(1, MOST_CALLS):
        store, out = StorageContext.default().objects(str(tmp_path / f"{at}/journal")), str(tmp_path / f"{at}/out")
        faults = Faults(at, moment)
        with contextlib.suppress(InjectedCrash, DagflowError):
            Toy(store, out, NUMBERS, faults=faults).run()
        require_partial(out, NUMBERS)
        Toy(store, out, NUMBERS, cores=3).run()
        require_complete(store, out, NUMBERS)
        if not faults.has_struck:
            assert at > 30
            return
    pytest.fail("the run never came through")


def test_every_number_is_published_once_whichever_disk_change_is_last(tmp_path: Path) -> None:
    """The same below dagflow: before each link, unlink, mkdir, rmdir and open in turn."""
    for at in range(1, MOST_CALLS):
        root = tmp_path / str(at)
        store, out = StorageContext.default().objects(str(root / "journal")), str(root / "out")
        with crashing_disk(str(root), at) as faults, contextlib.suppress(InjectedCrash):
            Toy(store, out, 6).run()
        require_partial(out, 6)
        Toy(store, out, 6, cores=3).run()
        require_complete(store, out, 6)
        if not faults.has_struck:
            assert at > 50
            return
    pytest.fail("the run never came through")


@pytest.fixture
def two_are_enough() -> Iterator[None]:
    """Every second archive is compacted into the one before."""
    before, reader.COMPACTED_ARCHIVES = reader.COMPACTED_ARCHIVES, 2
    yield
    reader.COMPACTED_ARCHIVES = before


@pytest.mark.parametrize("moment", by_day(1, ["before", "after", "lost_reply"]))
def test_every_window_is_archived_once_whichever_call_is_the_last(
    tmp_path: Path, moment: Moment, two_are_enough: None
) -> None:
    """Also while archives are folded: what is there twice is read once, and nothing goes before it is there again."""
    retention = JournalRetention(finished_windows=1, records=8)
    for at in range(1, MOST_CALLS):
        store, out = StorageContext.default().objects(str(tmp_path / f"{at}/journal")), str(tmp_path / f"{at}/out")
        faults = Faults(at, moment)
        with contextlib.suppress(InjectedCrash, DagflowError):
            Toy(store, out, NUMBERS, faults=faults, retention=retention).run()
        Toy(store, out, NUMBERS, retention=retention).run()
        assert [window.plan.window_id for window in committed_windows(store)] == [1, 2, 3, 4]
        require_complete(store, out, NUMBERS)
        if not faults.has_struck:
            assert len(list(store.list("archive/000000/"))) < 4
            return
    pytest.fail("the run never came through")


DEATHS = st.lists(st.tuples(st.integers(1, 40), st.sampled_from(["before", "after", "lost_reply"])), max_size=8)


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deaths=DEATHS)
def test_recovery_may_die_too(tmp_path: Path, deaths: list[tuple[int, Moment]]) -> None:
    """Any sequence of deaths, each in the recovery from the one before, ends with every number once."""
    root = tmp_path / os.urandom(8).hex()
    store, out = StorageContext.default().objects(str(root / "journal")), str(root / "out")
    for cores, (at, moment) in enumerate(deaths, start=1):
        with contextlib.suppress(InjectedCrash, DagflowError):
            Toy(store, out, NUMBERS, cores=cores, faults=Faults(at, moment)).run()
        require_partial(out, NUMBERS)
    Toy(store, out, NUMBERS).run()
    require_complete(store, out, NUMBERS)


@pytest.mark.parametrize("moment", by_day(1, ["before", "after", "lost_reply"]))
def test_starting_over_may_die_too(tmp_path: Path, moment: Moment) -> None:
    """Whichever durable call is the last, the old files go, strangers' stay, and the new run is complete."""
    for at in range(1, MOST_CALLS):
        store, out = StorageContext.default().objects(str(tmp_path / f"{at}/journal")), tmp_path / f"{at}/out"
        Toy(store, str(out), NUMBERS).run()
        stranger = tmp_path / f"{at}/stranger"
        stranger.write_bytes(b"stays")
        faults = Faults(at, moment)
        with contextlib.suppress(InjectedCrash, DagflowError):
            for url in set_aside(FaultyStore(store, faults)):
                counted_calls(faults, StorageContext.default().backend(url).files.remove)(url)
        for url in set_aside(store):
            with contextlib.suppress(DagflowError):
                StorageContext.default().backend(url).files.remove(url)
        assert published_numbers(str(out)) == {}
        Toy(store, str(out), 7, cores=1).run()
        require_complete(store, str(out), 7)
        assert stranger.read_bytes() == b"stays"
        if not faults.has_struck:
            assert at > 8
            return
    pytest.fail("starting over never came through")

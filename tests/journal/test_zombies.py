import contextlib
from pathlib import Path

import pytest

from dagflow.errors import DagflowError, FencedError
from dagflow.journal import Journal, WindowPlan
from dagflow.storage.context import StorageContext
from dagflow.storage.objects import ObjectStore
from dagflow.testing.faults import Pause
from tests.journal.samples import plan_of
from tests.journal.toy import RETENTION, Toy, require_complete

MOST_CALLS = 200


@pytest.mark.parametrize("later", [0, 30])
def test_a_driver_that_was_frozen_publishes_nothing_twice(quick_path: Path, later: int) -> None:
    """Freeze a driver before each durable call in turn, let another finish, and let the first go on.

    With later numbers the other driver goes on so far that it removes the log slots which the first one would
    write next: their names are free again, and only the epoch tells it that its time is over.
    """
    endings = set()
    for at in range(1, MOST_CALLS):
        store, out = StorageContext.default().objects(str(quick_path / f"{at}/journal")), str(quick_path / f"{at}/out")

        def finish(store: ObjectStore = store, out: str = out) -> None:
            Toy(store, out, 9 + later, cores=3).run()
            require_complete(store, out, 9 + later)

        pause = Pause(at, finish)
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


def test_a_slot_that_retention_has_freed_does_not_let_a_dead_driver_back_in(quick_path: Path) -> None:
    """Its creation succeeds there, and it is refused all the same."""
    store = StorageContext.default().objects(str(quick_path / "journal"))
    zombie = Journal.open(store, app="toy")
    Toy(store, str(quick_path / "out"), 60).run()
    assert min(store.list("log/")) > "log/000000000002"
    with pytest.raises(FencedError, match=r"another driver has taken over: process \d+ on .*, started .*epoch 2"):
        zombie.append_plan(WindowPlan(1))
    assert "log/000000000002" in set(store.list("log/"))
    require_complete(store, str(quick_path / "out"), 60)


def test_after_an_error_a_journal_takes_nothing_more(quick_path: Path) -> None:
    """Who was fenced once cannot append by trying again."""
    store = StorageContext.default().objects(str(quick_path))
    zombie = Journal.open(store, app="toy")
    Journal.open(store, app="toy")
    with pytest.raises(FencedError, match="another driver"):
        zombie.append_plan(WindowPlan(1))
    for act in (zombie.flush, zombie.maintain, zombie.check_epoch, lambda: zombie.append_plan(WindowPlan(2))):
        with pytest.raises(DagflowError, match=r"takes no more records after: .*another driver has taken over"):
            act()


def test_of_drivers_that_start_together_one_goes_on(quick_path: Path) -> None:
    """Freeze a starting driver before each durable call, let another start: exactly one of them can append."""
    for at in range(1, 20):
        store = StorageContext.default().objects(str(quick_path / str(at)))
        others: list[Journal] = []

        def start(store: ObjectStore = store, others: list[Journal] = others) -> None:
            others.append(Journal.open(store, app="toy"))

        pause = Pause(at, start)
        with contextlib.suppress(FencedError):
            others.append(Journal.open(pause.store(store), app="toy"))
        winners = 0
        for journal in others:
            with contextlib.suppress(FencedError):
                journal.append_plan(WindowPlan(1))
                winners += 1
        assert winners == 1
        if not pause.has_struck:
            return
    pytest.fail("the driver never started")


def test_a_driver_that_is_being_fenced_is_believed_up_to_the_fence(quick_path: Path) -> None:
    """What it appends between the other's look at the log and its fence is in the log, and is replayed."""
    store = StorageContext.default().objects(str(quick_path))
    old = Journal.open(store, app="toy", retention=RETENTION)

    def append() -> None:
        with contextlib.suppress(FencedError):
            old.append_plan(plan_of(1, cursor=7))

    # The probe, its end, the epoch, and then the fence.
    pause = Pause(5, append)
    new = Journal.open(pause.store(store), app="toy")
    assert new.state.planned == {1: plan_of(1, cursor=7)}
    new.append_plan(WindowPlan(2))

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dagflow.errors import DagflowError
from dagflow.journal import Retention, committed_windows, compaction, set_aside
from dagflow.storage.context import StorageContext
from dagflow.testing.faults import Faults, InjectedCrash, Moment, crashing_disk
from tests.journal.toy import Toy, published_numbers, require_complete, require_partial

NUMBERS = 12
MOST_CALLS = 400


def test_an_undisturbed_run_publishes_everything_once(root: str) -> None:
    """On every store, for the journal and for the output."""
    store = StorageContext.default().objects(f"{root}/journal")
    Toy(store, f"{root}/out", NUMBERS).run()
    require_complete(store, f"{root}/out", NUMBERS)


@pytest.mark.parametrize("moment", ["before", "after", "lost_reply"])
def test_every_number_is_published_once_whichever_durable_call_is_the_last(quick_path: Path, moment: Moment) -> None:
    """Die at call 1, 2, 3, … until a run comes through; after each death start again with other settings."""
    for at in range(1, MOST_CALLS):
        store, out = StorageContext.default().objects(str(quick_path / f"{at}/journal")), str(quick_path / f"{at}/out")
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


def test_every_number_is_published_once_whichever_change_of_the_disk_is_the_last(quick_path: Path) -> None:
    """The same below dagflow: before each link, unlink, mkdir, rmdir and open in turn."""
    for at in range(1, MOST_CALLS):
        root = quick_path / str(at)
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
    """Every second archive is folded into the one before."""
    before, compaction.COMPACTED_ARCHIVES = compaction.COMPACTED_ARCHIVES, 2
    yield
    compaction.COMPACTED_ARCHIVES = before


@pytest.mark.parametrize("moment", ["before", "after", "lost_reply"])
def test_every_window_is_in_the_archive_once_whichever_durable_call_is_the_last(
    quick_path: Path, moment: Moment, two_are_enough: None
) -> None:
    """Also while archives are folded: what is there twice is read once, and nothing goes before it is there again."""
    retention = Retention(finished_windows=1, records=8)
    for at in range(1, MOST_CALLS):
        store, out = StorageContext.default().objects(str(quick_path / f"{at}/journal")), str(quick_path / f"{at}/out")
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


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deaths=DEATHS)
def test_recovery_may_die_too(quick_path: Path, deaths: list[tuple[int, Moment]]) -> None:
    """Any sequence of deaths, each in the recovery from the one before, ends with every number once."""
    root = quick_path / os.urandom(8).hex()
    store, out = StorageContext.default().objects(str(root / "journal")), str(root / "out")
    for cores, (at, moment) in enumerate(deaths, start=1):
        with contextlib.suppress(InjectedCrash, DagflowError):
            Toy(store, out, NUMBERS, cores=cores, faults=Faults(at, moment)).run()
        require_partial(out, NUMBERS)
    Toy(store, out, NUMBERS).run()
    require_complete(store, out, NUMBERS)


@pytest.mark.parametrize("moment", ["before", "after", "lost_reply"])
def test_starting_over_may_die_too(quick_path: Path, moment: Moment) -> None:
    """Whichever durable call is the last, the old files go, strangers' stay, and the new run is complete."""
    for at in range(1, MOST_CALLS):
        store, out = StorageContext.default().objects(str(quick_path / f"{at}/journal")), quick_path / f"{at}/out"
        Toy(store, str(out), NUMBERS).run()
        stranger = quick_path / f"{at}/stranger"
        stranger.write_bytes(b"stays")
        faults = Faults(at, moment)
        with contextlib.suppress(InjectedCrash, DagflowError):
            for url in set_aside(faults.store(store)):
                faults.wrap(StorageContext.default().backend(url).files.remove)(url)
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

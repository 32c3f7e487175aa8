"""Apps with state by key that die before each change of the disk in turn, and go on with other partitions."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dagflow.engine import operator_state as states
from dagflow.engine.run import run
from dagflow.plan.logical import LogicalPlan
from dagflow.runtime.inline import InlineRuntime
from dagflow.testing.faults import InjectedCrash, crashing_disk
from operators.stateful.deduplicator import Deduplicator
from operators.stateful.key_counter import KeyCounter
from tests.crash.apps import leftovers, published, records_of, require_part_of
from tests.engine.test_operator_state import WORDS, by_record, keyed_app

MOST_CALLS = 2000


@pytest.fixture(autouse=True)
def segments_of_their_own() -> Iterator[None]:
    """Every segment becomes an object, so that there are deaths between those and the intent."""
    inline, states.INLINE_BYTES = states.INLINE_BYTES, 0
    yield
    states.INLINE_BYTES = inline


def make(root: Path, name: str, partitions: int) -> LogicalPlan:
    """The app, with one of the two operators."""
    operator = Deduplicator() if name == "deduplicator" else KeyCounter()
    return keyed_app(root, operator, by_record(partitions))


def dies(root: Path, name: str, at: int) -> bool:
    """Run the app until it dies before the at-th change of the disk, and say whether it did."""
    with crashing_disk(str(root), at) as faults, contextlib.suppress(InjectedCrash):
        run(make(root, name, 2), runtime=InlineRuntime)
    return faults.has_struck


@pytest.mark.parametrize("name", ["deduplicator", "counter"])
def test_state_is_neither_lost_nor_counted_twice_whichever_change_of_the_disk_is_the_last(
    quick_disk: Path, name: str
) -> None:
    """After each death the next run goes on and publishes the bytes of an undisturbed one."""
    undisturbed = quick_disk / "undisturbed"
    run(make(undisturbed, name, 2), runtime=InlineRuntime)
    expected = published(undisturbed / "out")
    for at in range(1, MOST_CALLS):
        root = quick_disk / str(at)
        has_died = dies(root, name, at)
        require_part_of(published(root / "out"), expected)
        run(make(root, name, 2), runtime=InlineRuntime)
        assert published(root / "out") == expected
        assert leftovers(root / "out") == []
        shutil.rmtree(root)
        if not has_died:
            assert at > 80
            return
    pytest.fail("the run never came through")


def test_state_moves_with_its_keys_after_a_death_at_any_moment(quick_disk: Path) -> None:
    """The run after the death has another number of partitions; still no key passes twice, and none is missing."""
    for at in range(1, MOST_CALLS, 3):
        root = quick_disk / str(at)
        has_died = dies(root, "deduplicator", at)
        for partitions in (3, 1):
            run(make(root, "deduplicator", partitions), runtime=InlineRuntime)
        assert records_of(published(root / "out")) == dict.fromkeys(WORDS, 1)
        shutil.rmtree(root)
        if not has_died:
            return
    pytest.fail("the run never came through")

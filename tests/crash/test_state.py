"""Apps with state by key that die before each change of the disk, and continue with other partitions."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest

from dagflow.engine import held_results
from dagflow.engine import operator_state as segment_store
from dagflow.engine.run import run
from dagflow.plan.logical import LogicalPlan, unified
from dagflow.runtime.local import InlineRuntime
from dagflow.testing.faults import InjectedCrash, crashing_disk
from operators.aggregate.count_by import CountBy
from operators.stateful import Deduplicator, KeyCounter
from tests.crash.apps import leftovers, published, records_of, require_part_of
from tests.engine.test_operator_state import WORDS, by_record, keyed_app
from tests.nightly import IS_NIGHTLY, every

MOST_CALLS = 2000


@pytest.fixture(autouse=True)
def segments_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Store every segment as an object, so that crashes happen between segments and intent, and merge often."""
    monkeypatch.setattr(segment_store, "INLINE_BYTES", 0)
    monkeypatch.setattr(held_results, "FAN_IN", 2)


def make(root: Path, name: str, partitions: int) -> LogicalPlan:
    """Return the app with one of the operators."""
    if name == "counts of the run":
        return unified(keyed_app(root, CountBy(by="record"), by_record(partitions)))
    operator = Deduplicator() if name == "deduplicator" else KeyCounter()
    return keyed_app(root, operator, by_record(partitions))


def dies(root: Path, name: str, at: int) -> bool:
    """Run the app until it dies before the at-th change of the disk; return whether it did."""
    with crashing_disk(str(root), at) as faults, contextlib.suppress(InjectedCrash):
        run(make(root, name, 2), runtime=InlineRuntime)
    return faults.has_struck


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("deduplicator", 1 if IS_NIGHTLY else 20),
        ("counter", 5 if IS_NIGHTLY else 40),
        ("counts of the run", 1 if IS_NIGHTLY else 40),
    ],
)
def test_a_crash_at_any_disk_change_does_not_alter_state(tmp_path: Path, name: str, step: int) -> None:
    """After each crash the next run publishes the bytes of a run without one.

    Others store their state as a deduplicator does: a part of the changes is enough for them.
    """
    undisturbed = tmp_path / "undisturbed"
    run(make(undisturbed, name, 2), runtime=InlineRuntime)
    expected = published(undisturbed / "out")
    for at in range(1, MOST_CALLS, step):
        root = tmp_path / str(at)
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


@every(80)
def test_state_moves_with_its_keys_after_a_death_at_any_moment(tmp_path: Path, step: int) -> None:
    """With another number of partitions after the crash, no key passes twice, and none is missing."""
    for at in range(1, MOST_CALLS, step):
        root = tmp_path / str(at)
        has_died = dies(root, "deduplicator", at)
        for partitions in (3, 1):
            run(make(root, "deduplicator", partitions), runtime=InlineRuntime)
        assert records_of(published(root / "out")) == dict.fromkeys(WORDS, 1)
        shutil.rmtree(root)
        if not has_died:
            return
    pytest.fail("the run never came through")

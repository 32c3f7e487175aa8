"""Corrections of totals that die before each change of the disk and each transaction."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from dagflow.engine import publishers
from dagflow.testing.faults import InjectedCrash, crashing_disk
from tests.crash.restored import restored_afterwards
from tests.engine.corrected_app import all_lines, write
from tests.engine.corrected_totals import lines_beside, totals_app, totals_in, totals_of_files
from tests.engine.table_app import with_faults, work
from tests.faulty import Faults
from tests.nightly import by_day, every

MOST_CALLS = 1000


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for nothing between two attempts."""
    monkeypatch.setattr(publishers, "FIRST_PAUSE_S", 0.0)
    with_faults(monkeypatch, Faults())


@every(40)
@pytest.mark.parametrize(("kind", "beside"), by_day(1, [("delta-groups", ""), ("delta", "delta"), ("iceberg", "")]))
def test_a_correction_of_totals_that_dies_anywhere_is_done_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, beside: str, step: int
) -> None:
    """At every moment readers of the table see the old totals or the new ones; the next run finishes it."""
    made = tmp_path / "made"
    write(made, "a", "0.1 1.1 2.1")
    write(made, "b", "0.2 1.2 4.4 5.5")
    work(totals_app(made, kind, beside))
    old = totals_in(made, kind)
    assert old == totals_of_files(made)
    write(made, "a", "3.7 0.2")
    new = totals_of_files(made)
    seen = set()
    for at in range(1, MOST_CALLS, step):
        with restored_afterwards(made):
            with crashing_disk(str(made), at) as faults, contextlib.suppress(InjectedCrash):
                with_faults(monkeypatch, faults)
                work(totals_app(made, kind, beside))
            with_faults(monkeypatch, Faults())
            found = totals_in(made, kind)
            assert found in (old, new), f"seen at {at}"
            seen.add(found == new)
            work(totals_app(made, kind, beside, partitions=1 + at % 3))
            assert totals_in(made, kind) == new, f"died at {at}"
            assert not beside or lines_beside(made, beside) == all_lines(made), f"died at {at}"
            assert work(totals_app(made, kind, beside)) == 0
            assert not list(made.rglob(".dagflow-pending/*/*"))
        if not faults.has_struck:
            assert seen == {False, True}
            return
    pytest.fail("the correction never came through")

"""Corrections of files that die before each change of the disk and each transaction."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from dagflow.engine import publishers
from dagflow.errors import ReplacedFilesGoneError
from dagflow.testing.faults import InjectedCrash, crashing_disk
from tests.crash.restored import restored_afterwards
from tests.engine.corrected_app import KINDS, all_lines, corrected_app, lines_of, write
from tests.engine.table_app import with_faults, work
from tests.faulty import Faults
from tests.nightly import by_day, every
from tests.strangers.merged_tables import compact, forget

MOST_CALLS = 1000
CASES = [(kind, "nothing") for kind in KINDS] + [
    (kind, others)
    for kind in ("delta", "iceberg", "delta-groups")
    for others in ("compacts", "compacts and forgets", "compacts after the death")
]
"""Kinds of tables, and what another program does."""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for nothing between two attempts."""
    monkeypatch.setattr(publishers, "FIRST_PAUSE_S", 0.0)
    with_faults(monkeypatch, Faults())


@every(20)
@pytest.mark.parametrize(("kind", "others"), by_day(1, CASES))
def test_a_correction_that_dies_anywhere_is_done_once_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, others: str, step: int
) -> None:
    """At every moment readers of a table see the old rows or the new ones; the next run finishes it."""
    made = tmp_path / "made"
    write(made, "a", "a1 a2 a3 a4 a5 a6")
    write(made, "b", "b1 b2 b3 b4 b5 b6 b7 b8 b9")
    work(corrected_app(made, kind))
    old = lines_of(made, kind)
    assert old == all_lines(made)
    if others in ("compacts", "compacts and forgets"):
        compact(made, kind)
    if others == "compacts and forgets":
        forget(made, kind)
    write(made, "b", "B1 B2 B3 B4 B5 B6 B7")
    new = all_lines(made)
    seen = set()
    for at in range(1, MOST_CALLS, step):
        with restored_afterwards(made):
            with crashing_disk(str(made), at) as faults, contextlib.suppress(InjectedCrash):
                with_faults(monkeypatch, faults)
                work(corrected_app(made, kind))
            with_faults(monkeypatch, Faults())
            found = lines_of(made, kind)
            # Files that are visible by their names are moved one after the other.
            assert found in (old, new) or kind in ("files", "parquet"), f"seen at {at}: {found}"
            seen.add(found == new)
            if others == "compacts after the death":
                compact(made, kind)
                # In Iceberg a decided correction is taken back, and made anew by the next run.
                with contextlib.suppress(ReplacedFilesGoneError):
                    work(corrected_app(made, kind))
            work(corrected_app(made, kind))
            assert lines_of(made, kind) == new, f"died at {at}"
            assert work(corrected_app(made, kind)) == 0
            assert not list(made.rglob(".dagflow-pending/*/*"))
        if not faults.has_struck:
            assert seen == {False, True}
            return
    pytest.fail("the correction never came through")

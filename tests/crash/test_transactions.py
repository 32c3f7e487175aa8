"""Apps that write by transactions, and die before each change of the disk and each transaction."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dagflow.plan.logical import LogicalPlan
from dagflow.testing.faults import Faults, InjectedCrash, Pause, crashing_disk
from tests.engine.sample_app import words
from tests.engine.table_app import (
    TABLES,
    TEXTS,
    UPSERTING,
    delta_app,
    delta_rows,
    iceberg_app,
    iceberg_rows,
    in_groups,
    newest_rows,
    parquet_app,
    parquet_rows,
    replaced_by_others,
    upserting_app,
    with_faults,
    work,
)

MOST_CALLS = 500
SLOW = ("iceberg", "iceberg-groups", "delta-groups")
STEP = 4
"""Of the many changes of slow tables one in so many is tried, and all of them every night. 3 does not divide it, so
that some have two deaths."""

KINDS = {
    **{kind: (*table, 2) for kind, table in TABLES.items()},
    "delta-groups": (lambda root, texts: in_groups(delta_app(root, texts)), delta_rows, 4),
    "iceberg-groups": (lambda root, texts: in_groups(iceberg_app(root, texts)), iceberg_rows, 4),
}
"""What makes the app, what reads the table, and how many windows a run has; a group is merged in one of its own."""


def steps(*kinds: str) -> list[Any]:
    """Each kind with the step between the changes that are tried."""
    quick = [pytest.param(kind, STEP if kind in SLOW else 1, id=kind) for kind in kinds]
    return [
        *quick,
        *(pytest.param(kind, 1, id=f"all-{kind}", marks=pytest.mark.nightly) for kind in kinds if kind in SLOW),
    ]


def deaths(at: int, later: int) -> tuple[int, ...]:
    """Where the runs before the last one die: one at each change, and behind every third of these another one."""
    return (at, at + later) if at % 3 == 0 else (at,)


@pytest.mark.parametrize(("kind", "step"), steps(*KINDS, "parquet"))
def test_every_record_is_there_once_wherever_a_run_dies(
    monkeypatch: pytest.MonkeyPatch, quick_disk: Path, kind: str, step: int
) -> None:
    """Before a change of the disk or a transaction: a run of before, or two of them, and one that comes through."""
    make_app, rows_of, _ = {**KINDS, "parquet": (parquet_app, parquet_rows, 2)}[kind]
    for at in range(1, MOST_CALLS, step):
        root = quick_disk / str(at)
        for death in deaths(at, later=7):
            with crashing_disk(str(root), death) as faults, contextlib.suppress(InjectedCrash):
                with_faults(monkeypatch, faults)
                work(make_app(root, TEXTS))
            seen = rows_of(root / "db") if (root / "db").exists() else []
            assert not Counter(seen) - Counter(words(TEXTS)), f"doubled at {at}"
            if death == at:
                has_died = faults.has_struck
        with_faults(monkeypatch, Faults())
        work(make_app(root, TEXTS))
        assert rows_of(root / "db") == words(TEXTS), f"died at {at}"
        assert not list(root.rglob(".dagflow-pending/*"))
        shutil.rmtree(root)
        if not has_died:
            assert at > 50
            return
    pytest.fail("the run never came through")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at", [1, 2])
def test_a_transaction_whose_answer_is_lost_adds_nothing_twice(
    monkeypatch: pytest.MonkeyPatch, quick_disk: Path, kind: str, at: int
) -> None:
    """The run asks for the marker, and goes on."""
    make_app, rows_of, windows = KINDS[kind]
    faults = with_faults(monkeypatch, Faults(at, "lost_reply"))
    assert work(make_app(quick_disk, TEXTS)) == windows
    assert faults.calls == 2, "an attempt was made at what was there already"
    assert rows_of(quick_disk / "db") == words(TEXTS)


UPSERTS: dict[str, Callable[[Path, list[bytes]], LogicalPlan]] = {
    **UPSERTING,
    "delta-groups": lambda root, texts: in_groups(upserting_app(root, texts)),
}


@pytest.mark.parametrize(("kind", "step"), steps(*UPSERTS))
def test_a_key_has_its_newest_row_wherever_a_run_dies(
    monkeypatch: pytest.MonkeyPatch, quick_disk: Path, kind: str, step: int
) -> None:
    """No window takes the place of a later one, and none is left out; readers see no key twice."""
    texts = [b"a b", b"a", b"c b", b"c"]  # the source puts two of them into a window
    wanted, make_app = [b"a 1", b"b 2", b"c 2"], UPSERTS[kind]
    for at in range(1, MOST_CALLS, step):
        root = quick_disk / str(at)
        for death in deaths(at, later=5):
            with crashing_disk(str(root), death) as faults, contextlib.suppress(InjectedCrash):
                with_faults(monkeypatch, faults)
                work(make_app(root, texts))
            assert counted(newest_rows(root / "db")) in ([], [b"a 1", b"b 1"], wanted), f"seen at {at}"
            if death == at:
                has_died = faults.has_struck
        with_faults(monkeypatch, Faults())
        work(make_app(root, texts))
        assert counted(newest_rows(root / "db")) == wanted, f"died at {at}"
        shutil.rmtree(root)
        if not has_died:
            assert at > 50
            return
    pytest.fail("the run never came through")


def counted(rows: list[bytes]) -> list[bytes]:
    """Rows with 2 for the second window that has read something: one that merges may be between it and the first."""
    return [re.sub(b" [2-9]$", b" 2", row) for row in rows]


@pytest.mark.parametrize("kind", UPSERTING)
@pytest.mark.parametrize("at", [1, 2])
def test_an_upsert_whose_answer_is_lost_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, quick_disk: Path, kind: str, at: int
) -> None:
    """The marker says that the rows are there."""
    faults = with_faults(monkeypatch, Faults(at, "lost_reply"))
    work(UPSERTING[kind](quick_disk, [b"a b", b"a", b"c b", b"c"]))
    assert (faults.calls, newest_rows(quick_disk / "db")) == (2, [b"a 1", b"b 2", b"c 2"])


@pytest.mark.parametrize("kind", UPSERTING)
def test_an_upsert_that_meets_a_change_by_others_is_made_anew(
    monkeypatch: pytest.MonkeyPatch, quick_disk: Path, kind: str
) -> None:
    """Between the look at the table and the transaction: what comes is replaced where it has a key of the window."""
    others = pa.table({"record": [b"b", b"other"], "_dagflow_window": [-1, -1]})
    faults = with_faults(monkeypatch, Pause(2, lambda: replaced_by_others(quick_disk / "db", others)))
    work(UPSERTING[kind](quick_disk, [b"a b", b"a", b"c b", b"c"]))
    assert newest_rows(quick_disk / "db") == [b"b 2", b"c 2", b"other -1"]
    assert faults.calls == 3

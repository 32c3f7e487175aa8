"""Apps that write by transactions, and die before each change of the disk and each transaction."""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dagflow.plan.logical import LogicalPlan
from dagflow.testing.faults import InjectedCrash, crashing_disk
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
    upserting_iceberg_app,
    with_faults,
    work,
)
from tests.faulty import Faults, InjectedPause
from tests.nightly import IS_NIGHTLY, by_day, nightly

MOST_CALLS = 500
STEPS = {"delta": 20, "iceberg": 64, "parquet": 20, "database": 20, "delta-groups": 64, "iceberg-groups": 128}
"""Of the many changes of slow tables one in so many is tried, and all of them every night. 3 does not divide it, so
that some have two deaths."""

KINDS = {
    **{kind: (*table, 2) for kind, table in TABLES.items()},
    "delta-groups": (lambda root, texts: in_groups(delta_app(root, texts)), delta_rows, 4),
    "iceberg-groups": (lambda root, texts: in_groups(iceberg_app(root, texts)), iceberg_rows, 4),
}
"""What makes the app, what reads the table, and how many windows a run has; a group is merged in one of its own."""


def steps(kinds: Iterable[str], *left: str) -> list[Any]:
    """Each kind with the step between the changes that are tried; some kinds are left to the night."""
    return [
        pytest.param(
            kind, 1 if IS_NIGHTLY else STEPS.get(kind, 1), id=kind, marks=[pytest.mark.nightly] * (kind in left)
        )
        for kind in kinds
    ]


def deaths(at: int, later: int) -> tuple[int, ...]:
    """Where the runs before the last one die: one at each change, and behind every third of these another one."""
    return (at, at + later) if at % 3 == 0 else (at,)


@pytest.mark.parametrize(("kind", "step"), steps([*KINDS, "parquet"], "delta", "iceberg-groups"))
def test_every_record_is_there_once_wherever_a_run_dies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, step: int
) -> None:
    """Before a change of the disk or a transaction: a run of before, or two of them, and one that comes through."""
    make_app, rows_of, _ = {**KINDS, "parquet": (parquet_app, parquet_rows, 2)}[kind]
    for at in range(1, MOST_CALLS, step):
        root = tmp_path / str(at)
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


@pytest.mark.parametrize("kind", nightly(KINDS, "iceberg", "iceberg-groups"))
@pytest.mark.parametrize("at", by_day(1, [1, 2]))
def test_a_transaction_whose_answer_is_lost_adds_nothing_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, at: int
) -> None:
    """The run asks for the marker, and goes on."""
    make_app, rows_of, windows = KINDS[kind]
    faults = with_faults(monkeypatch, Faults(at, "lost_reply"))
    assert work(make_app(tmp_path, TEXTS)) == windows
    assert faults.calls == 2, "an attempt was made at what was there already"
    assert rows_of(tmp_path / "db") == words(TEXTS)


KEYS = [b"a b", b"x", b"c b", b"c", b"d b", b"x", b"e b", b"e"]
"""Two of them are a window. Each window has a key that no other has, so that a table shows which windows it has."""

TWO_WINDOWS_BYTES = 3200
"""Fragments of two windows have so many, and those of one have fewer."""

UPSERTS: dict[str, tuple[Callable[[Path, list[bytes]], LogicalPlan], list[bytes]]] = {
    **{kind: (make_app, KEYS[:4]) for kind, make_app in UPSERTING.items()},
    "delta-groups": (lambda root, texts: in_groups(upserting_app(root, texts), TWO_WINDOWS_BYTES), KEYS),
    "iceberg-groups": (lambda root, texts: in_groups(upserting_iceberg_app(root, texts), TWO_WINDOWS_BYTES), KEYS),
}
"""What makes the app, and what it reads: two windows, or two groups of two."""


@pytest.mark.parametrize(("kind", "step"), steps(UPSERTS, "iceberg", "delta-groups"))
def test_a_key_has_its_newest_row_wherever_a_run_dies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, step: int
) -> None:
    """No window takes the place of a later one, and none is left out; readers see no key twice."""
    make_app, texts = UPSERTS[kind]
    possible = [newest_of_windows(texts[:count]) for count in range(0, len(texts) + 1, 2)]
    for at in range(1, MOST_CALLS, step):
        root = tmp_path / str(at)
        for death in deaths(at, later=5):
            with crashing_disk(str(root), death) as faults, contextlib.suppress(InjectedCrash):
                with_faults(monkeypatch, faults)
                work(make_app(root, texts))
            assert counted(newest_rows(root / "db")) in possible, f"seen at {at}"
            if death == at:
                has_died = faults.has_struck
        with_faults(monkeypatch, Faults())
        work(make_app(root, texts))
        assert counted(newest_rows(root / "db")) == possible[-1], f"died at {at}"
        shutil.rmtree(root)
        if not has_died:
            assert at > 50
            return
    pytest.fail("the run never came through")


def newest_of_windows(texts: list[bytes]) -> list[bytes]:
    """The words of windows of two texts each, with the last window that has them."""
    newest = {word: 1 + number // 2 for number, text in enumerate(texts) for word in text.split()}
    return sorted(b"%s %d" % each for each in newest.items())


def counted(rows: list[bytes]) -> list[bytes]:
    """Rows with the windows that have read something, counted from 1: others may be between them, which merge."""
    windows = sorted({int(row.split()[1]) for row in rows})
    return [b"%s %d" % (word, 1 + windows.index(int(window))) for word, window in map(bytes.split, rows)]


@pytest.mark.parametrize("kind", nightly(UPSERTS, "iceberg-groups"))
@pytest.mark.parametrize("at", by_day(1, [1, 2]))
def test_an_upsert_whose_answer_is_lost_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, at: int
) -> None:
    """The marker says that the rows are there."""
    make_app, texts = UPSERTS[kind]
    faults = with_faults(monkeypatch, Faults(at, "lost_reply"))
    work(make_app(tmp_path, texts))
    assert (faults.calls, newest_rows(tmp_path / "db")) == (2, newest_of_windows(texts))


@pytest.mark.parametrize("kind", nightly(UPSERTS, "iceberg-groups", "delta-groups"))
def test_an_upsert_that_meets_a_change_by_others_is_made_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """Between the look at the table and the transaction: what comes is replaced where it has a key of the windows."""
    make_app, texts = UPSERTS[kind]
    others = pa.table({"record": [b"b", b"other"], "_dagflow_window": [-1, -1]})
    faults = with_faults(monkeypatch, InjectedPause(2, lambda: replaced_by_others(tmp_path / "db", others)))
    work(make_app(tmp_path, texts))
    later = [row for row in newest_of_windows(texts) if row.split()[0] in words(texts[len(texts) // 2 :])]
    assert newest_rows(tmp_path / "db") == sorted([*later, b"other -1"])
    assert faults.calls == 3

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.errors import JournalError, MissingError
from dagflow.storage.base import ObjectStore
from dagflow.storage.context import StorageContext
from operators.splitter.index.entries import entries_of, merged, newest
from operators.splitter.index.sorted_runs import (
    GROUP_ROWS,
    Run,
    RunCursor,
    RunWriter,
    compact,
    identities_in,
    rows_with_identities,
)
from tests.nightly import by_day, examples

paths = st.binary(min_size=1, max_size=3)
entries = st.dictionaries(paths, st.integers(0, 9), max_size=30)


def run_of(store: ObjectStore, values: dict[bytes, int], level: int = 0, file_rows: int = 7) -> Run:
    """A run with an entry per path, whose columns all hold the value."""
    writer = RunWriter(store, level, file_rows)
    writer.write(table_of(values))
    return writer.close()


def table_of(values: dict[bytes, int]) -> pa.Table:
    """Entries sorted by path."""
    keys = sorted(values)
    return entries_of(keys, [[values[key] for key in keys]] * 5)


def read(store: ObjectStore, run: Run, first: bytes = b"", last: bytes = b"\xff" * 9) -> dict[bytes, int]:
    """The entries of a run in a range of paths."""
    return flat(RunCursor(store, run).read_range(first, last))


def flat(tables: Iterable[pa.Table]) -> dict[bytes, int]:
    """The entries of tables."""
    rows = [row for table in tables for row in table.to_pylist()]
    return {row["path"]: row["size_bytes"] for row in rows}


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    """An empty directory for runs."""
    return StorageContext.default().objects(str(tmp_path))


@settings(max_examples=examples(40))
@given(values=entries)
def test_a_run_holds_what_was_written(tmp_path_factory: pytest.TempPathFactory, values: dict[bytes, int]) -> None:
    """For any paths: the entries, cut into files whose bounds are in the run."""
    store = StorageContext.default().objects(str(tmp_path_factory.mktemp("runs")))
    run = run_of(store, values)
    assert read(store, run) == values
    keys = sorted(values)
    assert [(f.first, f.last) for f in run.files] == [(keys[i], keys[i : i + 7][-1]) for i in range(0, len(keys), 7)]
    assert [name for name in store.list("") if name not in {f.name for f in run.files}] == []


@settings(max_examples=examples(40))
@given(values=entries, bounds=st.lists(paths, min_size=1, max_size=6, unique=True))
def test_a_cursor_answers_range_after_range(
    tmp_path_factory: pytest.TempPathFactory, values: dict[bytes, int], bounds: list[bytes]
) -> None:
    """Ascending ranges of any widths give the entries that lie in them, and at most such before them."""
    store = StorageContext.default().objects(str(tmp_path_factory.mktemp("runs")))
    cursor = RunCursor(store, run_of(store, values))
    bounds = sorted(bounds)
    for first, after in zip(bounds, [*bounds[1:], b"\xff" * 9], strict=True):
        last = after[:-1] + bytes([after[-1] - 1, 255]) if after[-1] else after[:-1]
        if first > last:
            continue
        found = flat(cursor.read_range(first, last))
        wanted = {path: value for path, value in values.items() if first <= path <= last}
        assert {path: value for path, value in found.items() if path >= first} == wanted


@settings(max_examples=examples(20))
@given(histories=st.lists(entries, min_size=1, max_size=5))
def test_a_merge_keeps_the_newest_of_each_path(
    tmp_path_factory: pytest.TempPathFactory, histories: list[dict[bytes, int]]
) -> None:
    """For any runs, newest first: what a dict would hold that is updated from the oldest on."""
    store = StorageContext.default().objects(str(tmp_path_factory.mktemp("runs")))
    runs = [run_of(store, values) for values in histories]
    expected: dict[bytes, int] = {}
    for values in reversed(histories):
        expected.update(values)
    run = compact(store, runs, 1, file_rows=7)
    assert read(store, run) == expected
    assert [file.rows for file in run.files[:-1]] == [7] * (len(run.files) - 1)


@settings(max_examples=examples(100))
@given(drawn=st.lists(st.tuples(entries, st.booleans()), max_size=4))
def test_tables_are_merged_by_path_and_the_first_counts(drawn: list[tuple[dict[bytes, int], bool]]) -> None:
    """Also where two have the same paths, as when a file's fingerprint is reported after it was taken."""
    tables: list[dict[bytes, int]] = []
    for values, is_repeated in drawn:
        tables += [{path: value + 10 for path, value in values.items()}, values] if is_repeated else [values]
    expected: dict[bytes, int] = {}
    for values in reversed(tables):
        expected.update(values)
    rows = merged([table_of(values) for values in tables]).to_pylist()
    assert [(row["path"], row["taken_millis"]) for row in rows] == sorted(expected.items())


@settings(max_examples=examples(40))
@given(drawn=st.lists(entries, min_size=1, max_size=4))
def test_rows_in_pieces_are_sorted_like_rows_in_one(drawn: list[dict[bytes, int]]) -> None:
    """Whether they ascend is a matter of their order, and not of the pieces that they lie in."""
    table = pa.concat_tables(map(table_of, drawn))
    rows = [(path, values[path]) for values in drawn for path in sorted(values)]
    expected = {path: value for path, value in reversed(rows)}
    assert [(row["path"], row["identity"]) for row in newest(table).to_pylist()] == sorted(expected.items())


def test_a_merge_forgets_what_is_too_old(store: ObjectStore) -> None:
    """Entries that were taken before the horizon are left out, and a run may end up empty."""
    run = run_of(store, {b"a": 1, b"b": 2, b"c": 3})
    assert read(store, compact(store, [run], 1, 2)) == {b"b": 2, b"c": 3}
    assert compact(store, [run], 1, 4).files == []


def test_only_the_row_groups_of_a_range_are_read(store: ObjectStore) -> None:
    """Looking at one directory of many does not decode the others."""
    values = {b"%06d" % number: number for number in range(3 * GROUP_ROWS)}
    run = run_of(store, values, file_rows=2 * GROUP_ROWS)
    cursor = RunCursor(store, run)
    tables = cursor.read_range(b"%06d" % (2 * GROUP_ROWS + 5), b"%06d" % (2 * GROUP_ROWS + 6))
    assert list(flat(tables)) == [b"%06d" % number for number in range(2 * GROUP_ROWS, 2 * GROUP_ROWS + 7)]


def test_a_cursor_that_is_dropped_has_no_file_open(store: ObjectStore) -> None:
    """Also where it has read only a part: each scan has a cursor for each run, and they close without a collector."""
    run = run_of(store, {b"%05d" % number: number for number in range(3 * GROUP_ROWS)}, file_rows=4 * GROUP_ROWS)
    gc.disable()
    try:
        cursor = RunCursor(store, run)
        assert list(cursor.read_range(b"00001", b"00002"))
        assert open_files(store) == [run.files[0].name]
        del cursor
        assert open_files(store) == []
    finally:
        gc.enable()


def open_files(store: ObjectStore) -> list[str]:
    """Names of the files of a store that this process has open."""
    links = [Path(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    opened = [str(link.readlink()) for link in links if link.is_symlink()]
    return [path.rpartition("/")[2] for path in opened if path.startswith(store.url)]


def test_a_run_is_not_read_before_it_is_reached(store: ObjectStore) -> None:
    """Paths before a run's first are answered without its files."""
    run = run_of(store, {b"m": 1, b"n": 2})
    cursor = RunCursor(store, run)
    store.delete([file.name for file in run.files])
    assert list(cursor.read_range(b"a", b"l")) == []
    with pytest.raises(MissingError, match=run.files[0].name):
        list(cursor.read_range(b"l", b"m"))


def merging_bytes(store: ObjectStore, runs: Sequence[Run]) -> int:
    """The most that Arrow holds while runs are merged."""
    before = pa.default_memory_pool()
    watched = pa.proxy_memory_pool(before)
    pa.set_memory_pool(watched)
    try:
        compact(store, runs, 1)
    finally:
        pa.set_memory_pool(before)
    held_bytes: int = watched.max_memory()
    return held_bytes


def test_a_merge_of_runs_side_by_side_holds_few_of_them(store: ObjectStore) -> None:
    """What was taken in order of path is merged run after run, so that memory is not one of the number of runs."""
    values = ({b"%02d-%06d" % (number, row): row for row in range(GROUP_ROWS)} for number in range(8))
    runs = [run_of(store, each, file_rows=GROUP_ROWS) for each in values]
    assert merging_bytes(store, runs) < 1.5 * merging_bytes(store, runs[:2])


def test_an_entry_takes_few_bytes(store: ObjectStore, tmp_path: Path) -> None:
    """Long paths that share their beginnings are stored by their differences."""
    values = {b"/data/logs/region-%02d/2026-11-20/service-%07d.log.gz" % (n % 7, n): n for n in range(20_000)}
    run_of(store, values, file_rows=1 << 20)
    size_bytes = sum(path.stat().st_size for path in tmp_path.glob("*.parquet"))
    assert size_bytes / len(values) < 20


READS: dict[str, Callable[[ObjectStore, Run], Sequence[object]]] = {
    "entries": lambda store, run: list(RunCursor(store, run).read_range(b"", b"\xff")),
    "identities": lambda store, run: [numbers.tolist() for numbers in identities_in(store, run)],
    "with identities": lambda store, run: list(rows_with_identities(store, run, np.arange(20))),
}


@pytest.mark.parametrize("way", by_day(1, READS))
def test_a_flipped_bit_is_noticed_or_changes_nothing(store: ObjectStore, tmp_path: Path, way: str) -> None:
    """Wherever it is, in entries or in what describes them: an entry that is lost is a file that is read again."""
    run = run_of(store, {b"%03d" % number: number for number in range(20)}, file_rows=20)
    file = tmp_path / run.files[0].name
    good, expected, noticed = file.read_bytes(), READS[way](store, run), 0
    for place in range(len(good)):
        file.write_bytes(good[:place] + bytes([good[place] ^ 1 << place % 8]) + good[place + 1 :])
        try:
            assert READS[way](store, run) == expected
        except JournalError as error:
            noticed += 1
            assert str(file) in str(error)
    assert noticed > len(good) / 2


@pytest.mark.parametrize("size", [0, 1, 11, 12, 500])
def test_a_run_that_was_cut_off_is_refused(store: ObjectStore, tmp_path: Path, size: int) -> None:
    """The error names the file, says that it is damaged, and what to do."""
    run = run_of(store, {b"%03d" % number: number for number in range(40)}, file_rows=40)
    os.truncate(tmp_path / run.files[0].name, size)
    with pytest.raises(JournalError, match=rf"{run.files[0].name}: .*damaged .*\n.*put the checkpoint back"):
        read(store, run)
    # Nothing is made of it.
    with pytest.raises(JournalError, match=run.files[0].name):
        compact(store, [run, run], 1)

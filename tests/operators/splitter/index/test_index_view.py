from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.storage.base import ObjectStore
from dagflow.storage.context import StorageContext
from operators.files.metadata import Fate
from operators.splitter.index import index_view, sorted_runs
from operators.splitter.index.entries import entries_of
from operators.splitter.index.index_view import IndexView
from operators.splitter.index.sorted_runs import GROUP_ROWS, Run, RunWriter
from tests.nightly import by_day, examples

MOVED = -2

PATHS = [b"%02d" % number for number in range(60)]
versions = st.dictionaries(st.sampled_from(PATHS), st.sampled_from([MOVED, 1, 2]), max_size=60)


def table_of(sizes: dict[bytes, int]) -> pa.Table:
    """Entries whose columns all hold the size; those of moved files count as unknown."""
    paths = sorted(sizes)
    fates = [Fate.MOVED if sizes[path] == MOVED else Fate.READ for path in paths]
    return entries_of(paths, [*[[sizes[path] for path in paths]] * 5, [0] * len(paths), fates])


def run_of(store: ObjectStore, sizes: dict[bytes, int], file_rows: int) -> Run:
    """A run of these entries."""
    writer = RunWriter(store, 0, file_rows)
    writer.write(table_of(sizes))
    return writer.close()


@settings(max_examples=examples(60))
@given(
    in_runs=st.lists(versions, max_size=3),
    in_memory=st.lists(versions, max_size=1),
    near_rows=st.sampled_from([0, 5, 1000]),
    asked=st.lists(st.lists(st.sampled_from(PATHS), min_size=1, max_size=9, unique=True), min_size=1, max_size=3),
)
def test_a_view_answers_as_a_dict_does(
    tmp_path_factory: pytest.TempPathFactory,
    in_runs: list[dict[bytes, int]],
    in_memory: list[dict[bytes, int]],
    near_rows: int,
    asked: list[list[bytes]],
) -> None:
    """However few of the rows between its paths a lookup holds, and whichever row groups it skips."""
    store = StorageContext.default().objects(str(tmp_path_factory.mktemp("runs")))
    known: dict[bytes, int] = {}
    for sizes in [*reversed(in_runs), *reversed(in_memory)]:
        known.update(sizes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_runs, "GROUP_ROWS", 3)
        patch.setattr(index_view, "NEAR_ROWS", near_rows)
        runs = tuple(run_of(store, sizes, 9) for sizes in in_runs if sizes)
        tables = [table_of(sizes) for sizes in in_memory]

        def view() -> IndexView:
            return IndexView(store, tables, runs, 0)

        wanted = sorted(set().union(*asked))
        expected = [None if known.get(path, MOVED) == MOVED else known[path] for path in wanted]
        assert [entry and entry.size_bytes for entry in view().find(wanted)] == expected
        assert view().paths_among(wanted) == known.keys() & set(wanted)

        scan, at = view(), 0
        for count in map(len, asked):
            step = wanted[at : at + count]
            at += count
            assert [entry and entry.size_bytes for entry in scan.look_up(step)] == expected[at - count : at]
            if step:
                near, beyond = scan.known_near(PATHS)
                assert near == known.keys() - set(beyond)
                if near_rows == 1000:
                    assert beyond == [path for path in PATHS if not step[0] <= path <= step[-1]]


def peak_bytes(call: Callable[[], object]) -> int:
    """The most that Arrow holds during a call."""
    before = pa.default_memory_pool()
    watched = pa.proxy_memory_pool(before)
    pa.set_memory_pool(watched)
    try:
        call()
    finally:
        pa.set_memory_pool(before)
    held_bytes: int = watched.max_memory()
    return held_bytes


ASKS: list[Callable[[IndexView, Sequence[bytes]], object]] = [IndexView.look_up, IndexView.find, IndexView.paths_among]


@pytest.mark.parametrize("ask", by_day(1, ASKS))
def test_a_lookup_holds_no_row_of_deleted_files_between_its_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[[IndexView, Sequence[bytes]], object]
) -> None:
    """A directory of a few files may have had millions: their entries come and go a row group at a time."""
    monkeypatch.setattr(index_view, "NEAR_ROWS", GROUP_ROWS)
    store = StorageContext.default().objects(str(tmp_path))
    table = table_of({b"/data/in/%09d.log" % number: number for number in range(40 * GROUP_ROWS)})
    writer = RunWriter(store, 0)
    writer.write(table)
    run = writer.close()
    asked = table.column("path").take([0, *range(GROUP_ROWS, table.num_rows, GROUP_ROWS)]).to_pylist()
    assert peak_bytes(lambda: ask(IndexView(store, [], (run,), 0), asked)) < table.nbytes / 4


def test_files_without_a_wanted_path_are_not_opened(tmp_path: Path) -> None:
    """Two files whose entries lie far apart are found without what lies between."""
    store = StorageContext.default().objects(str(tmp_path))
    run = run_of(store, {b"%03d" % number: number for number in range(300)}, 100)
    store.delete([run.files[1].name])
    found = IndexView(store, [], (run,), 0).find([b"007", b"0995", b"208"])
    assert [entry and entry.size_bytes for entry in found] == [7, None, 208]

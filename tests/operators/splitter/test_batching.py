"""Small files in batches, as the splitter emits them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.api.context import OperatorContext, WindowBudget
from dagflow.api.ports import Emitter
from dagflow.storage.context import StorageContext
from operators import FileSplitterInput
from operators.files.metadata import BlockMetadata, FileVersion
from operators.files.small_file_batch import SmallFileBatch
from operators.splitter.batching import SmallFileBatcher
from operators.splitter.block_cutter import BlockCutter
from operators.splitter.index.entries import decoded
from operators.splitter.scan.listed_files import ListedFiles
from operators.splitter.scan.listing import ListedStats
from operators.splitter.scan.scan_roots import find_root
from tests.manual_clock import ManualClock
from tests.nightly import examples
from tests.operators.splitter.splitter_driver import FollowingDriver, InProcessServices, SplitterDriver, write


def emitted(driver: SplitterDriver) -> list[list[BlockMetadata | SmallFileBatch]]:
    """What each window emits, batches as they are."""
    items: list[BlockMetadata | SmallFileBatch] = []
    emitter: Emitter[Any] = driver.splitter.blocks_metadata_output
    emitter.emit = items.append
    windows = []
    while (window := driver.window()).files or items:
        windows.append(list(items))
        items.clear()
        assert window.blocks == []
    return windows


def shapes(windows: list[list[BlockMetadata | SmallFileBatch]]) -> list[list[int]]:
    """Sizes of batches, counted in files; -1 for a single block."""
    return [[len(item) if isinstance(item, SmallFileBatch) else -1 for item in window] for window in windows]


def tree(tmp_path: Path, sizes: list[int]) -> Path:
    """A directory with files of these sizes, in order of their names."""
    for number, size in enumerate(sizes):
        write(tmp_path / f"{number:04}", b"x" * size)
    return tmp_path


def test_large_and_small_files_mix_in_one_listing(tmp_path: Path) -> None:
    """Ids ascend in order of the listing, whether files travel in batches or as blocks."""
    root = tree(tmp_path, [1, 1, 50, 0, 1])
    windows = emitted(SplitterDriver(FileSplitterInput(files=str(root), block_size=30, batch_bytes=160)))
    assert shapes(windows) == [[2, -1, -1, 2]]
    ids = [item.first_id if isinstance(item, SmallFileBatch) else item.block_id for item in windows[0]]
    assert ids == [1, 3, 4, 5]


def test_batches_are_bounded_by_bytes_and_by_files(tmp_path: Path) -> None:
    """A batch ends before the file that would exceed its bytes or its files."""
    root = tree(tmp_path, [3] * 12)
    by_bytes = emitted(SplitterDriver(FileSplitterInput(files=str(root), batch_bytes=49)))
    assert shapes(by_bytes) == [[12]]
    small = emitted(SplitterDriver(FileSplitterInput(files=str(tree(tmp_path / "more", [4] * 40)), batch_bytes=64)))
    assert shapes(small) == [[16, 16, 8]]
    by_files = emitted(SplitterDriver(FileSplitterInput(files=str(root), recursive=False, batch_files=5)))
    assert shapes(by_files) == [[5, 5, 2]]


def test_a_file_is_small_up_to_a_sixteenth_of_a_batch(tmp_path: Path) -> None:
    """So that batches are filled evenly; batch_bytes: 0 leaves only empty files in batches."""
    root = tree(tmp_path, [4, 5, 0])
    assert shapes(emitted(SplitterDriver(FileSplitterInput(files=str(root), batch_bytes=64)))) == [[1, -1, 1]]
    assert shapes(emitted(SplitterDriver(FileSplitterInput(files=str(root), batch_bytes=0)))) == [[-1, -1, 1]]


@given(st.lists(st.integers(0, 40), max_size=30), st.integers(1, 9), st.integers(0, 320), st.integers(1, 200))
def test_batches_are_the_same_for_the_same_listing(
    sizes: list[int], batch_files: int, batch_bytes: int, window_bytes: int
) -> None:
    """Every small file is in one batch, in order; two passes give the same batches, and none exceeds its bounds."""
    root = find_root("/", StorageContext.default())

    def run() -> list[list[str]]:
        batcher = SmallFileBatcher(batch_bytes, batch_files, ManualClock())
        batches: list[list[str]] = []
        for number, size in enumerate(sizes):
            if size <= batcher.max_small_bytes(1000):
                if not batcher.count_fitting(np.array([size])):
                    batches.append([block for block in _urls(batcher.take(1))])
                batcher.add(ListedFiles.single(root, b"/in/%d" % number, FileVersion(size)))
        return [*batches, list(_urls(batcher.take(1)))] if len(batcher) else batches

    batches = run()
    assert batches == run()
    small = [f"/in/{n}" for n, size in enumerate(sizes) if size == 0 or size * 16 <= batch_bytes]
    assert [url for batch in batches for url in batch] == small
    for batch in batches:
        total = sum(sizes[int(url.removeprefix("/in/"))] for url in batch)
        assert len(batch) <= batch_files
        assert total <= batch_bytes or len(batch) == 1


def _urls(batch: SmallFileBatch) -> list[str]:
    return [batch.url(index) for index in range(len(batch))]


def test_whole_batches_end_where_they_are_full(tmp_path: Path) -> None:
    """A window that is full goes on to the end of its batch, so that batches do not depend on windows."""
    root = tree(tmp_path, [1] * 20)
    services = InProcessServices(budget=WindowBudget(tuples=3, size_bytes=1 << 40))
    whole = FileSplitterInput(files=str(root), batch_files=8, batches="whole")
    windows = emitted(SplitterDriver(whole, services))
    assert shapes(windows) == [[8], [8], [4]]
    assert all(isinstance(item, SmallFileBatch) and item.is_whole for window in windows for item in window)
    divided = emitted(SplitterDriver(FileSplitterInput(files=str(root), batch_files=8), services))
    assert shapes(divided) == [[3]] * 6 + [[2]]


def test_small_files_may_wait_for_their_batch_to_be_filled(tmp_path: Path) -> None:
    """While following, a batch that is neither full nor old is held, across restarts, and nothing is lost."""
    write(tmp_path / "a", b"x")
    with FollowingDriver(files=str(tmp_path), batch_millis=3500, batch_files=3) as follower:
        assert follower.scanned().blocks == []
        write(tmp_path / "b", b"x")
        window = follower.next_scan()
        assert window.blocks == []
        state = window.state
    with FollowingDriver(files=str(tmp_path), batch_millis=3500, batch_files=3, state=state) as follower:
        assert follower.scanned().blocks == []
        for name in "cd":
            write(tmp_path / name, b"x")
        assert [Path(block.url).name for block in follower.next_scan().blocks] == ["a", "b", "c"]
        assert follower.next_scan().blocks == []
        follower.clock.advance(3500)
        assert [Path(block.url).name for block in follower.scanned().blocks] == ["d"]
        assert window.blocks == []


@pytest.mark.parametrize("ports", [("files_metadata_output", "blocks_metadata_output"), ("blocks_metadata_output",)])
def test_files_with_and_without_an_etag_share_no_batch(ports: tuple[str, ...]) -> None:
    """Only those without one may grow; announced or not, a call takes the first that are alike."""
    announced: list[Any] = []
    batches: list[Any] = []
    context = OperatorContext(counters=Counter(), connected=frozenset(ports))
    splitter = FileSplitterInput(files="/")
    files: Emitter[Any] = splitter.files_metadata_output
    blocks: Emitter[Any] = splitter.blocks_metadata_output
    files.emit, blocks.emit = announced.append, batches.append
    cutter = BlockCutter(files, blocks, context, SmallFileBatcher(1000, 10, ManualClock(), may_grow=True))
    stats = ListedStats.of([FileVersion(1, etag=etag) for etag in ("e", "f", "", "")])
    listed = ListedFiles(find_root("/", context.storage), [b"/a", b"/b", b"/c", b"/d"], stats)
    for rest in (listed, listed.slice(2, 4)):
        assert cutter.begin_small_files(rest, 1000, rest.relative_path) == 2
    cutter.flush()
    assert [(list(_urls(batch)), batch.is_open) for batch in batches] == [(["/a", "/b"], False), (["/c", "/d"], True)]
    assert [file.first_block_id for file in announced] == ([1, 2, 3, 4] if cutter.announces else [])


class OneByOne(FileSplitterInput):
    """Takes files one at a time."""

    def _take(self, files: ListedFiles) -> int:
        return super()._take(files.slice(0, 1))


def unheard(splitter: FileSplitterInput, services: InProcessServices) -> tuple[list[list[Any]], Any]:
    """What each window emits, and the state at the end, where no operator takes files in."""
    items: list[Any] = []
    splitter.use_clock(ManualClock())
    splitter.blocks_metadata_output.emit = items.append
    counters: Counter[str] = Counter()
    connected = frozenset({"blocks_metadata_output"})
    splitter.setup(OperatorContext(counters=counters, control=services, connected=connected))
    windows: list[list[Any]] = []
    while not windows or windows[-1]:
        splitter.begin_window(len(windows) + 1)
        splitter.emit_tuples()
        windows.append([item.to_json() if isinstance(item, SmallFileBatch) else item for item in items])
        items.clear()
    state = splitter.snapshot()
    versions = (
        decoded(state.taken.index.recent).drop_columns(["taken_millis"]).to_pylist() if state.taken.index.recent else []
    )
    return windows, (state.cutter, versions, counters)


@settings(max_examples=examples(60))  # a tree is written for each, on a disk that others use
@given(
    st.lists(st.tuples(st.sampled_from(["", "a/", "b/", "b/c/"]), st.integers(0, 40)), max_size=30),
    st.sampled_from(["divided", "whole"]),
    st.integers(1, 9),
    st.sampled_from([0, 64, 320, 10_000]),
    st.integers(1, 12),
    st.integers(1, 200),
    st.sampled_from([{}, {"blocks_threshold": 3}, {"max_files_per_window": 4}, {"max_bytes_per_window": 50}]),
)
def test_batches_are_the_same_in_columns_as_one_by_one(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[tuple[str, int]],
    batches: str,
    batch_files: int,
    batch_bytes: int,
    tuples: int,
    size_bytes: int,
    limits: dict[str, int],
) -> None:
    """Any tree, any limits: the same windows, batches, blocks, index and counts."""
    root = tmp_path_factory.mktemp("tree")
    for number, (folder, size) in enumerate(files):
        write(root / f"{folder}{number:02}", b"x" * size)
    services = InProcessServices(budget=WindowBudget(tuples, size_bytes))
    rules: dict[str, Any] = {"batches": batches, "batch_files": batch_files, "batch_bytes": batch_bytes, **limits}
    in_columns, one_by_one = (
        unheard(kind(files=str(root), **rules), services) for kind in (FileSplitterInput, OneByOne)
    )
    assert in_columns == one_by_one

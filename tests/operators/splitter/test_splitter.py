from __future__ import annotations

import os
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from dagflow.api.context import WindowBudget
from dagflow.api.control import InputEstimate
from dagflow.errors import JournalError, MissingError, SourceChangedError
from operators.files.metadata import BlockMetadata, FileMetadata, FileVersion
from operators.splitter import FileSplitterInput
from tests.operators.splitter.splitter_driver import InProcessServices, SplitterDriver, twelve_files, write


def split(
    *files: Path, services: InProcessServices | None = None, state: Any = None, **properties: Any
) -> SplitterDriver:
    """A run to completion over files and directories."""
    return SplitterDriver(FileSplitterInput(files=[str(file) for file in files], **properties), services, state)


def test_every_file_of_a_directory_is_announced_once(tmp_path: Path) -> None:
    """Each file has one FileMetadata with its absolute path, its version and its blocks."""
    paths = twelve_files(tmp_path)
    window = split(tmp_path).window()
    assert sorted(file.url for file in window.files) == sorted(map(str, paths))
    for file in window.files:
        found = os.stat(file.url)
        assert file.version == FileVersion(found.st_size, found.st_mtime_ns, file_id=found.st_ino)
        assert (file.block_count, file.is_directory, file.block_size) == (1, False, 64 << 20)


def test_files_come_in_the_order_of_their_paths_bytes(tmp_path: Path) -> None:
    """A directory's files stand where its name with a slash sorts, whatever the listing's order is."""
    names = ["b", "a/z", "a-b", "a.b", "a/b/c", "é", "Z"]
    for name in names:
        write(tmp_path / name)
    files = split(tmp_path).window().files
    assert [f.relative_path for f in files if not f.is_directory] == sorted(names, key=os.fsencode)


def test_blocks_are_cut_at_multiples_of_the_block_size(tmp_path: Path) -> None:
    """12 files of 11 bytes in blocks of 2 give 72 blocks, the last of each file one byte long."""
    twelve_files(tmp_path)
    window = split(tmp_path, block_size=2).window()
    assert window.ranges == [(0, 2), (2, 4), (4, 6), (6, 8), (8, 10), (10, 11)] * 12
    assert [block.block_id for block in window.blocks] == list(range(1, 73))
    assert [block.is_last for block in window.blocks] == [False, False, False, False, False, True] * 12
    assert all(block.previous_block_id == (block.block_id - 1 if block.start else -1) for block in window.blocks)
    assert [file.first_block_id for file in window.files] == list(range(1, 73, 6))


def test_a_file_is_announced_before_its_blocks(tmp_path: Path) -> None:
    """An operator that listens to both ports knows a file when its first block comes."""
    twelve_files(tmp_path)
    splitter = FileSplitterInput(files=str(tmp_path), block_size=4)
    order: list[FileMetadata | BlockMetadata] = []
    splitter.files_metadata_output.connect(order.append)
    splitter.blocks_metadata_output.connect(order.append)
    SplitterDriver(splitter).window()
    urls = [item.url for item in order if isinstance(item, FileMetadata)]
    expected = [(kind, url) for url in urls for kind in ["FileMetadata"] + 3 * ["BlockMetadata"]]
    assert [(type(item).__name__, item.url) for item in order] == expected


@pytest.mark.parametrize("threshold", [1, 2, 10, 71, 72, 100])
def test_a_window_has_at_most_blocks_threshold_blocks(tmp_path: Path, threshold: int) -> None:
    """Every window but the last is full, files are announced once, and the blocks are the same as without."""
    twelve_files(tmp_path)
    windows = split(tmp_path, block_size=2, blocks_threshold=threshold).windows()
    counts = [len(window.blocks) for window in windows]
    assert counts == [threshold] * (72 // threshold) + ([72 % threshold] if 72 % threshold else [])
    assert sorted(path for window in windows for path in window.paths) == sorted(f"file{n}.txt" for n in range(12))
    assert [b.block_id for window in windows for b in window.blocks] == list(range(1, 73))


def test_a_file_that_fills_windows_is_not_announced_again(tmp_path: Path) -> None:
    """With 6 blocks a file and 2 a window, each third window announces the next file."""
    twelve_files(tmp_path)
    windows = split(tmp_path, block_size=2, blocks_threshold=2).windows()
    assert [len(window.files) for window in windows] == [1, 0, 0] * 12


def test_a_window_keeps_to_the_engines_budget(tmp_path: Path) -> None:
    """Blocks beyond the budget's bytes or tuples wait; the first always goes, however large; small files count once."""
    for name in "abcd":
        write(tmp_path / name, b"0123456789")
    by_bytes = split(tmp_path, block_size=4, services=InProcessServices(budget=WindowBudget(100, 8))).windows()
    assert [sum(block.size_bytes for block in window.blocks) for window in by_bytes] == [8, 6, 6, 8, 6, 6]
    tiny = split(tmp_path, block_size=4, services=InProcessServices(budget=WindowBudget(100, 1))).windows()
    assert [len(window.blocks) for window in tiny] == [1] * 12
    by_tuples = split(tmp_path, services=InProcessServices(budget=WindowBudget(4, 100))).windows()
    assert [(len(window.files), len(window.blocks)) for window in by_tuples] == [(4, 4)]
    cut = split(tmp_path, block_size=5, services=InProcessServices(budget=WindowBudget(3, 100))).windows()
    assert [(len(window.files), len(window.blocks)) for window in cut] == [(1, 2), (1, 2), (1, 2), (1, 2)]


def test_an_empty_file_is_announced_and_has_no_blocks(tmp_path: Path) -> None:
    """An operator that counts files gets it too."""
    write(tmp_path / "empty", b"")
    window = split(tmp_path).window()
    assert [(file.relative_path, file.block_count) for file in window.files] == [("empty", 0)]
    assert window.blocks == []


def test_windows_of_empty_files_are_bounded_too(tmp_path: Path) -> None:
    """A threshold for blocks does not let a window announce any number of files."""
    for number in range(25):
        write(tmp_path / str(number), b"")
    services = InProcessServices(budget=WindowBudget(10, 100))
    assert [len(w.files) for w in split(tmp_path, blocks_threshold=5, services=services).windows()] == [10, 10, 5]


def test_a_huge_sparse_file_is_planned_in_flat_memory(tmp_path: Path) -> None:
    """10 TiB in blocks of 1 MiB are ten million blocks; what is held does not grow with what was emitted."""
    path = write(tmp_path / "sparse", b"")
    os.truncate(path, 10 << 40)
    driver = split(path, block_size="1MiB", services=InProcessServices(budget=WindowBudget(10_000, 1 << 62)))
    driver.window()
    tracemalloc.start()
    for _ in range(3):
        window = driver.window()
    state_bytes, peak = len(pickle.dumps(window.state)), tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert window.files == []
    assert (window.blocks[-1].block_id, window.blocks[-1].end) == (39_999, 39_999 << 20)
    assert state_bytes < 2500
    assert peak < 20 << 20


def test_a_finished_run_emits_nothing_again(tmp_path: Path) -> None:
    """What was emitted is in the state, and the ids go on after it."""
    twelve_files(tmp_path)
    state = split(tmp_path, block_size=2).everything().state
    driver = split(tmp_path, block_size=2, state=state)
    assert driver.windows() == []
    write(tmp_path / "file13.txt", b"12345\n12345\n")
    window = split(tmp_path, block_size=2, state=state).window()
    assert window.paths == ["file13.txt"]
    assert [block.block_id for block in window.blocks] == list(range(73, 79))


@pytest.mark.parametrize("windows", range(9))
def test_a_restart_goes_on_after_the_window_of_its_state(tmp_path: Path, windows: int) -> None:
    """Restored to any window, a run emits exactly what the undisturbed run emitted later."""
    twelve_files(tmp_path)
    settings: dict[str, Any] = {"block_size": 2, "blocks_threshold": 10}
    undisturbed = split(tmp_path, **settings).windows()
    driver, state = split(tmp_path, **settings), None
    for _ in range(windows):
        state = driver.window().state
    resumed = split(tmp_path, state=state, **settings).windows()
    assert [(w.files, w.blocks) for w in resumed] == [(w.files, w.blocks) for w in undisturbed[windows:]]


def test_an_open_file_keeps_its_cut_over_a_restart(tmp_path: Path) -> None:
    """A block size that was changed in the app holds for files that were not begun."""
    write(tmp_path / "a", b"0123456789")
    write(tmp_path / "b", b"0123456789")
    state = split(tmp_path, block_size=4, blocks_threshold=1).window().state
    window = split(tmp_path, block_size=5, state=state).window()
    assert window.ranges == [(4, 8), (8, 10), (0, 5), (5, 10)]


def test_overlapping_locations_give_each_file_once(tmp_path: Path) -> None:
    """A directory, a directory in it, a file in that and globs over them are read as their union."""
    twelve_files(tmp_path)
    inner = write(tmp_path / "sub" / "file.txt")
    inputs = [tmp_path, tmp_path / "sub", inner, tmp_path / "*.txt", tmp_path / "**" / "file*"]
    window = split(*inputs).window()
    files = [file for file in window.files if not file.is_directory]
    assert len(files) == len({file.url for file in files}) == 13


def test_two_locations_give_each_file_once_however_many_windows(tmp_path: Path) -> None:
    """Named by their own paths, files are no more read again than those of a directory."""
    one, two = write(tmp_path / "f1", b"x" * 20), write(tmp_path / "f2", b"x" * 20)
    driver = split(one, two, block_size=2, blocks_threshold=1)
    windows = [driver.window() for _ in range(60)]
    assert [path for window in windows for path in window.paths] == ["f1", "f2"]
    assert sum(len(window.blocks) for window in windows) == 20


def test_a_directory_is_announced_once_and_has_no_blocks(tmp_path: Path) -> None:
    """An empty directory can be made again elsewhere; its own changes do not announce it again."""
    (tmp_path / "empty").mkdir()
    write(tmp_path / "dir" / "inner.txt")
    window = split(tmp_path).window()
    assert [(f.relative_path, f.is_directory) for f in window.files] == [
        ("dir", True),
        ("dir/inner.txt", False),
        ("empty", True),
    ]
    write(tmp_path / "empty" / "new")
    assert split(tmp_path, state=window.state).window().paths == ["empty/new"]


def test_patterns_match_the_whole_name(tmp_path: Path) -> None:
    """`f.*` takes f1 wherever it lies; ignore_pattern also keeps out directories."""
    for name in ("f1", "xf2", "sub/f3", "skip/f4", "f5.bak"):
        write(tmp_path / name)
    driver = split(tmp_path, file_pattern="f.*", ignore_pattern=r"skip|.*\.bak")
    assert [f.relative_path for f in driver.window().files if not f.is_directory] == ["f1", "sub/f3"]
    assert driver.counters["ignored"] == 3


def test_what_was_planned_is_counted(tmp_path: Path) -> None:
    """Files without directories, blocks and bytes are in the operator's counts."""
    write(tmp_path / "sub" / "a", b"12345")
    write(tmp_path / "empty", b"")
    driver = split(tmp_path, block_size=2)
    driver.everything()
    assert driver.counters == {"files": 2, "files_completed": 2, "blocks_emitted": 3, "bytes_emitted": 5}


@pytest.mark.parametrize(
    ("change", "on_change", "ranges"),
    [
        ("append", None, [(10, 15), (15, 18)]),
        ("append", {"appended": "tail"}, [(10, 15), (15, 18)]),
        ("append", {"appended": "reread"}, [(0, 5), (5, 10), (10, 15), (15, 18)]),
        ("append", {"appended": "ignore"}, []),
        ("rewrite", None, [(0, 5), (5, 10)]),
        ("rewrite", {"replaced": "ignore"}, []),
        ("recreate", None, [(0, 5), (5, 10), (10, 12)]),
        ("recreate", {"replaced": "ignore"}, []),
        ("truncate", None, [(0, 5)]),
        ("truncate", {"truncated": "ignore"}, []),
    ],
)
def test_a_changed_file_is_treated_as_the_policy_says(
    tmp_path: Path, change: str, on_change: dict[str, str] | None, ranges: list[tuple[int, int]]
) -> None:
    """Each kind of change has its own choice, is counted, and is acted upon once."""
    path = write(tmp_path / "log", b"0123456789", mtime_s=1000)
    properties: dict[str, Any] = {"block_size": 5} | ({"on_change": on_change} if on_change else {})
    state = split(tmp_path, **properties).everything().state
    _change(path, change)
    driver = split(tmp_path, state=state, **properties)
    window = driver.window()
    assert window.ranges == ranges
    kind = {"append": "appended", "truncate": "truncated"}.get(change, "replaced")
    assert driver.counters[f"files_{kind}"] == 1
    again = split(tmp_path, state=window.state, **properties)
    assert again.windows() == []
    assert again.counters[f"files_{kind}"] == 0


def _change(path: Path, change: str) -> None:
    if change == "append":
        with path.open("ab") as file:
            file.write(b"01234567")
    elif change == "rewrite":
        path.write_bytes(b"9876543210")
    elif change == "truncate":
        path.write_bytes(b"01234")
    else:
        # Longer than before, and another file by its inode: no append.
        os.replace(write(path.with_name("new"), b"012345678901"), path)


@pytest.mark.parametrize(
    ("change", "kind", "action"),
    [("append", "appended", "tail"), ("rewrite", "replaced", "reread"), ("truncate", "truncated", "reread")],
)
def test_a_changed_file_can_fail_the_run(tmp_path: Path, change: str, kind: str, action: str) -> None:
    """The error names the file, both sizes, and the settings that would go on."""
    path = write(tmp_path / "log", b"0123456789", mtime_s=1000)
    state = split(tmp_path).everything().state
    _change(path, change)
    driver = split(tmp_path, state=state, on_change={kind: "fail"})
    with pytest.raises(SourceChangedError, match=rf"log: it was {kind} after it was read: 10 bytes then.*\n.*{action}"):
        driver.window()


def test_a_moved_tree_whose_inodes_differ_is_not_read_again(tmp_path: Path) -> None:
    """Size and modification time say that it is the same file, as after a copy that keeps them."""
    path = write(tmp_path / "in" / "a", b"123", mtime_s=1000)
    state = split(tmp_path / "in").everything().state
    os.replace(write(tmp_path / "copy", b"123", mtime_s=1000), path)
    assert split(tmp_path / "in", state=state).windows() == []


def test_a_missing_location_is_an_error_that_names_the_nearest(tmp_path: Path) -> None:
    """A typing mistake is found before anything runs."""
    write(tmp_path / "access.log")
    with pytest.raises(MissingError, match=r"acess\.log: no such file or directory\n.*did you mean .*/access\.log\?"):
        split(tmp_path / "acess.log").window()


def test_an_empty_location_is_announced_as_any_other_directory(tmp_path: Path) -> None:
    """Once, and with no path below itself; a location that holds something is not, for its files show it."""
    window = split(tmp_path).window()
    assert [(f.url, f.relative_path, f.is_directory) for f in window.files] == [(str(tmp_path), "", True)]
    assert split(tmp_path, state=window.state).windows() == []
    write(tmp_path / ".hidden")
    assert split(tmp_path).windows() == []


def test_max_files_per_window_bounds_the_files_of_a_window(tmp_path: Path) -> None:
    """12 files, 5 a window: 5, 5, 2."""
    twelve_files(tmp_path)
    assert [len(window.files) for window in split(tmp_path, max_files_per_window=5).windows()] == [5, 5, 2]


def test_latest_first_reads_the_newest_files_first(tmp_path: Path) -> None:
    """Sizes 1 to 5, each newer than the one before, two a window: 5 4, 3 2, 1."""
    for size in range(1, 6):
        write(tmp_path / str(size), b"x" * size, mtime_s=1000 + size)
    windows = split(tmp_path, latest_first=True, max_files_per_window=2).windows()
    assert [window.paths for window in windows] == [["5", "4"], ["3", "2"], ["1"]]


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"block_size": 0}, "block_size"),
        ({"block_size": "64MB per day"}, "is not a size"),
        ({"blocks_threshold": 0}, "blocks_threshold"),
        ({"max_files_per_window": 0}, "max_files_per_window"),
        ({"max_files_per_window": "x"}, "max_files_per_window"),
        ({"files": []}, "files"),
        ({"file_pattern": "("}, "file_pattern"),
        ({"on_change": {"appended": "twice"}}, "on_change.appended"),
        ({"on_change": {"renamed": "ignore"}}, "on_change.renamed"),
        ({"on_change": {"replaced": "tail"}}, "on_change.replaced"),
        ({"retain_seen": {"days": 3}}, "retain_seen"),
        ({"done_marker": "done/{name}"}, "done_marker"),
        ({"existing": "delete"}, "existing"),
    ],
)
def test_a_wrong_property_is_refused_by_name(properties: dict[str, Any], message: str) -> None:
    """What cannot be meant does not get as far as a run."""
    with pytest.raises((ValidationError, ValueError), match=message):
        FileSplitterInput(**{"files": ["in"], **properties})


def test_a_lost_index_is_an_error(tmp_path: Path) -> None:
    """Going on without it would read every file again."""
    for number in range(600):
        write(tmp_path / "in" / str(number), b"")
    services = InProcessServices(state_url=str(tmp_path / "index"))
    state = split(tmp_path / "in", services=services).everything().state
    [run] = (tmp_path / "index").glob("*.parquet")
    run.unlink()
    with pytest.raises(JournalError, match=rf"index: the index of processed files lacks {run.name}"):
        split(tmp_path / "in", services=services, state=state)


def test_the_state_stays_small_however_many_files_were_taken(tmp_path: Path) -> None:
    """Files that were taken lie in the index; the state names its parts."""
    for number in range(3000):
        write(tmp_path / "in" / f"{number:05}", b"")
    services = InProcessServices(state_url=str(tmp_path / "index"), budget=WindowBudget(1000, 100))
    state = split(tmp_path / "in", services=services).everything().state
    assert len(pickle.dumps(state)) < 2000
    assert split(tmp_path / "in", services=services, state=state).windows() == []


def test_an_estimate_counts_what_a_run_would_read(tmp_path: Path) -> None:
    """Without emitting or remembering anything; in no time it counts a part and says so."""
    twelve_files(tmp_path)
    write(tmp_path / "sub" / "empty", b"")
    splitter = FileSplitterInput(files=str(tmp_path), block_size=2)
    assert splitter.estimate(60.0) == InputEstimate(13, 72, 132)
    assert splitter.estimate(-1.0) == InputEstimate(is_partial=True)
    assert len(SplitterDriver(splitter).everything().blocks) == 72


@given(size=st.integers(0, 60), block_size=st.integers(1, 25), threshold=st.integers(1, 5))
def test_blocks_cover_a_file_exactly(
    tmp_path_factory: pytest.TempPathFactory, size: int, block_size: int, threshold: int
) -> None:
    """At any block size and threshold the blocks are disjoint, ascending, and together the file."""
    path = write(tmp_path_factory.mktemp("cover") / "file", b"x" * size)
    window = split(path, block_size=block_size, blocks_threshold=threshold).everything()
    expected = [(start, min(start + block_size, size)) for start in range(0, size, block_size)]
    assert window.ranges == expected
    assert [block.is_last for block in window.blocks] == [end == size for _, end in expected]
    assert window.files[0].block_count == len(expected)


def test_max_bytes_per_window_bounds_the_bytes_of_a_window(tmp_path: Path) -> None:
    """Blocks go into a window as long as they fit, and at least one does; also where blocks are limited as well."""
    for name in "abcd":
        (tmp_path / name).write_bytes(b"x" * 10)
    others: list[dict[str, Any]] = [{}, {"blocks_threshold": 100}]
    for other in others:
        windows = split(tmp_path, block_size=4, max_bytes_per_window=9, **other).windows()
        sizes = [sum(block.size_bytes for block in window.blocks) for window in windows]
        assert sum(sizes) == 40
        assert max(sizes) <= 9
        assert len([size for size in sizes if size]) <= 6
    windows = split(tmp_path, block_size=4, max_bytes_per_window=1).windows()
    assert [len(window.blocks) for window in windows if window.blocks] == [1] * 12


def test_a_file_whose_name_says_that_it_is_compressed_is_one_block(tmp_path: Path) -> None:
    """It cannot be read from the middle on; a plan counts such files, because one task reads each."""
    for name in ("a.gz", "b.txt", "c.xz"):
        (tmp_path / name).write_bytes(b"x" * 25)
    splitter = FileSplitterInput(files=str(tmp_path), block_size=10)
    assert splitter.estimate(60.0) == InputEstimate(files=3, blocks=5, bytes=75, uncut=2)
    assert SplitterDriver(splitter).everything().ranges == [(0, 25), (0, 10), (10, 20), (20, 25), (0, 25)]


def test_what_is_known_to_come_is_counted(tmp_path: Path) -> None:
    """The rest of the file that is cut, and the files behind it, less with each window."""
    for name in "abc":
        (tmp_path / name).write_bytes(b"x" * 10)
    (tmp_path / "d").mkdir()
    driver = SplitterDriver(FileSplitterInput(files=str(tmp_path), block_size=4, blocks_threshold=2))
    assert driver.splitter.unemitted_bytes() == 0
    unemitted = []
    while driver.window().blocks:
        unemitted.append(driver.splitter.unemitted_bytes())
    assert unemitted == [22, 16, 10, 2, 0]


def test_a_preview_looks_once_at_what_is_there(tmp_path: Path) -> None:
    """Also where the app follows, ignores what exists, or waits for files to be complete; or at one file alone."""
    write(tmp_path / "in" / "a")
    write(tmp_path / "b")
    properties = {"files": str(tmp_path / "in"), "follow": True, "existing": "ignore"}
    for file, waiting, expected in ((None, {}, "in/a"), (str(tmp_path / "b"), {"done_marker": "{name}.done"}, "b")):
        splitter = FileSplitterInput(**properties, **waiting)
        splitter.begin_preview(file)
        (window,) = SplitterDriver(splitter).windows()
        assert [block.url for block in window.blocks] == [str(tmp_path / expected)]
        assert not window.blocks[0].continuation.is_open

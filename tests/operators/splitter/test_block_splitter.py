from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.errors import MissingError
from operators.files.metadata import FileInfo
from operators.splitter import FileSplitterBase
from tests.operators.splitter.splitter_driver import SplitterDriver, twelve_files, write


def test_named_files_are_cut_as_they_come(tmp_path: Path) -> None:
    """FileSplitterBase: files, a directory and an empty file; blocks of 10, four a window: 2, 2 and 6 blocks."""
    write(tmp_path / "file1.txt", b"x" * 13)
    write(tmp_path / "dir" / "inner.txt", b"x" * 13)
    write(tmp_path / "file2.txt", b"x" * 52)
    names = ["file1.txt", "dir", "dir/inner.txt", "file2.txt"]
    driver = SplitterDriver(FileSplitterBase(block_size=10, blocks_threshold=4))
    windows = [driver.window(*(FileInfo(str(tmp_path / name), f"input/{name}") for name in names)), *driver.windows()]
    assert [path for window in windows for path in window.paths] == [f"input/{name}" for name in names]
    assert [len(window.blocks) for window in windows] == [4, 4, 2]
    assert [file.block_count for window in windows for file in window.files] == [2, 0, 2, 6]


def test_named_files_that_wait_survive_a_restart(tmp_path: Path) -> None:
    """Restored to any window, FileSplitterBase emits exactly what was still to come."""
    infos = [FileInfo(str(path)) for path in twelve_files(tmp_path)]
    properties = {"block_size": 2, "blocks_threshold": 10}
    driver = SplitterDriver(FileSplitterBase(**properties))
    first = driver.window(*infos)
    rest = driver.windows()
    resumed = SplitterDriver(FileSplitterBase(**properties), state=first.state).windows()
    assert [(w.files, w.blocks) for w in resumed] == [(w.files, w.blocks) for w in rest]
    assert len(first.blocks) + sum(len(window.blocks) for window in rest) == 72


def test_a_named_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """What an operator names is taken literally, and must exist."""
    write(tmp_path / "a")
    with pytest.raises(MissingError, match=r"\*: no such file"):
        SplitterDriver(FileSplitterBase()).window(FileInfo(str(tmp_path / "*")))


def test_a_preview_of_a_named_file_cuts_it_alone(tmp_path: Path) -> None:
    """Whatever is named; its blocks are small, and smaller where the app says so."""
    write(tmp_path / "a", b"x" * (3 << 20))
    write(tmp_path / "b")
    for file, block_size, expected in ((str(tmp_path / "a"), 64 << 20, 3), (str(tmp_path / "a"), 1 << 19, 6)):
        splitter = FileSplitterBase(block_size=block_size)
        splitter.begin_preview(file)
        blocks = SplitterDriver(splitter).window(FileInfo(str(tmp_path / "b"))).blocks
        assert [block.url for block in blocks] == [file] * expected

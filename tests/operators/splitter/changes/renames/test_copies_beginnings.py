from __future__ import annotations

import random
from pathlib import Path

import pytest

from dagflow.storage.fingerprint import fingerprint_of
from operators.splitter.changes.renames.copies import Beginnings, Content, ContentPrefix
from operators.splitter.scan.listed_files import FilePrefix
from tests.nightly import by_day
from tests.operators.splitter.changes.renames.rotations import COMPRESSORS
from tests.operators.splitter.splitter_driver import InProcessServices, write


@pytest.mark.parametrize("suffix", COMPRESSORS)
@pytest.mark.parametrize("size", [0, 1, 1024, 1025, 3000, 3 << 20])
def test_what_is_compressed_has_the_fingerprint_of_the_file_before(tmp_path: Path, suffix: str, size: int) -> None:
    """Over as many bytes as are asked for, whether or not more follow; over fewer where there are fewer."""
    data = random.Random(size).randbytes(min(size, 5000)).ljust(size, b"x")
    path = bytes(write(tmp_path / f"a{suffix}", COMPRESSORS[suffix](data)))
    asked_sizes = {1, size - 1, size, size + 1} - {0, -1}
    beginnings = Beginnings(InProcessServices().in_tasks)
    beginnings.fetch_contents(ContentPrefix(path, asked) for asked in asked_sizes)
    for asked in asked_sizes:
        there = min(asked, size)
        expected = Content(there, fingerprint_of(memoryview(data[:there])), asked < size)
        assert beginnings.content(ContentPrefix(path, asked)) == expected


@pytest.mark.parametrize("suffix", by_day(2, COMPRESSORS))
def test_an_incomplete_archive_counts_as_far_as_it_goes(tmp_path: Path, suffix: str) -> None:
    """It may be in the making; what could be decompressed is the beginning of the file."""
    data = random.Random(1).randbytes(3 << 20)
    whole = COMPRESSORS[suffix](data)
    beginnings = Beginnings(None)
    for share in (0.0, 0.3, 0.99):
        path = bytes(write(tmp_path / f"{share}{suffix}", whole[: int(len(whole) * share)]))
        found = beginnings.content(ContentPrefix(path, len(data)))
        assert not found.has_more
        assert found.size_bytes < len(data)
        assert found.fingerprint == fingerprint_of(memoryview(data[: found.size_bytes]))


def test_another_file_under_the_name_says_nothing(tmp_path: Path) -> None:
    """Its inode is another one than that of the file that was listed."""
    path = write(tmp_path / "a", b"1\n")
    inode = path.stat().st_ino
    path.rename(tmp_path / "kept")
    write(path, b"1\n")
    beginnings = Beginnings(None)
    assert beginnings.fingerprint(FilePrefix(bytes(path), 2, inode)) == 0
    assert beginnings.fingerprint(FilePrefix(bytes(tmp_path / "kept"), 2, inode)) == fingerprint_of(memoryview(b"1\n"))

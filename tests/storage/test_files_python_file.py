"""Stored files as file objects of Python."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest

from dagflow.storage.context import StorageContext
from dagflow.storage.files import PythonFile

SIZE = 8 << 20


@pytest.fixture
def file(tmp_path: Path) -> pa.PythonFile:
    """A file of 8 MiB, as a library opens it."""
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * (SIZE >> 8))
    return pa.PythonFile(PythonFile(StorageContext.default().open_file(str(path))), "r")


def test_pyarrow_reads_into_memory_of_its_own(file: pa.PythonFile) -> None:
    """A column of a row group is one read, which Python would hold twice more."""
    tracemalloc.start()
    read = file.read_buffer(SIZE)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert read.size == SIZE
    assert peak < SIZE >> 3


@pytest.mark.parametrize(("start", "size", "there"), [(0, 3, 3), (SIZE - 2, 9, 2), (SIZE, 1, 0), (SIZE + 5, 1, 0)])
def test_a_read_ends_with_the_file(file: pa.PythonFile, start: int, size: int, there: int) -> None:
    """Damaged places lead behind it."""
    assert file.read_at(size, start) == bytes((start + index) % 256 for index in range(there))

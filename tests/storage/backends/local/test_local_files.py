"""Files of a local disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dagflow.errors import SourceChangedError, StorageError
from dagflow.storage.files import FileStat
from tests.storage.shared import STORAGE, put


def read(url: str, offset: int, length: int, expected: FileStat | None = None) -> bytes:
    buffer = bytearray(length)
    with STORAGE.open_file(url, expected) as file:
        count = file.read_into(offset, memoryview(buffer))
    return bytes(buffer[:count])


def test_a_local_file_that_shrinks_while_it_is_open_is_noticed(tmp_path: Path) -> None:
    """A file that ends early is an error, never a short read."""
    url = put(str(tmp_path / "f"), b"0123456789")
    with STORAGE.open_file(url) as file:
        os.truncate(url, 4)
        with pytest.raises(SourceChangedError, match="had 10 bytes, now it ends at 4"):
            file.read_into(0, memoryview(bytearray(10)))


def test_any_name_can_be_listed_and_read(tmp_path: Path) -> None:
    """Names that are no text, or hold a newline, are names."""
    for name in (b"\xff\xfe", b"a\nb", b" ", "é".encode()):
        with open(os.path.join(os.fsencode(tmp_path), name), "wb") as file:
            file.write(name)
    found = list(STORAGE.list_directory(str(tmp_path)))
    assert [read(entry.url, 0, 9) for entry in found] == [b" ", b"a\nb", "é".encode(), b"\xff\xfe"]


def test_pipes_and_dead_links_are_not_listed_and_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """What is no file is left out, and opening it is an error, not a hang."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dead").symlink_to("nowhere")
    (tmp_path / "endless").symlink_to("endless")
    put(str(tmp_path / "file"), b"1")
    (tmp_path / "link").symlink_to("file")
    assert [entry.url for entry in STORAGE.list_directory(str(tmp_path))] == [
        str(tmp_path / n) for n in ("file", "link")
    ]
    with pytest.raises(StorageError, match="neither a file nor a directory"):
        STORAGE.open_file(str(tmp_path / "pipe"))

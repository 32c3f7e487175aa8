import os
from dataclasses import replace
from pathlib import Path

import pytest

from dagflow.errors import SourceChangedError, StorageError
from dagflow.storage.file_stat import FileStat
from tests.storage.shared import STORAGE, filesystem_of, s3_client


def put(url: str, data: bytes) -> str:
    """Write a file by other means than dagflow's."""
    filesystem, path = filesystem_of(url)
    filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
    filesystem.pipe_file(path, data)
    return url


def read(url: str, offset: int, length: int, expected: FileStat | None = None) -> bytes:
    buffer = bytearray(length)
    with STORAGE.open_file(url, expected) as file:
        count = file.read_into(offset, memoryview(buffer))
    return bytes(buffer[:count])


def test_an_s3_file_that_is_replaced_while_it_is_open_is_noticed(s3_root: str) -> None:
    """Every request names the version, so two versions are never mixed."""
    url = put(f"{s3_root}/f", b"0123456789")
    with STORAGE.open_file(url) as file:
        put(url, b"9876543210")
        with pytest.raises(SourceChangedError, match="replaced while it was read"):
            file.read_into(0, memoryview(bytearray(4)))


def test_a_listing_of_s3_goes_over_pages(s3_root: str) -> None:
    """Keys beyond the first answer are found, in order, also behind a key to start after."""
    names = [f"d/{number}" for number in range(8)]
    for name in names:
        put(f"{s3_root}/{name}", b"")
    place = s3_client().location(s3_root)
    pages = list(place.list("list", Prefix="d/", StartAfter="d/0", MaxKeys=3))
    assert [[entry["Key"] for entry in page["Contents"]] for page in pages] == [names[1:4], names[4:7], names[7:]]


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
    put(str(tmp_path / "file"), b"1")
    (tmp_path / "link").symlink_to("file")
    assert [entry.url for entry in STORAGE.list_directory(str(tmp_path))] == [
        str(tmp_path / n) for n in ("file", "link")
    ]
    with pytest.raises(StorageError, match="neither a file nor a directory"):
        STORAGE.open_file(str(tmp_path / "pipe"))


def test_etags_decide_where_there_are_any() -> None:
    """Object stores tell times in whole seconds, so their times decide nothing."""
    planned = FileStat("s3://b/k", 3, mtime_ns=1, etag="a")
    assert planned.difference(replace(planned, mtime_ns=2)) == ""
    assert "etag" in planned.difference(replace(planned, etag="b"))
    assert "modified" in replace(planned, etag="").difference(replace(planned, mtime_ns=2))


def test_a_directory_is_named_where_a_file_is_opened(root: str) -> None:
    """The mistake is told as one."""
    put(f"{root}/d/f", b"1")
    with pytest.raises(StorageError, match="it is a directory"):
        STORAGE.open_file(f"{root}/d")

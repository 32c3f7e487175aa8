import os
from dataclasses import replace
from pathlib import Path

import pytest

from dagflow.errors import MissingError, SourceChangedError, StorageError
from dagflow.storage.file_stat import FileStat
from dagflow.storage.location import join
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


@pytest.mark.parametrize(("offset", "length"), [(0, 10), (3, 4), (0, 100), (9, 5), (10, 5), (50, 5), (0, 0)])
def test_a_buffer_is_filled_from_any_offset(root: str, offset: int, length: int) -> None:
    """What is read equals the slice of the file; it is short only at the end."""
    url = put(f"{root}/f", b"0123456789")
    assert read(url, offset, length) == b"0123456789"[offset : offset + length]


def test_an_empty_file_can_be_opened(root: str) -> None:
    """Its size is 0, and nothing can be read from it."""
    url = put(f"{root}/f", b"")
    with STORAGE.open_file(url) as file:
        assert file.size_bytes == 0
        assert file.read_into(0, memoryview(bytearray(3))) == 0


def test_the_planned_version_opens(root: str) -> None:
    """What stat() said of an unchanged file is what open_file() finds."""
    url = put(f"{root}/f", b"0123456789")
    assert read(url, 0, 10, STORAGE.stat(url)) == b"0123456789"


def test_another_size_is_another_version(root: str) -> None:
    """A file that grew after it was planned is refused, and the sizes are named."""
    url = put(f"{root}/f", b"0123456789")
    planned = STORAGE.stat(url)
    put(url, b"0123456789abc")
    with pytest.raises(SourceChangedError, match="had 10 bytes, now it has 13"):
        STORAGE.open_file(url, planned)


def test_other_bytes_of_the_same_size_are_another_version(root: str) -> None:
    """A rewrite is noticed by the time of modification or the etag, also within one second."""
    url = put(f"{root}/f", b"0123456789")
    planned = STORAGE.stat(url)
    put(url, b"9876543210")
    with pytest.raises(SourceChangedError, match=r"etag was|modified at"):
        STORAGE.open_file(url, planned)


def test_what_is_missing_is_said_to_be(root: str) -> None:
    """Neither stat() nor open_file() nor a listing makes something of nothing."""
    for ask in (STORAGE.stat, STORAGE.open_file, lambda url: list(STORAGE.list_directory(url))):
        with pytest.raises(MissingError, match="there"):
            ask(f"{root}/nothing/there")


def test_a_directory_is_listed_in_the_order_of_its_paths(root: str) -> None:
    """Directories sort as if they ended in a slash: a walk yields paths in the order of their bytes."""
    for name in ("b", "a/x", "a-b", "a.b", "a/b/c", "é", "B"):
        put(f"{root}/d/{name}", b"12")

    def walk(url: str) -> list[str]:
        found: list[str] = []
        for entry in STORAGE.list_directory(url):
            found += walk(entry.url) if entry.is_directory else [entry.url]
        return found

    paths = walk(f"{root}/d")
    assert len(paths) == 7
    assert paths == sorted(paths, key=str.encode)
    names = {entry.url.rpartition("/")[2]: entry for entry in STORAGE.list_directory(f"{root}/d")}
    assert names["a"].is_directory
    assert names["b"].size_bytes == 2


def test_a_listing_and_a_look_say_the_same(root: str) -> None:
    """A version taken from a listing can be opened later."""
    url = put(f"{root}/d/f", b"12")
    [entry] = STORAGE.list_directory(f"{root}/d")
    assert entry == STORAGE.stat(url)
    assert read(url, 0, 5, entry) == b"12"


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


def test_a_directory_is_not_opened_as_a_file(root: str) -> None:
    """The mistake is named."""
    put(f"{root}/d/f", b"1")
    with pytest.raises(StorageError, match="it is a directory"):
        STORAGE.open_file(join(root, "d"))


def test_etags_decide_where_there_are_any() -> None:
    """Object stores tell times in whole seconds, so their times decide nothing."""
    planned = FileStat("s3://b/k", 3, mtime_ns=1, etag="a")
    assert planned.difference(replace(planned, mtime_ns=2)) == ""
    assert "etag" in planned.difference(replace(planned, etag="b"))
    assert "modified" in replace(planned, etag="").difference(replace(planned, mtime_ns=2))

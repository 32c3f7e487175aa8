"""The laws of files that are read, which every store keeps: looks, reads, listings, removals; needs pytest."""

from __future__ import annotations

import os

import pytest

from dagflow.errors import MissingError, SourceChangedError, StorageError
from dagflow.storage.small_files import SmallFiles
from dagflow.testing.store_under_test import StoreUnderTest


class FilesContract(StoreUnderTest):
    """The laws of Files."""

    @pytest.mark.parametrize(("offset", "length"), [(0, 10), (3, 4), (0, 100), (9, 5), (10, 5), (50, 5), (0, 0)])
    def test_a_buffer_is_filled_from_any_offset(self, root: str, offset: int, length: int) -> None:
        """What is read equals the slice of the file; it is short only at the end."""
        url = self.put(f"{root}/f", b"0123456789")
        assert self.content(url, offset, length) == b"0123456789"[offset : offset + length]

    def test_an_empty_file_can_be_opened(self, root: str) -> None:
        """Its size is 0, and nothing can be read from it."""
        assert self.content(self.put(f"{root}/f", b""), 0, 3) == b""

    def test_the_planned_version_opens(self, root: str) -> None:
        """What stat() said of an unchanged file is what open() finds."""
        url = self.put(f"{root}/f", b"0123456789")
        assert self.content(url, expected=self.context.stat(url)) == b"0123456789"

    def test_another_size_is_another_version(self, root: str) -> None:
        """A file that grew after it was planned is refused, and the sizes are named."""
        url = self.put(f"{root}/f", b"0123456789")
        planned = self.context.stat(url)
        self.put(url, b"0123456789abc")
        with pytest.raises(SourceChangedError, match="had 10 bytes, now it has 13"):
            self.context.open_file(url, planned)
        with pytest.raises(SourceChangedError, match="had 10 bytes"):
            self.context.backend(url).files.require_version(planned)

    def test_other_bytes_of_the_same_size_are_another_version(self, root: str) -> None:
        """A rewrite is noticed by the time of modification or the etag."""
        url = self.put(f"{root}/f", b"0123456789")
        planned = self.context.stat(url)
        while self.context.stat(url) == planned:  # clocks of file systems tick every few milliseconds
            self.put(url, os.urandom(5).hex().encode())
        with pytest.raises(SourceChangedError, match=r"etag was|modified at"):
            self.context.open_file(url, planned)

    def test_what_is_missing_is_an_error(self, root: str) -> None:
        """Neither stat() nor open() nor a listing makes something of nothing."""
        for ask in (self.context.stat, self.context.open_file, lambda url: list(self.context.list_directory(url))):
            with pytest.raises(MissingError, match="there"):
                ask(f"{root}/nothing/there")

    def test_a_directory_is_listed_in_the_order_of_its_paths(self, root: str) -> None:
        """Directories sort as if they ended in a slash: a walk yields paths in the order of their bytes."""
        for name in ("b", "a/x", "a-b", "a.b", "a/b/c", "é", "B"):
            self.put(f"{root}/d/{name}", b"12")

        def walk(url: str) -> list[str]:
            found: list[str] = []
            for entry in self.context.list_directory(url):
                hidden = entry.url.rpartition("/")[2].startswith(".")
                found += walk(entry.url) if entry.is_directory and not hidden else [entry.url] * (not hidden)
            return found

        paths = walk(f"{root}/d")
        assert len(paths) == 7
        assert paths == sorted(paths, key=str.encode)
        entries = {entry.url.rpartition("/")[2]: entry for entry in self.context.list_directory(f"{root}/d")}
        assert entries["a"].is_directory
        assert entries["b"].size_bytes == 2

    def test_a_listing_and_a_look_say_the_same(self, root: str) -> None:
        """A version taken from a listing can be opened later."""
        url = self.put(f"{root}/d/f", b"12")
        [entry] = [each for each in self.context.list_directory(f"{root}/d") if not each.is_directory]
        assert entry == self.context.stat(url)
        assert self.content(url, expected=entry) == b"12"

    def test_a_directory_is_not_opened_as_a_file(self, root: str) -> None:
        """The mistake is named."""
        self.put(f"{root}/d/f", b"1")
        with pytest.raises(StorageError, match="/d"):
            self.context.open_file(f"{root}/d")

    def test_small_files_are_read_whole_and_in_order(self, root: str) -> None:
        """With an ending behind each that has none; a file that is gone leaves nothing, and a reason."""
        contents = {"a": b"a\n", "b": b"b", "c": b"", "d": b"dd"}
        stats = [self.context.stat(self.put(f"{root}/{name}", data)) for name, data in contents.items()]
        self.context.backend(root).files.remove(f"{root}/d")
        columns = [each.size_bytes for each in stats], [each.mtime_ns for each in stats]
        files = SmallFiles(f"{root}/", list(contents), *columns, [each.etag for each in stats] if stats[0].etag else ())
        buffer = memoryview(bytearray(files.buffer_bytes))
        loaded = self.context.backend(root).files.load(files, buffer, b"\n")
        assert bytes(buffer[: loaded.borders[-1]]) == b"a\nb\n"
        assert loaded.borders == [0, 2, 4, 4, 4]
        assert [(index, type(error)) for index, error in loaded.failures.items()] == [(3, MissingError)]

    def test_a_processed_source_file_is_removed_once(self, root: str) -> None:
        """Only in the version that was processed; one that is gone was removed before."""
        sources = self.context.backend(root).sources
        old = self.context.stat(self.put(f"{root}/f", b"old"))
        self.put(f"{root}/f", b"newer")
        assert "it had 3 bytes" in sources.remove_version(old)
        new = self.context.stat(f"{root}/f")
        assert [sources.remove_version(new), sources.remove_version(new)] == ["", ""]

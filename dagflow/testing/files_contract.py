"""The laws of reading files, which every store keeps: looks, reads, listings, removals; needs pytest."""

from __future__ import annotations

import contextlib
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dagflow.errors import MissingError, SourceChangedError, StorageError
from dagflow.storage.context import StorageContext
from dagflow.storage.files import FileStat, SmallFiles
from dagflow.storage.location import scheme_of
from dagflow.storage.pending import PendingFile, PendingFiles, pending_tag
from dagflow.storage.publishing import publish_all

TAG = pending_tag("app", 1)


class StoreUnderTest:
    """A store, and what its tests do with it.

    Attributes:
        context: Reaches the store.
    """

    context: StorageContext

    @pytest.fixture
    def storage(self) -> StorageContext:
        """Reaches the store; without options unless a subclass gives some."""
        return StorageContext.default()

    @pytest.fixture(autouse=True)
    def _reach(self, storage: StorageContext) -> None:
        self.context = storage

    @pytest.fixture
    def root(self) -> str:
        """The URL of an empty location, a new one for each test."""
        raise NotImplementedError("the fixture `root` is missing in this contract's class")

    def another_context(self) -> StorageContext:
        """Reaches the store as another process does."""
        copy: StorageContext = pickle.loads(pickle.dumps(self.context))
        return copy

    def uploads(self, root: str) -> list[Any]:
        """Leftovers of writers below a root that no listing shows."""
        return []

    def pending(self, root: str) -> PendingFiles:
        """The store's pending files."""
        return self.context.backend(root).pending

    def write(self, url: str, data: bytes, *, tag: str = TAG, checksum: bool = False) -> PendingFile:
        """A pending file with these bytes."""
        writer = self.context.open_pending(url, tag=tag, checksum=checksum)
        writer.write(data)
        return writer.close(records=3)

    def hold(self, url: str, data: bytes, *, tag: str = TAG) -> PendingFile:
        """A file with these bytes that is held beside a name."""
        writer = self.context.open_held(url, tag=tag)
        writer.write(data)
        return writer.close(records=3)

    def put(self, url: str, data: bytes) -> str:
        """Create or replace a file with these bytes, and return its URL."""
        self.pending(url).replace(self.write(url, data))
        return url

    def content(self, url: str, offset: int = 0, length: int | None = None, expected: FileStat | None = None) -> bytes:
        """The bytes of a file from an offset on."""
        with self.context.open_file(url, expected) as file:
            buffer = bytearray(file.size_bytes if length is None else length)
            return bytes(buffer[: file.read_into(offset, memoryview(buffer))])

    def everything(self, root: str) -> set[str]:
        """The names of all files below a root, hidden or not."""
        names = set()
        try:
            for entry in self.context.list_directory(root):
                name = entry.url.rpartition("/")[2]
                below = self.everything(entry.url) if entry.is_directory else {""}
                names |= {f"{name}/{each}".rstrip("/") for each in below}
        except MissingError:
            pass
        return names


LONG = b"".join(number.to_bytes(4, "big") for number in range(50_000))
"""No four bytes occur twice where a number begins, so that a read at a wrong offset is detected."""

RANGES = [(65_535, 3), (65_536, 10), (131_071, 2), (3, 140_000), (70_001, 70_000), (199_998, 10), (0, 5)]
"""Offsets and lengths within LONG, on either side of the sizes of buffers and requests."""

REWRITES = 300
"""How often a file is rewritten until its version is another one; clocks of file systems tick every few ms."""

CONFUSED = [
    *(("a_b", "axb"), ("50%", "50x"), ("a%20b", "a b"), ("a#b", "a"), ("a?b", "a"), ("a?b", "axb"), ("a*b", "axb")),
    ("a[b]", "ab"),
]
"""Names, each with one that it would match as a pattern or in a URL."""


class FilesContract(StoreUnderTest):
    """The laws of Files."""

    @pytest.mark.parametrize(("offset", "length"), [(0, 10), (3, 4), (0, 100), (9, 5), (10, 5), (50, 5), (0, 0)])
    def test_a_buffer_is_filled_from_any_offset(self, root: str, offset: int, length: int) -> None:
        """What is read equals the slice of the file; it is short only at the end, and nothing if the file is empty."""
        for data in (b"0123456789", b""):
            url = self.put(f"{root}/f", data)
            assert self.content(url, offset, length) == data[offset : offset + length]

    def test_every_part_of_a_longer_file_is_read(self, root: str) -> None:
        """In any order, by one open file and by one for each read."""
        url = self.put(f"{root}/f", LONG)
        with self.context.open_file(url) as file:
            for offset, length in RANGES:
                buffer = bytearray(length)
                count = file.read_into(offset, memoryview(buffer))
                assert_same_bytes(bytes(buffer[:count]), offset, length)
                assert_same_bytes(self.content(url, offset, length), offset, length)

    def test_a_file_that_is_read_ahead_gives_the_ranges(self, root: str) -> None:
        """Each request returns its own bytes, also if several run at a time."""
        planned = self.context.stat(self.put(f"{root}/f", LONG))
        file = self.context.backend(root).files.open_planned(planned)
        if file is None:
            pytest.skip("the store offers no reading ahead")
        ranges = [(offset, min(offset + length, len(LONG))) for offset, length in RANGES]
        with file, ThreadPoolExecutor(4) as pool:
            assert file.size_bytes == len(LONG)
            for (start, end), data in zip(ranges, pool.map(lambda each: file.fetch(*each), ranges), strict=True):
                assert_same_bytes(data, start, end - start)

    @pytest.mark.parametrize("is_ahead", [False, True])
    def test_what_a_file_calls_unchanged_is_of_its_version(self, root: str, is_ahead: bool) -> None:
        """If a file that only a look can check is replaced before it is read, the look reveals it."""
        planned = self.context.stat(self.put(f"{root}/f", b"0123456789"))
        files = self.context.backend(root).files
        file = files.open_planned(planned) if is_ahead else files.open(planned.url, planned)
        if file is None:
            pytest.skip("the store offers no reading ahead")
        buffer = bytearray(10)
        with file:
            self.rewrite(planned)
            with contextlib.suppress(SourceChangedError):
                file.read_into(0, memoryview(buffer))
                if file.is_unchanged():
                    assert buffer == b"0123456789"
        with pytest.raises(SourceChangedError, match=r"etag was|modified at"):
            files.require_version(planned)

    def rewrite(self, planned: FileStat) -> None:
        """Replace the bytes of a file by others of the same size, until its version is another one."""
        for _ in range(REWRITES):
            self.put(planned.url, os.urandom(planned.size_bytes // 2).hex().encode())
            found = self.context.stat(planned.url)
            if (found.mtime_ns, found.etag) != (planned.mtime_ns, planned.etag):
                return
        pytest.fail(
            f"{planned.url} was rewritten {REWRITES} times, and stat() shows no other version: neither mtime_ns "
            f"({planned.mtime_ns}) nor etag ('{planned.etag}') has changed"
        )

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
        self.rewrite(planned)
        with pytest.raises(SourceChangedError, match=r"etag was|modified at"):
            self.context.open_file(url, planned)

    def test_what_is_missing_is_an_error(self, root: str) -> None:
        """stat(), open() and a listing all report a missing file or directory."""
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

    def names(self, directory: str) -> list[str]:
        """The names in a listing, without hidden names; with a slash after each directory."""
        entries = [(each, each.url.rpartition("/")[2]) for each in self.context.list_directory(directory)]
        return [name + "/" * each.is_directory for each, name in entries if not name.startswith(".")]

    def test_a_directory_of_directories_is_listed(self, root: str) -> None:
        """Also if it contains no file: a walk finds deep files."""
        for name in ("a/b/c/f", "a/b2/f"):
            self.put(f"{root}/d/{name}", b"12")
        assert [self.names(f"{root}/d{below}") for below in ("", "/a", "/a/b", "/a/b/c")] == [
            ["a/"],
            ["b/", "b2/"],
            ["c/"],
            ["f"],
        ]
        assert self.context.stat(f"{root}/d/a").is_directory

    def test_a_listing_shows_what_has_changed_since_the_last_one(self, root: str) -> None:
        """Changes by another process are seen as well: published, replaced and removed files."""
        directory, other = f"{root}/d", self.another_context()
        with pytest.raises(MissingError, match="/d"):
            list(self.context.list_directory(directory))
        for name, shown in (("b", ["b"]), ("a", ["a", "b"]), ("c/f", ["a", "b", "c/"])):
            publish_all(other, [self.write(f"{directory}/{name}", b"12")])
            assert self.names(directory) == shown
        other.backend(root).pending.replace(self.write(f"{directory}/a", b"123"))
        assert next(iter(self.context.list_directory(directory))).size_bytes == 3
        other.backend(root).files.remove(f"{directory}/b")
        assert self.names(directory) == ["a", "c/"]
        other.backend(root).files.remove(f"{directory}/c/f")
        assert "f" not in self.everything(f"{directory}/c")

    @pytest.mark.parametrize(("name", "other"), CONFUSED)
    def test_a_name_is_neither_a_pattern_nor_part_of_a_url(self, root: str, name: str, other: str) -> None:
        """The file and the directory of the name are found, and nothing else is listed, replaced or removed."""
        files = self.context.backend(root).files
        for each in (other, name):
            publish_all(self.context, [self.write(f"{root}/files/{each}", f"old {each}".encode())])
            publish_all(self.context, [self.write(f"{root}/{each}/in {each}", each.encode())])
        self.put(f"{root}/files/{name}", name.encode())
        assert self.content(f"{root}/files/{name}") == name.encode()
        assert self.content(f"{root}/files/{other}") == f"old {other}".encode()
        assert sorted(self.names(f"{root}/files")) == sorted([name, other])
        for each in (name, other):
            assert self.names(f"{root}/{each}") == [f"in {each}"]
            assert self.content(f"{root}/{each}/in {each}") == each.encode()
        files.remove(f"{root}/files/{name}")
        files.remove(f"{root}/{name}/in {name}")
        assert self.everything(root) == {f"files/{other}", f"{other}/in {other}"}

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

    @pytest.mark.parametrize("has_base", [True, False], ids=["one directory", "only a scheme"])
    def test_small_files_are_read_whole_and_in_order(self, root: str, *, has_base: bool) -> None:
        """A missing ending is added to each; a file that is gone adds nothing, and gives a reason."""
        contents = {"a": b"a\n", "b": b"b", "c": b"", "d": b"dd"}
        stats = [self.context.stat(self.put(f"{root}/{name}", data)) for name, data in contents.items()]
        self.context.backend(root).files.remove(f"{root}/d")
        columns = [each.size_bytes for each in stats], [each.mtime_ns for each in stats]
        length = len(f"{root}/") if has_base else len(f"{scheme_of(root)}://") if scheme_of(root) else 1
        names = [each.url[length:] for each in stats]
        etags = [each.etag for each in stats] if stats[0].etag else ()
        files = SmallFiles(stats[0].url[:length], names, *columns, etags)
        buffer = memoryview(bytearray(files.buffer_bytes))
        loaded = self.context.backend(root).files.load(files, buffer, b"\n")
        assert bytes(buffer[: loaded.borders[-1]]) == b"a\nb\n"
        assert loaded.borders == [0, 2, 4, 4, 4]
        assert [(index, type(error)) for index, error in loaded.failures.items()] == [(3, MissingError)]

    def test_a_processed_source_file_is_removed_once(self, root: str) -> None:
        """Only in the processed version; a removed one is missing."""
        sources = self.context.backend(root).sources
        old = self.context.stat(self.put(f"{root}/f", b"old"))
        self.put(f"{root}/f", b"newer")
        with pytest.raises(SourceChangedError, match="it had 3 bytes"):
            sources.remove_version(old)
        new = self.context.stat(f"{root}/f")
        assert sources.remove_version(new) == ""
        with pytest.raises(MissingError):
            sources.remove_version(new)


def assert_same_bytes(data: bytes, offset: int, length: int) -> None:
    """Check that bytes are those of LONG at an offset, without showing thousands of them."""
    expected = LONG[offset : offset + length]
    assert len(data) == len(expected), f"at {offset}"
    wrong = next((at for at, pair in enumerate(zip(data, expected, strict=True)) if pair[0] != pair[1]), None)
    assert wrong is None, f"a read of {length} bytes at {offset} gives another byte at {offset + (wrong or 0)}"

"""Reading ahead gives the bytes of the file, whatever was announced, and keeps what it holds within its budget."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.errors import MissingError, SourceChangedError
from dagflow.storage.files import FileStat
from dagflow.storage.pending import REQUESTS
from dagflow.storage.read_ahead import MARGIN_BYTES, PART_BYTES, ReadAhead, Stretch
from tests.nightly import examples
from tests.storage.shared import STORAGE

SIZES = st.sampled_from([0, 1, MARGIN_BYTES, 3 * MARGIN_BYTES + 1, PART_BYTES, 2 * PART_BYTES + 7])


class GatedFileSystem(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Memory that notes the requests for ranges, and holds them up while its gate is closed."""

    cachable = False
    ranges: ClassVar[list[tuple[int, int]]] = []
    gate: ClassVar[threading.Event] = threading.Event()
    changed: ClassVar[threading.Condition] = threading.Condition()

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **others: Any) -> Any:
        """Note the range, and wait at the gate."""
        with GatedFileSystem.changed:
            GatedFileSystem.ranges.append((start or 0, end or 0))
            GatedFileSystem.changed.notify_all()
        GatedFileSystem.gate.wait(30)
        return super().cat_file(path, start, end, **others)

    @classmethod
    def wait_for(cls, requests: int) -> None:
        """Wait until so many requests have been sent."""
        with cls.changed:
            assert cls.changed.wait_for(lambda: len(cls.ranges) >= requests, 30)


@pytest.fixture
def watched() -> Iterator[type[GatedFileSystem]]:
    """memory:// with requests that are noted; the gate is open."""
    fsspec.register_implementation("memory", GatedFileSystem, clobber=True)
    GatedFileSystem.ranges.clear()
    GatedFileSystem.gate.set()
    yield GatedFileSystem
    GatedFileSystem.gate.set()
    fsspec.register_implementation("memory", MemoryFileSystem, clobber=True)


def put(url: str, size: int, seed: int = 0) -> FileStat:
    """Write a file in which no two stretches are alike, and look at it."""
    fsspec.core.url_to_fs(url)[0].pipe_file(url, random.Random(seed).randbytes(size))
    return STORAGE.stat(url)


def content_of(file: FileStat) -> bytes:
    """The file's bytes, read in another way."""
    content: bytes = fsspec.core.url_to_fs(file.url)[0].cat_file(file.url)
    return content


def bytes_from(file: Any, start: int, end: int) -> bytes:
    """Read a range, which may reach beyond the end."""
    buffer = bytearray(end - start)
    return bytes(buffer[: file.read_into(start, memoryview(buffer))])


@settings(max_examples=examples(20))
@given(sizes=st.lists(SIZES, min_size=1, max_size=4), data=st.data())
def test_any_range_is_that_of_the_file(sizes: list[int], data: st.DataObject) -> None:
    """Announced or not, in order or not, before, across and beyond what was fetched."""
    root = f"memory://{uuid.uuid4().hex}"
    files = [put(f"{root}/{number}", size, number) for number, size in enumerate(sizes)]
    stretches = []
    for file in files:
        cuts = sorted(data.draw(st.lists(st.integers(0, file.size_bytes), max_size=4)))
        stretches += [Stretch(file, start, end) for start, end in zip(cuts[::2], cuts[1::2], strict=False)]
    ahead = ReadAhead(STORAGE, data.draw(st.sampled_from([1, PART_BYTES, 8 * PART_BYTES])))
    ahead.expect(stretches)
    for file in files:
        content = content_of(file)
        with ahead.open(file.url, file) as opened:
            assert opened.size_bytes == file.size_bytes
            own = [(s.start, s.end) for s in stretches if s.file == file]
            for start, end in [*own, *data.draw(st.lists(_ranges(file.size_bytes), max_size=3))]:
                assert bytes_from(opened, start, end) == content[start:end]
    fsspec.filesystem("memory").rm(root, recursive=True)


def _ranges(size: int) -> st.SearchStrategy[tuple[int, int]]:
    lengths = st.integers(0, 3 * MARGIN_BYTES)
    return st.tuples(st.integers(0, size), lengths).map(lambda pair: (pair[0], pair[0] + pair[1]))


def test_what_comes_next_is_under_way_before_it_is_asked_for(watched: type[GatedFileSystem]) -> None:
    """All requests of a stretch are sent at once, before anything is read."""
    file = put("memory://coming/a", 5 * PART_BYTES)
    content = content_of(file)
    watched.ranges.clear()
    watched.gate.clear()
    ahead = ReadAhead(STORAGE)
    ahead.expect([Stretch(file, 0, file.size_bytes)])
    with ahead.open(file.url, file) as opened:
        watched.wait_for(5)
        watched.gate.set()
        assert bytes_from(opened, 0, file.size_bytes) == content
    assert sorted(watched.ranges) == [(n * PART_BYTES, (n + 1) * PART_BYTES) for n in range(5)]


def test_neighbouring_blocks_are_fetched_as_one_stretch(watched: type[GatedFileSystem]) -> None:
    """Small blocks cost no more requests than the file has parts, and no byte is fetched twice."""
    file = put("memory://blocks/a", 2 * PART_BYTES)
    step = PART_BYTES // 16
    ahead = ReadAhead(STORAGE)
    ahead.expect(Stretch(file, start, start + step) for start in range(0, file.size_bytes, step))
    with ahead.open(file.url, file) as opened:
        for start in range(0, file.size_bytes, step):
            bytes_from(opened, max(0, start - 100), start + step + 100)
    assert sorted(watched.ranges) == [(0, PART_BYTES), (PART_BYTES, 2 * PART_BYTES)]


def test_a_reader_never_holds_more_than_its_budget(watched: type[GatedFileSystem]) -> None:
    """No more of a large file is requested than may be held, however long nothing is read."""
    file = put("memory://budget/a", 12 * PART_BYTES)
    ahead = ReadAhead(STORAGE, 4 * PART_BYTES)
    ahead.expect([Stretch(file, 0, file.size_bytes)])
    with ahead.open(file.url, file) as opened:
        for part in range(12):
            bytes_from(opened, part * PART_BYTES, (part + 1) * PART_BYTES)
            assert len(watched.ranges) <= part + 4
    assert len(watched.ranges) == 12


def test_many_small_files_are_under_way_together(watched: type[GatedFileSystem]) -> None:
    """Their number is bounded too, because each is a request."""
    files = [put(f"memory://small/{number:03}", 10 * number) for number in range(3 * REQUESTS)]
    ahead = ReadAhead(STORAGE)
    ahead.expect(Stretch(file, 0, file.size_bytes) for file in files)
    for file in files:
        with ahead.open(file.url, file) as opened:
            assert bytes_from(opened, 0, 5000) == content_of(file)


def test_files_that_are_left_out_are_given_up(watched: type[GatedFileSystem]) -> None:
    """A reader may skip what it announced, and finds what comes behind it."""
    files = [put(f"memory://skip/{number}", PART_BYTES) for number in range(6)]
    ahead = ReadAhead(STORAGE, PART_BYTES)
    ahead.expect(Stretch(file, 0, file.size_bytes) for file in files)
    with ahead.open(files[4].url, files[4]) as opened:
        assert bytes_from(opened, 5, 50) == content_of(files[4])[5:50]


def test_another_version_is_refused_when_it_is_opened(root: str, tmp_path: Path) -> None:
    """Whether the store can be asked for a version or not."""
    file = put(f"{root}/a", 100) if "://" in root else _local(tmp_path, b"x" * 100)
    ahead = ReadAhead(STORAGE)
    ahead.expect([Stretch(replace(file, size_bytes=110, etag="0" * 32 if file.etag else ""), 0, 90)])
    with pytest.raises(SourceChangedError, match=r"changed|replaced"):
        ahead.open(file.url, replace(file, size_bytes=110, etag="0" * 32 if file.etag else ""))


def test_a_missing_file_is_said_to_be_when_it_is_opened(root: str, tmp_path: Path) -> None:
    """Not only when its first byte is read."""
    file = put(f"{root}/a", 100) if "://" in root else _local(tmp_path, b"x" * 100)
    gone = replace(file, url=f"{file.url}-gone", file_id=0)
    ahead = ReadAhead(STORAGE)
    ahead.expect([Stretch(gone, 0, 100)])
    with pytest.raises(MissingError, match="cannot"):
        ahead.open(gone.url, gone)


def test_an_s3_object_needs_no_request_but_those_for_its_bytes(s3_root: str) -> None:
    """Each read names the etag, so that nothing has to be looked at before or after."""
    file = put(f"{s3_root}/a", 2 * PART_BYTES)
    ahead = ReadAhead(STORAGE)
    ahead.expect([Stretch(file, 0, file.size_bytes)])
    with ahead.open(file.url, file) as opened:
        assert opened.is_pinned
        assert bytes_from(opened, 0, file.size_bytes) == content_of(file)


def _local(directory: Path, content: bytes) -> FileStat:
    (directory / "a").write_bytes(content)
    return STORAGE.stat(str(directory / "a"))

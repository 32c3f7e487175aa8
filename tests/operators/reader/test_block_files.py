"""The open file of a task."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.storage.context import StorageContext
from dagflow.storage.files import ReadableFile
from dagflow.storage.pending import REQUESTS
from operators.files.metadata import BlockMetadata, FileVersion
from operators.reader.block_files import BlockFiles
from operators.reader.byte_source import MeasuredFile
from tests.operators.reader.test_block_reader import blocks_of
from tests.storage.shared import STORAGE
from tests.storage.test_read_ahead import GatedFileSystem, put, watched

__all__ = ["watched"]


def test_consecutive_blocks_of_a_file_use_one_stream(tmp_path: Path) -> None:
    """The file stays open until another one, or the end of the window, comes."""
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_bytes(b"aa\nbb\n")
    second.write_bytes(b"c\n")
    files = BlockFiles(StorageContext.default())
    opened = [files.open(block) for block in [*blocks_of(first, 3), *blocks_of(second, 3)]]
    assert opened[0] is opened[1]
    assert opened[1] is not opened[2]
    files.close()
    assert files.open(blocks_of(second, 3)[0]) is not opened[2]


def test_a_file_counts_the_bytes_that_are_read_from_it(tmp_path: Path) -> None:
    """What is read twice counts twice."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"aa\nbb\n")
    file = BlockFiles(StorageContext.default()).open(blocks_of(path, 6)[0])
    for offset in (0, 3, 3):
        file.read_into(offset, memoryview(bytearray(3)))
    assert file.bytes_read == 9
    file.close()


def test_what_is_prefetched_takes_the_place_of_what_was_before(watched: type[GatedFileSystem]) -> None:
    """Requests for blocks that are no longer to be read are not sent, and nothing of them is held."""
    blocks = []
    for number in range(3 * REQUESTS):
        found = put(f"memory://places/{number}", 100, number)
        version = FileVersion(found.size_bytes, found.mtime_ns, found.etag, file_id=found.file_id)
        blocks.append(BlockMetadata(number, found.url, version, 0, 100, True))
    watched.ranges.clear()
    watched.gate.clear()
    files = BlockFiles(STORAGE)
    files.prefetch(blocks[:REQUESTS])
    watched.wait_for(REQUESTS)
    files.prefetch(blocks[REQUESTS : 2 * REQUESTS])
    files.prefetch(blocks[2 * REQUESTS :])
    watched.gate.set()
    for block in blocks[2 * REQUESTS :]:
        files.open(block).read_into(0, memoryview(bytearray(100)))
    files.close()
    assert len(watched.ranges) == 2 * REQUESTS


class CountedFile(ReadableFile):
    """A file in memory that counts how often it is read."""

    size_bytes = 0

    def __init__(self, content: bytes) -> None:
        self.content, self.size_bytes, self.reads = content, len(content), 0

    def read_into(self, offset: int, buffer: memoryview) -> int:
        self.reads += 1
        piece = self.content[offset : offset + len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)


@pytest.mark.parametrize("size_bytes", [3, 700])
def test_the_first_bytes_of_a_file_are_read_once(size_bytes: int) -> None:
    """Compression, kind, encoding and marks are looked for in the same bytes, also of a file that has fewer."""
    content = bytes(number % 251 for number in range(size_bytes))
    counted = CountedFile(content)
    file = MeasuredFile(counted)
    for offset, length in ((0, 18), (0, 265), (2, 4), (0, 4)):
        buffer = bytearray(min(length, max(0, size_bytes - offset)))
        assert file.read_into(offset, memoryview(buffer)) == len(buffer)
        assert buffer == content[offset : offset + length]
    assert counted.reads == 1

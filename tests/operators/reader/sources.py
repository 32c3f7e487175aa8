"""Files in memory, and the law that every format keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from operators.metadata import BlockMetadata, FileVersion
from operators.reader.formats.base import ReaderContext
from operators.reader.rejects import BlockAccount

Records = list[tuple[int, bytes]]


class MemorySource:
    """A file's bytes, of which at most `most` are given at a time, and which notes how far it was read."""

    def __init__(self, content: bytes, most: int = 1 << 30) -> None:
        self.content = content
        self.most = most
        self.furthest = 0
        self.url = "memory.bin"

    @property
    def size_bytes(self) -> int:
        return len(self.content)

    def read_into(self, offset: int, target: memoryview) -> int:
        piece = self.content[offset : offset + min(len(target), self.most)]
        target[: len(piece)] = piece
        self.furthest = max(self.furthest, offset + len(piece))
        return len(piece)


def blocks_of(size: int, cuts: Sequence[int]) -> list[BlockMetadata]:
    """The blocks of a file of size bytes that is cut at the given places."""
    borders = [0, *cuts, size]
    version = FileVersion(size)
    return [
        BlockMetadata(index, "memory.bin", version, start, end, end == size)
        for index, (start, end) in enumerate(zip(borders, borders[1:], strict=False))
    ]


def regular_blocks(size: int, block_size: int) -> list[BlockMetadata]:
    """The blocks of a file that is cut at multiples of block_size."""
    return blocks_of(size, range(block_size, size, block_size)) if size else []


def read_blocks(
    made: ReaderContext, content: bytes, blocks: Sequence[BlockMetadata], rejects: list[bytes] | None = None
) -> Iterator[Records]:
    """The records of each block, each with its offset."""
    for block in blocks:
        source = MemorySource(content)
        listener: Callable[[bytes], object] | None = None if rejects is None else rejects.append
        account = BlockAccount("memory.bin", Counter(), listener)
        records: Records = []
        for batch in made.read(source, block, account):
            raw = made.parse(batch, account).raw
            assert raw.blocks == (block,)
            records += zip(raw.offsets().tolist(), raw.to_pylist(), strict=True)
        assert all(block.start <= offset < block.end for offset, _ in records)
        yield records


def read_all(
    made: ReaderContext, content: bytes, blocks: Sequence[BlockMetadata], rejects: list[bytes] | None = None
) -> Records:
    """The records of all blocks, in order."""
    return [record for records in read_blocks(made, content, blocks, rejects) for record in records]

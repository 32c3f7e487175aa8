"""For authors of record formats: files in memory, and the laws that every format keeps, as tests to inherit."""

from __future__ import annotations

import itertools
import json
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from dagflow.storage.file_kinds import TEXT_HEAD_BYTES, wide_encoding
from operators.files.metadata import BlockMetadata, FileVersion
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting, RecordFormat, scanned_before, with_entry_state

Records = list[tuple[int, bytes]]
"""Offset and bytes of each record."""

Rejects = list[tuple[int, int]]
"""Offset and length of each range that is refused."""

URL = "memory.bin"
MAX_RANGES = 1_000_000


class MemorySource:
    """The bytes of a file, which notes how far it was read.

    Attributes:
        furthest: Offset one past the last byte that was asked for.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.furthest = 0

    @property
    def size_bytes(self) -> int:
        """Length of the file."""
        return len(self.content)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill a buffer from an offset on."""
        piece = self.content[offset : offset + len(buffer)]
        buffer[: len(piece)] = piece
        self.furthest = max(self.furthest, offset + len(piece))
        return len(piece)


def block_of(content: bytes, start: int, end: int, entry_state: int = 0) -> BlockMetadata:
    """A block of a file with this content."""
    # A format may keep data about a version; other content of the same length is another version.
    version = FileVersion(len(content), zlib.crc32(content))
    return BlockMetadata(0, URL, version, start, end, end == len(content), -1, entry_state)


def read_range(made: RecordFormat, content: bytes, start: int, end: int) -> tuple[Records, Rejects]:
    """The records and rejects that a format reads from one block of a file."""
    source = MemorySource(content)
    return read_one(made, source, with_entry_state(made, source, block_of(content, start, end)))


def read_one(
    made: RecordFormat, source: MemorySource, block: BlockMetadata, covered: list[int] | None = None
) -> tuple[Records, Rejects]:
    """The records and rejects of a block whose entry state is known.

    Args:
        made: The format.
        source: The file.
        block: The block.
        covered: Is given how many bytes of the file the block accounts for.
    """
    refused: list[bytes] = []
    accounting = ByteAccounting(URL, Counter(), refused.append)
    records: Records = []
    for batch in made.read(source, block, accounting):
        assert len(batch) or refused, "an empty batch"
        assert batch.blocks == (block,), "a batch without its block"
        parsed = accounting.parse(made, batch)
        assert len(parsed.batch) == len(parsed.raw), "columns and records differ in number"
        _require_declared(made, parsed.columns)
        records += zip(parsed.raw.offsets().tolist(), parsed.raw.to_pylist(), strict=True)
    assert not accounting.lost, f"{accounting.lost} records were neither accepted nor refused"
    if covered is not None:
        covered.append(accounting.covered)
    rejects = sorted((facts["offset"], facts["length"]) for facts in map(json.loads, refused))
    return records, rejects


def _require_declared(made: RecordFormat, columns: Any) -> None:
    """Columns are those that an app was told before it ran, or some of them where others are not wanted."""
    if columns is None:
        return
    traits = made.traits
    assert traits.has_columns, "records have columns, and traits says they have none: set traits.with_columns(schema)"
    if traits.columns is not None:
        declared = {field.name: field.type for field in traits.columns.with_names(columns.schema.names)}
        found = {field.name: field.type for field in columns.schema}
        is_right = found == declared if made.wanted.columns is None else found.items() <= declared.items()
        assert is_right, "other columns than traits says"


def columns_of(made: RecordFormat, content: bytes, block_size: int = 1 << 20) -> tuple[list[Any], list[dict[str, Any]]]:
    """The columns of a file that is cut at multiples of block_size: each row's values by name; and its rejects."""
    rows, refused = list[Any](), list[bytes]()
    accounting = ByteAccounting(URL, Counter(), refused.append)
    for block in _blocks(lambda: made, MemorySource(content), block_size):
        for batch in made.read(MemorySource(content), block, accounting):
            parsed = accounting.parse(made, batch)
            rows += [] if parsed.columns is None else parsed.columns.to_pylist()
    return rows, [json.loads(reject) for reject in refused]


def why_refused(made: RecordFormat, content: bytes) -> str:
    """The reasons for which records of a file are refused, as a clause behind another; "" for none."""
    reasons = [reject["reason"] for reject in columns_of(made, content)[1]]
    return f"; of the whole file it refuses: {'; '.join(reasons)}" if reasons else ""


def _blocks(make: Callable[[], RecordFormat], source: MemorySource, block_size: int) -> Iterator[BlockMetadata]:
    """The blocks of a file that is cut at multiples of block_size, each pre-scanned before it is given."""
    content, state = source.content, 0
    for start in range(0, len(content), block_size):
        block = replace(block_of(content, start, min(start + block_size, len(content))), entry_state=state)
        if (scanned := scanned_before(make())) and not block.is_last:
            state = scanned.exit_state(state, scanned.prescan(source, block))
        yield block


def read_cut(made: RecordFormat, content: bytes, block_size: int) -> tuple[Records, Rejects]:
    """The records and rejects of all blocks of a file that is cut at multiples of block_size, in order."""
    source, covered = MemorySource(content), list[int]()
    parts = [read_one(made, source, block, covered) for block in _blocks(lambda: made, source, block_size)]
    assert not made.traits.adds_up or sum(covered) == len(content), f"{covered} is not all of {content!r}"
    return _joined(parts)


def read_apart(make: Callable[[], RecordFormat], content: bytes, block_size: int) -> tuple[Records, Rejects]:
    """The records and rejects of all blocks, as read_cut, where the last is read first and each by a new instance."""
    source = MemorySource(content)
    blocks = list(_blocks(make, source, block_size))
    return _joined([read_one(make(), source, block) for block in reversed(blocks)][::-1])


def _joined(parts: Sequence[tuple[Records, Rejects]]) -> tuple[Records, Rejects]:
    return list(itertools.chain(*(part[0] for part in parts))), list(itertools.chain(*(part[1] for part in parts)))


class FormatContract(ABC):
    """The laws of a format, to be inherited by a class of tests.

    A subclass says which formats, what contents are made of, and how a simple parser that goes from left
    to right reads them.

    Guarantee: a format that passes gives the same records, with the same offsets, and refuses the same
    stretches, whatever the cuts, whatever the size of the buffer, and whatever an instance has read before.
    """

    formats: ClassVar[Sequence[object]]
    """Formats to try, each as YAML gives it."""

    pieces: ClassVar[Sequence[bytes]]
    """The pieces of contents: the bytes that mean something to the format, and one that does not."""

    longest: ClassVar[int] = 5
    """Every content of up to this many pieces is tried."""

    step: ClassVar[int] = 1
    """Of the contents of most pieces one in this many is tried; no divisor of the number of pieces."""

    def is_refused(self, content: bytes) -> bool:
        """Whether a file of any bytes may be refused as a whole: most formats do not take UTF-16 and UTF-32."""
        return wide_encoding(content[:TEXT_HEAD_BYTES])[0] != ""

    @abstractmethod
    def reference(self, content: bytes, format: RecordFormat) -> tuple[Records, Rejects]:
        """The records and rejects of a file, by a simple parser that goes from left to right."""

    def _contents(self) -> Iterator[tuple[bytes, tuple[int, ...]]]:
        """Every short content, and the chunk sizes to read it with."""
        for count in range(self.longest + 1):
            # Most contents are of the longest: they are read with the chunks that cut the most.
            chunks = (1, 1 << 20) if count < self.longest else (1,)
            contents = itertools.product(self.pieces, repeat=count)
            for pieces in itertools.islice(contents, 0, None, self.step if count == self.longest else 1):
                yield b"".join(pieces), chunks

    def test_every_range_of_every_short_content_gives_what_begins_in_it(self) -> None:
        """A block gives the records whose first byte it holds, with any chunk size, whatever lies around it.

        Also in an instance that has read nothing before, as where tasks read the blocks of one file.
        """
        ranges = sum(len(content) ** 2 // 2 for content, _ in self._contents())
        assert ranges < MAX_RANGES, f"{ranges:,} ranges of contents take hours: lower longest, or shorten the pieces"
        for spec in self.formats:
            made = RECORD_FORMATS.make(spec)
            for content, chunks in self._contents():
                records, rejects = self.reference(content, made)
                for chunk_bytes in chunks:
                    made.chunk_bytes = chunk_bytes
                    for start, end in itertools.combinations(range(len(content) + 1), 2):
                        expected = (
                            [record for record in records if start <= record[0] < end],
                            [reject for reject in rejects if start <= reject[0] < end],
                        )
                        found = read_range(made, content, start, end)
                        assert found == expected, (
                            f"{spec} {content!r} [{start}, {end}) in chunks of {chunk_bytes}"
                            f"{why_refused(made, content)}"
                        )
                        # Of the shorter contents the longest ranges, so that it takes little time.
                        if start and end == len(content) and chunk_bytes > 1:
                            found = read_range(_new(spec, chunk_bytes), content, start, end)
                            assert found == expected, f"{spec} {content!r} [{start}, {end}) in an instance of its own"

    def test_a_file_that_was_appended_to_is_gone_on_with(self) -> None:
        """The records before the complete end and those behind it are together all records, whatever was appended."""
        for spec in self.formats:
            made = RECORD_FORMATS.make(spec)
            for pieces in itertools.product(self.pieces, repeat=self.longest - 1):
                content = b"".join(pieces)
                expected = self.reference(content, made)
                if (0, len(content)) in expected[1]:
                    continue  # a file that is refused as a whole has no offset to continue from
                for length in range(len(content)):
                    end = made.complete_end(MemorySource(content[:length]))
                    if end is None:
                        continue
                    assert 0 <= end <= length, f"{spec} {content[:length]!r} has its complete end at {end}"
                    before = read_range(made, content[:end], 0, end) if end else ([], [])
                    behind = read_range(made, content, end, len(content))
                    found = before[0] + behind[0], before[1] + behind[1]
                    assert found == expected, f"{spec} {content!r} was read to {end} when it had {length} bytes"

    def test_the_blocks_of_any_file_give_its_records(self) -> None:
        """Whatever the content, the block size and the chunk size, the blocks together give the file's records."""
        # Optional: a dependency of tests.
        from hypothesis import given, settings
        from hypothesis import strategies as st

        noise = st.sampled_from(self.pieces) | st.binary(max_size=4)
        contents = st.lists(noise, max_size=60).map(b"".join).filter(lambda content: not self.is_refused(content))

        @settings(deadline=None)
        @given(st.sampled_from(self.formats), contents, st.integers(1, 40), st.integers(1, 20))
        def check(spec: object, content: bytes, block_size: int, chunk_bytes: int) -> None:
            made = _new(spec, chunk_bytes)
            expected = self.reference(content, made)
            assert read_cut(made, content, block_size) == expected, f"{content!r}{why_refused(made, content)}"
            # Types that no option declares are those of the records that are read first.
            if made.traits.has_columns and made.traits.columns is not None:
                found, whole = (repr(columns_of(made, content, size)[0]) for size in (block_size, 1 << 20))
                assert found == whole, "the columns of a record depend on where the file is cut"
            if content:
                apart = read_apart(lambda: _new(spec, chunk_bytes), content, block_size)
                assert apart == expected, "with an instance of its own for each block, of which the last is read first"

        check()


def _new(spec: object, chunk_bytes: int) -> RecordFormat:
    made = RECORD_FORMATS.make(spec)
    made.chunk_bytes = chunk_bytes
    return made

"""For authors of formats: files in memory, and the laws that every format keeps, as tests to inherit."""

from __future__ import annotations

import gc
import itertools
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import Buffer

from dagflow.api.context import OperatorContext
from dagflow.api.records import RecordBatch
from operators.files.metadata import BlockMetadata, FileVersion
from operators.reader.byte_accounting import BlockAccounting
from operators.reader.formats import make_format
from operators.reader.formats.base import RecordFormat, with_entry_state
from operators.sink.file_sink import FileSink
from operators.sink.formats import SINK_FORMATS
from operators.sink.formats.base import SinkFormat

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Records = list[tuple[int, bytes]]
"""Offset and bytes of each record."""

Rejects = list[tuple[int, int]]
"""Offset and length of each stretch that is refused."""

URL = "memory.bin"


class MemorySource:
    """The bytes of a file, which notes how far it was read.

    Attributes:
        furthest: One past the last byte that was asked for.
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
    return BlockMetadata(0, URL, FileVersion(len(content)), start, end, end == len(content), -1, entry_state)


def read_range(made: RecordFormat, content: bytes, start: int, end: int) -> tuple[Records, Rejects]:
    """What a format reads of one block of a file: its records, and what it refuses."""
    source = MemorySource(content)
    return read_one(made, source, with_entry_state(made, source, block_of(content, start, end)))


def read_one(
    made: RecordFormat, source: MemorySource, block: BlockMetadata, covered: list[int] | None = None
) -> tuple[Records, Rejects]:
    """What a format reads of a block whose entry state is known.

    Args:
        made: The format.
        source: The file.
        block: The block.
        covered: Is given how many bytes of the file the block accounts for.
    """
    told: list[bytes] = []
    accounting = BlockAccounting(URL, Counter(), told.append)
    records: Records = []
    for batch in made.read(source, block, accounting):
        assert len(batch), "an empty batch"
        assert batch.blocks == (block,), "a batch without its block"
        parsed = accounting.parse(made, batch)
        assert len(parsed.batch) == len(parsed.raw), "columns and records differ in number"
        records += zip(parsed.raw.offsets().tolist(), parsed.raw.to_pylist(), strict=True)
    assert not accounting.lost, f"{accounting.lost} records were neither accepted nor refused"
    if covered is not None:
        covered.append(accounting.covered)
    rejects = sorted((facts["offset"], facts["length"]) for facts in map(json.loads, told))
    return records, rejects


def read_cut(made: RecordFormat, content: bytes, block_size: int) -> tuple[Records, Rejects]:
    """What a format reads of all blocks of a file that is cut at multiples of block_size, in order."""
    records: Records = []
    rejects: Rejects = []
    source = MemorySource(content)
    covered: list[int] = []
    state = 0
    for start in range(0, len(content), block_size):
        block = replace(block_of(content, start, min(start + block_size, len(content))), entry_state=state)
        if made.needs_prescan and not block.is_last:
            state = made.exit_state(state, made.prescan(source, block))
        found = read_one(made, source, block, covered)
        records += found[0]
        rejects += found[1]
    assert not made.adds_up or sum(covered) == len(content), f"{covered} is not all of {content!r}"
    return records, rejects


class FormatContract(ABC):
    """The laws of a format, to be inherited by a class of tests.

    A subclass says which formats, what contents are made of, and how a simple parser that goes from left
    to right reads them.

    Guarantee: a format that passes gives the same records, with the same offsets, and refuses the same
    stretches, whatever the cuts and whatever the size of the buffer.
    """

    formats: ClassVar[Sequence[object]]
    """Formats to try, each as YAML gives it."""

    pieces: ClassVar[Sequence[bytes]]
    """What contents are put together from: the bytes that mean something to the format, and one that does not."""

    longest: ClassVar[int] = 5
    """Every content of so many pieces, and fewer, is tried."""

    @abstractmethod
    def reference(self, content: bytes, format: RecordFormat) -> tuple[Records, Rejects]:
        """What a file holds, by a simple parser that goes from left to right."""

    def _contents(self) -> Iterator[bytes]:
        for count in range(self.longest + 1):
            yield from map(b"".join, itertools.product(self.pieces, repeat=count))

    def test_every_range_of_every_short_content_gives_what_begins_in_it(self) -> None:
        """A block gives the records whose first byte it holds, with any chunk size, whatever lies around it."""
        for spec in self.formats:
            made = make_format(spec)
            for content in self._contents():
                records, rejects = self.reference(content, made)
                for chunk_bytes in (1, 1 << 20):
                    made.chunk_bytes = chunk_bytes
                    for start, end in itertools.combinations(range(len(content) + 1), 2):
                        expected = (
                            [record for record in records if start <= record[0] < end],
                            [reject for reject in rejects if start <= reject[0] < end],
                        )
                        found = read_range(made, content, start, end)
                        assert found == expected, f"{spec} {content!r} [{start}, {end}) in chunks of {chunk_bytes}"

    def test_the_blocks_of_any_file_give_its_records(self) -> None:
        """Whatever the content, the block size and the chunk size, the blocks together give the file's records."""
        # Optional: a dependency of tests.
        from hypothesis import given, settings
        from hypothesis import strategies as st

        noise = st.sampled_from(self.pieces) | st.binary(max_size=4)
        contents = st.lists(noise, max_size=60).map(b"".join)

        @settings(deadline=None)
        @given(st.sampled_from(self.formats), contents, st.integers(1, 40), st.integers(1, 20))
        def check(spec: object, content: bytes, block_size: int, chunk_bytes: int) -> None:
            made = make_format(spec)
            made.chunk_bytes = chunk_bytes
            assert read_cut(made, content, block_size) == self.reference(content, made)

        check()


class MemoryFiles:
    """Output files in memory: where an operator or a sink opens files in a test.

    Attributes:
        contents: The files that were closed, by name.
        written_bytes: Bytes written so far, also into files that were never closed.
    """

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.written_bytes = 0

    def open(self, url: str) -> MemoryFile:
        """Begin a file.

        Raises:
            AssertionError: There is one of that name.
        """
        assert url not in self.contents, f"{url} was written twice"
        return MemoryFile(self, url)


class MemoryFile:
    """A file of MemoryFiles that is being written."""

    def __init__(self, files: MemoryFiles, url: str) -> None:
        self._files = files
        self._url = url
        self._data = bytearray()

    def write(self, data: Buffer) -> None:
        """Append bytes."""
        self._data += memoryview(data).cast("B")
        self._files.written_bytes += memoryview(data).nbytes

    def close(self, *, records: int) -> None:
        """End the file."""
        self._files.contents[self._url.rpartition("/")[2]] = bytes(self._data)


class SinkContract(ABC):
    """The laws of an output format, to be inherited by a class of tests.

    A subclass says which formats, what batches they are tried with, and how a file is read back.

    Guarantee: a format that passes loses no record and keeps their order, whatever the batches, windows and sizes
    of files; writes the same bytes again; ends files near their size; and leaves nothing when a task fails.
    """

    formats: ClassVar[Sequence[object]]
    """Formats to try, each as YAML gives it."""

    max_bytes: ClassVar[int] = 256 << 10
    """The size that files should have in the test of sizes."""

    tolerance: ClassVar[float] = 0.15
    """How far a file's size may be from max_bytes, as a share of it."""

    @abstractmethod
    def batches(self) -> SearchStrategy[RecordBatch]:
        """Batches of any records that the format holds, all of one schema; some of them empty."""

    @abstractmethod
    def many_records(self) -> RecordBatch:
        """A batch that makes several files of max_bytes."""

    @abstractmethod
    def read_back(self, content: bytes, format: SinkFormat) -> list[Any]:
        """The records of one file, by something else than the format itself."""

    def expected(self, batch: RecordBatch, format: SinkFormat) -> list[Any]:
        """The records of a batch, as read_back gives them."""
        return batch.to_pylist()

    def _written(self, format: SinkFormat, windows: Sequence[Sequence[RecordBatch]], max_bytes: int) -> MemoryFiles:
        files = MemoryFiles()
        sink = FileSink(OperatorContext(outputs=files), "out", max_bytes=max_bytes)
        for window_id, batches in enumerate(windows, 1):
            sink.begin_window(window_id)
            for batch in batches:
                if len(batch):
                    sink.write(batch, format)
            sink.end_window()
        return files

    def test_any_records_are_read_back_from_any_files(self) -> None:
        """All of them, in order, whatever the batches, the windows and the size of files; twice the same bytes."""
        # Optional: a dependency of tests.
        from hypothesis import given, settings
        from hypothesis import strategies as st

        windows = st.lists(st.lists(self.batches(), max_size=4), min_size=1, max_size=3)

        @settings(deadline=None)
        @given(st.sampled_from(self.formats), windows, st.integers(1, 2000))
        def check(spec: object, windows: list[list[RecordBatch]], max_bytes: int) -> None:
            format = SINK_FORMATS.make(spec)
            files = self._written(format, windows, max_bytes).contents
            expected = [record for batches in windows for batch in batches for record in self.expected(batch, format)]
            found = [self.read_back(files[name], format) for name in sorted(files)]
            assert list(itertools.chain.from_iterable(found)) == expected
            assert all(found), "a file without records"
            assert all(name.endswith(format.extension) for name in files)
            assert self._written(SINK_FORMATS.make(spec), windows, max_bytes).contents == files, "other bytes"

        check()

    def test_a_file_without_records_is_a_file_of_its_format(self) -> None:
        """It is there where a file is asked for by name, as for a block of which a filter left nothing."""
        for spec in self.formats:
            format = SINK_FORMATS.make(spec)
            files = MemoryFiles()
            sink = FileSink(OperatorContext(outputs=files), "out")
            sink.begin_window(1)
            batch = self.many_records()
            sink.write_named(RecordBatch(batch.to_arrow().slice(0, 0)), format, "empty")
            sink.end_window()
            assert {name: self.read_back(data, format) for name, data in files.contents.items()} == {
                f"empty{format.for_batch(batch).extension}": []
            }

    def test_files_end_near_their_size(self) -> None:
        """On disk, compressed or not; the last file of a window is as large as what is left."""
        batch = self.many_records()
        rows = batch.to_arrow()
        for spec in self.formats:
            # A thousand records at a time, as a reader gives them.
            parts = [RecordBatch(rows.slice(start, 1000)) for start in range(0, len(batch), 1000)]
            sizes = [
                len(data)
                for _, data in sorted(self._written(SINK_FORMATS.make(spec), [parts], self.max_bytes).contents.items())
            ]
            assert len(sizes) > 1, f"{spec}: many_records makes one file of {sizes[0]} bytes"
            assert max(sizes) <= self.max_bytes * (1 + self.tolerance), f"{spec}: {sizes}"
            assert min(sizes[:-1]) >= self.max_bytes * (1 - self.tolerance), f"{spec}: {sizes}"

    def test_a_task_that_fails_leaves_nothing(self) -> None:
        """Files that were not ended are not there, and nothing is written into them when the sink is forgotten."""
        for spec in self.formats:
            files = MemoryFiles()
            sink: FileSink | None = FileSink(OperatorContext(outputs=files), "out")
            assert sink is not None
            sink.begin_window(1)
            sink.write(self.many_records(), SINK_FORMATS.make(spec))
            before = files.written_bytes
            sink = None
            gc.collect()
            assert (files.contents, files.written_bytes) == ({}, before), f"{spec}"

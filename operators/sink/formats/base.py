"""The base class of output formats, to extend for a format of your own."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from typing_extensions import Buffer

from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.context import OutputFiles
from dagflow.api.properties import HasProperties
from dagflow.api.records import RecordBatch
from dagflow.api.sources import FileSources
from dagflow.storage.pending import FileFacts


class FileStream:
    """The bytes of one output file, in order.

    Args:
        files: Where files are opened.
        url: Where the file will be published.

    Attributes:
        url: Where the file will be published.
        size_bytes: Bytes written so far.
        facts: Facts about the file for a transactional target; set by its encoder, or else by SinkFormat.facts.
    """

    def __init__(self, files: OutputFiles, url: str) -> None:
        self._files = files
        self.url = url
        self._file = files.open(url)
        self._companions: list[tuple[str, bytes]] = []
        self.size_bytes = 0
        self.facts: FileFacts | None = None

    def write(self, data: Buffer) -> None:
        """Append bytes.

        Raises:
            StorageError: The store refused them.
        """
        self._file.write(data)
        self.size_bytes += memoryview(data).nbytes

    def add_companion(self, suffix: str, data: bytes) -> None:
        """Add a second file, such as an index, whose name is that of this one with a suffix."""
        self._companions.append((suffix, data))

    def close(self, *, records: int, sources: FileSources | None = None) -> None:
        """Hand the file to the window's commit, and then its companions: an index never precedes its file."""
        self._file.close(records=records, sources=sources, facts=self.facts)
        for suffix, data in self._companions:
            companion = self._files.open(self.url + suffix)
            companion.write(data)
            companion.close(records=records, sources=sources)


class ArrowFile(io.RawIOBase):
    """An output file as pyarrow writes to it; closing it leaves the stream to its owner."""

    def __init__(self, stream: FileStream) -> None:
        self._stream = stream

    def write(self, data: Buffer) -> int:
        """Append bytes; nothing happens once the file is closed."""
        if not self.closed:
            self._stream.write(data)
        return memoryview(data).nbytes

    def tell(self) -> int:
        return self._stream.size_bytes

    def writable(self) -> bool:
        return True


class FileEncoder(ABC):
    """Writes the rows of one file.

    Guarantee: rows are in the file in the order in which they were written; equal rows give equal bytes.
    """

    @abstractmethod
    def write(self, rows: Any) -> int:
        """Append rows until there are no more, or the file is as large as it should be.

        Args:
            rows: A part of what SinkFormat.rows_of gave, at least one row.

        Returns:
            How many rows were taken, from the first on: fewer than there are ends the file, 0 included. A file that
            has none takes at least one.
        """

    def note_blocks(self, ids: Sequence[int], counts: Sequence[int]) -> None:  # noqa: B027  # optional
        """Called before finish, if it is known: the blocks of all rows, in order, and how many rows are of each."""

    def finish(self) -> None:  # noqa: B027  # optional
        """Write what is still held and what ends the file; called once, and not at all where a task fails."""


class SinkFormat(HasProperties, ABC):
    """An output format: says how records become the bytes of files.

    A subclass declares its options as annotated class attributes, as an operator does its properties, and writes
    extension and start; formats/text_format.py has a base class for formats that write one record behind the other.

    Guarantee: the same batches give the same bytes, on every machine, so that a window can be run again.
    """

    name: ClassVar[str] = ""
    """What the format is called in YAML; "" for a base class."""

    @property
    @abstractmethod
    def extension(self) -> str:
        """Suffix of the names of files, such as ".csv"."""

    def check_columns(self, arriving: StreamColumns) -> None:
        """Called when an app is planned, where the columns of the records are known; takes all of them by default.

        Args:
            arriving: The columns that will arrive at the writer.

        Raises:
            ValueError: The format would refuse each record that has such columns.
        """

    def for_batch(self, batch: RecordBatch) -> SinkFormat:
        """The format that writes a batch; itself but for formats that choose another one."""
        return self

    def held(self, batch: RecordBatch) -> RecordBatch:
        """Records as a file can hold them: values under names that it cannot hold are in the column `_rescued`."""
        return batch

    def layout_of(self, batch: RecordBatch) -> Any:
        """Properties that all records of a file share, such as the names of their columns; None for none."""
        return None

    def fits(self, batch: RecordBatch, layout: Any) -> bool:
        """Whether the records of a batch may be in a file that began with records of a layout."""
        return bool(self.layout_of(batch) == layout)

    def rows_of(self, batch: RecordBatch) -> Iterator[Any]:
        """The rows of a batch for files: Arrow arrays or record batches, one element per record, in order.

        Raises:
            ValueError: The format cannot hold such records.
        """
        yield batch.to_arrow()

    def facts(self, layout: Any) -> FileFacts | None:
        """The facts about a file of a layout, asked for when it ends; None where its name makes it visible."""
        return None

    @abstractmethod
    def start(self, stream: FileStream, batch: RecordBatch, max_bytes: int | None) -> FileEncoder:
        """Begin a file.

        Args:
            stream: Takes its bytes.
            batch: The first batch to write rows of; it may be empty.
            max_bytes: The size that the file should have; None for no limit.
        """


_LAST_SHARE = 0.25
"""A chunk is sized to fill a file only if at most this share of the file is left: then the estimate is more precise."""

_FULL_SHARE = 0.04
"""A file with no more than this share of its size left is full."""


class ChunkedEncoder(FileEncoder):
    """Holds rows until there are enough for a chunk, and writes them together, compressed.

    How much a chunk takes up on disk is estimated from the chunks before it, so that the file ends near its size.

    Args:
        stream: Takes the bytes of the file.
        chunk_bytes: Bytes of rows in a chunk at most, as they are in memory.
        max_bytes: The size that the file should have; None for no limit.
    """

    def __init__(self, stream: FileStream, chunk_bytes: int, max_bytes: int | None) -> None:
        self.stream = stream
        self._chunk_bytes = chunk_bytes
        self._max_bytes = max_bytes
        self._held: list[Any] = []
        self._held_bytes = 0
        self._written_bytes = 0
        self._limit = chunk_bytes if max_bytes is None else max(1, min(chunk_bytes, max_bytes // 2))

    @abstractmethod
    def measure(self, rows: Any, room: int) -> tuple[int, int]:
        """How many rows are needed to fill some room, at least one, and how many bytes they have in memory."""

    @abstractmethod
    def write_chunk(self, held: list[Any]) -> None:
        """Write the rows that are held, as one chunk."""

    def end_bytes(self) -> int:
        """Bytes that finish will add to the file, beyond those of the rows."""
        return 0

    def write(self, rows: Any) -> int:
        taken = 0
        while taken < len(rows) and self._limit:
            rest = rows.slice(taken)
            count, size_bytes = self.measure(rest, self._limit - self._held_bytes)
            self._held.append(rest.slice(0, count))
            self._held_bytes += size_bytes
            taken += count
            if self._held_bytes >= self._limit:
                self._flush()
                self._limit = self._next_limit()
        return taken

    def _flush(self) -> None:
        self._written_bytes += self._held_bytes
        self.write_chunk(self._held)
        self._held, self._held_bytes = [], 0

    def _next_limit(self) -> int:
        """Bytes of rows that the next chunk takes; 0 if the file is full."""
        if self._max_bytes is None:
            return self._chunk_bytes
        left = self._max_bytes - self.stream.size_bytes - self.end_bytes()
        if left <= self._max_bytes * _FULL_SHARE:
            return 0
        aim = left if left <= self._max_bytes * _LAST_SHARE else left * (1 - _LAST_SHARE)
        return max(1, min(self._chunk_bytes, int(aim * self._written_bytes / self.stream.size_bytes)))

    def finish(self) -> None:
        """Write the last chunk; a file without rows has one, too."""
        if self._held or not self._written_bytes:
            self._flush()

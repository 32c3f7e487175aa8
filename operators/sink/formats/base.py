"""The base class of output formats, to extend for a format of your own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from typing_extensions import Buffer

from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.context import OutputFiles
from dagflow.api.properties import HasProperties
from dagflow.api.records import RecordBatch
from dagflow.api.sources import FileSources
from dagflow.storage.file_facts import FileFacts


class FileStream:
    """The bytes of one output file, in order.

    Args:
        files: Where files are opened.
        url: Where the file will be published.

    Attributes:
        size_bytes: Bytes written so far.
        facts: Facts about the file for a transactional target; set by its encoder before it is closed.
    """

    def __init__(self, files: OutputFiles, url: str) -> None:
        self._files = files
        self._url = url
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
            companion = self._files.open(self._url + suffix)
            companion.write(data)
            companion.close(records=records, sources=sources)


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

    def finish(self) -> None:  # noqa: B027  # optional
        """Write what is still held and what ends the file; called once, and not at all where a task fails."""


class SinkFormat(HasProperties, ABC):
    """An output format: says how records become the bytes of files.

    A subclass declares its options as annotated class attributes, as an operator does its properties, and writes
    extension and start; formats/text_format.py has a base class for formats that write one record behind the other.

    Guarantee: the same batches give the same bytes, on every machine, so that a window can be run again.
    """

    renamed_methods: ClassVar[Mapping[str, str]] = {"check_options": "check_properties"}

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

    @abstractmethod
    def start(self, stream: FileStream, batch: RecordBatch, max_bytes: int | None) -> FileEncoder:
        """Begin a file.

        Args:
            stream: Takes its bytes.
            batch: The first batch to write rows of; it may be empty.
            max_bytes: The size that the file should have; None for no limit.
        """

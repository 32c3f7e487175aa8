"""The base class of record formats, to extend for a format of your own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.properties import HasProperties
from dagflow.api.records import RecordBatch
from dagflow.errors import RecordError
from operators.files.metadata import BlockMetadata
from operators.reader.byte_source import ByteSource
from operators.reader.scanning.multi_file import MultiFileReader

CHUNK_BYTES = 1 << 20
"""Bytes that are read at a time: a chunk stays in the second-level cache from the read to the write."""

BATCH_RECORDS = 1 << 16
"""Records in a batch, at most: those of a chunk may be empty, and each takes memory."""

SHOWN_BYTES = 4 << 10
"""Bytes that are kept with a reject that may be the whole rest of a file."""


HOLE = "hole"
"""The reason for which NULs at which a record would begin are skipped: there, a file has lost bytes."""


class HeaderError(RecordError):
    """The head of a file does not fit its format, or its path the app, so that no block of it can be read."""


class Rejects(Protocol):
    """Receives the bytes that a format refuses."""

    def reject(self, offset: int, length: int, reason: str, raw: bytes) -> None:
        """Refuse a range of bytes that should be a record.

        Args:
            offset: Offset of its first byte in the file.
            length: How many bytes it has.
            reason: Why, as a lower-case clause.
            raw: Its bytes, or as many of its first bytes as are at hand.

        Raises:
            RecordError: The reader's port for rejects is not connected.
        """

    def reject_all(self, offsets: Sequence[int], raws: Sequence[bytes], reasons: Sequence[str]) -> None:
        """Refuse whole records, as reject does each: at once, because there may be millions."""


class ByteAccounting(Rejects, Protocol):
    """Receives the bytes of a format that are in no record."""

    def require_rejects(self, error: RecordError) -> None:
        """Raise an error of a whole file, unless the reader's port for rejects is connected.

        A format calls it for every block of the file, before it gives any records of it. Then the reader leaves the
        file out where the app says so, and otherwise the run ends.
        """

    def skip(self, offset: int, length: int, reason: str) -> None:
        """Skip bytes that are not meant to be records, such as a header."""

    def skip_records(self, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], reason: str) -> None:
        """Skip records of a batch, such as blank lines, all at once; their delimiters were counted with the batch."""

    def mark_left_out(self) -> None:
        """Report that the file is in no output, so that it must not be removed as read; called after its bytes."""

    def count_delimiters(self, length: int) -> None:
        """Count bytes that belong to records and are not in their batch, such as the length before a record."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """The result of parsing raw records.

    Attributes:
        raw: The records that were accepted.
        columns: Their columns, one row per record, as a pyarrow.RecordBatch; None for a format without columns.
    """

    raw: RecordBatch
    columns: Any = None

    @property
    def batch(self) -> RecordBatch:
        """The batch that the reader emits."""
        return self.raw if self.columns is None else self.raw.with_columns(self.columns)


class RecordFormat(HasProperties, ABC):
    """A record format: says where the records of a file begin and end.

    A subclass declares its options as annotated class attributes, as an operator does its properties, gives itself a
    name, and writes `read`. It declares further capabilities: `needs_prescan`, `needs_size`, `complete_end`,
    `multi_file_reader`, `parse`. An instance reads many blocks one after the other. It may keep data that speeds up the
    next block of the same file, but never anything that changes the records of a block.

    Guarantee: a record belongs to the block that holds its first byte. Whatever the cuts, the records
    of a file's blocks, in order, are the records of the file; each block is read for itself, without
    the help of any other.
    """

    renamed_methods: ClassVar[Mapping[str, str]] = {"check_options": "check_properties"}

    name: ClassVar[str] = ""
    """What the format is called in YAML; "" for a base class."""

    needs_size: ClassVar[bool] = True
    """Whether `read` must know the size of the file before it has seen its end; a compressed file is then
    decompressed as a whole before any of it is read."""

    is_text: ClassVar[bool] = False
    """Whether content is text, so that a file that is known to be something else is refused."""

    needs_order: ClassVar[bool] = False
    """Whether a block is read best behind the one before it, so that a compressed file is read by one task."""

    # Without an annotation, so that it is no option: a format may need one only with some options.
    needs_prescan = False
    """Whether a pre-scan must look at every block but a file's last one, because the state in which later blocks
    begin depends on it; see `prescan`."""

    @property
    def has_columns(self) -> bool:
        """Whether records have columns, so that others can be added; otherwise they are bytes."""
        return False

    def declared_columns(self) -> StreamColumns | None:
        """The columns of records, as far as the options declare them; None where that is not known.

        The default is the one column of raw records, if the format does not define parse.
        """
        return StreamColumns.raw() if type(self).parse is RecordFormat.parse else None

    # Without an annotation, so that it is no option: only tests change it.
    chunk_bytes = CHUNK_BYTES
    """About how many bytes are read at a time; the records of a block do not depend on it."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # A subclass may read differently from its base class, so it declares a multi-file reader itself or has none.
        if "multi_file_reader" not in vars(cls):
            cls.multi_file_reader = RecordFormat.multi_file_reader  # type: ignore[method-assign]  # not inherited

    @abstractmethod
    def read(self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting) -> Iterator[RecordBatch]:
        """The records that begin in a block.

        Args:
            source: The file's bytes; may be read beyond the block, to the end of its last record.
            block: The block.
            accounting: Takes in rejects and skipped bytes. Bytes of a record, or beside one, belong to the block that
                holds its first byte; all others to the block that they are in.

        Yields:
            Raw batches in file order, with origin; empty ones only behind refused records. A framed batch (see
            framing.py) holds its delimiters as they are in the file.

        Raises:
            RecordError: The bytes do not fit the format, and rejects are not accepted.
            StorageError: The source failed.
        """

    @property
    def adds_up(self) -> bool:
        """Whether each byte of a file is in exactly one record, or beside one; a run checks this."""
        return True

    def prescan(self, source: ByteSource, block: BlockMetadata) -> Any:
        """Look at a block before it is read, without knowing the state in which it begins.

        Returns:
            Something small and picklable, for exit_state.
        """
        return None

    def exit_state(self, entry_state: int, result: Any) -> int:
        """The state behind a block, in which the next one begins.

        Args:
            entry_state: The state in which the block begins; 0 at the beginning of a file.
            result: The result of prescan for it.
        """
        return 0

    def entry_state(self, source: ByteSource, block: BlockMetadata) -> int:
        """The state in which a block begins, if the blocks before it have not been pre-scanned.

        The default pre-scans all bytes before the block; a format that needs fewer reads fewer.
        """
        before = replace(block, start=0, end=block.start, is_last=False)
        return self.exit_state(0, self.prescan(source, before))

    @property
    def needs_decision(self) -> bool:
        """Whether the first file that has records decides how all files are read, such as the types of columns."""
        return False

    def decision(self, batches: Iterable[RecordBatch]) -> dict[str, Any] | None:
        """The decision of a file from its raw records; None if it has no records, so that another file decides.

        Args:
            batches: The records of the file from its beginning on, as read gives them; need not be taken to the end.

        Returns:
            A value that can be written as JSON: it is journaled.
        """
        return None

    def decide(self, decision: dict[str, Any] | None) -> None:
        """Apply the decision to all files; called before parse, in each task."""

    def complete_end(self, source: ByteSource) -> int | None:
        """The end of the complete records of a file that may grow.

        Whatever is appended, a record begins there or the file ends there, and the records before it stay as
        they are. Reading resumes there after an append. A class that does not define the method cannot read on in a
        file that was appended to, and a run that meets one fails.

        Args:
            source: The file as it is.

        Returns:
            An offset up to the file's length; None if there is none: then a longer file is read as a new one, from its
            beginning, and gives no records until it is complete.

        Raises:
            StorageError: The source failed.
        """
        return None

    @property
    def has_complete_end(self) -> bool:
        """Whether the class defines complete_end."""
        return type(self).complete_end is not RecordFormat.complete_end

    def multi_file_reader(self) -> MultiFileReader | None:
        """Reads many small files at once; None, the default, where each file is read for itself. Not inherited."""
        return None

    def parse(self, batch: RecordBatch, accounting: ByteAccounting) -> Parsed:
        """Check the raw records of a batch from read, and make columns of them.

        The default accepts every record as it is.

        Raises:
            RecordError: A record does not fit the format, and rejects are not accepted.
        """
        return Parsed(batch)


class NullAccounting:
    """Accepts and forgets rejects and skips of bytes that are only examined."""

    def reject(self, offset: int, length: int, reason: str, raw: bytes) -> None:
        """See Rejects."""

    def reject_all(self, offsets: Sequence[int], raws: Sequence[bytes], reasons: Sequence[str]) -> None:
        """See Rejects."""

    def require_rejects(self, error: RecordError) -> None:
        """See ByteAccounting."""

    def skip(self, offset: int, length: int, reason: str) -> None:
        """See ByteAccounting."""

    def skip_records(self, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], reason: str) -> None:
        """See ByteAccounting."""

    def mark_left_out(self) -> None:
        """See ByteAccounting."""

    def count_delimiters(self, length: int) -> None:
        """See ByteAccounting."""


UNKNOWN_STATE = -1
"""The entry state of a block if the bytes before it have not been scanned, or could not be."""


def with_entry_state(format: RecordFormat, source: ByteSource, block: BlockMetadata) -> BlockMetadata:
    """The block with the state in which it begins, found without a pre-scan of the blocks before it."""
    if block.start == 0 or not format.needs_prescan:
        return block
    return replace(block, entry_state=format.entry_state(source, block))

"""The base class of record formats, to extend for a format of your own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from dagflow.api.capabilities import WantedRows
from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.properties import HasProperties
from dagflow.api.records import RecordBatch
from dagflow.api.refused_records import TAKE_REJECTS, Reject, cut_reasons, encoded
from dagflow.errors import RecordError
from dagflow.frozen import frozen
from dagflow.metrics.names import DELIMITER_BYTES, HOLE_BYTES, RECORD_BYTES, REJECTED_BYTES, SKIPPED_BYTES
from operators.files.metadata import BlockMetadata
from operators.reader.byte_source import BufferedFiles, ByteSource, read_exactly, size_read_from
from operators.record_refusing import not_taken

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


RejectListener = Callable[[bytes], object]

RefusedListener = Callable[[Sequence[int], Sequence[int], Sequence[str], Sequence[bytes]], None]
"""Records offsets, lengths, reasons and bytes of refused records."""


def _forget(reject: bytes) -> None:
    pass


class ByteAccounting:
    """Counts the bytes of a block by what a format makes of them, and passes on rejects.

    By default it forgets rejects, for bytes that are only examined.

    Args:
        url: The file.
        counters: Where bytes are counted.
        listener: Takes in one JSON object in UTF-8 per reject; None where a reject is an error.
        log: Records where rejects are; None for none.

    Attributes:
        due: Bytes that the block must account for.
        covered: Bytes that were found to be in records, delimiters, rejects or skips. Over the blocks of a file they
            are as many as those due.
        waiting_bytes: Bytes at the end of a file that were left for a later version: its last record is in progress.
        lost: Records that were read, and neither accepted nor refused nor skipped; 0 for a correct format.
        is_left_out: Whether the file's content is in no output.
        read_until: Offset in the file's content up to which it was read.
        complete_until: The same, without a record at the end that waits.
        has_grown: Whether a record was found to continue beyond the file's planned end.
        is_begun: Whether the file's content goes at least as far as it was read before, under another name.
        is_decompressed: Whether offsets are those in the decompressed content.
        owned_bytes: Bytes of the file, as it is stored, whose records belong to the block.
    """

    def __init__(
        self,
        url: str = "",
        counters: Counter[str] | None = None,
        listener: RejectListener | None = _forget,
        log: RefusedListener | None = None,
    ) -> None:
        self.url = url
        self.counters = Counter[str]() if counters is None else counters
        self.listener = listener
        self._log = log
        self.due = self.covered = self.waiting_bytes = self.lost = self.owned_bytes = 0
        self.read_until = self.complete_until = 0
        self._aside = 0
        self.is_left_out = self.has_grown = self.is_decompressed = False
        self.is_begun = True

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
        self.reject_ranges([offset], [length], [reason], [raw])

    def reject_all(self, offsets: Sequence[int], raws: Sequence[bytes], reasons: Sequence[str]) -> None:
        """Refuse whole records, as reject does each: at once, because there may be millions."""
        self.reject_ranges(offsets, [*map(len, raws)], reasons, raws)

    def reject_ranges(
        self, offsets: Sequence[int], lengths: Sequence[int], reasons: Sequence[str], raws: Sequence[bytes]
    ) -> None:
        """Refuse ranges of bytes at once, as reject does each; the one method that a subclass overrides."""
        if self.listener is None:
            first = Reject(self.url, offsets[0], lengths[0], reasons[0], raws[0])
            raise not_taken(first)
        total = sum(lengths)
        self.covered += total
        self._aside += len(offsets)
        self.counters[REJECTED_BYTES] += total
        reasons = cut_reasons(reasons)
        if self._log is not None:
            self._log(offsets, lengths, reasons, raws)
        for reject in encoded(self.url, offsets, lengths, reasons, raws):
            self.listener(reject)

    def refuse_file(
        self, source: ByteSource, block: BlockMetadata, reason: str, remedy: str = "", start: int = 0
    ) -> None:
        """Refuse a file as one reject; called for every block of it, before any of its records.

        Args:
            source: The file.
            block: The block that is read; the one that holds the start takes in the reject.
            reason: Why.
            remedy: What else to do, as a clause that begins with `; or`; "" where the reason says it.
            start: Where the reject begins; bytes before it are skipped.

        Raises:
            HeaderError: The reader's port for rejects is not connected.
        """
        raw = read_exactly(source, start, start + SHOWN_BYTES).tobytes()
        if self.listener is None:
            hint = (
                f"leave such files out with on_error: skip on the reader{remedy}; or {TAKE_REJECTS} to take such "
                "files aside; and run it again"
            )
            raise HeaderError(reason, url=block.url, offset=start, length=-1, hint=hint)
        size = size_read_from(source, start + len(raw))
        limit = min(block.end, size)
        if block.start < start:
            self.skip(block.start, min(start, limit) - block.start, "header")
        if block.start <= start < limit or not size or block.continuation.resumes:
            first = max(block.start, start)
            raw = raw if first == start else read_exactly(source, first, first + SHOWN_BYTES).tobytes()
            self.reject(first, size - first, reason, raw)

    def skip(self, offset: int, length: int, reason: str) -> None:
        """Skip bytes that are not meant to be records, such as a header."""
        self.covered += length
        self._aside += 1
        self.counters[SKIPPED_BYTES] += length
        if reason == HOLE:
            self.counters[HOLE_BYTES] += length

    def skip_records(self, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], reason: str) -> None:
        """Skip records of a batch, such as blank lines, all at once; their delimiters were counted with the batch."""
        self.covered += int(lengths.sum())
        self._aside += len(offsets)
        self.counters[SKIPPED_BYTES] += int(lengths.sum())

    def mark_left_out(self) -> None:
        """Report that the file is in no output, so that it must not be removed as read; called after its bytes."""
        self.is_left_out = True

    def count_delimiters(self, length: int) -> None:
        """Count bytes that belong to records and are not in their batch, such as the length before a record."""
        self.covered += length
        self.counters[DELIMITER_BYTES] += length

    def count(self, batch: RecordBatch) -> None:
        """Count a batch that a format has read."""
        records, delimiters = batch.content_bytes()
        self.covered += records + delimiters
        self.counters[RECORD_BYTES] += records
        self.counters[DELIMITER_BYTES] += delimiters

    def count_bytes(self, length: int) -> None:
        """Count bytes that hold records with columns."""
        self.covered += length
        self.counters[RECORD_BYTES] += length

    def parse(self, format: RecordFormat, batch: RecordBatch) -> Parsed:
        """Count a batch that a format has read, and let the format parse it."""
        if not format.traits.is_tabular:
            self.count(batch)
        covered, aside = self.covered, self._aside
        parsed = format.parse(batch, self)
        # A record that parsing rejects was counted as a record before, so that its bytes are counted already.
        self.counters[RECORD_BYTES] -= self.covered - covered
        self.covered = covered
        self.lost += len(batch) - len(parsed.raw) - (self._aside - aside)
        return parsed


@frozen
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


@frozen
class FormatTraits:
    """What a reader makes use of if it knows it of a format.

    Attributes:
        needs_order: A block is read best behind the one before it, so that a compressed file is read by one task.
        is_text: Content is text, so that a file that is known to be something else is refused.
        adds_up: Each byte of a file is in exactly one record, or beside one; a run checks this.
        has_columns: Records have columns, so that others can be added; otherwise they are bytes.
        columns: The columns of records that `parse` gives, as far as options declare them; None where that is not
            known.
        multi_file: Reads the records of many small files at once, as they are one after the other, or gives None where
            they must be read one by one after all. None where each file is read for itself.
        file_endings: A file that multi_file reads must end with one of these bytes; the first is added to a file that
            does not. Empty: any will do.
        is_tabular: Records are rows with columns: the offset of each is the number of rows before it in the file, and
            `read` counts the bytes of the file.
        jumps: Reads some bytes of a file, in any order, so that none are fetched ahead.
    """

    needs_order: bool = False
    is_text: bool = False
    adds_up: bool = True
    has_columns: bool = False
    columns: StreamColumns | None = None
    multi_file: Callable[[BufferedFiles], RecordBatch | None] | None = None
    file_endings: bytes = b""
    is_tabular: bool = False
    jumps: bool = False

    def with_columns(self, schema: pa.Schema | None) -> FormatTraits:
        """The traits of a format whose records have columns; None where no option declares which."""
        return replace(self, has_columns=True, columns=None if schema is None else StreamColumns(schema))


Binary = Annotated[
    Literal["refuse", "allow"],
    Field(
        description="a file that begins as a zip archive, Parquet, PDF or another kind of file that is no text: refuse "
        "it, or read its bytes as text"
    ),
]
"""The option `binary` of formats of text."""


class RecordFormat(HasProperties, ABC):
    """A record format: says where the records of a file begin and end.

    A subclass declares its options as annotated class attributes, as an operator does its properties, gives itself a
    name, and writes `read`. If it needs them, it adds `complete_end`, `parse`, `needs_size` and `traits`. A format
    whose blocks begin in a state is also a `PreScanned`, and one whose first file decides an `Inferring`. An instance
    reads many blocks one after the other. It may keep data that speeds up the next block of the same file, but never
    anything that changes the records of a block.

    Guarantee: a record belongs to the block that holds its first byte. Whatever the cuts, the records
    of a file's blocks, in order, are the records of the file; each block is read for itself, without
    the help of any other.
    """

    name: ClassVar[str] = ""
    """What the format is called in YAML; "" for a base class."""

    needs_size: ClassVar[bool] = True
    """Whether `read` must know the size of the file before it has seen its end; a compressed file is then
    decompressed as a whole before any of it is read."""

    # Without an annotation, so that it is no option: it may depend on the options.
    traits = FormatTraits()

    # Without an annotation, so that it is no option: the plan of an app says it.
    wanted = WantedRows()
    """What is used of the records; a format may leave out others, and columns, if it reads less for it."""

    # Without an annotation, so that it is no option: tests and Spark's data source change it.
    chunk_bytes = CHUNK_BYTES
    """About how many bytes are read at a time; the records of a block do not depend on it."""

    @property
    def refuses_binary(self) -> bool:
        """Whether a file that is known to be no text is refused."""
        return self.traits.is_text and getattr(self, "binary", "refuse") == "refuse"

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

    def refuse(
        self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting, reason: str, remedy: str = ""
    ) -> None:
        """Refuse a file, for a reason beside its content, in place of reading a block; see ByteAccounting.refuse_file.

        Raises:
            HeaderError: The reader's port for rejects is not connected.
        """
        accounting.refuse_file(source, block, reason, remedy)

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

    def parse(self, batch: RecordBatch, accounting: ByteAccounting) -> Parsed:
        """Check the raw records of a batch from read, and make columns of them.

        The default accepts every record as it is.

        Raises:
            RecordError: A record does not fit the format, and rejects are not accepted.
        """
        return Parsed(batch)


class PreScanned(RecordFormat):
    """A format for which every block but a file's last one is looked at before: later blocks begin in its state."""

    # Without annotations, so that they are no options.
    has_state = True  # a format may have none with some options
    needs_prescan = True  # False: a reader finds the state by entry_state(), from bytes that are near

    @abstractmethod
    def prescan(self, source: ByteSource, block: BlockMetadata) -> Any:
        """Look at a block before it is read, without knowing the state in which it begins.

        Returns:
            Something small and picklable, for exit_state.
        """

    @abstractmethod
    def exit_state(self, entry_state: int, result: Any) -> int:
        """The state behind a block, in which the next one begins.

        Args:
            entry_state: The state in which the block begins; 0 at the beginning of a file.
            result: The result of prescan for it.
        """

    def entry_state(self, source: ByteSource, block: BlockMetadata) -> int:
        """The state in which a block begins, if the blocks before it have not been pre-scanned.

        The default pre-scans all bytes before the block; a format that needs fewer reads fewer.
        """
        before = replace(block, start=0, end=block.start, is_last=False)
        return self.exit_state(0, self.prescan(source, before))


class Inferring(RecordFormat):
    """A format for which the first file that has records decides how all files are read, as for types of columns."""

    @property
    @abstractmethod
    def needs_decision(self) -> bool:
        """Whether a file has to decide, with these options."""

    @abstractmethod
    def decision(self, batches: Iterable[RecordBatch]) -> dict[str, Any] | None:
        """The decision of a file from its raw records; None if it has no records, so that another file decides.

        Args:
            batches: The records of the file from its beginning on, as read gives them; need not be taken to the end.

        Returns:
            A value that can be written as JSON: it is journaled.
        """

    @abstractmethod
    def decide(self, decision: dict[str, Any] | None) -> None:
        """Apply the decision to all files; called before parse, in each task."""


UNKNOWN_STATE = -1
"""The entry state of a block if the bytes before it have not been scanned, or could not be."""


def with_entry_state(format: RecordFormat, source: ByteSource, block: BlockMetadata) -> BlockMetadata:
    """The block with the state in which it begins, found without a pre-scan of the blocks before it."""
    scanned = scanned_before(format)
    if scanned is None:
        return block
    return replace(block, entry_state=scanned.entry_state(source, block) if block.start else 0)


def scanned_before(format: RecordFormat) -> PreScanned | None:
    """The format, if its blocks begin in a state; otherwise None."""
    return format if isinstance(format, PreScanned) and format.has_state else None

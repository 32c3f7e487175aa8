"""Reads the files of a pack, many at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.records import LINE_FEED, Origin, RecordBatch
from dagflow.errors import DagflowError
from dagflow.storage.location import is_local
from dagflow.storage.small_files import SmallFiles, load, room_for
from operators.files.metadata import BlockMetadata
from operators.files.small_file_batch import SmallFileBatch
from operators.reader.byte_accounting import BlockAccounting
from operators.reader.compression.opening import Compression, is_any_compressed
from operators.reader.compression.stream import CorruptArchiveError
from operators.reader.content import read_content, require_sound
from operators.reader.formats.base import RecordFormat
from operators.reader.multi_file import Row, joint_of

ROW_BYTES = 1 << 20
"""Files are read in rows of about this size, which stay in the second-level cache from the read to the write."""

REMOTE_ROW_BYTES = 8 << 20
"""From a remote store, where a row is as slow as its last request, rows are longer."""

ROW_FILES = 4096
"""Bounds a row of tiny files."""

AccountOf = Callable[[BlockMetadata], BlockAccounting]
OnFailure = Callable[[BlockMetadata, DagflowError], None]


class SmallFileBatchReader:
    """Reads packs in one format.

    Guarantee: what a pack gives is what its blocks give, one after the other, file borders included; and a file
    of which nothing could be read, or which is no longer the version that was planned, gives nothing.

    Args:
        format: The format.
        compression: How files are compressed, or "auto".
        account_of: Makes the account of a block, for what is refused and passed over.
        on_failure: Called for each file that cannot be read; raises where that must end the run.
        looks_first: Whether a file is read to its end before anything of it is given, because it may be left out.
    """

    def __init__(
        self,
        format: RecordFormat,
        compression: Compression,
        account_of: AccountOf,
        on_failure: OnFailure,
        *,
        looks_first: bool,
    ) -> None:
        self._format = format
        self._compression = compression
        self._joint = joint_of(format)
        self._account_of = account_of
        self._on_failure = on_failure
        self._looks_first = looks_first

    def read(self, pack: SmallFileBatch) -> Iterator[tuple[list[RecordBatch], Row]]:
        """Read a pack, row by row.

        Yields:
            Batches, and the row of files that they are the records of.

        Raises:
            DagflowError: A file cannot be read, and on_failure says that this must end the run.
        """
        start, row_bytes = 0, ROW_BYTES if is_local(pack.base) else REMOTE_ROW_BYTES
        while start < len(pack):
            end = start + _row_length(pack.sizes[start : start + ROW_FILES], row_bytes)
            row = self._load(pack, np.arange(start, end))
            batch = self._joint_records(row)
            if batch is None:
                yield self._single_records(row)
            else:
                yield [batch], row
            start = end

    def _load(self, pack: SmallFileBatch, indices: npt.NDArray[np.int64]) -> Row:
        part = pack.slice(int(indices[0]), int(indices[-1]) + 1)
        numbers = part.sizes.tolist(), part.mtimes.tolist()
        files = SmallFiles(part.base, part.names, *numbers, part.etags, part.fingerprints)
        buffer = pa.allocate_buffer(room_for(files))
        loaded = load(files, memoryview(buffer).cast("B"), self._joint.endings if self._joint else b"")
        for index, error in loaded.failures.items():
            self._on_failure(part.block(index), error)
        row = Row(buffer, np.array(loaded.borders, np.int64), pack, indices)
        if not loaded.failures:
            return row
        # A file that is not there takes no room: the border before it is the one behind it.
        is_there = np.ones(len(indices), bool)
        is_there[list(loaded.failures)] = False
        return row.only(is_there)

    def _joint_records(self, row: Row) -> RecordBatch | None:
        """The records of all files, where they can be read side by side."""
        if self._joint is None or not len(row.indices) or _is_in_progress(row) or self._is_compressed(row):
            return None
        batch = self._joint.records(row)
        if batch is not None:
            account = self._account_of(row.pack.block(int(row.indices[0])))
            account.due = int(row.sizes.sum())
            account.take(batch)
            # Newlines that were put behind files are not of them.
            account.delimit(account.due - int(row.borders[-1]))
        return batch

    def _single_records(self, row: Row) -> tuple[list[RecordBatch], Row]:
        """The records of file after file, and the row without those that are damaged."""
        batches: list[RecordBatch] = []
        is_sound = np.ones(len(row.indices), bool)
        for position, index in enumerate(row.indices.tolist()):
            block = row.pack.block(index)
            file = _Slice(row.buffer, int(row.borders[position]), block.size_bytes)
            try:
                if self._looks_first:
                    require_sound(self._format, self._compression, file, block)
                batches += self._alone(file, block)
            except CorruptArchiveError as error:
                is_sound[position] = False
                self._on_failure(block, error)
        return batches, row if is_sound.all() else row.only(is_sound)

    def _is_compressed(self, row: Row) -> bool:
        if self._compression == "none":
            return False
        names = row.pack.names.take(row.indices)
        return is_any_compressed(memoryview(row.buffer).cast("B"), row.borders, names)

    def _alone(self, file: _Slice, block: BlockMetadata) -> Iterator[RecordBatch]:
        """One file's records, as the format reads them by itself."""
        account = self._account_of(block)
        is_empty = True
        for batch in read_content(self._format, self._compression, file, block, account):
            parsed = account.parse(self._format, batch).batch
            is_empty = is_empty and not len(parsed)
            yield parsed
        if is_empty and block.size_bytes:
            yield no_records(block)


class _Slice:
    """One file's bytes in a buffer that holds many."""

    def __init__(self, buffer: pa.Buffer, start: int, size_bytes: int) -> None:
        self._view = memoryview(buffer).cast("B")[start : start + size_bytes]

    @property
    def size_bytes(self) -> int:
        """Length of the file."""
        return len(self._view)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill a buffer from an offset on."""
        piece = self._view[offset : offset + len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)


def no_records(block: BlockMetadata) -> RecordBatch:
    """An empty batch that tells those downstream of a block without records."""
    return RecordBatch.from_records([], LINE_FEED, Origin((block,), np.empty(0, np.int64), block.start))


def _is_in_progress(row: Row) -> bool:
    """Whether a file that may grow ends within a record: something was put behind it, or it ends with no newline."""
    return row.pack.is_open and bool((np.diff(row.borders) != row.sizes).any())


def _row_length(sizes: npt.NDArray[np.int64], row_bytes: int) -> int:
    """How many files, at least one, go into one row."""
    return max(1, int(np.searchsorted(np.cumsum(sizes), row_bytes, side="right")))

"""Text in UTF-16 and UTF-32, scanned as if each code unit were one byte."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.records import RECORD, Delimiters, Origin, RecordBatch
from dagflow.storage.columns import borders_of
from operators.files.metadata import BlockMetadata
from operators.reader.byte_source import (
    UNKNOWN_SIZE,
    Bytes,
    ByteSource,
    FileView,
    encoding_of,
    read_exactly,
    read_fully,
    whole_of,
)
from operators.reader.formats.base import ByteAccounting
from operators.reader.scanning.charset import Charset
from operators.reader.scanning.framing import pieces_of
from operators.reader.scanning.search import BYTE, LEAST_HOLE

_OTHER = 0x80
"""Stands for each code unit that is no ASCII character."""

_KEPT_BYTES = 32 << 20


class NarrowSource:
    """A file with one byte for each of its code units: the ASCII character, or _OTHER.

    Args:
        source: The file.
        charset: Its encoding, with a byte order.
        mark_bytes: The length of its byte order mark.
    """

    def __init__(self, source: ByteSource, charset: Charset, mark_bytes: int) -> None:
        self._source = source
        self.charset = charset
        self.unit_bytes = charset.unit.size
        self.mark_units = mark_bytes // self.unit_bytes
        # The bytes that were read last, one piece behind the other: a compressed file is read once.
        self._start, self._kept = 0, list[Bytes]()

    @classmethod
    def of(cls, source: ByteSource, declared: Charset | None) -> NarrowSource | None:
        """The narrow form of a file in wide units, as an encoding or its mark says; None for other files."""
        charset = declared or Charset(encoding_of(source)[0] or "utf-8")
        if charset.unit == BYTE:
            return None
        found, mark_bytes = charset.for_file(read_exactly(whole_of(source), 0, LEAST_HOLE).tobytes())
        return cls(source, found, mark_bytes) if declared or mark_bytes else None

    @property
    def size_bytes(self) -> int:
        """See ByteSource."""
        size = self._source.size_bytes
        return size if size == UNKNOWN_SIZE else size // self.unit_bytes

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """See ByteSource."""
        memory = bytearray(len(buffer) * self.unit_bytes)
        start = offset * self.unit_bytes
        count = read_fully(self._source, start, memoryview(memory))
        raw = np.frombuffer(memory, np.uint8)
        units = self.charset.unit.view(raw[:count])
        np.frombuffer(buffer, np.uint8)[: len(units)] = np.where(units < _OTHER, units, _OTHER)
        kept = sum(map(len, self._kept))
        if start != self._start + kept or kept > _KEPT_BYTES:
            self._start, self._kept = start, []
        self._kept.append(raw[:count])
        return len(units)

    def wide(self, start: int, end: int) -> pa.Buffer:
        """The bytes of the code units from start to end."""
        first, last = start * self.unit_bytes, end * self.unit_bytes
        if self._start <= first and last <= self._start + sum(map(len, self._kept)):
            kept = self._kept[0] if len(self._kept) == 1 else np.concatenate(self._kept)
            self._kept = [kept]
            return pa.py_buffer(kept[first - self._start : last - self._start])
        view = FileView(self._source)
        view.move(first, last)
        return view.buffer.slice(0, last - first)

    def complete_end(self, end: int) -> int:
        """The bytes before the code unit at which the complete records of a file end."""
        # The mark of UTF-16 begins that of UTF-32.
        return end * self.unit_bytes if self._source.size_bytes >= LEAST_HOLE else 0

    def block_of(self, block: BlockMetadata) -> BlockMetadata:
        """The code units that begin in a block."""
        return replace(block, start=-(-block.start // self.unit_bytes), end=-(-block.end // self.unit_bytes))

    def widened(
        self, batches: Iterator[RecordBatch], block: BlockMetadata, accounting: WideAccounting
    ) -> Iterator[RecordBatch]:
        """The records of a block with their bytes; half a character at the end of the file is refused."""
        for batch in batches:
            yield self._widened(batch, block)
        size = self._source.size_bytes
        end = size // self.unit_bytes * self.unit_bytes
        if block.start <= end < min(size, block.end) and not accounting.is_file_refused:
            raw = read_exactly(self._source, end, size).tobytes()
            accounting.wide.reject(end, len(raw), f"the file ends within a character of {self.charset.name}", raw)

    def _widened(self, batch: RecordBatch, block: BlockMetadata) -> RecordBatch:
        is_framed = batch.content_bytes()[1] > 0
        column = batch.framed() if is_framed else batch.record
        lengths = np.diff(borders_of(column)).astype(np.int64)
        starts = batch.offsets()
        first, last = (int(starts[0]), int(starts[-1] + lengths[-1])) if len(starts) else (0, 0)
        places = (starts - first) * self.unit_bytes
        pieces = pieces_of(self.wide(first, last), places, places + lengths * self.unit_bytes)
        table = tuple(delimiter.decode().encode(self.charset.name) for delimiter in batch.delimiters.table)
        delimiters = Delimiters(table, batch.delimiters.codes)
        origin = Origin((block,), places, first * self.unit_bytes)
        if is_framed:
            return RecordBatch(framed=pieces, delimiters=delimiters, origin=origin)
        return RecordBatch(pa.RecordBatch.from_arrays([pieces], [RECORD]), delimiters=delimiters, origin=origin)


class WideAccounting(ByteAccounting):
    """Counts code units of a narrow source as the bytes that they are in a file.

    Args:
        wide: Counts the bytes.
        source: The file.
        narrow: The narrow form of it.
        block: The block of the file.

    Attributes:
        is_file_refused: Whether the file was refused as a whole.
    """

    def __init__(self, wide: ByteAccounting, source: ByteSource, narrow: NarrowSource, block: BlockMetadata) -> None:
        super().__init__(wide.url, listener=wide.listener)
        self.wide = wide
        self.is_file_refused = False
        self._source, self._narrow, self._block = source, narrow, block
        self._size = narrow.unit_bytes

    def reject_ranges(
        self, offsets: Sequence[int], lengths: Sequence[int], reasons: Sequence[str], raws: Sequence[bytes]
    ) -> None:
        """See ByteAccounting."""
        wide = [self._raw(offset, raw) for offset, raw in zip(offsets, raws, strict=True)]
        starts, sizes = ([count * self._size for count in counts] for counts in (offsets, lengths))
        self.wide.reject_ranges(starts, sizes, reasons, wide)

    def refuse_file(
        self, source: ByteSource, block: BlockMetadata, reason: str, remedy: str = "", start: int = 0
    ) -> None:
        """See ByteAccounting."""
        self.is_file_refused = True
        self.wide.refuse_file(self._source, self._block, reason, remedy, start * self._size)

    def skip(self, offset: int, length: int, reason: str) -> None:
        """See ByteAccounting."""
        self.wide.skip(offset * self._size, length * self._size, reason)

    def skip_records(self, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], reason: str) -> None:
        """See ByteAccounting."""
        self.wide.skip_records(offsets * self._size, lengths * self._size, reason)

    def count_delimiters(self, length: int) -> None:
        """See ByteAccounting."""
        self.wide.count_delimiters(length * self._size)

    def _raw(self, offset: int, narrow: bytes) -> bytes:
        return bytes(self._narrow.wide(offset, offset + len(narrow)))

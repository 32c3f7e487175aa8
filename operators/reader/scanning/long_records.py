"""Records longer than max_record: which block accounts for which of their bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dagflow.api.records import RecordBatch
from dagflow.errors import RecordError
from operators.files.metadata import BlockMetadata
from operators.reader.byte_source import ByteSource
from operators.reader.formats.base import ByteAccounting
from operators.reader.scanning.file_view import Bytes, FileView, read_exactly
from operators.reader.scanning.framing import one_unended, pieces_of
from operators.reader.scanning.positions import Positions
from operators.reader.scanning.terminated import TerminatedFormat

LEFT_OUT_RECORDS = 1 << 10
"""Long records whose bytes are held at a time."""

OnLong = Literal["fail", "skip", "cut", "reject"]


@dataclass(frozen=True, slots=True)
class LongRecords:
    """Handles the records of a format that are too long.

    The block in which a long record begins accounts for as many bytes as a record may have, and for all bytes of the
    record in the block. Later blocks skip the rest, so that no reader has to read to the end of it.

    Attributes:
        format: The format.
        max_record: Bytes that a record may have without its delimiter.
        on_long: What happens to a longer record.
        ending: The bytes that are added to a record that was cut.
    """

    format: TerminatedFormat
    max_record: int
    on_long: OnLong
    ending: bytes

    @property
    def kept_bytes(self) -> int:
        """The largest number of bytes of a record that is not too long, with its delimiter."""
        return self.max_record + max(map(len, self.format.table))

    def accounted_end(self, source: ByteSource, start: int, limit: int) -> int:
        """The end of the bytes of a long record that are accounted for by the block in which it begins.

        Args:
            source: The file.
            start: Where the record begins.
            limit: Where the block ends.
        """
        end = max(limit, start + self.kept_bytes)
        return min(self.format.next_start(source, start + self.max_record + 1, end, start), source.size_bytes)

    def skip_rest(self, source: ByteSource, start: int, end: int, floor: int, accounting: ByteAccounting) -> None:
        """Skip the part of a long record from an earlier block for which no earlier block accounts.

        Args:
            source: The file.
            start: Where the block begins.
            end: Where its first record begins, or where it ends.
            floor: Where the file's first record begins.
            accounting: Takes in the skipped bytes.
        """
        kept = self.kept_bytes
        step = self.format.probe_bytes
        begin = None
        while begin is None and (low := max(floor, start - min(step, kept))) < start:
            begin = self._last_start(source, low, start, floor)
            if low == floor or step >= kept:
                break
            step *= 2
        accounted = start if begin is None else max(start, begin + kept)
        if accounted < end:
            accounting.skip(accounted, end - accounted, "the rest of a long record")

    def _last_start(self, source: ByteSource, low: int, high: int, floor: int) -> int | None:
        """The last position in [low, high) where a record begins, or None."""
        first = self.format.next_start(source, low, high, floor)
        if first >= high:
            return None
        data = read_exactly(source, first, high + self.format.reach)
        stops = self.format.find(data, first + len(data) >= source.size_bytes).stops
        inside = stops[stops < high - first]
        return first + int(inside[-1]) if len(inside) else first

    def take(
        self, data: Bytes, block: BlockMetadata, accounting: ByteAccounting, offset: int, length: int
    ) -> Iterator[RecordBatch]:
        """Fail on a long record, or skip, cut or reject it.

        Args:
            data: Begins with the record.
            block: The block in which it begins.
            accounting: Takes in the bytes of the record.
            offset: Where it begins in the file.
            length: How many of its bytes the block accounts for.

        Raises:
            RecordError: Long records fail the run.
        """
        raw = data[: self.max_record].tobytes()
        if self.on_long == "fail":
            hint = "raise max_record, or for long records set on_long: skip, cut or reject"
            raise RecordError(self._why(raw), url=block.url, offset=offset, length=len(raw), hint=hint)
        if self.on_long == "reject":
            accounting.reject(offset, len(raw), self._why(raw), raw)
        elif self.on_long == "skip":
            accounting.skip(offset, len(raw), "long record")
        else:
            yield one_unended(raw, self.ending, block, offset)
        if length > len(raw):
            accounting.skip(offset + len(raw), length - len(raw), "the rest of a long record")

    def leave_out(self, view: FileView, starts: Positions, ends: Positions, accounting: ByteAccounting) -> None:
        """Skip or reject long records that lie in a view.

        Args:
            view: The view.
            starts: Where each begins in it.
            ends: Where the bytes end that the block accounts for.
            accounting: Takes in the bytes of the records.
        """
        offsets, behind = starts + view.start, starts + self.max_record
        if self.on_long == "reject":
            for index in range(0, len(starts), LEFT_OUT_RECORDS):
                part = slice(index, index + LEFT_OUT_RECORDS)
                raws = pieces_of(view.buffer, starts[part], behind[part]).to_pylist()
                accounting.reject_all(offsets[part].tolist(), raws, [*map(self._why, raws)])
        else:
            for offset in offsets.tolist():
                accounting.skip(offset, self.max_record, "long record")
        accounting.skip_records(behind + view.start, ends - behind, "the rest of a long record")

    def _why(self, raw: bytes) -> str:
        cause = self.format.cause_of_length(np.frombuffer(raw, np.uint8))
        return f"the record is longer than max_record, {self.max_record} bytes{cause}"

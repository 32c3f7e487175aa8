"""Formats whose records end with a terminator, read chunk by chunk."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from dagflow.api.properties import Count, Size
from dagflow.api.records import NO_DELIMITER, RecordBatch
from dagflow.errors import RecordError
from dagflow.storage.location import redacted
from operators.files.metadata import BlockMetadata
from operators.reader.byte_source import BufferSlice, ByteSource, GrowingSource
from operators.reader.formats.base import BATCH_RECORDS, HOLE, ByteAccounting
from operators.reader.scanning.file_view import Bytes, FileView, read_exactly
from operators.reader.scanning.framing import frame_adjacent, frame_apart, one_unended, pieces_of
from operators.reader.scanning.holes import first_hole, leading_holes, nuls_from
from operators.reader.scanning.positions import Positions, contains
from operators.reader.scanning.refused_files import encoding_of, refuse_file
from operators.reader.scanning.terminated import TerminatedFormat, Terminators

logger = logging.getLogger(__name__)


class Delimited(TerminatedFormat):
    """The common part of the formats whose records end with a terminator.

    Records are read in chunks; no more than a chunk and one record is held.
    """

    is_text = True

    # Without annotations, so that they are no options.
    is_narrow = True
    """Whether files in UTF-16 and UTF-32 are refused, whose newlines are more than one byte each."""

    wide_remedy = "convert such files to UTF-8 first, as with iconv"
    """How such files can be read; `{}` stands for their encoding."""

    keep_delimiter: Annotated[bool, Field(description="whether records keep the delimiter that ends them")] = False
    max_record: Annotated[
        Size, Field(ge=1, le=1 << 30, description="maximum bytes of a record, without its delimiter")
    ] = 32 << 20
    on_long: Annotated[
        OnLong,
        Field(description="what happens to a longer record; cut keeps its first max_record bytes"),
    ] = "fail"
    skip_header: Annotated[Count, Field(ge=0, description="records to skip at the head of each file")] = 0

    def read(self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting) -> Iterator[RecordBatch]:
        """The records that begin in a block."""
        limit = min(block.end, source.size_bytes)
        if block.start >= limit:
            return
        encoding, evidence = encoding_of(source) if self.is_narrow else ("", "")
        if encoding:
            reason = f"the file is in {encoding.upper()}, {evidence}; {self.wide_remedy.format(encoding)}"
            refuse_file(source, block, accounting, reason)
            return
        floor = self.first_record(source, block)
        # The end of a compressed file may have been read in search of a header; its size is known only then.
        limit = min(limit, source.size_bytes)
        if block.start < floor:
            self._skip_head(source, block, min(floor, limit), accounting)
        position = self.next_start(source, block.start, limit, floor)
        if self.on_long != "fail" and self.adds_up and floor < block.start < position:
            self._long_records.skip_rest(source, block.start, position, floor, accounting)
        view = FileView(source)
        # A record without a terminator in so many bytes is too long.
        longest = self.max_record + self.reach
        held, beyond = self.chunk_bytes, self.probe_bytes
        while position < limit:
            reach = min(held, max(longest, self.chunk_bytes))
            data = view.move(position, min(position + reach, limit + min(beyond, longest)))
            found = self._found_in(view)
            # A record belongs to the block in which it begins; its predecessor's terminator ends at its first byte.
            count = int(np.searchsorted(found.stops[:-1], limit - position)) + 1 if len(found.stops) else 0
            count = self._before_long(found, count)
            if (text := self._text_before_hole(view, found, count)) is not None:
                position = yield from self._pass_hole(view, text, block, accounting)
                # Later blocks take what follows for a part of the same record.
                limit = max(limit, min(position + 1, source.size_bytes))
                held, beyond = self.chunk_bytes, self.probe_bytes
            elif count:
                yield from self._batches(view, found, count, block, accounting, limit)
                position += int(found.stops[count - 1])
                held, beyond = self.chunk_bytes, self.probe_bytes
            elif view.is_at_end:
                yield from self._unended(view, block, accounting)
                return
            elif self.is_long(data):
                start = position
                if self.on_long != "fail":
                    position = self._long_records.accounted_end(source, start, limit)
                yield from self._long_records.take(data, block, accounting, start, position - start)
            else:
                held, beyond = 2 * held, 2 * beyond
                longest = max(longest, 2 * len(data)) if len(data) >= longest else longest

    def _found_in(self, view: FileView) -> Terminators:
        """The terminators in a view; only the next ones in one that has grown, so that a long record needs no more."""
        data = view.data
        if len(data) > self.chunk_bytes:
            record = GrowingSource(BufferSlice(memoryview(view.buffer).cast("B"), 0, len(data)))
            stop = self.end_of_record(record, 0)
            if stop is not None and stop + self.chunk_bytes < len(data):
                found = self.find(data[: stop + self.chunk_bytes], False)
                if len(found.stops):
                    return found
        return self.find(data, view.is_at_end)

    def _before_long(self, found: Terminators, count: int) -> int:
        """How many of the records to take at once: those before one that is too long, if such records fail the run."""
        if self.on_long != "fail" or not count or int(found.stops[count - 1]) <= self.max_record:
            return count
        lengths = found.starts[:count] - np.append(0, found.stops[: count - 1])
        longs = np.flatnonzero(lengths > self.max_record)
        return max(1, int(longs[0])) if len(longs) else count

    def _text_before_hole(self, view: FileView, found: Terminators, count: int) -> int | None:
        """Where the first hole of a record begins that is too long and would fail the run; None if there is none."""
        size = int(found.starts[0]) if count else len(view.data)
        longest = self.max_record if count or view.is_at_end else self.max_record + self.reach - 1
        if self.on_long != "fail" or size <= longest or not self.has_holes:
            return None
        return first_hole(view.data[: self.max_record], self.unit_bytes)

    def _pass_hole(
        self, view: FileView, text: int, block: BlockMetadata, accounting: ByteAccounting
    ) -> Generator[RecordBatch, None, int]:
        """Take the text before a hole as a record, and skip the hole; returns where it ends."""
        start = view.start
        if text:
            ended = self.find(view.move(start, start + text), True)
            if len(ended.stops):
                yield from self._framed(view, ended, 0, len(ended.stops), block, accounting)
            else:
                yield from self._last(view, block, accounting)
        hole = nuls_from(view.source, start + text, self.unit_bytes)
        _skip_holes(block, accounting, np.array([start + text]), np.array([hole]))
        return start + text + hole

    def _skip_head(self, source: ByteSource, block: BlockMetadata, end: int, accounting: ByteAccounting) -> None:
        """Skip the part of a block before the file's first record."""
        hole = self.hole_bytes(source)
        if hole and not block.start:
            _warn_of_holes(block, 0, hole)
        start = max(block.start, min(hole, end))
        if block.start < start:
            accounting.skip(block.start, start - block.start, HOLE)
        if start < end:
            accounting.skip(start, end - start, "header")

    def is_long(self, data: Bytes) -> bool:
        """Whether the record at the start of a stretch without terminators is too long."""
        return len(data) >= self.max_record + self.reach

    def first_record(self, source: ByteSource, block: BlockMetadata) -> int:
        """Where the file's first record begins, behind byte order mark and header, or a position beyond the block."""
        floor = self.begin(source)
        if self.skip_header:
            floor = self._skip_records(source, floor, min(block.end, source.size_bytes))
        return floor

    def _skip_records(self, source: ByteSource, floor: int, limit: int) -> int:
        view = FileView(source)
        position, remaining = floor, self.skip_header
        while remaining and position < limit:
            found = self.find(view.move(position, position + self.probe_bytes), view.is_at_end)
            if taken := min(remaining, len(found.stops)):
                position += int(found.stops[taken - 1])
                remaining -= taken
            else:
                position = self.next_start(source, position + 1, limit, position)
                remaining -= 1
        return position

    def _batches(
        self,
        view: FileView,
        found: Terminators,
        count: int,
        block: BlockMetadata,
        accounting: ByteAccounting,
        limit: int,
    ) -> Iterator[RecordBatch]:
        if int(found.stops[count - 1]) <= self.max_record:
            yield from self._framed(view, found, 0, count, block, accounting)
            return
        starts = np.concatenate(([0], found.stops[: count - 1]))
        is_long = found.starts[:count] - starts > self.max_record
        # Later blocks skip the bytes beyond the block and beyond what this block keeps of a long record.
        ends = np.minimum(found.stops[:count], np.maximum(starts + self._long_records.kept_bytes, limit - view.start))
        if self.on_long in ("reject", "skip"):
            rows = np.flatnonzero(is_long)
            self._long_records.leave_out(view, starts[rows], ends[rows], accounting)
            yield from self._framed(view, found, 0, count, block, accounting, is_long)
            return
        done = 0
        for index in np.flatnonzero(is_long).tolist():
            yield from self._framed(view, found, done, index, block, accounting)
            start, end = int(starts[index]), int(ends[index])
            yield from self._long_records.take(view.data[start:], block, accounting, view.start + start, end - start)
            done = index + 1
        yield from self._framed(view, found, done, count, block, accounting)

    def _framed(
        self,
        view: FileView,
        found: Terminators,
        first: int,
        last: int,
        block: BlockMetadata,
        accounting: ByteAccounting,
        is_left_out: npt.NDArray[np.bool_] | None = None,
    ) -> Iterator[RecordBatch]:
        """The records [first, last) that the terminators end: an operator needs memory for each one in its batch.

        Args:
            view: The view that holds them.
            found: The terminators.
            first: The first record.
            last: One past the last.
            block: Their block.
            accounting: Takes in bytes that are in no batch.
            is_left_out: Which records are in no batch, and are taken in already.
        """
        for index in range(first, last, BATCH_RECORDS):
            part = found.part(index, end := min(index + BATCH_RECORDS, last))
            start = int(found.stops[index - 1]) if index else 0
            is_out = None if is_left_out is None else is_left_out[index:end]
            begins = self._behind_holes(view, part, start, is_out, block, accounting)
            batch = self.frame(view, part, begins, block)
            lengths = np.diff(part.stops, prepend=start) if isinstance(begins, int) else part.stops - begins
            if is_out is not None:
                rows = np.flatnonzero(~is_out)
                batch, lengths = batch.take(rows), lengths[rows]
            if unframed := int(lengths.sum()) - sum(batch.content_bytes()):
                accounting.count_delimiters(unframed)
            # Also without records where these were refused, so that the rejects are passed on.
            if len(batch) or self.on_long == "reject":
                yield batch

    def _behind_holes(
        self,
        view: FileView,
        found: Terminators,
        start: int,
        is_left_out: npt.NDArray[np.bool_] | None,
        block: BlockMetadata,
        accounting: ByteAccounting,
    ) -> int | Positions:
        """Where the records begin that terminators end: see frame. Holes at their heads are skipped."""
        if not contains(view.data[start : found.stops[-1]], 0) or not self.has_holes:
            return start
        starts = np.append(start, found.stops[:-1])
        holes = leading_holes(view.data, starts, found.starts, self.unit_bytes)
        if is_left_out is not None:
            holes[is_left_out] = 0
        rows = np.flatnonzero(holes)
        if not len(rows):
            return start
        _skip_holes(block, accounting, view.start + starts[rows], holes[rows])
        return starts + holes

    def frame(self, view: FileView, found: Terminators, start: int | Positions, block: BlockMetadata) -> RecordBatch:
        """Make a batch of records.

        Args:
            view: The view that holds them.
            found: The terminators of the records, at least one.
            start: Where the first of adjacent records begins in the view; or where each record begins.
            block: Their block.
        """
        delimiters = NO_DELIMITER if self.keep_delimiter else found.delimiters(self.table)
        if not isinstance(start, int):
            return frame_apart(view.buffer, start, found.stops, delimiters, block, view.start)
        borders = np.empty(len(found.stops) + 1, np.int32)
        borders[0] = start
        borders[1:] = found.stops
        return frame_adjacent(view.buffer, borders, delimiters, block, view.start)

    def _unended(self, view: FileView, block: BlockMetadata, accounting: ByteAccounting) -> Iterator[RecordBatch]:
        """The last record of a file, which has no terminator."""
        data = view.data
        if len(data) <= self.max_record and self.has_holes:
            size = np.array([len(data)])
            holes = leading_holes(data, np.zeros(1, np.int64), size, self.unit_bytes)
            if holes[0]:
                _skip_holes(block, accounting, np.array([view.start]), holes)
                view.move(view.start + int(holes[0]), view.end)
        yield from self._last(view, block, accounting)

    def _last(self, view: FileView, block: BlockMetadata, accounting: ByteAccounting) -> Iterator[RecordBatch]:
        size = len(view.data)
        if not size:
            return
        if size > self.max_record:
            length = min(size, max(self._long_records.kept_bytes, block.end - view.start))
            yield from self._long_records.take(view.data, block, accounting, view.start, length)
            return
        # Not framed: its delimiter is not in the file.
        yield one_unended(view.data.tobytes(), self._ending, block, view.start)

    @property
    def _ending(self) -> bytes:
        """The bytes that are added to a last record without a terminator."""
        return b"" if self.keep_delimiter else self.table[0]

    @property
    def _long_records(self) -> LongRecords:
        return LongRecords(self, self.max_record, self.on_long, self._ending)


def _skip_holes(block: BlockMetadata, accounting: ByteAccounting, offsets: Positions, lengths: Positions) -> None:
    """Skip holes that lie in a block, at least one, where records begin."""
    total = int(lengths.sum())
    _warn_of_holes(block, int(offsets[0]), total, len(offsets))
    accounting.skip(int(offsets[0]), total, HOLE)


def _warn_of_holes(block: BlockMetadata, offset: int, length: int, count: int = 1) -> None:
    what = "hole" if count == 1 else f"{count} holes"
    logger.warning("%s of %d NUL bytes skipped url=%s offset=%d", what, length, redacted(block.url), offset)


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

"""Formats whose records end with a terminator, read chunk by chunk."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Iterator
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from dagflow.api.properties import Count, Size
from dagflow.api.records import NO_DELIMITER, RECORD, Origin, RecordBatch
from dagflow.errors import RecordError
from operators.files.metadata import BlockMetadata
from operators.reader.byte_source import (
    UNKNOWN_SIZE,
    BufferSlice,
    Bytes,
    ByteSource,
    FileView,
    GrowingSource,
    encoding_of,
    read_exactly,
    whole_of,
)
from operators.reader.formats.base import BATCH_RECORDS, HOLE, Binary, ByteAccounting, FormatTraits, RecordFormat
from operators.reader.scanning.framing import frame_adjacent, frame_apart, one_unended, pieces_of
from operators.reader.scanning.search import (
    BYTE_ORDER_MARK,
    LEAST_HOLE,
    Positions,
    Terminators,
    contains,
    first_hole,
    has_nul_unit,
    leading_holes,
    nuls_from,
    skip_holes,
    warn_of_holes,
)

LEFT_OUT_RECORDS = 1 << 10  # long records whose bytes are held at a time

PROBE_BYTES = 4 << 10  # the first step of reading beyond a block, or of searching its first record; it doubles

Mask = npt.NDArray[np.bool_]

OnLong = Literal["fail", "skip", "cut", "reject"]


class BlockView(FileView):
    """The bytes of a file while a block is read, and the accounting of the block."""

    __slots__ = ("accounting", "block")

    def __init__(self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting) -> None:
        super().__init__(source)
        self.block = block
        self.accounting = accounting


class Delimited(RecordFormat):
    """The common part of the formats whose records end with a terminator.

    Records are read in chunks; no more than a chunk and one record is held.
    """

    traits = FormatTraits(is_text=True)
    # Without annotations, so that they are no options.
    is_narrow = True  # files in UTF-16 and UTF-32 are refused, whose newlines are more than one byte each
    wide_remedy = "convert such files to UTF-8 first, as with iconv"  # for such files; {} stands for their encoding
    unit_bytes = 1  # in a code unit of the text
    records_end = UNKNOWN_SIZE  # of the file that is read: where its records end, if something else follows
    table = tuple[bytes, ...]()
    """The bytes of each kind of terminator; the first is added to a last record that has none."""

    keep_delimiter: Annotated[bool, Field(description="whether records keep the delimiter that ends them")] = False
    max_record: Annotated[
        Size, Field(ge=1, le=1 << 30, description="maximum bytes of a record, without its delimiter")
    ] = 32 << 20
    on_long: Annotated[
        OnLong, Field(description="what happens to a longer record; cut keeps its first max_record bytes")
    ] = "fail"
    binary: Binary = "refuse"
    skip_header: Annotated[Count, Field(ge=0, description="records to skip at the head of each file")] = 0

    def read(self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting) -> Iterator[RecordBatch]:
        """The records that begin in a block."""
        limit = min(block.end, source.size_bytes, self.records_end)
        if block.start >= limit:
            return
        # A record without a terminator in so many bytes is too long.
        longest = self.max_record + self.reach
        held, beyond = self.chunk_bytes, self.probe_bytes
        encoding, evidence = encoding_of(source) if self.is_narrow else ("", "")
        if encoding:
            reason = f"the file is in {encoding.upper()}, {evidence}; {self.wide_remedy.format(encoding)}"
            accounting.refuse_file(source, block, reason)
            return
        floor = self.first_record(source, block)
        # The end of a compressed file may have been read in search of a header; its size is known only then.
        limit = min(limit, source.size_bytes)
        if block.start < floor:
            self._skip_head(source, block, min(floor, limit), accounting)
        position = min(floor, limit) if block.start <= floor else self.next_start(source, block.start, limit, floor)
        if self.on_long != "fail" and self.traits.adds_up and floor < block.start < position:
            self._skip_rest(source, block.start, position, floor, accounting)
        view = BlockView(source, block, accounting)
        while position < limit:
            reach = min(held, max(longest, self.chunk_bytes))
            data = view.move(position, min(position + reach, limit + min(beyond, longest)))
            found = self._found_in(view) if len(data) > self.chunk_bytes else self.find(data, view.is_at_end)
            # A record belongs to the block in which it begins; its predecessor's terminator ends at its first byte.
            count = int(np.searchsorted(found.stops[:-1], limit - position)) + 1 if len(found.stops) else 0
            count = self._before_long(found, count)
            if (text := self._text_before_hole(view, found, count)) is not None:
                position, is_another = yield from self._pass_hole(view, text)
                # Later blocks take what follows for a part of the same record, if it is none of its own.
                limit = limit if is_another else max(limit, min(position + 1, source.size_bytes))
                held, beyond = self.chunk_bytes, self.probe_bytes
            elif count:
                yield from self._batches(view, found, count, limit)
                position += int(found.stops[count - 1])
                held, beyond = self.chunk_bytes, self.probe_bytes
            elif view.is_at_end:
                yield from self._unended(view)
                return
            elif self.is_long(data):
                start = position
                if self.on_long != "fail":
                    # This block accounts for as many bytes as a record may have, and for all in the block.
                    end = max(limit, start + self._kept_bytes)
                    following = self.next_start(source, start + self.max_record + 1, end, start)
                    position = min(following, source.size_bytes)
                yield from self._take_long(view, data, start, position - start)
            else:
                held, beyond = 2 * held, 2 * beyond
                longest = max(longest, 2 * len(data)) if len(data) >= longest else longest

    def _found_in(self, view: FileView) -> Terminators:
        """The terminators in a view that has grown; only the next ones, so that a long record needs no more."""
        data = view.data
        stop = self.end_of_record(GrowingSource(BufferSlice(memoryview(view.buffer).cast("B"), 0, len(data))), 0)
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
        if self.on_long == "fail" and (size > longest or self.is_long(view.data[:size])) and self.has_holes:
            return first_hole(view.data[: self.max_record], self.unit_bytes)
        return None

    def _pass_hole(self, view: BlockView, text: int) -> Generator[RecordBatch, None, tuple[int, bool]]:
        """Take the text before a hole as a record, and skip the hole; returns what _behind_hole() gives."""
        start = view.start
        ended = self.find(view.move(start, start + text), True)
        if len(ended.stops):
            yield from self._framed(view, ended, 0, len(ended.stops))
        else:
            yield from self._last(view)
        hole = nuls_from(view.source, start + text, self.unit_bytes)
        skip_holes(view.block, view.accounting, np.array([start + text]), np.array([hole]))
        return self._behind_hole(view, text, start + text + hole)

    def _behind_hole(self, view: BlockView, text: int, position: int) -> tuple[int, bool]:
        """Where a record begins behind a hole that ends at a position, and whether all blocks take it for one."""
        return position, False

    def _skip_head(self, source: ByteSource, block: BlockMetadata, end: int, accounting: ByteAccounting) -> None:
        hole = self.hole_bytes(source)
        if hole and not block.start:
            warn_of_holes(block, 0, hole)
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

    def _batches(self, view: BlockView, found: Terminators, count: int, limit: int) -> Iterator[RecordBatch]:
        if int(found.stops[count - 1]) <= self.max_record:
            yield from self._framed(view, found, 0, count)
            return
        starts = np.concatenate(([0], found.stops[: count - 1]))
        is_long = found.starts[:count] - starts > self.max_record
        # Later blocks skip the bytes beyond the block and beyond what this block keeps of a long record.
        ends = np.minimum(found.stops[:count], np.maximum(starts + self._kept_bytes, limit - view.start))
        if self.on_long in ("reject", "skip"):
            rows = np.flatnonzero(is_long)
            self._leave_out_long(view, starts[rows], ends[rows])
            yield from self._framed(view, found, 0, count, is_long)
            return
        done = 0
        for index in np.flatnonzero(is_long).tolist():
            yield from self._framed(view, found, done, index)
            start, end = int(starts[index]), int(ends[index])
            yield from self._take_long(view, view.data[start:], view.start + start, end - start)
            done = index + 1
        yield from self._framed(view, found, done, count)

    def _framed(
        self, view: BlockView, found: Terminators, first: int, last: int, is_left_out: Mask | None = None
    ) -> Iterator[RecordBatch]:
        """The records [first, last) that the terminators end: an operator needs memory for each one in its batch."""
        for index in range(first, last, BATCH_RECORDS):
            end = min(index + BATCH_RECORDS, last)
            part = found if end - index == len(found.stops) else found.part(index, end)
            start = int(found.stops[index - 1]) if index else 0
            is_out = None if is_left_out is None else is_left_out[index:end]
            begins = self._behind_holes(view, part, start, is_out)
            batch = self.frame(view, part, begins)
            size = int(part.stops[-1]) - start if isinstance(begins, int) else int((part.stops - begins).sum())
            if is_out is not None:
                lengths = np.diff(part.stops, prepend=start) if isinstance(begins, int) else part.stops - begins
                batch, size = batch.take(np.flatnonzero(~is_out)), int(lengths[~is_out].sum())
            if unframed := size - sum(batch.content_bytes()):
                view.accounting.count_delimiters(unframed)
            # Also without records where these were refused, so that the rejects are passed on.
            if len(batch) or self.on_long == "reject":
                yield batch

    def _behind_holes(
        self, view: BlockView, found: Terminators, start: int, is_left_out: Mask | None
    ) -> int | Positions:
        """Where the records begin that terminators end: see frame. Holes at their heads are skipped."""
        if found.records is not None or not contains(view.data[start : found.stops[-1]], 0) or not self.has_holes:
            return start
        starts = np.append(start, found.stops[:-1])
        holes = leading_holes(view.data, starts, found.starts, self.unit_bytes)
        if is_left_out is not None:
            holes[is_left_out] = 0
        rows = np.flatnonzero(holes)
        if not len(rows):
            return start
        skip_holes(view.block, view.accounting, view.start + starts[rows], holes[rows])
        return starts + holes

    def frame(self, view: BlockView, found: Terminators, start: int | Positions) -> RecordBatch:
        """Make a batch of records.

        There is at least one terminator. Start is where the first of adjacent records begins in the view; or where each
        record begins.
        """
        delimiters = NO_DELIMITER if self.keep_delimiter else found.delimiters(self.table)
        if not isinstance(start, int):
            return frame_apart(view.buffer, start, found.stops, delimiters, view.block, view.start)
        borders = np.empty(len(found.stops) + 1, np.int32)
        borders[0] = start
        borders[1:] = found.stops
        if found.records is not None:
            column = pa.RecordBatch.from_arrays([found.records], [RECORD])
            return RecordBatch(column, delimiters=delimiters, origin=Origin((view.block,), borders[:-1], view.start))
        return frame_adjacent(view.buffer, borders, delimiters, view.block, view.start)

    def _unended(self, view: BlockView) -> Iterator[RecordBatch]:
        data = view.data
        if len(data) <= self.max_record and self.has_holes:
            size = np.array([len(data)])
            holes = leading_holes(data, np.zeros(1, np.int64), size, self.unit_bytes)
            if holes[0]:
                skip_holes(view.block, view.accounting, np.array([view.start]), holes)
                view.move(view.start + int(holes[0]), view.end)
        yield from self._last(view)

    def _last(self, view: BlockView) -> Iterator[RecordBatch]:
        size = len(view.data)
        if not size:
            return
        if size > self.max_record:
            length = min(size, max(self._kept_bytes, view.block.end - view.start))
            yield from self._take_long(view, view.data, view.start, length)
            return
        # Not framed: its delimiter is not in the file.
        yield one_unended(view.data.tobytes(), self._ending, view.block, view.start)

    @property
    def _ending(self) -> bytes:
        return b"" if self.keep_delimiter else self.table[0]

    @property
    def _kept_bytes(self) -> int:
        return self.max_record + max(map(len, self.table))

    def _skip_rest(self, source: ByteSource, start: int, end: int, floor: int, accounting: ByteAccounting) -> None:
        """Skip the part of a long record from an earlier block for which no earlier block accounts."""
        kept = self._kept_bytes
        step = self.probe_bytes
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
        first = self.next_start(source, low, high, floor)
        if first >= high:
            return None
        data = read_exactly(source, first, high + self.reach)
        stops = self.find(data, first + len(data) >= source.size_bytes).stops
        inside = stops[stops < high - first]
        return first + int(inside[-1]) if len(inside) else first

    def _take_long(self, view: BlockView, data: Bytes, offset: int, length: int) -> Iterator[RecordBatch]:
        raw = data[: self.max_record].tobytes()
        if self.on_long == "fail":
            hint = "raise max_record, or for long records set on_long: skip, cut or reject"
            raise RecordError(self._why_long(raw), url=view.block.url, offset=offset, length=len(raw), hint=hint)
        if self.on_long == "reject":
            view.accounting.reject(offset, len(raw), self._why_long(raw), raw)
        elif self.on_long == "skip":
            view.accounting.skip(offset, len(raw), "long record")
        else:
            yield one_unended(raw, self._ending, view.block, offset)
        if length > len(raw):
            view.accounting.skip(offset + len(raw), length - len(raw), "the rest of a long record")

    def _leave_out_long(self, view: BlockView, starts: Positions, ends: Positions) -> None:
        offsets, behind = starts + view.start, starts + self.max_record
        if self.on_long == "reject":
            for index in range(0, len(starts), LEFT_OUT_RECORDS):
                part = slice(index, index + LEFT_OUT_RECORDS)
                raws = pieces_of(view.buffer, starts[part], behind[part]).to_pylist()
                view.accounting.reject_all(offsets[part].tolist(), raws, [*map(self._why_long, raws)])
        else:
            for offset in offsets.tolist():
                view.accounting.skip(offset, self.max_record, "long record")
        view.accounting.skip_records(behind + view.start, ends - behind, "the rest of a long record")

    def _why_long(self, raw: bytes) -> str:
        cause = self.cause_of_length(np.frombuffer(raw, np.uint8))
        return f"the record is longer than max_record, {self.max_record} bytes{cause}"

    _hole: tuple[ByteSource, int] | None = None  # the file that was read last, and the NULs at its head

    @property
    def probe_bytes(self) -> int:
        """The number of bytes that a search reads at first."""
        return min(PROBE_BYTES, self.chunk_bytes)

    @property
    def reach(self) -> int:
        """How many bytes from its first byte on decide whether and where a terminator ends."""
        return max(map(len, self.table))

    @abstractmethod
    def find(self, data: Bytes, is_at_end: bool) -> Terminators:
        """The terminators in a range that begins at a record, or at an anchor.

        Args:
            data: The bytes of the range.
            is_at_end: Whether it reaches the end of the file; if not, undecided terminators are left out.
        """

    def anchor(self, source: ByteSource, position: int, floor: int) -> int:
        """A position at or before the given one from which a scan finds every terminator that ends there or later.

        Args:
            source: The file.
            position: An offset in the file, beyond floor.
            floor: Where the file's first record begins; bytes before it are not read.
        """
        return max(floor, position - self.reach)

    def begin(self, source: ByteSource) -> int:
        """The length of the file's byte order mark, or of a hole at its head; called before a block is read."""
        head = read_exactly(source, 0, LEAST_HOLE).tobytes()
        if head.startswith(BYTE_ORDER_MARK):
            return len(BYTE_ORDER_MARK)
        return self.hole_bytes(source) if head == bytes(LEAST_HOLE) else 0

    @property
    def has_holes(self) -> bool:
        """Whether NULs at which a record would begin are a hole: not where they end records."""
        return not any(has_nul_unit(terminator, self.unit_bytes) for terminator in self.table)

    def hole_bytes(self, source: ByteSource) -> int:
        """The length of the hole at the head of a file, where a writer that does not append has left it."""
        if not self.has_holes:
            return 0
        whole = whole_of(source)
        if self._hole is None or self._hole[0] is not whole:
            self._hole = whole, nuls_from(whole, 0, self.unit_bytes)
        length = min(self._hole[1], source.size_bytes)
        return length if length >= LEAST_HOLE else 0

    def cause_of_length(self, record: Bytes) -> str:
        """Why a record with these first bytes may have become too long, as a clause behind others; "" if unknown."""
        return ""

    def decided_length(self, data: Bytes) -> int:
        """The length of the part of a range in which find finds all terminators; later ones depend on more bytes."""
        return len(data)

    def next_start(self, source: ByteSource, start: int, limit: int, floor: int) -> int:
        """The first position from start on, and before limit, where a record begins; limit if there is none."""
        if start <= floor:
            return min(floor, limit)
        position = self.anchor(source, start, floor)
        held, needed = self.probe_bytes, 0
        view = FileView(source)
        while position < limit:
            data = view.move(position, position + max(needed, min(held, limit + self.reach - position)))
            stops = self.find(data, view.is_final).stops
            index = int(np.searchsorted(stops, start - position))
            if index < len(stops):
                return min(position + int(stops[index]), limit)
            decided = position + self.decided_length(data)
            if view.is_at_end or decided >= limit:
                return limit
            following = self.anchor(source, decided, floor)
            # Without a step forward the view must grow; otherwise it may, so that few steps are needed.
            needed = 0 if following > position else 2 * len(data)
            held = min(2 * held, self.chunk_bytes)
            position = max(position, following)
        return limit

    def complete_end(self, source: ByteSource) -> int | None:
        """The end of the last terminator that no appended byte can change; searched from the end backwards."""
        end, floor = source.size_bytes, min(self.begin(source), source.size_bytes)
        step = self.probe_bytes
        while (low := max(floor, end - step)) > floor:
            start = self.next_start(GrowingSource(source), low, end + 1, floor)
            if start < end:
                return self.last_stop(source, start)
            step *= 2
        return self.last_stop(source, floor)

    def last_stop(self, source: ByteSource, position: int) -> int:
        """The end of the last terminator that no appended byte can change, from the beginning of a record on."""
        view, held = FileView(source), self.probe_bytes
        while position < source.size_bytes:
            stops = self.find(view.move(position, position + held), False).stops
            if len(stops):
                position, held = position + int(stops[-1]), self.chunk_bytes
            elif view.is_at_end:
                break
            elif held < self.chunk_bytes:
                held *= 2
            else:
                # The end of a record of any length is found without holding the record in memory.
                stop = self.end_of_record(GrowingSource(source), position)
                if stop is None:
                    break
                position = stop
        return position

    def end_of_record(self, source: GrowingSource, position: int) -> int | None:
        """The end of the record that begins at position, or None if the file so far does not decide it."""
        stop = self.next_start(source, position + 1, source.size_bytes + 1, position)
        return stop if stop <= source.size_bytes else None

"""Formats whose records are ended by something that a scan from left to right finds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from dagflow.api.properties import Count, Size
from dagflow.api.records import NO_DELIMITER, Delimiters, RecordBatch
from dagflow.errors import RecordError
from operators.files.metadata import BlockMetadata
from operators.reader.formats.base import Account, ByteSource, RecordFormat
from operators.reader.formats.framing import frame_adjacent, one_unended
from operators.reader.formats.positions import Positions
from operators.reader.formats.sliding_buffer import Bytes, Growing, Window, read_exactly

PROBE_BYTES = 4 << 10
"""The first step of reading beyond a block, or of looking for its first record; it doubles from there."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Terminators:
    """What ends records in a stretch of bytes.

    Attributes:
        starts: Where each terminator begins, ascending.
        stops: One past where it ends.
        codes: For each the index of its bytes in the format's table; None where all have the first.
    """

    starts: Positions
    stops: Positions
    codes: npt.NDArray[np.uint8] | None = None

    def part(self, start: int, end: int) -> Terminators:
        """Some of them."""
        codes = None if self.codes is None else self.codes[start:end]
        return Terminators(self.starts[start:end], self.stops[start:end], codes)


class Delimited(RecordFormat):
    """The common part of the formats whose records end with a terminator.

    A subclass says where terminators are (find), from where a scan in the middle of a file is right
    (anchor), and which bytes they consist of (table).

    Records are read in chunks; never more is held than a chunk and one record.
    """

    keep_delimiter: Annotated[bool, Field(description="whether records keep the delimiter that ends them")] = False
    max_record: Annotated[
        Size, Field(ge=1, le=1 << 30, description="bytes that a record may have without its delimiter")
    ] = 32 << 20
    on_long: Annotated[
        Literal["fail", "skip", "cut", "reject"],
        Field(description="what becomes of a longer record; cut keeps its first max_record bytes"),
    ] = "fail"
    skip_header: Annotated[Count, Field(ge=0, description="records at the head of each file to pass over")] = 0

    @property
    @abstractmethod
    def table(self) -> tuple[bytes, ...]:
        """The terminators that there are; the first is put behind a last record that has none."""

    @property
    def _probe_bytes(self) -> int:
        return min(PROBE_BYTES, self.chunk_bytes)

    @property
    def reach(self) -> int:
        """How many bytes from its first byte on decide whether and where a terminator ends."""
        return max(map(len, self.table))

    @abstractmethod
    def find(self, data: Bytes, is_at_end: bool) -> Terminators:
        """The terminators in a stretch that begins where a record, or an anchor, is.

        Args:
            data: The stretch.
            is_at_end: Whether it reaches the end of the file; if not, what is undecided is left out.
        """

    def anchor(self, source: ByteSource, position: int, floor: int) -> int:
        """A place at or before position such that a scan from there finds every terminator that ends there or later.

        Args:
            source: The file.
            position: An offset in the file, beyond floor.
            floor: Where the file's first record begins; never looked beyond.
        """
        return max(floor, position - self.reach)

    def read(self, source: ByteSource, block: BlockMetadata, account: Account) -> Iterator[RecordBatch]:
        """The records that begin in a block."""
        limit = min(block.end, source.size_bytes)
        if block.start >= limit:
            return
        floor = self.first_record(source, block)
        if block.start < floor:
            account.skip(block.start, min(floor, limit) - block.start, "header")
        position = self.next_start(source, block.start, limit, floor)
        if self.on_long != "fail" and self.adds_up and floor < block.start < position:
            self._skip_rest(source, block.start, position, floor, account)
        window = Window(source)
        # When so much holds no terminator, the record that it begins with is too long, or as good as that.
        longest = self.max_record + self.reach
        held, beyond = self.chunk_bytes, self._probe_bytes
        while position < limit:
            reach = min(held, max(longest, self.chunk_bytes))
            data = window.move(position, min(position + reach, limit + min(beyond, longest)))
            found = self.find(data, window.is_at_end)
            # A record is taken when it begins in the block; its predecessor's terminator stops at its first byte.
            count = int(np.searchsorted(found.stops[:-1], limit - position)) + 1 if len(found.stops) else 0
            if count:
                yield from self._batches(window, found, count, block, account, limit)
                position += int(found.stops[count - 1])
                held, beyond = self.chunk_bytes, self._probe_bytes
            elif window.is_at_end:
                yield from self._last(window, block, account)
                return
            elif self.is_long(data):
                start = position
                if self.on_long != "fail":
                    position = self._release(source, start, limit)
                yield from self._long(data, block, account, start, position - start)
            else:
                held, beyond = 2 * held, 2 * beyond
                longest = max(longest, 2 * len(data)) if len(data) >= longest else longest

    def begin(self, source: ByteSource) -> int:
        """Called before a block is read; gives the length of the file's byte order mark."""
        head = read_exactly(source, 0, len(BYTE_ORDER_MARK)).tobytes()
        return len(head) if head == BYTE_ORDER_MARK else 0

    def settled(self, data: Bytes) -> int:
        """Up to where find has told of every terminator that stops there; what follows depends on more bytes."""
        return len(data)

    def is_long(self, data: Bytes) -> bool:
        """Whether a stretch that begins at a record, and in which find found nothing, has a record that is too long."""
        return len(data) >= self.max_record + self.reach

    def first_record(self, source: ByteSource, block: BlockMetadata) -> int:
        """Where the file's first record begins, behind byte order mark and header, or some place beyond the block."""
        floor = self.begin(source)
        if self.skip_header:
            floor = self._skip_records(source, floor, min(block.end, source.size_bytes))
        return floor

    def _skip_records(self, source: ByteSource, floor: int, limit: int) -> int:
        window = Window(source)
        position, remaining = floor, self.skip_header
        while remaining and position < limit:
            found = self.find(window.move(position, position + self._probe_bytes), window.is_at_end)
            if taken := min(remaining, len(found.stops)):
                position += int(found.stops[taken - 1])
                remaining -= taken
            else:
                position = self.next_start(source, position + 1, limit, position)
                remaining -= 1
        return position

    def next_start(self, source: ByteSource, start: int, limit: int, floor: int) -> int:
        """The first place from start on, and before limit, where a record begins; limit if there is none.

        Args:
            source: The file.
            start: The first place that counts.
            limit: One past the last.
            floor: Where the file's first record begins.
        """
        if start <= floor:
            return min(floor, limit)
        position = self.anchor(source, start, floor)
        held, needed = self._probe_bytes, 0
        window = Window(source)
        while position < limit:
            data = window.move(position, position + max(needed, min(held, limit + self.reach - position)))
            stops = self.find(data, window.is_final).stops
            index = int(np.searchsorted(stops, start - position))
            if index < len(stops):
                return min(position + int(stops[index]), limit)
            told = position + self.settled(data)
            if window.is_at_end or told >= limit:
                return limit
            following = self.anchor(source, told, floor)
            # Without a step forward the window must grow; otherwise it may, so that few steps are needed.
            needed = 0 if following > position else 2 * len(data)
            held = min(2 * held, self.chunk_bytes)
            position = max(position, following)
        return limit

    def settled_end(self, source: ByteSource) -> int | None:
        """The end of the last terminator that nothing appended can change; looked for from the end backwards."""
        end, floor = source.size_bytes, min(self.begin(source), source.size_bytes)
        step = self._probe_bytes
        while (low := max(floor, end - step)) > floor:
            # Not a subclass's own: one that takes any place for a record's beginning would mislead.
            start = Delimited.next_start(self, Growing(source), low, end + 1, floor)
            if start < end:
                return self._last_stop(source, start)
            step *= 2
        return self._last_stop(source, floor)

    def _last_stop(self, source: ByteSource, position: int) -> int:
        """The end of the last terminator that is certain, from the beginning of a record on."""
        window, held = Window(source), self._probe_bytes
        while position < source.size_bytes:
            stops = self.find(window.move(position, position + held), False).stops
            if len(stops):
                position, held = position + int(stops[-1]), self.chunk_bytes
            elif window.is_at_end:
                break
            elif held < self.chunk_bytes:
                held *= 2
            else:
                # A record of any length: the end of it is looked for without holding it.
                stop = self.end_of_record(Growing(source), position)
                if stop is None:
                    break
                position = stop
        return position

    def end_of_record(self, source: Growing, position: int) -> int | None:
        """Where the record ends that begins at position, or None if what is there of the file does not tell."""
        stop = Delimited.next_start(self, source, position + 1, source.size_bytes + 1, position)
        return stop if stop <= source.size_bytes else None

    def _batches(
        self,
        window: Window,
        found: Terminators,
        count: int,
        block: BlockMetadata,
        account: Account,
        limit: int,
    ) -> Iterator[RecordBatch]:
        if int(found.stops[count - 1]) <= self.max_record:
            yield self._framed(window, found.part(0, count), 0, block, account)
            return
        starts = np.concatenate(([0], found.stops[: count - 1]))
        done = 0
        for index in np.flatnonzero(found.starts[:count] - starts > self.max_record).tolist():
            if index > done:
                yield self._framed(window, found.part(done, index), int(starts[done]), block, account)
            start = int(starts[index])
            # What lies both beyond the block, and beyond what its owner keeps of a long record, others skip.
            end = min(int(found.stops[index]), max(start + self._kept_bytes, limit - window.start))
            yield from self._long(window.data[start:], block, account, window.start + start, end - start)
            done = index + 1
        if count > done:
            yield self._framed(window, found.part(done, count), int(starts[done]), block, account)

    def _framed(
        self, window: Window, found: Terminators, start: int, block: BlockMetadata, account: Account
    ) -> RecordBatch:
        if unframed := self.unframed_bytes(window, found):
            account.delimit(unframed)
        return self.frame(window, found, start, block)

    def unframed_bytes(self, window: Window, found: Terminators) -> int:
        """How many bytes of terminators frame leaves out of its batch."""
        return 0

    def frame(self, window: Window, found: Terminators, start: int, block: BlockMetadata) -> RecordBatch:
        """Make a batch of records that lie side by side.

        Args:
            window: Holds them.
            found: What ends each, at least one.
            start: Where the first begins in the window.
            block: Their block.
        """
        borders = np.empty(len(found.stops) + 1, np.int32)
        borders[0] = start
        borders[1:] = found.stops
        delimiters = NO_DELIMITER if self.keep_delimiter else _delimiters(self.table, found.codes)
        return frame_adjacent(window.buffer, borders, delimiters, block, window.start)

    def _last(self, window: Window, block: BlockMetadata, account: Account) -> Iterator[RecordBatch]:
        size = len(window.data)
        if not size:
            return
        if size > self.max_record:
            length = min(size, max(self._kept_bytes, block.end - window.start))
            yield from self._long(window.data, block, account, window.start, length)
            return
        ending = b"" if self.keep_delimiter else self.table[0]
        # Not framed: its delimiter is not in the file.
        yield one_unended(window.data.tobytes(), ending, block, window.start)

    @property
    def _kept_bytes(self) -> int:
        """Bytes that a record may have that is not too long, with its delimiter."""
        return self.max_record + max(map(len, self.table))

    def _release(self, source: ByteSource, start: int, limit: int) -> int:
        """Up to where the block that a long record begins in accounts for it; see _skip_rest."""
        end = max(limit, start + self._kept_bytes)
        return min(self.next_start(source, start + self.max_record + 1, end, start), source.size_bytes)

    def _skip_rest(self, source: ByteSource, start: int, end: int, floor: int, account: Account) -> None:
        """Skip what a block has of a long record that begins before it, from where its owner lets go of it.

        The owner accounts for as many bytes as a record that is not too long may have, and for what its own block
        holds of the record. So nobody has to read on to the end of it.

        Args:
            source: The file.
            start: Where the block begins.
            end: Where its first record begins, or where it ends.
            floor: Where the file's first record begins.
            account: Takes it in.
        """
        kept = self._kept_bytes
        step = self._probe_bytes
        begin = None
        while begin is None and (low := max(floor, start - min(step, kept))) < start:
            begin = self._last_start(source, low, start, floor)
            if low == floor or step >= kept:
                break
            step *= 2
        released = start if begin is None else max(start, begin + kept)
        if released < end:
            account.skip(released, end - released, "the rest of a long record")

    def _last_start(self, source: ByteSource, low: int, high: int, floor: int) -> int | None:
        """The last place in [low, high) where a record begins, or None."""
        first = self.next_start(source, low, high, floor)
        if first >= high:
            return None
        data = read_exactly(source, first, high + self.reach)
        stops = self.find(data, first + len(data) >= source.size_bytes).stops
        inside = stops[stops < high - first]
        return first + int(inside[-1]) if len(inside) else first

    def _long(
        self, data: Bytes, block: BlockMetadata, account: Account, offset: int, length: int
    ) -> Iterator[RecordBatch]:
        raw = data[: self.max_record].tobytes()
        reason = f"the record is longer than max_record, {self.max_record} bytes"
        if self.on_long == "fail":
            hint = "raise max_record, or say what shall become of long records with on_long: skip, cut or reject"
            raise RecordError(reason, url=block.url, offset=offset, length=len(raw), hint=hint)
        if self.on_long == "reject":
            account.reject(offset, len(raw), reason, raw)
        elif self.on_long == "skip":
            account.skip(offset, len(raw), "long record")
        else:
            yield one_unended(raw, b"" if self.keep_delimiter else self.table[0], block, offset)
        if length > len(raw):
            account.skip(offset + len(raw), length - len(raw), "the rest of a long record")


def _delimiters(table: tuple[bytes, ...], codes: npt.NDArray[np.uint8] | None) -> Delimiters:
    """Delimiters in their simplest form."""
    if codes is None:
        return Delimiters(table[:1])
    if (codes == codes[0]).all():
        return Delimiters((table[codes[0]],))
    return Delimiters(table, codes)

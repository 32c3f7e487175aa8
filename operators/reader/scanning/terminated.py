"""Finds where terminated records begin and end, from any position of a file on."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dagflow.api.records import Delimiters
from operators.reader.byte_source import ByteSource, GrowingSource, whole_of
from operators.reader.formats.base import RecordFormat
from operators.reader.scanning.file_view import Bytes, FileView, read_exactly
from operators.reader.scanning.holes import LEAST_HOLE, has_nul_unit, nuls_from
from operators.reader.scanning.positions import Positions

PROBE_BYTES = 4 << 10
"""The first step of reading beyond a block, or of searching its first record; it doubles from there."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Terminators:
    """The terminators of records in a range of bytes.

    Attributes:
        starts: Where each terminator begins, ascending.
        stops: One past the end of each.
        codes: For each the index of its bytes in the format's table; None where all have the first.
    """

    starts: Positions
    stops: Positions
    codes: npt.NDArray[np.uint8] | None = None

    def part(self, start: int, end: int) -> Terminators:
        """The terminators [start, end)."""
        codes = None if self.codes is None else self.codes[start:end]
        return Terminators(self.starts[start:end], self.stops[start:end], codes)

    def delimiters(self, table: tuple[bytes, ...]) -> Delimiters:
        """The terminators as delimiters of a batch, in their simplest form.

        Args:
            table: The bytes of each code.
        """
        if self.codes is None:
            return Delimiters(table[:1])
        if (self.codes == self.codes[0]).all():
            return Delimiters((table[self.codes[0]],))
        return Delimiters(table, self.codes)


class TerminatedFormat(RecordFormat):
    """A format whose records end with a terminator that a scan from left to right finds.

    A subclass finds terminators (find), gives a position from which a scan in the middle of a file is correct (anchor),
    and the bytes of terminators (table).
    """

    # The file that was read last, and the NULs at its head: each block asks for them.
    _hole: tuple[ByteSource, int] | None = None

    @property
    @abstractmethod
    def table(self) -> tuple[bytes, ...]:
        """The bytes of each kind of terminator; the first is added to a last record that has none."""

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
    def unit_bytes(self) -> int:
        """Bytes in a code unit of the text."""
        return 1

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
        """The first position from start on, and before limit, where a record begins; limit if there is none.

        Args:
            source: The file.
            start: The first position that counts.
            limit: One past the last position that counts.
            floor: Where the file's first record begins.
        """
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

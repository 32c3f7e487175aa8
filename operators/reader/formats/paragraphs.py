"""Paragraphs: records with blank lines between them."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.records import RECORD, Delimiters, Origin, RecordBatch
from operators.reader.byte_source import Bytes, ByteSource, FileView, read_exactly
from operators.reader.columns.record_parsing import RecordParsing
from operators.reader.formats.base import ByteAccounting, Parsed
from operators.reader.scanning.delimited import BlockView, Delimited
from operators.reader.scanning.framing import frame_apart, pieces_of
from operators.reader.scanning.search import CR, LF, Positions, Terminators, first_hole, last_position, positions_of

SPACE = ord(" ")
BLANK_LINE = Delimiters((b"\n\n",))


class Paragraphs(RecordParsing, Delimited):
    """Groups of lines with one or more blank lines between them, as in package lists and mail headers.

    A blank line holds nothing but spaces, tabs and other bytes up to 32. Lines end with LF; a CR before the
    last one's LF is not part of the record. Blank lines before the first paragraph are skipped. Written
    back, a paragraph is followed by one blank line. With columns, a paragraph is lines of name, colon and value, unless
    another way is given.
    """

    name: ClassVar[str] = "paragraphs"
    needs_size = False
    table = BLANK_LINE.table

    def check_properties(self) -> None:
        """Bytes do not add up where long paragraphs are left out: any number of blank lines may follow another."""
        traits = replace(self.traits, adds_up=self.on_long == "fail", columns=StreamColumns.raw())
        self._has_columns = self.choose_way(otherwise="fields")
        self.traits = traits.with_columns(self.parsed_schema()) if self._has_columns else traits

    def parse(self, batch: RecordBatch, accounting: ByteAccounting) -> Parsed:
        return self.parse_texts(batch, accounting) if self._has_columns else Parsed(batch)

    def begin(self, source: ByteSource) -> int:
        """Skip the byte order mark, and blank lines at the head of the file."""
        line, _, has_text = self._next_line(source, super().begin(source))
        return line if has_text else source.size_bytes

    def complete_end(self, source: ByteSource) -> int | None:
        """See RecordFormat. If all lines so far are blank, the last one may become the first of a paragraph."""
        line, _, has_text = self._next_line(source, super().begin(source))
        return super().complete_end(source) if has_text else line

    def _next_line(self, source: ByteSource, position: int) -> tuple[int, int, bool]:
        """Where the first line from a position on begins that is not blank, or else the last one.

        Also how many line feeds are before it, and whether it holds text.
        """
        line, feeds, has_text = position, 0, False
        while position < source.size_bytes and not has_text:
            data = read_exactly(source, position, position + self.chunk_bytes)
            ink = np.flatnonzero(data > SPACE)
            has_text = len(ink) > 0
            found = positions_of(data[: ink[0]] == LF) if has_text else positions_of(data == LF)
            if len(found):
                feeds, line = feeds + len(found), position + int(found[-1]) + 1
            position += len(data)
        return line, feeds, has_text

    def find(self, data: Bytes, is_at_end: bool) -> Terminators:
        """The ends of paragraphs: from the newline of the last line to the next line that is not blank."""
        is_feed = data == LF
        if len(data) > self.chunk_bytes:
            # Newlines between newlines decide nothing, and a run of them may be long.
            is_feed[1:-1] &= (data[:-2] != LF) | (data[2:] != LF)
        feeds = positions_of(is_feed)
        lines = np.append(0, feeds + 1)
        has_text = _has_text(data, lines)
        if lines[-1] == len(data) or not (has_text[-1] or is_at_end):
            lines, has_text = lines[:-1], has_text[:-1]
        if not len(lines):
            return Terminators(feeds, feeds)
        changes = has_text[1:] != has_text[:-1]
        starts = feeds[np.flatnonzero(changes & has_text[:-1])]
        stops = lines[np.flatnonzero(changes & has_text[1:]) + 1]
        starts = starts - (data[starts - 1] == CR)
        if not has_text[0]:
            starts = np.append(0, starts)
        if is_at_end and has_text[-1] and data[-1] == LF:
            starts = np.append(starts, len(data) - 1 - int((data[-2:-1] == CR).any()))
        if is_at_end and len(stops) < len(starts):
            stops = np.append(stops, len(data))
        return Terminators(starts[: len(stops)], stops)

    def anchor(self, source: ByteSource, position: int, floor: int) -> int:
        """The start of the line before position if it may be blank, else a byte in it that is not blank."""
        place = position - 1
        step = min(64, self.chunk_bytes)
        while place > floor:
            low = max(floor, place - step)
            data = read_exactly(source, low, place)
            found = positions_of((data > SPACE) | (data == LF))
            if len(found):
                last = int(found[-1])
                return low + last + int(data[last] == LF)
            place, step = low, 2 * step
        return floor

    def decided_length(self, data: Bytes) -> int:
        """All bytes but the last line, if that is blank so far."""
        last = 1 + last_position(data == LF)
        return len(data) if (data[last:] > SPACE).any() else last

    def _found_in(self, view: FileView) -> Terminators:
        """See Delimited. Blank lines in any number behind a paragraph are not held, unless they are kept with it."""
        found, data = super()._found_in(view), view.data
        if len(found.stops) or view.is_at_end or self.keep_delimiter:
            return found
        ends = self.find(data[: 1 + last_position(data > SPACE) + self.chunk_bytes // 2], True)
        behind = data[int(ends.starts[0]) :] if len(ends.stops) else data
        if (behind > SPACE).any() or np.count_nonzero(behind == LF) < 2:
            return found
        # The last line is blank only as far as it is held.
        line = view.start + 1 + last_position(data == LF)
        end = self.next_start(view.source, line, view.source.size_bytes, view.start)
        return Terminators(ends.starts[:1], np.array([min(end, view.source.size_bytes) - view.start]))

    def is_long(self, data: Bytes) -> bool:
        """Whether a byte beyond max_record is not blank: no number of blank lines makes a record long."""
        return bool((data[self.max_record :] > SPACE).any())

    def _text_before_hole(self, view: FileView, found: Terminators, count: int) -> int | None:
        """See Delimited. A paragraph that is ended, but for the first line behind it, is not too long."""
        text, data = super()._text_before_hole(view, found, count), view.data
        ended = self.find(data, True) if text is not None and not count else found
        if text is None or count or not len(ended.stops) or (end := int(ended.starts[0])) > self.max_record:
            return text
        hole = None if data[self.max_record :].any() else first_hole(data[end : self.max_record])
        return None if hole is None else end + hole

    def _behind_hole(self, view: BlockView, text: int, position: int) -> tuple[int, bool]:
        """See Delimited. Blank lines behind a hole end the paragraph; NULs are blank."""
        start, source = position, view.source
        line, feeds, has_text = self._next_line(source, start)
        position = line if has_text else source.size_bytes
        if start < position:
            view.accounting.count_delimiters(position - start)
        begun = view.data[:text][1 + last_position(view.data[:text] == LF) :]
        return position, feeds > int((begun > SPACE).any())

    def frame(self, view: BlockView, found: Terminators, start: int | Positions) -> RecordBatch:
        """Make a batch of paragraphs, each with one blank line behind it."""
        if self.keep_delimiter:
            return super().frame(view, found, start)
        starts = np.append(start, found.stops[:-1]) if isinstance(start, int) else start
        data = view.data
        if _is_plain(data, found):
            return frame_apart(view.buffer, starts, found.starts + 2, BLANK_LINE, view.block, view.start)
        column = pieces_of(view.buffer, starts, found.starts)
        arrow = pa.RecordBatch.from_arrays([column], [RECORD])
        return RecordBatch(arrow, delimiters=BLANK_LINE, origin=Origin((view.block,), starts, view.start))


def _is_plain(data: Bytes, found: Terminators) -> bool:
    """Whether each paragraph is followed by one blank line, at least, in its simplest form."""
    starts = found.starts
    return bool((found.stops >= starts + 2).all() and (data[starts] == LF).all() and (data[starts + 1] == LF).all())


def _has_text(data: Bytes, lines: Positions) -> npt.NDArray[np.bool_]:
    """For each line, given where it begins, whether it holds a byte above 32; the last one may be empty."""
    inside = lines[:-1] if lines[-1] == len(data) else lines
    first = data[inside]
    has_text = np.zeros(len(lines), bool)
    has_text[: len(inside)] = first > SPACE
    # Only lines that begin with a blank other than a newline need a check of the rest of them.
    doubtful = np.flatnonzero((first <= SPACE) & (first != LF))
    if len(doubtful):
        counts = np.concatenate(([0], np.cumsum(data > SPACE, dtype=np.int32)))
        ends = np.append(lines[1:], len(data))[doubtful]
        has_text[doubtful] = counts[ends] > counts[lines[doubtful]]
    return has_text

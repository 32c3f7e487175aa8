"""The members of an array of a JSON document as records."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from dagflow.api.properties import Size
from dagflow.api.records import LINE_FEED, RecordBatch
from operators.files.metadata import BlockMetadata
from operators.reader.byte_source import ByteSource, FileView, encoding_of, read_exactly, size_read_from
from operators.reader.columns.json_records import JsonRecords
from operators.reader.columns.machine_code import MachineCode
from operators.reader.columns.typing import shown
from operators.reader.formats.base import BATCH_RECORDS, SHOWN_BYTES, Binary, ByteAccounting, FormatTraits, PreScanned
from operators.reader.scanning.framing import frame_apart, frame_one
from operators.reader.scanning.json_structure import (
    Effect,
    Entry,
    JsonPiece,
    effects_of,
    first_text,
    next_separator,
    text_before,
    text_from,
)
from operators.reader.scanning.search import BYTE_ORDER_MARK, LF, Positions, positions_of

PAIRS = MachineCode("operators.reader.columns.byte_kernels.find_pairs")
"""Machine code that finds where members end."""

_NAME = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_BORDER = re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*\{")
_MOST_NAME_BYTES = _PROBE_BYTES = 4 << 10
_SHOWN_NAMES = 12


Place = tuple[int, str, str]
"""Where the members of a file's array begin; or 0, why it has no such array, and what else to do."""


class Json(JsonRecords, PreScanned):
    """The members of one array of a JSON document in UTF-8: of the document itself, or of one within its objects.

    The file is never held as a whole. A member that is not JSON is refused; the members around it are read if its
    brackets and quotes are balanced, and otherwise the rest of the file is refused with it. Records are the members as
    they are written; with columns they are JSON objects, and are emitted as columns.
    """

    name: ClassVar[str] = "json"
    needs_size = False
    traits = FormatTraits(is_text=True)
    chunk_bytes = 2 << 20

    records: Annotated[
        str,
        Field(
            pattern=r"^\$(\.[^.\[\]]+)*\[\*\]$",
            description="the array whose members are records: $[*] for the document itself, $.data.items[*] for the "
            "array items in the object data",
        ),
    ] = "$[*]"
    binary: Binary = "refuse"
    max_record: Annotated[
        Size, Field(ge=1, le=1 << 30, description="maximum bytes of a member; a longer one is refused")
    ] = 32 << 20

    def check_properties(self) -> None:
        super().check_properties()
        self._names = self.records.removesuffix("[*]").split(".")[1:]
        self._place: tuple[object, Place] = (None, (0, "", ""))

    def complete_end(self, source: ByteSource) -> None:
        """A longer file is another document."""

    def prescan(self, source: ByteSource, block: BlockMetadata) -> tuple[Effect, Effect]:
        begin, _, _ = self._array(source, block)
        return effects_of(source, max(block.start, begin), min(block.end, source.size_bytes), begin)

    def exit_state(self, entry_state: int, result: Any) -> int:
        entry = Entry.of(entry_state)
        effect: Effect = result[entry.in_string]
        if entry.phase >= 2:
            return Entry(0, False, 3 if effect.has_text else entry.phase).code
        lowest = entry.depth + effect.lowest
        if lowest <= self.outside:
            return Entry(0, False, 3 if lowest < self.outside or effect.is_followed else 2).code
        return Entry(entry.depth + effect.change, effect.in_string, entry.phase or int(lowest < 0)).code

    @property
    def outside(self) -> int:
        """The level behind the document."""
        return -1 - len(self._names)

    def read(self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting) -> Iterator[RecordBatch]:
        limit = min(block.end, source.size_bytes)
        if block.start >= limit:
            return
        begin, problem, remedy = self._array(source, block)
        if problem:
            accounting.refuse_file(source, block, problem, remedy)
            return
        for batch in _Reading(source, block, accounting, begin, self).batches():
            yield from self.narrow(batch)

    def _array(self, source: ByteSource, block: BlockMetadata) -> Place:
        file = (block.url, block.version)
        if self._place[0] != file:
            self._place = (file, self._find_array(source))
        return self._place[1]

    def _find_array(self, source: ByteSource) -> Place:
        encoding, evidence = encoding_of(source)
        if encoding:
            reason = f"the file is in {encoding.upper()}, {evidence}; convert such files to UTF-8 first, as with iconv"
            return 0, reason, ""
        mark = len(BYTE_ORDER_MARK)
        position = mark if read_exactly(source, 0, mark).tobytes() == BYTE_ORDER_MARK else 0
        position = text_from(source, position, source.size_bytes)
        where = "$"
        for name in self._names:
            members = _members(source, position, name)
            if name not in members:
                has = f"; it has {', '.join(map(shown, [*members][:_SHOWN_NAMES]))}" if members else ""
                return 0, f"there is no array at {self.records}: {where} has no member {name!r}{has}", ""
            position, where = members[name], f"{where}.{name}"
        first = _byte_at(source, position)
        if first == b"[":
            return position + 1, "", ""
        kind = "an object" if first == b"{" else "no array"
        remedy = "; or read files with a JSON value in each line as json_lines, and others as whole_file"
        if arrays := [name for name, at in _members(source, position).items() if _byte_at(source, at) == b"["]:
            remedy = f"; or name the array, as with records: {where}.{arrays[0]}[*]{remedy}"
        return 0, f"there is no array at {self.records}: {where} is {kind}", remedy


def _byte_at(source: ByteSource, position: int) -> bytes:
    return read_exactly(source, position, position + 1).tobytes()


def _members(source: ByteSource, position: int, wanted: str | None = None) -> dict[str, int]:
    """Where the values of the first members of an object begin, up to the wanted one; none of another value."""
    found: dict[str, int] = {}
    is_closed = _byte_at(source, position) != b"{"
    while not is_closed and position < source.size_bytes and (wanted is not None or len(found) < _SHOWN_NAMES):
        begin = text_from(source, position + 1, source.size_bytes)
        if match := _NAME.match(read_exactly(source, begin, begin + _MOST_NAME_BYTES).tobytes()):
            colon = text_from(source, begin + match.end(), source.size_bytes)
            with suppress(ValueError):
                name = json.loads(match[0])
                if _byte_at(source, colon) == b":":
                    found.setdefault(name, text_from(source, colon + 1, source.size_bytes))
                if name == wanted:
                    break
        position, is_closed = next_separator(source, position + 1, position + 1, Entry())
    return found


class _Reading:
    """Reads one block.

    Args:
        begin: Where the array's first member may begin.

    Attributes:
        limit: Where the block ends.
        separator: Where the bracket or comma before the next member is.
        end: The end of the last member, with its delimiter, or of another reject.
        accounted: Where the block's own bytes begin, and on top of it the bytes of members, delimiters and rejects.
        guesses: Whether commas between objects have been between members so far.
    """

    def __init__(
        self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting, begin: int, format: Json
    ) -> None:
        self.source, self.block, self.accounting, self.begin, self.format = source, block, accounting, begin, format
        self.limit = min(block.end, source.size_bytes)
        self.accounted = self.end = block.start
        self.separator = begin - 1
        self.guesses = True

    def batches(self) -> Iterator[RecordBatch]:
        """The members that begin in the block; counts the bytes between them as skipped."""
        entry, position = Entry.of(self.block.entry_state), self.block.start
        if entry.phase == 3:
            return
        is_closed = entry.phase > 0
        if not is_closed and self.begin <= self.limit:
            is_closed = self._enter(entry) or (yield from self._members())
            entry, position = Entry(-1, False, 1), self.separator + 1
        if is_closed:
            self._refuse_other(position, entry)
        skipped = max(self.end, min(self.limit, self.source.size_bytes)) - self.accounted
        if skipped > 0:
            self.accounting.skip(self.block.start, skipped, "between members")

    def _enter(self, entry: Entry) -> bool:
        """Find the first separator; returns whether it closes the array."""
        start = self.block.start
        before = text_before(self.source, start, self.begin)
        if before <= self.begin or (_byte_at(self.source, before - 1) == b"," and not (entry.depth or entry.in_string)):
            self.separator = before - 1
            return False
        self.separator, is_closed = next_separator(self.source, start, self.begin, entry)
        # A member that never ends has all the rest of the file, and others the byte behind them.
        end = self.separator
        if end < self.source.size_bytes:
            end = text_before(self.source, end, self.begin) + 1
        self.accounted = max(start, end)
        return is_closed

    def _members(self) -> Generator[RecordBatch, None, bool]:
        """Read members from the separator on; returns whether the array ends in what was read."""
        view, position, is_closed = FileView(self.source), self.separator + 1, False
        while not is_closed and self.separator < self.limit:
            end = min(position + self.format.chunk_bytes, max(position, self.limit) + _PROBE_BYTES)
            data = view.move(position, end)
            if self.guesses and (guess := self._guess(view)) is not None:
                yield guess
                position = self.separator + 1
                continue
            piece, text = JsonPiece.of(data), first_text(data)
            found, is_closed = piece.separators(0)
            if len(found):
                is_empty = is_closed and self.separator < self.begin and text == found[-1]
                self.separator = position + int(found[-1])
                if not is_empty:
                    yield from self._complete(view, *piece.trimmed(found))
                position = self.separator + 1
            elif text >= 0 and position + text < self.limit:
                is_closed = yield from self._take_spread(position + text)
                position = self.separator + 1
            elif text < 0 and not view.is_at_end:
                position = view.end
            else:
                if text < 0 and self.block.start <= self.separator:
                    self._reject(self.separator, 0, "the file ends within the array: it is cut")
                break
        return is_closed

    def _guess(self, view: FileView) -> RecordBatch | None:
        """Members that are objects, if the bytes between the first two are between all; moves the separator.

        What begins as a member and is a JSON value is the member. So parsing, which must be done anyway, proves the
        guess, and brackets and quotes need not be looked at.
        """
        data, match = view.data, _BORDER.search(view.buffer)
        first = first_text(data)
        if match is None or first < 0 or data[first] != ord("{"):
            return None
        border = match[0]
        find = PAIRS.after(len(data))
        if find is None:
            ends = positions_of((data[:-1] == border[0]) & (data[1:] == border[1]))
        else:
            ends = find(data, border[0], border[1])
        ends = ends[: np.searchsorted(ends, len(data) - len(border) + 1)]
        for index in range(2, len(border)):
            ends = ends[data[ends + index] == border[index]]
        starts = np.append(first, ends + len(border) - 1)[:-1]
        count = min(int(np.searchsorted(starts, self.limit - view.start)), BATCH_RECORDS)
        starts, stops = starts[:count], ends[:count] + 1
        if not count or int((stops - starts).max()) > self.format.max_record:
            return None
        behind = data[stops]
        data[stops] = LF
        batch = frame_apart(view.buffer, starts, stops + 1, LINE_FEED, self.block, view.start)
        self.guesses = self.format.proves(batch)
        if not self.guesses:
            data[stops] = behind
            return None
        self.separator = view.start + int(stops[-1]) + border.index(b",") - 1
        self._cover(int((stops + 1 - starts).sum()), view.start + int(stops[-1]) + 1)
        return batch

    def _complete(self, view: FileView, starts: Positions, stops: Positions) -> Iterator[RecordBatch]:
        """Members in a view that begin in the block; where one is missing, the separator behind it is refused."""
        data, position = view.data, view.start
        count = int(np.searchsorted(starts, self.limit - position))
        starts, stops = starts[:count], stops[:count]
        if not count:
            return
        is_empty = starts == stops
        if is_empty.any():
            raws = [bytes([mark]) for mark in data[starts[is_empty]].tolist()]
            reasons = [f"a member is missing before '{raw.decode()}'" for raw in raws]
            self.accounting.reject_all((position + starts[is_empty]).tolist(), raws, reasons)
        is_long = stops - starts > self.format.max_record
        for start, stop in zip(starts[is_long].tolist(), stops[is_long].tolist(), strict=True):
            self._refuse_long(position + start, position + stop)
        rows = np.flatnonzero(~(is_empty | is_long))
        self._cover(int((stops + 1 - starts)[~is_long].sum()), position + int(stops[-1]) + 1)
        # With the delimiter of lines, members are parsed like them.
        data[stops[rows]] = LF
        for index in range(0, len(rows), BATCH_RECORDS):
            part = rows[index : index + BATCH_RECORDS]
            yield frame_apart(view.buffer, starts[part], stops[part] + 1, LINE_FEED, self.block, position)

    def _take_spread(self, start: int) -> Generator[RecordBatch, None, bool]:
        """Read a member that is long, or far from its separator; returns whether the array ends there."""
        self.separator, is_closed = next_separator(self.source, start, self.begin, Entry())
        if self.separator >= self.source.size_bytes:
            reason = "the file ends within the array: it is cut, or this member's brackets or quotes are not closed"
            self._reject(start, self.source.size_bytes - start, reason)
            return False
        stop = text_before(self.source, self.separator, self.begin)
        if stop - start > self.format.max_record:
            self._refuse_long(start, stop)
        else:
            yield frame_one(read_exactly(self.source, start, stop).tobytes(), b"\n", self.block, start)
            self._cover(stop + 1 - start, stop + 1)
        return is_closed

    def _refuse_long(self, start: int, stop: int) -> None:
        self._reject(start, stop - start, f"the member is longer than max_record, {self.format.max_record} bytes")
        self.accounting.count_delimiters(1)
        self._cover(1, stop + 1)

    def _reject(self, start: int, length: int, reason: str) -> None:
        raw = read_exactly(self.source, start, start + min(length, SHOWN_BYTES)).tobytes()
        self.accounting.reject(start, length, reason, raw)
        self._cover(length, start + length)

    def _cover(self, size_bytes: int, end: int) -> None:
        """Note bytes of members, their delimiters and other rejects, and where they end."""
        self.accounted += size_bytes
        self.end = max(self.end, end)

    def _refuse_other(self, position: int, entry: Entry) -> None:
        """Refuse what follows the document, from a position behind the array on."""
        depth, is_closed = entry.depth - self.format.outside - 1, entry.phase == 2
        entry = Entry(depth, entry.in_string)
        while depth >= 0 and not is_closed and position < self.limit:
            position, is_closed = next_separator(self.source, position, self.begin, entry, self.limit)
            position, entry = position + 1, Entry()
        other = text_from(self.source, position, self.limit)
        if other < min(self.limit, self.source.size_bytes):
            reason = "other text follows the document; read several documents, one a line, as json_lines"
            self._reject(other, size_read_from(self.source, other) - other, reason)

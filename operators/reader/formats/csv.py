"""CSV, with newlines inside of quotes, read in parallel by blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
from pydantic import Field

from dagflow.api.records import RecordBatch
from dagflow.errors import RecordError
from operators.files.metadata import BlockMetadata
from operators.reader.formats.base import Account, ByteSource, Parsed
from operators.reader.formats.columns import ColumnTypes, arrow_type, parse_columns, reject, valid_text
from operators.reader.formats.delimited import BYTE_ORDER_MARK, Delimited, Terminators
from operators.reader.formats.framing import borders_of, joined
from operators.reader.formats.lines import find_newlines
from operators.reader.formats.positions import contains, positions_of
from operators.reader.formats.quoting import (
    CR,
    INSIDE,
    LF,
    OUTSIDE,
    Dialect,
    Quoting,
    Transition,
    quoting_of,
    undecided_from,
)
from operators.reader.formats.search import Look, escaped_places
from operators.reader.formats.sliding_buffer import Bytes, Growing, Window, read_exactly

Character = Annotated[str, Field(min_length=1, max_length=1, pattern=r"^[\x01-\x7e]$")]


class Csv(Delimited):
    """Rows of fields as in RFC 4180: fields in quotes may hold newlines, delimiters and doubled quotes.

    A quote opens a field only where one begins; elsewhere it is a character like any other. Rows end with LF,
    CR LF or CR outside of quotes; empty lines are passed over. A row with another number of fields than there
    are columns, or a field that is not of its column's type, is refused; an empty field is null where the
    type is not text. A file of several blocks is surveyed first: nobody can tell from the middle of it whether
    a newline is inside of quotes.
    """

    name: ClassVar[str] = "csv"

    delimiter: Annotated[Character, Field(description="what stands between fields")] = ","
    quote: Annotated[Character, Field(description="what stands around fields")] = '"'
    escape: Annotated[Character | None, Field(description="what makes the next character literal")] = None
    header: Annotated[bool, Field(description="whether the first row names the columns")] = True
    columns: Annotated[
        list[str] | ColumnTypes | None,
        Field(description="names of the columns, or a type for each name; with a header, types for some of them"),
    ] = None

    def check_options(self) -> None:
        """Refuse characters that mean two things, and columns without names."""
        given = [self.delimiter, self.quote, *([self.escape] if self.escape else []), "\n", "\r"]
        if len(set(given)) < len(given):
            raise ValueError("delimiter, quote, escape and newlines must be different characters")
        if not self.header and not self.columns:
            raise ValueError("columns must be given where there is no header")
        twice = [name for name, count in Counter(list(self.columns or ())).items() if count > 1]
        if twice:
            raise ValueError(f"columns: '{twice[0]}' is there twice")
        self._dialect = Dialect(ord(self.delimiter), ord(self.quote), ord(self.escape) if self.escape else -1)
        self._types = dict(self.columns) if isinstance(self.columns, dict) else {}
        self._names = tuple(self.columns or ())
        self._headed: tuple[object, int] | None = None
        self._entered: tuple[int, int] = (0, OUTSIDE)
        for name in self._types:
            try:
                self._read(b"\n", (name,), Counter())
            except pa.ArrowNotImplementedError:
                raise ValueError(f"columns: the type {self._types[name]!r} cannot be read from csv") from None

    @property
    def table(self) -> tuple[bytes, ...]:
        """The three newlines."""
        return (b"\n", b"\r\n", b"\r")

    @property
    def adds_up(self) -> bool:
        """Not where long rows are left out: behind a cut, how long a row is that began before it is not known."""
        return self.on_long == "fail"

    def find(self, data: Bytes, is_at_end: bool) -> Terminators:
        """The newlines outside of quotes in a stretch that begins at a row."""
        return self._find(data, is_at_end, quoting_of(data, self._dialect, True), OUTSIDE)

    def _find(self, data: Bytes, is_at_end: bool, quoting: Quoting, state: int) -> Terminators:
        if not (len(quoting.runs) or len(quoting.escaped) or state):
            return find_newlines(data, is_at_end)
        if not contains(data, CR):
            feeds = positions_of(data == LF)
            feeds = feeds[quoting.state_before(feeds, state) == OUTSIDE]
            if len(quoting.escaped):
                feeds = feeds[~np.isin(feeds, quoting.escaped, assume_unique=True)]
            return Terminators(feeds, feeds + 1)
        newlines = positions_of((data == LF) | (data == CR))
        inside = newlines[quoting.state_before(newlines, state) == INSIDE]
        return find_newlines(data, is_at_end, escaped=np.append(quoting.escaped, inside))

    def read(self, source: ByteSource, block: BlockMetadata, account: Account) -> Iterator[RecordBatch]:
        """The rows that begin in a block, given its entry state."""
        self._entered = (block.start, block.entry_state)
        return super().read(source, block, account)

    def first_record(self, source: ByteSource, block: BlockMetadata) -> int:
        """Where the first row begins behind the header, whose names are kept for the file."""
        file = (block.url, block.version)
        if self.header and (self._headed is None or self._headed[0] != file):
            floor = super().first_record(source, block)
            if floor >= min(block.end, source.size_bytes):
                return floor
            self._headed = (file, self._read_header(source, floor, block.url))
        return self._headed[1] if self._headed is not None else super().first_record(source, block)

    def _read_header(self, source: ByteSource, floor: int, url: str) -> int:
        held = self._probe_bytes
        window = Window(source)
        found = self.find(window.move(floor, floor + held), window.is_at_end)
        while not (len(found.stops) or window.is_at_end or held > 2 * self.max_record):
            held *= 2
            found = self.find(window.move(floor, floor + held), window.is_at_end)
        end = int(found.stops[0]) if len(found.stops) else len(window.data)
        if end > self.max_record + self.reach:
            raise RecordError("the header is longer than max_record", url=url, offset=floor, length=end)
        try:
            names = self._read(window.data[:end].tobytes() + b"\n", None, Counter()).column_names
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            raise RecordError(f"the header cannot be read: {error}", url=url, offset=floor, length=end) from error
        self._check_names(names, url, floor, end)
        return floor + end

    def _check_names(self, names: list[str], url: str, offset: int, length: int) -> None:
        twice = [name for name, count in Counter(names).items() if count > 1]
        absent = [name for name in self._types if name not in names]
        if twice or absent:
            problem = f"column '{twice[0]}' is there twice" if twice else f"there is no column '{absent[0]}'"
            hint = "name the columns with columns, and pass over the header with skip_header: 1 and header: false"
            raise RecordError(f"{problem}; got {', '.join(names)}", url=url, offset=offset, length=length, hint=hint)
        if isinstance(self.columns, list) and len(names) != len(self.columns):
            problem = f"the header has {len(names)} columns, and columns names {len(self.columns)}"
            raise RecordError(problem, url=url, offset=offset, length=length)
        self._names = tuple(self.columns) if isinstance(self.columns, list) else tuple(names)

    def settled_end(self, source: ByteSource) -> int:
        """The end of the last certain row, looked for from the beginning: only there is it known what is quoted."""
        return self._last_stop(source, min(self.begin(source), source.size_bytes))

    def end_of_record(self, source: Growing, position: int) -> int | None:
        """Where the row ends that begins at position, or None if what is there of the file does not tell."""
        size = source.size_bytes
        stop = self._scan(source, position, True, OUTSIDE, position + 1, size + 1)
        # A CR at the very end may be the first half of a newline.
        is_certain = stop < size or (stop == size and read_exactly(source, size - 1, size)[0] == LF)
        return stop if is_certain else None

    def next_start(self, source: ByteSource, start: int, limit: int, floor: int) -> int:
        """The first place from start on where a row begins; start is the block's, or floor the start of a row."""
        if start <= floor:
            return min(floor, limit)
        if start != self._entered[0]:
            return self._scan(source, floor, True, OUTSIDE, start, limit)
        state = self._entered[1]
        position, may_begin = self._entry(source, start, floor)
        around = read_exactly(source, start - 1, start + 1).tobytes()
        follows_newline = may_begin and (around[:1] == b"\n" or (around[:1] == b"\r" and around != b"\r\n"))
        if state == OUTSIDE and position == start and follows_newline:
            return min(start, limit)
        return self._scan(source, position, may_begin, state, start, limit)

    def _entry(self, source: ByteSource, start: int, floor: int) -> tuple[int, bool]:
        """Where to begin in the middle of a file, behind a run of quotes, and whether a field may begin there."""
        if start <= floor:
            return floor, True
        dialect = self._dialect
        low = start - 1
        if dialect.escape >= 0:
            low = Look(source, floor, step=min(64, self.chunk_bytes)).run_start(low, dialect.escape)
        before = read_exactly(source, low, start)
        escaped = escaped_places(before, dialect.escape) + low if dialect.escape >= 0 else np.empty(0, np.int64)
        if start in escaped:
            return start + 1, False
        if start - 1 in escaped:
            return start, False
        if before[-1] != dialect.quote:
            return start, bool(dialect.is_separator(before[-1:])[0])
        while start < source.size_bytes:
            data = read_exactly(source, start, start + self._probe_bytes)
            others = np.flatnonzero(data != dialect.quote)
            if len(others):
                return start + int(others[0]), False
            start += len(data)
        return start, False

    def _stretches(
        self, source: ByteSource, position: int, may_begin: bool, end: int
    ) -> Iterator[tuple[int, Bytes, bool, Quoting, int]]:
        """Position, bytes, whether the file ends there, quotes, and length that is decided, up to end at least."""
        window = Window(source)
        held, needed = self._probe_bytes, 0
        while position < end:
            data = window.move(position, position + max(needed, min(held, end + self._probe_bytes - position)))
            quoting = quoting_of(data, self._dialect, may_begin)
            decided = len(data) if window.is_at_end else undecided_from(data, self._dialect)
            if not decided:
                needed = 2 * len(data)
                continue
            yield position, data, window.is_at_end, quoting, decided
            if window.is_at_end:
                return
            is_escaped = len(quoting.escaped) and bool(np.isin(decided - 1, quoting.escaped))
            may_begin = bool(self._dialect.is_separator(data[decided - 1 : decided])[0]) and not is_escaped
            position, needed, held = position + decided, 0, min(2 * held, self.chunk_bytes)

    def _scan(self, source: ByteSource, position: int, may_begin: bool, state: int, start: int, limit: int) -> int:
        for place, data, is_at_end, quoting, decided in self._stretches(source, position, may_begin, limit):
            stops = self._find(data, is_at_end, quoting, state).stops
            index = int(np.searchsorted(stops, start - place))
            if index < len(stops):
                return min(place + int(stops[index]), limit)
            state = quoting.transition(decided).applied(state)
        return limit

    def needs_prescan(self, block: BlockMetadata) -> bool:
        """Whether a later block depends on this one."""
        return not block.is_last

    def prescan(self, source: ByteSource, block: BlockMetadata) -> Transition:
        """What the quotes that begin in a block do to the state."""
        end = min(block.end, source.size_bytes)
        position, may_begin = self._entry(source, block.start, self.begin(source))
        done = Transition()
        for place, _, _, quoting, decided in self._stretches(source, position, may_begin, end):
            done = done.then(quoting.transition(min(decided, end - place)))
        return done

    def exit_state(self, entry_state: int, finding: Any) -> int:
        """The state behind a block."""
        return int(finding.applied(entry_state))

    def _last(self, window: Window, block: BlockMetadata, account: Account) -> Iterator[RecordBatch]:
        data = window.data
        quoting = quoting_of(data, self._dialect, True)
        if len(data) <= self.max_record and quoting.transition(len(data)).applied(OUTSIDE) == INSIDE:
            account.reject(window.start, len(data), "the quote is never closed", data.tobytes())
        else:
            yield from super()._last(window, block, account)

    def parse(self, batch: RecordBatch, account: Account) -> Parsed:
        """Columns of strings, or of the types that are asked for."""
        lengths = np.diff(borders_of(batch.framed())) - batch.delimiters.lengths()
        is_empty = lengths == 0
        if self.keep_delimiter:
            is_empty |= pc.is_in(batch.record, pa.array(self.table, pa.binary())).to_numpy(zero_copy_only=False)
        if is_empty.any():
            for offset, length in zip(batch.offsets()[is_empty].tolist(), lengths[is_empty].tolist(), strict=True):
                account.skip(offset, length, "empty line")
            batch = batch.take(np.flatnonzero(~is_empty))
        batch = valid_text(batch, account)
        if not len(batch):
            return Parsed(batch)
        wrong: Counter[int] = Counter()
        try:
            table = self._read(joined(batch), self._names, wrong)
            if table.num_rows == len(batch):
                return Parsed(batch, table.combine_chunks().to_batches()[0])
        except pa.ArrowInvalid:
            pass
        for row, count in sorted(wrong.items()):
            reject(batch, row, f"the row has {count} fields; there are {len(self._names)} columns", account)
        right = np.setdiff1d(np.arange(len(batch)), np.array(list(wrong), np.int64))
        return parse_columns(batch.take(right), self._parse_part, account)

    def _parse_part(self, part: RecordBatch) -> pa.Table:
        table = self._read(joined(part), self._names, Counter())
        if table.num_rows != len(part):
            raise pa.ArrowInvalid("The row is not as the quotes around it say")
        return table

    def _read(self, data: Any, names: tuple[str, ...] | None, wrong: Counter[int]) -> pa.Table:
        """Parse rows.

        Args:
            data: The rows, as bytes or a pyarrow.Buffer.
            names: The columns; None takes them from the first row.
            wrong: Takes in, for each row with another number of fields, counted from 0, that number.
        """

        def take_note(row: Any) -> str:
            wrong[row.number - 1] = row.actual_columns
            return "skip"

        # Arrow passes over a mark at the beginning. The file's own is not among the rows: this one is a row's text.
        if bytes(data[: len(BYTE_ORDER_MARK)]) == BYTE_ORDER_MARK:
            data = BYTE_ORDER_MARK + data
        types = {name: arrow_type(self._types.get(name, "string")) for name in names or ()}
        return arrow_csv.read_csv(
            pa.BufferReader(data),
            read_options=arrow_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self.delimiter,
                quote_char=self.quote,
                escape_char=self.escape or False,
                newlines_in_values=True,
                invalid_row_handler=take_note,
            ),
            # That rows are UTF-8 was checked before, and quotes, escapes and delimiters are single ASCII characters.
            # A word such as NA or NaN is no empty field: Arrow would make nulls of a dozen of them.
            convert_options=arrow_csv.ConvertOptions(
                column_types=types, null_values=[""], strings_can_be_null=False, check_utf8=False
            ),
        )

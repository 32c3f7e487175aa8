"""CSV, with newlines inside of quotes, read in parallel by blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import AfterValidator, Field

from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.properties import Count
from dagflow.api.records import RecordBatch
from dagflow.late import compute as pc
from dagflow.storage.columns import borders_of, bytes_of
from operators.files.metadata import BlockMetadata
from operators.reader.byte_source import (
    UNKNOWN_SIZE,
    Bytes,
    ByteSource,
    FileView,
    GrowingSource,
    encoding_of,
    read_exactly,
)
from operators.reader.columns.machine_code import MachineCode
from operators.reader.columns.types import ColumnTypes, NumberPattern, schema_of
from operators.reader.columns.typing import (
    parse_columns,
    typed,
    valid_text,
    why_not_text,
    without_refused,
    without_skipped,
)
from operators.reader.formats.base import ByteAccounting, Parsed, PreScanned
from operators.reader.scanning.charset import Charset, UndecodedRejects, decoded
from operators.reader.scanning.csv_fields import MarkedRows, split_rows, table_of
from operators.reader.scanning.csv_head import (
    COMMENT_OVER_LINES,
    HEADER_REMEDY,
    Character,
    CsvHead,
    behind_newlines,
    character_or_none,
    format_at,
    is_over_lines,
    other_format,
    problem_of,
)
from operators.reader.scanning.csv_trailer import CsvTrailer, FoundTrailer, TrailerSearch, kept_trailer, quote_state
from operators.reader.scanning.delimited import BlockView, Delimited
from operators.reader.scanning.quoting import (
    ADVICE,
    OUTSIDE,
    Dialect,
    QuoteScan,
    RowEntry,
    RowMarks,
    Transition,
    rows_with_strays,
    stray_quotes,
    unclosed_quote,
)
from operators.reader.scanning.search import BYTE, LF, Terminators, find_newlines
from operators.reader.scanning.wide_text import NarrowSource, WideAccounting


class Csv(Delimited, PreScanned):
    """Rows of fields as in RFC 4180: fields in quotes may hold newlines, delimiters and doubled quotes.

    A quote opens a field only where one begins; in other text it is a character like any other. Rows end with LF,
    CR LF or CR outside of quotes; empty lines are skipped. A row with text behind a closing quote, with another number
    of fields than there are columns, or with a field that is not of its column's type, is refused; an empty field is
    null where the type is not text. A file of several blocks is pre-scanned: whether a newline is inside of quotes
    is unknown in the middle of the file.
    """

    name: ClassVar[str] = "csv"
    needs_size = False
    table = (b"\n", b"\r\n", b"\r")
    wide_remedy = "name its encoding, as encoding: {}"
    # Each part costs dozens of calls of Arrow: larger ones take a fifth less time.
    chunk_bytes = 4 << 20
    machine_code = MachineCode("operators.reader.columns.csv_kernels.read_columns")

    delimiter: Annotated[Character, Field(description="separator of fields")] = ","
    quote: Annotated[
        str,
        AfterValidator(character_or_none),
        Field(
            json_schema_extra={"pattern": r"^([\x01-\x7e]|none)$"},
            description="character around quoted fields; none where quotes are characters like any other",
        ),
    ] = '"'
    stray_quotes: Annotated[
        Literal["reject", "keep"],
        Field(
            description="what happens to a row with text behind the quote that closes a field; keep adds that text to "
            "the field, as Excel does"
        ),
    ] = "reject"
    escape: Annotated[Character | None, Field(description="character that makes the next one literal")] = None
    comment: Annotated[
        Character | None, Field(description="character at the beginning of lines that are skipped as comments")
    ] = None
    header: Annotated[bool, Field(description="whether the first row names the columns")] = True
    encoding: Annotated[
        str | None,
        Field(description="encoding of the text, by a name that Python knows; records become UTF-8; default: UTF-8"),
    ] = None
    null_values: Annotated[
        list[str] | None,
        Field(
            description="words that mean null unless they are quoted, such as ['', 'NULL', NA]; default: the empty "
            "word, in columns whose type is not text"
        ),
    ] = None
    decimal: Annotated[
        Literal[".", ","], Field(description="character before the fraction of a number, in columns of numbers")
    ] = "."
    thousands: Annotated[
        str | None,
        Field(
            pattern=r"^[^0-9A-Za-z+\-]$", description="character between groups of three digits, in columns of numbers"
        ),
    ] = None
    trailer: Annotated[
        CsvTrailer | None,
        Field(
            description="the rows at the end of each file that are no records: {rows: 'T,(?P<count>\\d+)'}; a file "
            "without them, or with another count of rows, is refused as a whole"
        ),
    ] = None
    max_columns: Annotated[Count, Field(ge=1, description="maximum columns of a header")] = 1 << 14
    columns: Annotated[
        list[str] | ColumnTypes | None,
        Field(
            description="names of the columns, or a type for each, such as int64 or {type: date32, format: "
            "'%d.%m.%Y'}; with a header, types for some of them"
        ),
    ] = None

    def check_properties(self) -> None:
        quote = None if self.quote == "none" else self.quote
        marks = [mark for mark in (self.delimiter, quote, self.escape, self.comment, "\n", "\r") if mark]
        if len(set(marks)) < len(marks):
            raise ValueError("delimiter, quote, escape, comment and newlines must be different characters")
        if not self.header and not self.columns:
            raise ValueError("columns must be given where there is no header")
        twice = [name for name, count in Counter(list(self.columns or ())).items() if count > 1]
        if twice:
            raise ValueError(f"columns: '{twice[0]}' is there twice")
        self._dialect = Dialect(*(ord(mark) if mark else -1 for mark in (self.delimiter, quote, self.escape)))
        self.has_state = quote is not None or self.trailer is not None
        self.needs_prescan = self.trailer is not None or self.on_long != "fail"  # rows of any length
        self._checked: tuple[object, FoundTrailer] | None = None
        if self.thousands == self.decimal:
            raise ValueError("decimal and thousands must be different characters")
        self._types = dict(self.columns) if isinstance(self.columns, dict) else {}
        if self.decimal != "." or self.thousands:
            pattern = NumberPattern(self.decimal, self.thousands)
            self._types = {name: kind.with_numbers(pattern) for name, kind in self._types.items()}
        for name, kind in self._types.items():
            if kind.is_optional and not self.header:
                raise ValueError(f"columns: '{name}' is optional, and without a header no file shows that it lacks it")
            if kind.is_nested:
                raise ValueError(f"columns: '{name}' is {kind.name}, and fields of CSV hold no arrays and objects")
        self._refusing = {name for name, kind in self._types.items() if kind.arrow != pa.string()}
        self._optional = {name: kind for name, kind in self._types.items() if kind.is_optional}
        self._names = tuple(self.columns or ())
        self._has_strays = False
        self._marks: RowMarks | None = None
        self._headed: tuple[object, CsvHead] | None = None
        self._entered: tuple[int, int] = (0, OUTSIDE)
        self._charset = self._declared = Charset.named(self.encoding or "utf-8")
        self._narrow: tuple[ByteSource, NarrowSource | None] | None = None
        if self._charset.unit == BYTE and any(self._charset.encode(mark) != mark.encode() for mark in marks):
            raise ValueError(
                f"encoding {self.encoding!r}: rows cannot be cut in it, because newlines and delimiters are other "
                "bytes than in ASCII; convert the files to UTF-8 first, as with iconv"
            )
        # Where long rows are left out, the length of a row that began before a cut is not known behind it.
        adds_up, columns = self.on_long == "fail", self.declared_columns()
        self.traits = replace(self.traits, adds_up=adds_up, has_columns=True, columns=columns)

    def declared_columns(self) -> StreamColumns:
        """The columns with a declared type, and others of text, which a header may name."""
        if isinstance(self.columns, dict):
            return StreamColumns(schema_of(self._types), pa.string() if self.header else None)
        names = self.columns or ()
        return StreamColumns(pa.schema([(name, pa.string()) for name in names]), None if names else pa.string())

    def headed_columns(self) -> pa.Schema:
        """The columns that the header of the file that was read last names; none if it has no header, or is empty."""
        names = dict.fromkeys((*self._names, *self._optional)) if self._headed is not None else ()
        return pa.schema([(name, self._types[name].arrow if name in self._types else pa.string()) for name in names])

    def find(self, data: Bytes, is_at_end: bool) -> Terminators:
        self._marks = marks = RowMarks(data, self._dialect)
        strays = stray_quotes(data, self._dialect, marks.quoting)[0] if marks.quoting is not None else ()
        self._has_strays = self.stray_quotes == "reject" and len(strays) > 0
        return marks.newlines(is_at_end)

    def read(self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting) -> Iterator[RecordBatch]:
        """The rows that begin in a block; in UTF-16 and UTF-32 they are found in the narrow form of the file."""
        narrow = self._narrow_of(source)
        if narrow is None:
            yield from self._read(source, block, accounting)
            return
        narrowed = WideAccounting(accounting, source, narrow, block)
        yield from narrow.widened(self._read(narrow, narrow.block_of(block), narrowed), block, narrowed)

    def begin(self, source: ByteSource) -> int:
        return source.mark_units if isinstance(source, NarrowSource) else super().begin(source)

    def _narrow_of(self, source: ByteSource) -> NarrowSource | None:
        """The narrow form of a file in wide units, whose charset is that of its rows from now on."""
        if self._narrow is None or self._narrow[0] is not source:
            is_declared = self._declared.unit != BYTE
            is_open = is_declared or self.encoding is None
            found = NarrowSource.of(source, self._declared if is_declared else None) if is_open else None
            self._narrow = source, found
        narrow = self._narrow[1]
        self._charset = self._declared if narrow is None else narrow.charset
        return narrow

    def _read(self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting) -> Iterator[RecordBatch]:
        head = self._head_of(source, block) if self.header and not encoding_of(source)[0] else None
        if head is not None and head.problem:
            line = len(find_newlines(read_exactly(source, 0, head.start), True).stops) + 1
            reason = f"the header in line {line} cannot be used: {head.problem}"
            accounting.refuse_file(source, block, reason, HEADER_REMEDY, head.start)
            return
        if head is None and not block.start and (other := format_at(source, super().first_record(source, block))):
            accounting.refuse_file(source, block, f"the first row is none of CSV: {other}")
            return
        if self.trailer is not None:
            found = FoundTrailer.known_by(block.entry_state) or self._trailer_of(source, block)
            if found.problem:
                accounting.refuse_file(source, block, found.problem)
                return
            if (size := min(block.end, source.size_bytes) - max(block.start, found.start)) > 0:
                accounting.skip(max(block.start, found.start), size, "trailer")
            self.records_end = found.start
        self._entered = (block.start, quote_state(block.entry_state))
        for batch in super().read(source, block, accounting):
            # The bytes of the batch are those in which newlines were found last.
            yield self._without_strays(batch, accounting) if self._has_strays and len(batch) else batch

    def _trailer_of(self, source: ByteSource, block: BlockMetadata) -> FoundTrailer:
        """The trailer of a file, all of whose rows are counted for it."""
        file = (block.url, block.version)
        if self._checked is None or self._checked[0] != file:
            assert self.trailer is not None
            search, self.records_end = TrailerSearch(self.trailer), UNKNOWN_SIZE
            whole = replace(block, start=0, end=UNKNOWN_SIZE, is_last=True, entry_state=0)
            charset = self._charset.name if self._charset.unit == BYTE else "latin-1"
            for batch in super().read(source, whole, ByteAccounting(block.url, listener=search.refused)):
                search.take(batch, ~(self._are_empty(batch) | self._are_comments(batch)), charset)
            self._checked = (file, search.result())
        return self._checked[1]

    def first_record(self, source: ByteSource, block: BlockMetadata) -> int:
        """Where the first row begins behind the header, whose names are kept for the file."""
        if not self.header:
            return super().first_record(source, block)
        head = self._head_of(source, block)
        return min(block.end, source.size_bytes) if head is None else head.end

    def _head_of(self, source: ByteSource, block: BlockMetadata) -> CsvHead | None:
        """The head of a file; None if it begins behind the block."""
        file = (block.url, block.version)
        if self._headed is None or self._headed[0] != file:
            limit = min(block.end, source.size_bytes)
            start = self._behind_asides(source, super().first_record(source, block), limit)
            if start >= min(limit, source.size_bytes):
                return None
            self._headed = (file, self._read_head(source, start))
        head = self._headed[1]
        self._names = tuple(self.columns) if isinstance(self.columns, list) else head.names
        return head

    def _skip_records(self, source: ByteSource, floor: int, limit: int) -> int:
        """The position behind the rows to skip, and the empty lines and comments around them; or limit."""
        position = self._behind_asides(source, floor, limit)
        for _ in range(self.skip_header):
            if position >= limit:
                break
            following = self.next_start(source, position + 1, limit, position)
            position = self._behind_asides(source, following, limit)
        return position

    def _behind_asides(self, source: ByteSource, position: int, limit: int) -> int:
        """The first position from the given one on, and up to limit, that is in no empty line or comment."""
        position = behind_newlines(source, position, limit, self.probe_bytes)
        while self.comment and read_exactly(source, position, position + 1).tobytes() == self.comment.encode():
            following = self.next_start(source, position + 1, limit, position)
            if position >= limit or is_over_lines(read_exactly(source, position, following).tobytes(), "latin-1"):
                break
            position = behind_newlines(source, following, limit, self.probe_bytes)
        return position

    def _read_head(self, source: ByteSource, start: int) -> CsvHead:
        held = self.probe_bytes
        view = FileView(source)
        found = self.find(view.move(start, start + held), view.is_at_end)
        while not (len(found.stops) or view.is_at_end or held > 2 * self.max_record):
            held *= 2
            found = self.find(view.move(start, start + held), view.is_at_end)
        length = int(found.stops[0]) if len(found.stops) else len(view.data)
        raw = source.wide(start, start + length) if isinstance(source, NarrowSource) else view.data[:length]
        names, problem = self._names_in(view.data[:length], bytes(raw))
        return CsvHead(start, start + length, names, problem)

    def _names_in(self, row: Bytes, raw: bytes) -> tuple[tuple[str, ...], str]:
        if len(row) > self.max_record + self.reach:
            cause = self.cause_of_length(row[: self.max_record])
            return (), f"it is longer than max_record, {self.max_record} bytes{cause}"
        if self.comment and row[:1].tobytes() == self.comment.encode():
            return (), COMMENT_OVER_LINES
        if other := other_format(row):
            return (), other
        if (opened := unclosed_quote(row, self._dialect)) is not None:
            return (), f"its quote at byte {opened} is never closed; {ADVICE}"
        width = int(RowMarks(row, self._dialect).field_counts(np.array([0, len(row)]))[0])
        if width > self.max_columns:
            return (), f"it has {width:,} columns, more than max_columns, {self.max_columns:,}"
        if self.stray_quotes == "reject":
            for _, problem in rows_with_strays(row, np.array([0, len(row)]), self._dialect):
                return (), problem
        try:
            names = list(self._texts(raw.decode(self._charset.name).encode() + b"\n", None).column_names)
        except UnicodeDecodeError as error:
            return (), f"{why_not_text(self._charset.name, error, '')}; name its encoding with encoding"
        except pa.ArrowInvalid as error:
            return (), str(error)
        count = len(self.columns) if isinstance(self.columns, list) else None
        return tuple(names), problem_of(names, self._types, count, has_quotes=self._dialect.quote in row)

    def complete_end(self, source: ByteSource) -> int | None:
        """The end of the last complete row, found from the beginning of the file, where no quote is open."""
        if self.trailer is not None:
            return None
        narrow = self._narrow_of(source)
        read = source if narrow is None else narrow
        end = self.last_stop(read, min(self.begin(read), read.size_bytes))
        return end if narrow is None else narrow.complete_end(end)

    def end_of_record(self, source: GrowingSource, position: int) -> int | None:
        """The end of the row that begins at position, or None if the file so far does not decide it."""
        size = source.size_bytes
        stop = self._quotes(source).next_row(RowEntry(position, True), OUTSIDE, position + 1, size + 1)
        # A CR at the end may be the first half of a newline.
        is_certain = stop < size or (stop == size and read_exactly(source, size - 1, size)[0] == LF)
        return stop if is_certain else None

    def next_start(self, source: ByteSource, start: int, limit: int, floor: int) -> int:
        """The first position from start on where a row begins; start is that of the block, or floor that of a row."""
        if start <= floor:
            return min(floor, limit)
        if start != self._entered[0]:
            return self._quotes(source).next_row(RowEntry(floor, True), OUTSIDE, start, limit)
        state = self._entered[1]
        scan = self._quotes(source)
        entry = scan.entry(start, floor)
        around = read_exactly(source, start - 1, start + 1).tobytes()
        follows_newline = entry.may_begin and (around[:1] == b"\n" or (around[:1] == b"\r" and around != b"\r\n"))
        if state == OUTSIDE and entry.position == start and follows_newline:
            return min(start, limit)
        return scan.next_row(entry, state, start, limit)

    def prescan(self, source: ByteSource, block: BlockMetadata) -> tuple[Transition, int]:
        """What the quotes of a block change, and what its reader must know of the trailer if it begins the file."""
        source, block = self._narrowed(source, block)
        changes = self._quotes(source).transition(block.start, min(block.end, source.size_bytes), self.begin(source))
        is_searched = self.trailer is not None and not block.start
        return changes, self._trailer_of(source, block).added_to(0) if is_searched else 0

    def exit_state(self, entry_state: int, result: Any) -> int:
        changes, trailer = result
        return int(changes.applied(quote_state(entry_state)) + max(trailer, kept_trailer(entry_state)))

    def entry_state(self, source: ByteSource, block: BlockMetadata) -> int:
        """The state in which a block begins, from the nearest quotes before it; a longer row ends the run."""
        source, block = self._narrowed(source, block)
        longest = self.max_record + self.reach if self.on_long == "fail" else block.start
        begin = self.begin(source)
        return self._quotes(source).transition(begin, block.start, begin, longest).after_outside

    def _narrowed(self, source: ByteSource, block: BlockMetadata) -> tuple[ByteSource, BlockMetadata]:
        narrow = self._narrow_of(source)
        return (source, block) if narrow is None else (narrow, narrow.block_of(block))

    def _quotes(self, source: ByteSource) -> QuoteScan:
        return QuoteScan(source, self._dialect, self.probe_bytes, self.chunk_bytes)

    def _last(self, view: BlockView) -> Iterator[RecordBatch]:
        data = view.data
        opened = unclosed_quote(data, self._dialect) if len(data) <= self.max_record else None
        if opened is not None:
            reason = f"the quote at byte {opened} of the row is never closed; {ADVICE}"
            view.accounting.reject(view.start, len(data), reason, data.tobytes())
        else:
            yield from super()._last(view)

    def cause_of_length(self, record: Bytes) -> str:
        opened = unclosed_quote(record, self._dialect)
        return "" if opened is None else f", and none of them closes the quote at byte {opened} of the row; {ADVICE}"

    def _without_strays(self, batch: RecordBatch, accounting: ByteAccounting) -> RecordBatch:
        # A part: a batch that was framed counts the newline that a last row has not.
        framed = batch.slice(0, len(batch)).framed()
        borders = borders_of(framed).astype(np.int64)
        data = bytes_of(framed)
        reasons = dict(rows_with_strays(data, borders - borders[0], self._dialect))
        is_comment = self._are_comments(batch)
        reasons = {row: why for row, why in reasons.items() if not is_comment[row]}
        kept = without_refused(batch, reasons, accounting)
        accounting.count_delimiters(batch.content_bytes()[1] - kept.content_bytes()[1])
        return kept

    def parse(self, batch: RecordBatch, accounting: ByteAccounting) -> Parsed:
        is_empty = self._are_empty(batch)
        if self.comment:
            batch, is_empty = self._refused_comments(batch, is_empty, accounting)
        batch = without_skipped(batch, is_empty, "empty line or comment", accounting)
        rejects = accounting
        if self._charset.name == "utf-8":
            text = valid_text(batch, accounting)
        else:
            text = decoded(batch, self._charset, "reject", accounting)
            rejects = UndecodedRejects(batch, accounting)
        if not len(text):
            return Parsed(text)
        words = ("",) if self.null_values is None else self.null_values
        parsed = typed(self._split(text, rejects), self._types, words, rejects)
        columns = parsed.columns
        for name, kind in self._optional.items():
            if columns is not None and name not in self._names:
                columns = columns.append_column(name, pa.nulls(len(columns), kind.arrow))
        return Parsed(parsed.raw, columns)

    def _encoded(self, text: bytes) -> bytes:
        """ASCII characters in the encoding of the file."""
        return text if self._charset.unit == BYTE else text.decode().encode(self._charset.name)

    def _are_empty(self, batch: RecordBatch) -> npt.NDArray[np.bool_]:
        lengths = np.diff(borders_of(batch.framed())) - batch.delimiters.lengths()
        is_empty: npt.NDArray[np.bool_] = lengths == 0
        if self.keep_delimiter:
            delimiters = pa.array([*map(self._encoded, self.table)], pa.binary())
            is_empty |= pc.is_in(batch.record, delimiters).to_numpy(zero_copy_only=False)
        return is_empty

    def _are_comments(self, batch: RecordBatch, mark: bytes | None = None) -> npt.NDArray[np.bool_]:
        mark = (self.comment or "").encode() if mark is None else mark
        begins: npt.NDArray[np.bool_] = pc.starts_with(batch.record, mark).to_numpy(False)
        return begins & (self.comment is not None)

    def _refused_comments(
        self, batch: RecordBatch, is_skipped: npt.NDArray[np.bool_], accounting: ByteAccounting
    ) -> tuple[RecordBatch, npt.NDArray[np.bool_]]:
        """A batch without comments that a quote continues, and which of its rows are skipped, comments among them."""
        is_comment = self._are_comments(batch, self._encoded((self.comment or "").encode()))
        rows = np.flatnonzero(is_comment)
        records = zip(rows.tolist(), batch.take(rows).to_pylist(), strict=True) if len(rows) else ()
        refused = {row: COMMENT_OVER_LINES for row, record in records if is_over_lines(record, self._charset.name)}
        return without_refused(batch, refused, accounting), np.delete(is_skipped | is_comment, [*refused])

    def _split(self, batch: RecordBatch, rejects: ByteAccounting) -> Parsed:
        names = self._names
        rows = MarkedRows.of(batch, self._marks, self._dialect)
        if self.wanted.columns == frozenset() and not self._refusing:
            counted = without_refused(batch, rows.wrong(len(names)), rejects)
            return Parsed(counted, pa.RecordBatch.from_arrays([pa.nulls(len(counted), pa.string())], [names[0]]))
        made = self.wanted.among(names, self._refusing) or names
        read = self.machine_code.after(rows.length())
        columns = None if read is None else read(rows, names, made, self._types, self._dialect, self.null_values)
        if columns is not None:
            return Parsed(batch, columns)
        try:
            return Parsed(batch, self._by_arrow(batch).combine_chunks().to_batches()[0])
        except pa.ArrowInvalid:
            right = without_refused(batch, rows.wrong(len(names)), rejects)
            return parse_columns(right, self._by_arrow, rejects)

    def _by_arrow(self, rows: RecordBatch) -> pa.Table:
        return table_of(rows, self._dialect, lambda text: self._texts(text, self._names))

    def _texts(self, data: Any, names: tuple[str, ...] | None) -> pa.Table:
        quote = False if self.quote == "none" else self.quote
        made = None if names is None else self.wanted.among(names, self._refusing)
        marks = self.delimiter, quote, self.escape or False
        return split_rows(data, names, marks, self.null_values or (), made)

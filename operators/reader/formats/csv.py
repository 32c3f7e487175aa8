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
from operators.files.metadata import BlockMetadata
from operators.reader.byte_source import ByteSource, GrowingSource
from operators.reader.formats.base import ByteAccounting, Parsed
from operators.reader.scanning.column_parsing import ColumnTypes, arrow_type, parse_columns, reject, valid_text
from operators.reader.scanning.csv_head import CsvHead, behind_newlines, behind_rows, problem_of
from operators.reader.scanning.delimited import Delimited
from operators.reader.scanning.file_view import Bytes, FileView, read_exactly
from operators.reader.scanning.framing import borders_of, joined
from operators.reader.scanning.quote_scan import QuoteScan, RowEntry, newlines_outside
from operators.reader.scanning.quoting import INSIDE, OUTSIDE, Dialect, Transition, quoting_of
from operators.reader.scanning.search import LF
from operators.reader.scanning.terminated import BYTE_ORDER_MARK, Terminators

Character = Annotated[str, Field(min_length=1, max_length=1, pattern=r"^[\x01-\x7e]$")]


class Csv(Delimited):
    """Rows of fields as in RFC 4180: fields in quotes may hold newlines, delimiters and doubled quotes.

    A quote opens a field only where one begins; elsewhere it is a character like any other. Rows end with LF,
    CR LF or CR outside of quotes; empty lines are passed over. A row with another number of fields than there
    are columns, or a field that is not of its column's type, is refused; an empty field is null where the
    type is not text. A file of several blocks is pre-scanned: whether a newline is inside of quotes
    cannot be told from the middle of the file.
    """

    name: ClassVar[str] = "csv"
    needs_prescan = True

    delimiter: Annotated[Character, Field(description="what stands between fields")] = ","
    quote: Annotated[Character, Field(description="what stands around fields")] = '"'
    escape: Annotated[Character | None, Field(description="what makes the next character literal")] = None
    header: Annotated[bool, Field(description="whether the first row names the columns")] = True
    columns: Annotated[
        list[str] | ColumnTypes | None,
        Field(description="names of the columns, or a type for each name; with a header, types for some of them"),
    ] = None

    def check_options(self) -> None:
        """Refuse characters with two meanings, and columns without names."""
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
        self._headed: tuple[object, CsvHead] | None = None
        self._entered: tuple[int, int] = (0, OUTSIDE)
        for name in self._types:
            try:
                self._parse_rows(b"\n", (name,), Counter())
            except pa.ArrowNotImplementedError:
                raise ValueError(f"columns: the type {self._types[name]!r} cannot be read from csv") from None

    @property
    def table(self) -> tuple[bytes, ...]:
        """The three newlines."""
        return (b"\n", b"\r\n", b"\r")

    @property
    def adds_up(self) -> bool:
        """False where long rows are left out: behind a cut, the length of a row that began before it is not known."""
        return self.on_long == "fail"

    def find(self, data: Bytes, is_at_end: bool) -> Terminators:
        """The newlines outside of quotes in a stretch that begins at a row."""
        return newlines_outside(data, is_at_end, quoting_of(data, self._dialect, True), OUTSIDE)

    def read(self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting) -> Iterator[RecordBatch]:
        """The rows that begin in a block, given its entry state; of a file with a bad head there are none."""
        self._entered = (block.start, block.entry_state)
        head = self._head_of(source, block) if self.header else None
        if head is not None and head.problem:
            head.refuse(source, block, accounting)
        else:
            yield from super().read(source, block, accounting)

    def first_record(self, source: ByteSource, block: BlockMetadata) -> int:
        """Where the first row begins behind the header, whose names are kept for the file."""
        if not self.header:
            return super().first_record(source, block)
        head = self._head_of(source, block)
        return min(block.end, source.size_bytes) if head is None else head.end

    def _head_of(self, source: ByteSource, block: BlockMetadata) -> CsvHead | None:
        """The head of a file; None where it begins behind the block."""
        file = (block.url, block.version)
        if self._headed is None or self._headed[0] != file:
            limit = min(block.end, source.size_bytes)
            start = behind_newlines(source, super().first_record(source, block), limit, self.probe_bytes)
            if start >= limit:
                return None
            self._headed = (file, self._read_head(source, start))
        head = self._headed[1]
        self._names = tuple(self.columns) if isinstance(self.columns, list) else head.names
        return head

    def _skip_records(self, source: ByteSource, floor: int, limit: int) -> int:
        def next_row(position: int) -> int:
            return self.next_start(source, position + 1, limit, position)

        return behind_rows(source, floor, limit, self.probe_bytes, self.skip_header, next_row)

    def _read_head(self, source: ByteSource, start: int) -> CsvHead:
        held = self.probe_bytes
        view = FileView(source)
        found = self.find(view.move(start, start + held), view.is_at_end)
        while not (len(found.stops) or view.is_at_end or held > 2 * self.max_record):
            held *= 2
            found = self.find(view.move(start, start + held), view.is_at_end)
        length = int(found.stops[0]) if len(found.stops) else len(view.data)
        if length > self.max_record + self.reach:
            return CsvHead(start, start + length, problem=f"it is longer than max_record, {self.max_record} bytes")
        data = view.data[:length]
        if quoting_of(data, self._dialect, True).transition(length).applied(OUTSIDE) == INSIDE:
            return CsvHead(start, start + length, problem="its quote is never closed")
        try:
            data.tobytes().decode()
            names = self._parse_rows(data.tobytes() + b"\n", None, Counter()).column_names
        except UnicodeDecodeError as error:
            return CsvHead(start, start + length, problem=f"not valid utf-8: {error.reason} at byte {error.start}")
        except pa.ArrowInvalid as error:
            return CsvHead(start, start + length, problem=str(error))
        count = len(self.columns) if isinstance(self.columns, list) else None
        return CsvHead(start, start + length, tuple(names), problem_of(names, self._types, count))

    def complete_end(self, source: ByteSource) -> int:
        """The end of the last complete row, found from the beginning of the file, where no quote is open."""
        return self.last_stop(source, min(self.begin(source), source.size_bytes))

    def end_of_record(self, source: GrowingSource, position: int) -> int | None:
        """The end of the row that begins at position, or None if the file so far does not decide it."""
        size = source.size_bytes
        stop = self._quotes(source).next_row(RowEntry(position, True), OUTSIDE, position + 1, size + 1)
        # A CR at the very end may be the first half of a newline.
        is_certain = stop < size or (stop == size and read_exactly(source, size - 1, size)[0] == LF)
        return stop if is_certain else None

    def next_start(self, source: ByteSource, start: int, limit: int, floor: int) -> int:
        """The first place from start on where a row begins; start is the block's, or floor the start of a row."""
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

    def prescan(self, source: ByteSource, block: BlockMetadata) -> Transition:
        """The effect of the quotes that begin in a block on the state."""
        scan = self._quotes(source)
        return scan.transition(scan.entry(block.start, self.begin(source)), min(block.end, source.size_bytes))

    def exit_state(self, entry_state: int, result: Any) -> int:
        """The state behind a block."""
        return int(result.applied(entry_state))

    def _quotes(self, source: ByteSource) -> QuoteScan:
        return QuoteScan(source, self._dialect, self.probe_bytes, self.chunk_bytes)

    def _last(self, view: FileView, block: BlockMetadata, accounting: ByteAccounting) -> Iterator[RecordBatch]:
        data = view.data
        quoting = quoting_of(data, self._dialect, True)
        if len(data) <= self.max_record and quoting.transition(len(data)).applied(OUTSIDE) == INSIDE:
            accounting.reject(view.start, len(data), "the quote is never closed", data.tobytes())
        else:
            yield from super()._last(view, block, accounting)

    def parse(self, batch: RecordBatch, accounting: ByteAccounting) -> Parsed:
        """Columns of strings, or of the types that the app gives."""
        lengths = np.diff(borders_of(batch.framed())) - batch.delimiters.lengths()
        is_empty = lengths == 0
        if self.keep_delimiter:
            is_empty |= pc.is_in(batch.record, pa.array(self.table, pa.binary())).to_numpy(zero_copy_only=False)
        if is_empty.any():
            for offset, length in zip(batch.offsets()[is_empty].tolist(), lengths[is_empty].tolist(), strict=True):
                accounting.skip(offset, length, "empty line")
            batch = batch.take(np.flatnonzero(~is_empty))
        batch = valid_text(batch, accounting)
        if not len(batch):
            return Parsed(batch)
        wrong: Counter[int] = Counter()
        try:
            table = self._parse_rows(joined(batch), self._names, wrong)
            if table.num_rows == len(batch):
                return Parsed(batch, table.combine_chunks().to_batches()[0])
        except pa.ArrowInvalid:
            pass
        for row, count in sorted(wrong.items()):
            reject(batch, row, f"the row has {count} fields; there are {len(self._names)} columns", accounting)
        right = np.setdiff1d(np.arange(len(batch)), np.array(list(wrong), np.int64))
        return parse_columns(batch.take(right), self._parse_part, accounting)

    def _parse_part(self, part: RecordBatch) -> pa.Table:
        table = self._parse_rows(joined(part), self._names, Counter())
        if table.num_rows != len(part):
            raise pa.ArrowInvalid("The row is not as the quotes around it say")
        return table

    def _parse_rows(self, data: Any, names: tuple[str, ...] | None, wrong: Counter[int]) -> pa.Table:
        """Parse rows with Arrow.

        Args:
            data: The rows, as bytes or a pyarrow.Buffer.
            names: The columns; None takes them from the first row.
            wrong: Takes in, for each row with another number of fields, counted from 0, that number.

        Raises:
            pyarrow.ArrowInvalid: A field is not of its column's type.
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

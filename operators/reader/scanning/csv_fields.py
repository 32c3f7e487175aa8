"""Splits rows of CSV into fields with Arrow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from dagflow.api.records import RecordBatch
from dagflow.frozen import frozen
from dagflow.storage.columns import borders_of
from operators.reader.byte_source import Bytes
from operators.reader.scanning.framing import joined
from operators.reader.scanning.quoting import Dialect, RowMarks
from operators.reader.scanning.search import BYTE_ORDER_MARK, Positions


def split_rows(
    data: Any,
    names: Sequence[str] | None,
    marks: tuple[str, str | bool, str | bool],
    null_values: Sequence[str],
    made: Sequence[str] | None = None,
) -> pa.Table:
    """Split rows into columns of text.

    Args:
        data: The rows, as UTF-8.
        names: The names of the columns; None if the first row names them.
        marks: The delimiter, the quote and the escape; False for none.
        null_values: Words that mean null unless they are quoted.
        made: The columns to make, by their names; None for all.

    Raises:
        pyarrow.ArrowInvalid: A row has another number of fields, or its quotes do not match.
    """
    # Arrow skips a byte order mark at the beginning. The file's own is not among the rows: this one is a row's text.
    if bytes(data[: len(BYTE_ORDER_MARK)]) == BYTE_ORDER_MARK:
        data = BYTE_ORDER_MARK + data
    delimiter, quote, escape = marks
    return arrow_csv.read_csv(
        pa.BufferReader(data),
        read_options=arrow_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
        parse_options=arrow_csv.ParseOptions(
            delimiter=delimiter, quote_char=quote, escape_char=escape, newlines_in_values=True
        ),
        # Rows were checked to be UTF-8 before, and quotes, escapes and delimiters are single ASCII characters.
        # Without words of the app's own, text is never null: Arrow would make nulls of a dozen words.
        convert_options=arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(names or (), pa.string()),
            include_columns=made,
            null_values=list(null_values),
            strings_can_be_null=bool(null_values),
            quoted_strings_can_be_null=False,
            check_utf8=False,
        ),
    )


@frozen
class MarkedRows:
    """Rows that lie side by side.

    Attributes:
        borders: Where each row begins among the marked bytes, and where the last one's newline ends.
        marks: The bytes with a meaning.
        buffer: The bytes.
    """

    borders: Positions
    marks: RowMarks
    buffer: pa.Buffer

    @classmethod
    def of(cls, batch: RecordBatch, marks: RowMarks | None, dialect: Dialect) -> MarkedRows:
        """The rows of a batch; the marks that were found last are taken where the rows are the same bytes."""
        rows = batch.framed()
        borders, buffer = borders_of(rows).astype(np.int64), rows.buffers()[2]
        if marks is None or not marks.are_of(buffer, int(borders[-1])):
            buffer, borders = joined(batch), borders - borders[0]
            marks = RowMarks(np.frombuffer(buffer, np.uint8), dialect)
        return cls(borders, marks, buffer)

    def padded(self, size_bytes: int) -> Bytes:
        """The bytes, followed by as many others; copied unless they are there."""
        data, end = np.frombuffer(self.buffer, np.uint8), int(self.borders[-1])
        return data if end + size_bytes <= len(data) else np.append(data[:end], np.zeros(size_bytes, np.uint8))

    def wrong(self, width: int) -> dict[int, str]:
        """Why each row is refused that has another number of fields than there are columns."""
        counts, there = self.marks.field_counts(self.borders), f"there are {width} columns"
        return {row: f"the row has {counts[row]} fields; {there}" for row in np.flatnonzero(counts != width).tolist()}

    def are_regular(self) -> bool:
        """Whether no byte is escaped, no quote is left open, and none is within the text of a field but doubled."""
        return self.marks.quoting is None and not self.marks.is_literal(int(self.borders[-1]) - 1)

    def length(self) -> int:
        """The bytes of all rows."""
        return int(self.borders[-1] - self.borders[0])


def _text_of(batch: RecordBatch, dialect: Dialect) -> pa.Buffer:
    """Rows side by side; without the newline behind the last where it belongs to a field, as it may not be in the file.

    Arrow takes an empty field that no newline ends for a quoted one, behind a quoted one.
    """
    text, borders = joined(batch), borders_of(batch.framed())
    row = np.frombuffer(text, np.uint8)[borders[-2] - borders[0] :]
    last = batch.delimiters.select(np.array([len(batch) - 1]))
    return text.slice(0, len(text) - int(np.sum(last.lengths())) * RowMarks(row, dialect).is_literal(len(row) - 1))


def table_of(batch: RecordBatch, dialect: Dialect, split: Callable[[pa.Buffer], pa.Table]) -> pa.Table:
    """The fields of rows, as the parser splits their text.

    Raises:
        pyarrow.ArrowInvalid: It has found other rows, or refuses one.
    """
    table = split(_text_of(batch, dialect))
    if table.num_rows != len(batch):
        raise pa.ArrowInvalid("The row is not as the quotes around it say")
    return table

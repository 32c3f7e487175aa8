"""Makes columns from the rows of CSV."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from dagflow.api.records import RecordBatch
from operators.reader.columns.types import ColumnType
from operators.reader.columns.typing import parse_columns, typed, without_refused
from operators.reader.formats.base import ByteAccounting, Parsed
from operators.reader.scanning.framing import joined
from operators.reader.scanning.search import BYTE_ORDER_MARK


@dataclass(frozen=True, slots=True)
class CsvRows:
    """Makes columns from rows."""

    delimiter: str
    quote: str | None
    escape: str | None
    types: Mapping[str, ColumnType]
    null_values: tuple[str, ...] | None  # None: the empty word, and only where the type is not text

    def header(self, row: bytes) -> list[str]:
        """The fields of a header."""
        return list(self._texts(row + b"\n", None, Counter()).column_names)

    def parse(self, batch: RecordBatch, names: tuple[str, ...], rejects: ByteAccounting) -> Parsed:
        """The rows with their columns.

        Rejects take in rows with another number of fields, and those with a field that is not of its type.
        """
        words = ("",) if self.null_values is None else self.null_values
        return typed(self._split(batch, names, rejects), self.types, words, rejects)

    def _split(self, batch: RecordBatch, names: tuple[str, ...], rejects: ByteAccounting) -> Parsed:
        wrong: Counter[int] = Counter()
        try:
            table = self._texts(_text_of(batch), names, wrong)
            if table.num_rows == len(batch):
                return Parsed(batch, table.combine_chunks().to_batches()[0])
        except pa.ArrowInvalid:
            pass
        reasons = {row: f"the row has {count} fields; there are {len(names)} columns" for row, count in wrong.items()}
        right = without_refused(batch, reasons, rejects)

        def part(rows: RecordBatch) -> pa.Table:
            table = self._texts(_text_of(rows), names, Counter())
            if table.num_rows != len(rows):
                raise pa.ArrowInvalid("The row is not as the quotes around it say")
            return table

        return parse_columns(right, part, rejects)

    def _texts(self, data: Any, names: tuple[str, ...] | None, wrong: Counter[int]) -> pa.Table:
        """Split rows into fields with Arrow.

        The first row names the columns where names is None. wrong takes in the number of fields of each row with
        another one, by the index of the row from 0.

        Raises:
            pyarrow.ArrowInvalid: The quotes of the rows do not match.
        """

        def take_note(row: Any) -> str:
            wrong[row.number - 1] = row.actual_columns
            return "skip"

        # Arrow skips a byte order mark at the beginning. The file's own is not among the rows: this one is a row's
        # text.
        if bytes(data[: len(BYTE_ORDER_MARK)]) == BYTE_ORDER_MARK:
            data = BYTE_ORDER_MARK + data
        return arrow_csv.read_csv(
            pa.BufferReader(data),
            read_options=arrow_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self.delimiter,
                quote_char=self.quote or False,
                escape_char=self.escape or False,
                newlines_in_values=True,
                invalid_row_handler=take_note,
            ),
            # Rows were checked to be UTF-8 before, and quotes, escapes and delimiters are single ASCII characters.
            # Without words of the app's own, text is never null: Arrow would make nulls of a dozen words.
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names or (), pa.string()),
                null_values=list(self.null_values or ()),
                strings_can_be_null=bool(self.null_values),
                quoted_strings_can_be_null=False,
                check_utf8=False,
            ),
        )


def _text_of(batch: RecordBatch) -> pa.Buffer:
    """Rows side by side, without the newline behind the last.

    This newline may not be in the file, and belongs to the last field where that row was cut inside quotes or ends in
    an escape.
    """
    text = joined(batch)
    last = batch.delimiters.take(np.array([len(batch) - 1]))
    return text.slice(0, len(text) - int(np.sum(last.lengths())))

"""Rows of CSV to columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv

from operators.reader.formats.column_parsing import arrow_type
from operators.reader.formats.terminated import BYTE_ORDER_MARK


@dataclass(frozen=True, slots=True)
class RowParser:
    """Parses rows with Arrow.

    Attributes:
        delimiter: Between fields.
        quote: Around fields.
        escape: What makes the next character literal; None if there is none.
        types: The type of each column that is not text, by its name.
    """

    delimiter: str
    quote: str
    escape: str | None
    types: Mapping[str, str]

    def parse(self, data: Any, names: tuple[str, ...] | None, wrong: Counter[int]) -> pa.Table:
        """Parse rows.

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
        types = {name: arrow_type(self.types.get(name, "string")) for name in names or ()}
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

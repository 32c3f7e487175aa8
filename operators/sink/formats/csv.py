"""Records as rows of CSV."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
import pyarrow as pa
from pydantic import Field

from dagflow.api.columns.column_values import json_values
from dagflow.api.records import RecordBatch
from dagflow.late import compute as pc
from operators.sink.columns.table_columns import with_held_names
from operators.sink.columns.table_names import TableNames, lower_case
from operators.sink.formats.text_format import TextFormat

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_HARMLESS_DELIMITERS = ",;\t|"
"""Delimiters that are in no number, date or time."""


class NamesInHeader(TableNames):
    """The names in the header of a text file: no reader takes a NUL there for text."""

    def why_not(self, column: pa.Field) -> str:
        """Why a file cannot have a column; "" if it can."""
        return "a NUL in a header" if "\0" in column.name else ""

    def reduced(self, name: str, kind: pa.DataType, known: pa.DataType | None = None) -> pa.DataType | None:
        """The type itself: members are JSON."""
        return kind


class CsvSink(TextFormat):
    """Rows as in RFC 4180, in UTF-8, in each file behind a header with the names of the columns.

    Fields stand in quotes only where they must. A missing value is an empty field, and an empty text is "", so that
    readers which look at quotes can tell them apart; for others, give null_value, and an empty text is an empty
    field. In a file of one column both are "" where they would make an empty line: readers skip those.

    Numbers are in their shortest exact form, booleans true and false; dates and times are in ISO 8601, those with a
    zone in UTC; bytes are unchanged; lists, structs and maps are JSON.
    """

    name: ClassVar[str] = "csv"
    suffix: ClassVar[str] = ".csv"

    delimiter: Annotated[str, Field(description="separator of fields, one ASCII character")] = ","
    header: Annotated[bool, Field(description="whether files begin with the names of the columns")] = True
    line_ending: Annotated[Literal["lf", "crlf"], Field(description="newline that ends a row")] = "lf"
    null_value: Annotated[str, Field(description="text of a missing value, never quoted")] = ""

    def check_properties(self) -> None:
        if len(self.delimiter) != 1 or not "\x01" <= self.delimiter <= "\x7e":
            raise ValueError(
                f'delimiter {self.delimiter!r} is not one character of ASCII; a tab is "\\t", in double quotes'
            )
        if self.delimiter in '"\r\n' or self.delimiter.isalnum():
            raise ValueError(f"delimiter {self.delimiter!r} is a quote, a newline, a letter or a digit")
        if not {self.delimiter, '"', "\r", "\n"}.isdisjoint(self.null_value):
            raise ValueError(f"null_value {self.null_value!r} holds the delimiter, a quote or a newline")
        escaped = f"\\{self.delimiter}" if self.delimiter in r"\]^-[" else self.delimiter
        self._special = f'["\r\n{escaped}]'

    def held(self, batch: RecordBatch) -> RecordBatch:
        return with_held_names(batch, lambda: NamesInHeader(lower_case))

    def layout_of(self, batch: RecordBatch) -> list[str]:
        names: list[str] = batch.to_arrow().schema.names
        return names

    def heading(self, batch: RecordBatch) -> bytes:
        if not self.header:
            return b""
        row = self._rows([pa.array([name.encode()], pa.binary()) for name in batch.to_arrow().schema.names])
        heading: bytes = row[0].as_py()
        return heading

    def encode(self, batch: RecordBatch) -> pa.BinaryArray:
        columns = batch.to_arrow().columns
        if not columns:
            raise ValueError("records without columns cannot be written as CSV")
        return self._rows(columns)

    def _rows(self, columns: list[pa.Array]) -> pa.BinaryArray:
        # A byte order mark at the very beginning of a file would not count as text.
        first = self._fields(columns[0], is_first=True)
        if len(columns) == 1:
            first = self._without_empty_lines(first)
        parts = [first]
        for column in columns[1:]:
            parts += [self.delimiter.encode(), self._fields(column)]
        return pc.binary_join_element_wise(
            *parts,
            b"\r\n" if self.line_ending == "crlf" else b"\n",
            b"",
            null_handling="replace",
            null_replacement=self.null_value.encode(),
        )

    def _without_empty_lines(self, fields: pa.Array) -> pa.Array:
        """The fields of the only column with quotes for those that would make an empty line: readers skip it."""
        if not self.null_value:
            fields = pc.fill_null(fields, b"")
        return pc.if_else(pc.equal(fields, b""), b'""', fields)

    def _fields(self, column: pa.Array, is_first: bool = False) -> pa.Array:
        """The values of a column as fields of rows; nulls stay."""
        fields = _text_of(column)
        if not _may_need_quotes(column.type) and self.delimiter in _HARMLESS_DELIMITERS and not self.null_value:
            return fields
        needed = pc.or_(
            pc.match_substring_regex(fields, pattern=self._special), pc.equal(fields, self.null_value.encode())
        )
        if is_first:
            needed = pc.or_(needed, pc.starts_with(fields, pattern=_BYTE_ORDER_MARK))
        if not pc.any(needed).as_py():
            return fields
        doubled = pc.replace_substring(fields, pattern=b'"', replacement=b'""')
        return pc.if_else(needed, pc.binary_join_element_wise(b'"', doubled, b'"', b""), fields)


def _may_need_quotes(kind: pa.DataType) -> bool:
    types = pa.types
    return not (types.is_primitive(kind) or types.is_decimal(kind))


def _text_of(column: pa.Array) -> pa.Array:
    """A column as bytes of text; nulls stay."""
    types = pa.types
    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    if types.is_nested(kind) or types.is_duration(kind) or types.is_interval(kind):
        return pa.array(map(_json_of, json_values(column)), pa.binary())
    if types.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit, "UTC"))
    if types.is_primitive(kind) or types.is_decimal(kind):
        column = column.cast(pa.string())
    if types.is_timestamp(kind):
        column = pc.replace_substring(column, pattern=" ", replacement="T")
    return column.cast(pa.binary())


def _json_of(value: object) -> bytes | None:
    if value is None:
        return None
    encoded: bytes = msgspec.json.encode(value)
    return msgspec.json.decode(encoded, type=str).encode() if encoded.startswith(b'"') else encoded

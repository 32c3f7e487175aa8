"""Keep or drop raw records by their content."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, model_validator

from dagflow.api.columns.column_typing import ColumnTraced, StreamColumns, type_name
from dagflow.api.operator import Operator
from dagflow.api.ports import InputPort, OutputPort
from dagflow.api.records import RECORD, RecordBatch
from dagflow.late import compute as pc
from operators.matched_records import RecordPattern, matches


class RecordMatch(BaseModel):
    """A condition on records; exactly one of its four properties is given."""

    model_config = ConfigDict(extra="forbid")

    prefix: str | None = Field(None, description="the record begins with this text")
    suffix: str | None = Field(None, description="the record ends with this text")
    contains: str | None = Field(None, description="the record holds this text")
    regex: RecordPattern | None = Field(None, description="an RE2 regular expression matches somewhere in the record")

    @model_validator(mode="after")
    def _check(self) -> RecordMatch:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of prefix, suffix, contains, regex; got {', '.join(given) or 'none'}")
        return self

    def mask(self, batch: RecordBatch) -> pa.BooleanArray:
        """For each record whether it matches; a null never does."""
        mask = self._matches(batch)
        return pc.fill_null(mask, False) if mask.null_count else mask

    def _matches(self, batch: RecordBatch) -> pa.BooleanArray:
        if self.prefix is not None:
            pattern = self.prefix.encode()
            return pc.starts_with(_comparable(batch, pattern), pattern=pattern)
        if self.suffix is not None:
            return pc.ends_with(_text_of(batch), pattern=self.suffix.encode())
        if self.contains is not None:
            pattern = self.contains.encode()
            return pc.match_substring(_comparable(batch, pattern), pattern=pattern)
        return matches(_text_of(batch), str(self.regex))


def _comparable(batch: RecordBatch, pattern: bytes) -> pa.Array:
    """The records with their delimiters, if these cannot change whether pattern matches: such records need no copy."""
    delimiter = batch.delimiters.uniform
    # A match that extends into a delimiter, or is in it, has a byte in common with it.
    if batch.is_raw and delimiter and set(delimiter).isdisjoint(pattern):
        return batch.framed()
    return _text_of(batch)


def _text_of(batch: RecordBatch) -> pa.Array:
    """The raw records, or the column `record` of records with columns."""
    columns = batch.to_arrow()
    _require_text(columns.schema)
    return columns.column(RECORD)


def _require_text(schema: pa.Schema) -> None:
    kind = schema.field(RECORD).type if RECORD in schema.names else None
    if kind is None or not (pa.types.is_binary(kind) or pa.types.is_string(kind)):
        has = ", ".join(f"{field.name}: {type_name(field.type)}" for field in schema)
        raise ValueError(
            f"only raw records, or a column '{RECORD}' of text or bytes, can be matched; there is {has}; use a Select "
            "for other columns, such as where: name not like '#%'"
        )


class RecordFilter(Operator, ColumnTraced):
    """Keeps or drops the records that match.

    For records with columns, the column `record` is matched, and a null matches nothing. A `regex` sees the characters
    of records in UTF-8, and each byte of any other as one character.

    Guarantee: records keep their order, columns, origin and delimiters.
    """

    keep: Annotated[RecordMatch | None, Field(description="pass these records on, and no others")] = None
    drop: Annotated[RecordMatch | None, Field(description="pass on all records but these")] = None

    input = InputPort()
    output = OutputPort()

    def check_properties(self) -> None:
        if (self.keep is None) == (self.drop is None):
            raise ValueError("give exactly one of keep and drop, such as drop: {prefix: '#'}")

    def columns_at(self, port: str, arriving: StreamColumns | None) -> StreamColumns | None:
        if arriving is not None:
            _require_text(arriving.with_names([RECORD]))
        return arriving

    @input.batch
    def filter(self, batch: RecordBatch) -> None:
        if self.drop is not None:
            self.output.emit(batch.filter(pc.invert(self.drop.mask(batch))))
        elif self.keep is not None:
            self.output.emit(batch.filter(self.keep.mask(batch)))

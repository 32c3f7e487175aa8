"""Make columns of raw records, or of a column of text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import numpy as np
import pyarrow as pa
from pydantic import Field

from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.records import LINE_FEED, RECORD, Origin, RecordBatch
from dagflow.late import compute as pc
from dagflow.suggestions import did_you_mean
from operators.reader.columns.record_parsing import RecordParsing
from operators.reader.columns.typing import RowRejects
from operators.transform.column_operator import ColumnOperator


class Parse(RecordParsing, ColumnOperator[None]):
    """Makes columns of raw records, by one of five ways: regex, split, key_value, fields or json.

    A record that does not match, or whose fields are not of their types, is refused. Empty fields are null if the type
    is not text.

    Guarantee: records keep their order and origin; each one leaves at `output` or at `errors`.
    """

    column: Annotated[
        str | None, Field(description="for records with columns: the text column to parse; the others stay")
    ] = None

    def check_properties(self) -> None:
        self.choose_way()

    def compute(self, batch: RecordBatch) -> None:
        # Only records that regex drops are skipped on purpose.
        rejects = RowRejects(refuses_skipped=self.regex is None)
        parsed = self.parse_texts(self._texts(batch), rejects)
        self.refuse(batch, dict(sorted(rejects.reasons.items())))
        if parsed.columns is None:
            self.output.emit(batch.take(np.empty(0, np.int64)).with_columns(self._no_rows(batch)))
            return
        kept = batch if len(parsed.raw) == len(batch) else batch.take(parsed.raw.offsets())
        self.output.emit(kept.with_columns(self._beside(kept, parsed.columns)))

    def resulting_columns(self, arriving: StreamColumns) -> StreamColumns:
        parsed = self.parsed_schema()
        if self.column is None:
            if not arriving.is_raw:
                raise LookupError(_has_columns(arriving.schema))
            return StreamColumns(parsed)
        self.require_not_raw(arriving)
        schema = arriving.with_names([self.column])
        _require_column(schema, self.column)
        kinds = {field.name: field for field in schema if field.name != self.column}
        return StreamColumns(pa.schema([*(kinds | {field.name: field for field in parsed}).values()]), arriving.others)

    def columns_used(self, port: str, column: str, arriving: StreamColumns) -> Iterable[str]:
        """The parsed column; other columns are passed on."""
        if port == "output" and column in self._names:
            return [RECORD if self.column is None else self.column]
        return super().columns_used(port, column, arriving)

    def plan(self, schema: pa.Schema) -> None:
        """Nothing: the plan does not depend on the arriving columns."""

    def _texts(self, batch: RecordBatch) -> RecordBatch:
        """The texts to parse, as raw records whose offsets are their positions."""
        if self.column is None:
            if not batch.is_raw:
                raise LookupError(_has_columns(batch.to_arrow().schema))
            record = batch.record
        else:
            columns = self.columns_of(batch)
            _require_column(columns.schema, self.column)
            record = pc.fill_null(pc.cast(columns.column(self.column), pa.binary()), b"")
        origin = Origin((None,), np.arange(len(batch)))
        return RecordBatch(pa.RecordBatch.from_arrays([record], [RECORD]), delimiters=LINE_FEED, origin=origin)

    def _beside(self, batch: RecordBatch, columns: pa.RecordBatch) -> pa.RecordBatch:
        """The new columns, after those of the records that they do not replace."""
        if self.column is None:
            return columns
        kept = self.columns_of(batch)
        arrays = {name: kept.column(name) for name in kept.schema.names if name != self.column}
        arrays |= {name: columns.column(name) for name in columns.schema.names}
        return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))

    def _no_rows(self, batch: RecordBatch) -> pa.RecordBatch:
        columns = pa.RecordBatch.from_pylist([], self.parsed_schema())
        return self._beside(batch.take(np.empty(0, np.int64)), columns)


def _has_columns(schema: pa.Schema) -> str:
    return f"the records have columns already; name the one to be parsed as column: {', '.join(schema.names)}"


def _require_column(schema: pa.Schema, name: str) -> None:
    if name not in schema.names:
        raise LookupError(f"column: there is no column '{name}'{did_you_mean(name, schema.names)}")

"""The rows of a DataFrame: record batches in the types of Spark, with the columns that say where a record is from."""

from __future__ import annotations

import json
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from pydantic import Field

from dagflow.api.capabilities import SelectsRows, WantedRows
from dagflow.api.operator import Operator
from dagflow.api.ports import InputPort
from dagflow.api.records import UNKNOWN, RecordBatch
from dagflow.api.sources import url_of
from dagflow.errors import DagflowError, text_of
from dagflow.frozen import frozen
from dagflow.late import compute as pc
from dagflow.storage.columns import borders_of
from dagflow.storage.location import redacted
from dagflow.suggestions import did_you_mean

RECORDS, REJECTS = "records", "rejects"
"""The ports of SparkRows."""

FILE, OFFSET, BAD_RECORD = "_file", "_offset", "_bad_record"
"""Columns beside those of the format: two on request, and one where refused records are rows."""

ADDED = {FILE: pa.string(), OFFSET: pa.int64(), BAD_RECORD: pa.string()}

MOST_DIGITS = 38


class SparkRows(Operator, SelectsRows):
    """Stands for Spark in the app of a source: what is sent to it are the rows. It never runs."""

    columns: Annotated[list[str] | None, Field(description="the columns that rows have; null: all")] = None

    records = InputPort()
    rejects = InputPort(optional=True)

    def wanted_rows(self) -> WantedRows:
        """The columns that the schema names."""
        return WantedRows(columns=None if self.columns is None else frozenset(self.columns).difference(ADDED))

    @records.batch
    def take(self, batch: RecordBatch) -> None:
        """Take in records."""

    @rejects.batch
    def take_rejects(self, batch: RecordBatch) -> None:
        """Take in refused records."""


def spark_type(kind: Any, column: str) -> Any:
    """The type of Arrow that Spark has for one that it may lack.

    Raises:
        DagflowError: Spark has none that holds all its values.
    """
    types = pa.types
    if types.is_dictionary(kind):
        return spark_type(kind.value_type, column)
    if isinstance(kind, pa.BaseExtensionType):
        return spark_type(kind.storage_type, column)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(spark_type(kind.value_type, column))
    if types.is_map(kind):
        return pa.map_(spark_type(kind.key_type, column), spark_type(kind.item_type, column))
    if types.is_struct(kind):
        return pa.struct([(field.name, spark_type(field.type, f"{column}.{field.name}")) for field in kind])
    if types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if types.is_decimal(kind):
        if kind.precision > MOST_DIGITS:
            raise _no_type(kind, column, f"a decimal has at most {MOST_DIGITS} digits there")
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_time(kind) or types.is_null(kind) or types.is_large_string(kind) or kind == pa.string_view():
        return pa.string()
    if types.is_large_binary(kind) or types.is_fixed_size_binary(kind) or kind == pa.binary_view():
        return pa.binary()
    if types.is_duration(kind):
        return pa.duration("us")
    if kind == pa.month_day_nano_interval():
        raise _no_type(kind, column, "an interval of months, days and nanoseconds is none of its own")
    return _WIDER.get(kind, kind)


_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}


def _no_type(kind: Any, column: str, why: str) -> DagflowError:
    return DagflowError(
        f"column '{column}' is {kind}, and Spark has no such type: {why}",
        hint="give its type in `columns`, or leave it out of the schema: .schema('other string, ...')",
    )


@frozen
class RowShape:
    """The columns of rows.

    Attributes:
        schema: Names and types, as Spark takes them from Python.
        is_whole: Whether a column of a record that the schema lacks is refused; otherwise it was left out on purpose.
        may_lack: Whether records need not have all columns, because each has those that were found in it.
        has_rejects: Whether refused records are rows as well.
    """

    schema: Any
    is_whole: bool = False
    may_lack: bool = False
    has_rejects: bool = False

    def rows(self, port: str, batch: RecordBatch) -> pa.RecordBatch:
        """The rows of a batch of records, or of refused ones.

        Raises:
            DagflowError: A value does not fit the type of its column.
        """
        count = len(batch)
        given: dict[str, Any] = {}
        if port == RECORDS:
            arrow = batch.to_arrow()
            given = dict(zip(arrow.schema.names, arrow.columns, strict=True))
            self._require_columns(given, batch)
        arrays = [self._column(field, given, port, batch, count) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _require_columns(self, given: dict[str, Any], batch: RecordBatch) -> None:
        asked = self.schema.names
        missing = [name for name in asked if name not in given and name not in ADDED]
        if missing and not self.may_lack:
            close = did_you_mean(missing[0], given)
            raise DagflowError(
                f"records have no column '{missing[0]}'{close or ';'} they have {', '.join(given)}; in {_files(batch)}",
                hint=f"where only some files have it, say so: .option('columns', '{{{missing[0]}: {{type: string, "
                "optional: true}}')",
            )
        if self.is_whole and (more := [name for name in given if name not in asked]):
            raise DagflowError(
                f"records have a column '{more[0]}', which those of the first file do not have; in {_files(batch)}",
                hint="name the columns that you want: .schema('id bigint, name string'), or in the option columns",
            )

    def _column(self, field: Any, given: dict[str, Any], port: str, batch: RecordBatch, count: int) -> Any:
        array = given.get(field.name)
        if array is None:
            array = self._origin(field.name, port, batch)
        if array is None:
            return pa.nulls(count, field.type)
        if array.type == field.type:
            return array
        try:
            return _cast(array, field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DagflowError(
                f"column '{field.name}' is {array.type}, and does not fit {field.type}: {text_of(error)}; in "
                f"{_files(batch)}"
            ) from error

    def _origin(self, name: str, port: str, batch: RecordBatch) -> Any:
        """A column that no record has; None where it is null."""
        if port == REJECTS and name in ADDED:
            refused = batch.to_pylist()
            if name == BAD_RECORD:
                return pa.array([reject.decode() for reject in refused])
            values = map(json.loads, refused)
            if name == OFFSET:
                return pa.array([value["offset"] for value in values], pa.int64())
            return pa.array([redacted(value["url"]) for value in values], pa.string())
        if name == OFFSET:
            offsets = batch.offsets()
            return pa.array(offsets, mask=offsets == UNKNOWN)
        if name == FILE and batch.origin is not None:
            indices = batch.origin.block_indices(len(batch))
            urls = pa.array([redacted(url_of(block)) for block in batch.blocks], pa.string())
            return urls.take(pa.array(indices, mask=np.asarray(indices) == UNKNOWN))
        return None


def _files(batch: RecordBatch) -> str:
    return ", ".join(sorted({redacted(url_of(block)) for block in batch.blocks}))


def _cast(array: Any, target: Any) -> Any:
    # Spark counts microseconds, whatever a file has.
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_binary(array.type) and pa.types.is_string(target) and _is_ascii(array):
        return array.view(target)
    return pc.cast(array, options=pc.CastOptions(target, allow_time_truncate=True))


def _is_ascii(array: Any) -> bool:
    """Whether all bytes are those of ASCII: to see this takes an eighth of the time to look for UTF-8 in each value."""
    borders = borders_of(array)
    first, last = int(borders[0]), int(borders[-1])
    return first == last or bool(np.frombuffer(array.buffers()[2], np.uint8)[first:last].max() < 0x80)

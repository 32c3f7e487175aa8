"""Parquet as output."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis.strategies import SearchStrategy

from dagflow.api.records import RecordBatch
from operators.sink.formats.base import SinkFormat
from operators.testing import SinkContract
from tests.operators.sink.formats.sink_records import VALUES, batches_of, many_rows, written

SCHEMA = pa.schema([(str(kind), kind) for kind in VALUES])
OTHER_SCHEMA = pa.schema([SCHEMA.field(1), SCHEMA.field(0)])


class TestParquet(SinkContract):
    """Every type comes back as it was, with any codec."""

    formats: ClassVar = [
        "parquet",
        *({"type": "parquet", "compression": name} for name in ("snappy", "gzip", "none")),
        {"type": "parquet", "row_group_bytes": 100_000},
    ]

    def batches(self) -> SearchStrategy[RecordBatch]:
        return batches_of(SCHEMA)

    def other_batches(self) -> SearchStrategy[RecordBatch]:
        return batches_of(OTHER_SCHEMA)

    def many_records(self) -> RecordBatch:
        return many_rows(SCHEMA, 30_000)

    def read_back(self, content: bytes, format: SinkFormat) -> list[Any]:
        table = pq.read_table(io.BytesIO(content))
        assert table.schema in (SCHEMA, OTHER_SCHEMA)
        return list(table.to_pylist())


def parquet_files(*batches: RecordBatch, **options: Any) -> list[pq.ParquetFile]:
    """The files of one window."""
    return [pq.ParquetFile(io.BytesIO(content)) for content in written(*batches, type="parquet", **options)]


def batch_of(**columns: Any) -> RecordBatch:
    """A batch with these columns."""
    return RecordBatch(pa.record_batch(columns))


def test_types_are_parquets_own() -> None:
    """Decimals are decimals, timestamps with a zone are instants, those without are not."""
    (file,) = parquet_files(many_rows(SCHEMA, 10))
    logical = {column.name: str(column.logical_type) for column in file.schema if column.name in SCHEMA.names}
    assert logical["decimal128(38, 9)"] == "Decimal(precision=38, scale=9)"
    assert "isAdjustedToUTC=false" in logical["timestamp[us]"]
    assert "isAdjustedToUTC=true" in logical["timestamp[us, tz=UTC]"]
    assert logical["date32[day]"] == "Date"


@pytest.mark.parametrize(("digits", "stored"), [(9, "INT32"), (18, "INT64"), (19, "FIXED_LEN_BYTE_ARRAY")])
def test_decimals_are_stored_as_integers_where_they_fit(digits: int, stored: str) -> None:
    """The specification of Iceberg asks for that."""
    values = [Decimal("1.25"), None, Decimal("-0.01")]
    (file,) = parquet_files(batch_of(price=pa.array(values, pa.decimal128(digits, 2))))
    assert file.schema.column(0).physical_type == stored
    assert file.read().column("price").to_pylist() == values


def test_row_groups_have_the_size_that_is_asked_for() -> None:
    """Rows are held in memory up to one of them; batches are gathered."""
    parts = [batch_of(n=list(range(1000))) for _ in range(100)]
    (file,) = parquet_files(*parts, row_group_bytes=100_000)
    sizes = [file.metadata.row_group(index).num_rows for index in range(file.num_row_groups)]
    assert sizes == [12_500] * 8


@pytest.mark.parametrize(("count", "expected"), [(32_000, {"few", "text"}), (4_000, {"few", "text", "id", "key"})])
def test_distinct_values_have_no_dictionary(count: int, expected: set[str]) -> None:
    """It costs time and space; where there are few rows, looking would cost more."""
    numbers = range(count)
    columns = {"few": [each % 7 for each in numbers], "id": [*numbers]}
    texts = {"text": [f"text {each % 9}" for each in numbers], "key": [f"key {each}" for each in numbers]}
    (file,) = parquet_files(batch_of(**columns, **texts))
    assert file.read().to_pydict() == columns | texts
    chunks = [file.metadata.row_group(0).column(index) for index in range(4)]
    assert {each.path_in_schema for each in chunks if each.has_dictionary_page} == expected


def test_a_column_has_a_dictionary_only_if_values_repeat_often() -> None:
    """One whose page the values outgrow is made in vain."""
    dice = np.random.default_rng(1)
    columns = [pa.array(dice.integers(0, kinds, 400_000)).cast(pa.string()) for kinds in (10_000, 100_000)]
    (file,) = parquet_files(batch_of(often=columns[0], seldom=columns[1]))
    chunks = [file.metadata.row_group(0).column(index) for index in (0, 1)]
    assert [each.has_dictionary_page for each in chunks] == [True, False]


def test_a_file_of_distinct_values_alone_has_no_dictionary() -> None:
    """Also where that leaves no column with one; columns inside others keep theirs."""
    numbers = list(range(20_000))
    (file,) = parquet_files(batch_of(n=numbers))
    assert not file.metadata.row_group(0).column(0).has_dictionary_page
    (file,) = parquet_files(batch_of(n=numbers, items=[[1]] * 20_000))
    assert [file.metadata.row_group(0).column(index).has_dictionary_page for index in (0, 1)] == [True, True]


def test_records_of_another_schema_have_a_file_of_their_own() -> None:
    """The first schema's file takes its later records too; both are open at the same time."""
    files = parquet_files(batch_of(n=[1]), batch_of(n=["x"]), batch_of(n=[2]))
    assert [file.read().to_pydict() for file in files] == [{"n": [1, 2]}, {"n": ["x"]}]


def test_a_column_of_nulls_goes_with_any_type() -> None:
    """Where nothing is known of a type, as in a batch of records that all lack the value."""
    (file,) = parquet_files(batch_of(n=[1]), batch_of(n=pa.nulls(2)), batch_of(n=[2]))
    assert file.read().to_pydict() == {"n": [1, None, None, 2]}


def test_raw_records_are_a_column_of_bytes() -> None:
    """The column is called record, and its values have no delimiters."""
    (file,) = parquet_files(RecordBatch.from_records([b"a", b"\xff"]))
    assert file.read().to_pydict() == {"record": [b"a", b"\xff"]}


def test_columns_that_parquet_cannot_hold_are_refused() -> None:
    """A file without columns has no rows."""
    nothing = RecordBatch(pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([]))))
    with pytest.raises(ValueError, match="records without columns cannot be written as Parquet"):
        parquet_files(nothing)

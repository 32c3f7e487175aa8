"""Tables of several files have the columns of all of them, and every value as it was written."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagflow.errors import DagflowError
from dagflow.storage.context import StorageContext
from operators.lookup.kinds import CsvSource, LookupSource, ParquetSource

STORAGE = StorageContext.default()
POINT = pa.struct([("x", pa.int32())])
WIDE = pa.struct([("x", pa.int64()), ("y", pa.string())])


def parquet(root: Path, *tables: pa.Table) -> ParquetSource:
    """A table of files."""
    for number, each in enumerate(tables):
        pq.write_table(each, root / f"{number}.parquet")
    return ParquetSource(str(root))


def values(source: LookupSource, name: str = "v") -> list[Any]:
    """A column of a table."""
    return list(pa.Table.from_batches(source.batches(STORAGE, [name]))[name].to_pylist())


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        (pa.array([1], pa.int32()), pa.array([2**40]), pa.int64()),
        (pa.array([None], pa.null()), pa.array(["a"]), pa.string()),
        (pa.array([2**53]), pa.array([0.5]), pa.float64()),
        (pa.array([1], pa.uint32()), pa.array([-1], pa.int32()), pa.int64()),
        (pa.array([Decimal("1.5")], pa.decimal128(3, 1)), pa.array([Decimal("0.25")]), pa.decimal128(4, 2)),
        (pa.array([7]), pa.array([Decimal("0.5")], pa.decimal128(2, 1)), pa.decimal128(21, 1)),
        (pa.array(["a"]).dictionary_encode(), pa.array(["b"], pa.large_string()), pa.string()),
        (pa.array([{"x": 1}, None], POINT), pa.array([{"x": 2**40, "y": "a"}], WIDE), WIDE),
        (pa.array([[{"x": 1}], None], pa.list_(POINT)), pa.array([[]], pa.list_(WIDE)), pa.list_(WIDE)),
    ],
)
def test_a_column_has_the_type_that_takes_the_values_of_all_files(
    tmp_path: Path, first: pa.Array, second: pa.Array, kind: pa.DataType
) -> None:
    """In whichever order the files come."""
    for order in ((first, second), (second, first)):
        source = parquet(tmp_path, *(pa.table({"k": [1] * len(each), "v": each}) for each in order))
        assert source.columns(STORAGE).field("v").type == kind
        wanted = [value for each in order for value in each.cast(kind).to_pylist()]
        assert values(source) == wanted


@pytest.mark.parametrize("first", [pa.array([1]), pa.array([0.5]), pa.array([True]), pa.array([Decimal("0.5")])])
def test_types_of_which_none_takes_all_values_are_named_with_their_files(tmp_path: Path, first: pa.Array) -> None:
    """As soon as the column is read; written anew, the table is joined."""
    second = pa.array([0.25]) if pa.types.is_decimal(first.type) else pa.array(["a"])
    source = parquet(tmp_path, pa.table({"k": [1], "w": [1], "v": first}), pa.table({"k": [1], "w": [2], "v": second}))
    with pytest.raises(DagflowError, match=rf"column 'v' is \S+( 1\))? in .*/0.parquet and {second.type} in .*/1.pa"):
        values(source)
    assert values(source, "w") == [1, 2]
    pq.write_table(pa.table({"k": [1], "w": [1], "v": first.cast(second.type)}), tmp_path / "0.parquet")
    assert len(values(source)) == 2


def test_a_value_that_would_be_rounded_is_an_error(tmp_path: Path) -> None:
    """It says of what type the column is, and in which file."""
    source = parquet(tmp_path, pa.table({"k": [1], "v": [2**53 + 1]}), pa.table({"k": [1], "v": [0.5]}))
    with pytest.raises(DagflowError, match=r"'v' is int64 in .*/0.parquet, with values that double .* files: "):
        values(source)


def test_members_are_not_rounded_either(tmp_path: Path) -> None:
    """By itself Arrow makes doubles of them."""
    exact, rounded = (pa.table({"v": [[{"a": each}]]}) for each in (Decimal("12345678901234567890.12"), 1.5))
    with pytest.raises(DagflowError, match=r"column 'v' is list<.*> in .*/0.parquet and list<.*> in .*/1.parquet"):
        values(parquet(tmp_path, exact, rounded))


def test_members_are_null_where_a_file_lacks_them(tmp_path: Path) -> None:
    """Though the other file requires them, or has no such column."""
    one = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    two = pa.struct([*one, pa.field("b", pa.int64(), nullable=False)])
    first = pa.table({"v": pa.array([{"a": 1}], one), "w": pa.array([{"a": 1}], one)})
    source = parquet(tmp_path, first, pa.table({"v": pa.array([{"a": 2, "b": 3}], two)}))
    assert values(source) == [{"a": 1, "b": None}, {"a": 2, "b": 3}]
    assert values(source, "w") == [{"a": 1}, None]


def test_what_a_file_of_parquet_lacks_is_null(tmp_path: Path) -> None:
    """The columns are those of all files; a file without any column that is asked for has its rows."""
    source = parquet(tmp_path, pa.table({"x": [1, 2]}), pa.table({"k": [1], "v": ["a"]}), pa.table({"v": ["b"]}))
    assert source.columns(STORAGE) == pa.schema([("x", pa.int64()), ("k", pa.int64()), ("v", pa.string())])
    assert values(source) == [None, None, "a", "b"]
    assert values(source, "k") == [None, None, 1, None]


def test_what_a_file_of_csv_lacks_is_null(tmp_path: Path) -> None:
    """The columns are those of all files that have rows."""
    for name, text in {"a": "k\n1\n", "b": "v,k\nx,2\n", "c": "k,unseen\n"}.items():
        (tmp_path / f"{name}.csv").write_text(text)
    source = CsvSource(str(tmp_path), {})
    assert source.columns(STORAGE).names == ["k", "v"]
    assert values(source) == [None, "x"]


def test_a_name_is_there_as_often_as_a_file_has_it(tmp_path: Path) -> None:
    """So that what takes the column can refuse it."""
    twice = pa.table([pa.array([1]), pa.array([2])], names=["v", "v"])
    assert parquet(tmp_path, twice, pa.table({"v": [1]})).columns(STORAGE).names == ["v", "v"]

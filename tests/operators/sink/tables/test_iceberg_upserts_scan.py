"""Data files of Iceberg are read with all that was written, nulls at every level among it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import FileScanTask
from pyiceberg.table import Table as Handle
from pyiceberg.typedef import Record
from pyiceberg.types import ListType, LongType, MapType, StructType

from dagflow.testing.operators import run_operator
from operators.sink.tables.iceberg_upserts import WholeScan
from operators.transform.enrich import Enrich
from tests.nightly import by_day
from tests.operators.sink.tables.test_iceberg_upserts import ICEBERG, files, handle
from tests.operators.sink.tables.test_table_files_upserted_rows import NAME, catalog_of
from tests.operators.sink.test_table_writer import columns

PAIR = pa.struct([("x", pa.int32()), ("l", pa.list_(pa.string()))])
PAIRS = [None, {"x": None, "l": None}, {"x": 1, "l": []}, {"x": 2, "l": [None, "a"]}]
LISTS: list[Any] = [None, [], [None], PAIRS, PAIRS[1:2]]
MAPS: list[Any] = [None, [], [("a", None)], list(zip("abcd", PAIRS, strict=True))]
NESTED: list[tuple[pa.DataType, list[Any]]] = [
    (PAIR, PAIRS),
    (pa.list_(pa.int32()), [None, [], [None], [1, None]]),
    (pa.list_(PAIR), LISTS),
    (pa.list_(pa.list_(PAIR)), [None, [], [None], LISTS]),
    (pa.map_(pa.string(), pa.int32()), [None, [], [("a", None)], [("a", 1), ("b", 2)]]),
    (pa.map_(pa.string(), PAIR), MAPS),
    (pa.map_(pa.string(), pa.list_(PAIR)), [None, [], list(zip("abcde", LISTS, strict=True))]),
    (pa.list_(pa.map_(pa.string(), PAIR)), [None, [], MAPS]),
    (
        pa.struct([("l", pa.list_(PAIR)), ("m", pa.map_(pa.string(), PAIR))]),
        [None, *({"l": each, "m": None} for each in LISTS), *({"l": None, "m": each} for each in MAPS)],
    ),
]


def write(root: Path, kind: pa.DataType, values: list[Any]) -> None:
    """Make a table of one file with keys and values."""
    ICEBERG.write(root, columns(k=range(len(values)), v=pa.array(values, kind)), upsert_by="k")


def in_files(root: Path) -> list[Any]:
    """The values of a table as its files have them, in the order of the keys."""
    rows = pa.concat_tables([pq.read_table(path, partitioning=None) for path in files(root)])
    return list(rows.sort_by("k")["v"].to_pylist())


def scan(root: Path) -> pa.Table:
    """The rows of the table."""
    found = handle(root)
    return WholeScan(found.metadata, found.io, found.schema()).to_table(found.scan().plan_files())


@pytest.mark.parametrize(("kind", "values"), by_day(4, NESTED), ids=lambda each: str(each)[:30])
def test_rows_that_stay_keep_their_nulls_at_every_level(tmp_path: Path, kind: pa.DataType, values: list[Any]) -> None:
    """A window that replaces one row writes the file of the others anew; a join with the table sees them as well."""
    first = columns(k=range(len(values) + 1), v=pa.array([*values, None], kind))
    ICEBERG.write(tmp_path, first, columns(k=[len(values)], v=pa.array(values[-1:], kind)), upsert_by="k")
    wanted = [*values, values[-1]]
    assert in_files(tmp_path) == wanted
    operator = Enrich(**ICEBERG.properties(tmp_path), on="k")
    joined = run_operator(operator, [{"k": key} for key in range(len(wanted))])["output"]
    assert [row["v"] for row in joined] == wanted


@pytest.mark.parametrize(("kind", "values"), by_day(4, NESTED), ids=lambda each: str(each)[:30])
def test_columns_are_those_of_a_scan_of_pyiceberg(tmp_path: Path, kind: pa.DataType, values: list[Any]) -> None:
    """The types and names of all levels, though not their nulls."""
    write(tmp_path, kind, values)
    found = handle(tmp_path)
    theirs = ArrowScan(found.metadata, found.io, found.schema(), AlwaysTrue()).to_table(found.scan().plan_files())
    plain = [table.cast(found.schema().as_arrow()).schema for table in (scan(tmp_path), theirs)]
    assert plain[0] == plain[1]


@pytest.mark.parametrize("kind", [pa.list_(PAIR), pa.list_(pa.list_(PAIR)), pa.map_(pa.string(), PAIR)])
def test_what_has_changed_within_lists_and_maps_is_found_by_its_id(tmp_path: Path, kind: pa.DataType) -> None:
    """A field has another name and a wider type, one is new, and one is gone; nulls stay."""
    pair = {"x": 1, "l": ["a"]}
    value = {pa.list_(PAIR): [pair], pa.list_(pa.list_(PAIR)): [[pair]]}.get(kind, [("a", pair)])
    write(tmp_path, kind, [None, value, []])
    within = within_of(handle(tmp_path))
    with handle(tmp_path).update_schema(allow_incompatible_changes=True) as update:
        update.rename_column((*within, "x"), "y")
        update.update_column((*within, "x"), field_type=LongType())
        update.delete_column((*within, "l"))
        update.add_column((*within, "z"), LongType())
    pair = {"y": 1, "z": None}
    changed = {pa.list_(PAIR): [pair], pa.list_(pa.list_(PAIR)): [[pair]]}.get(kind, [("a", pair)])
    assert scan(tmp_path).sort_by("k")["v"].to_pylist() == [None, changed, []]


def within_of(table: Handle) -> tuple[str, ...]:
    """The path of the structs in the column v."""
    path, kind = ["v"], table.schema().find_type("v")
    while not isinstance(kind, StructType):
        assert isinstance(kind, ListType | MapType)
        path.append("element" if isinstance(kind, ListType) else "value")
        kind = kind.element_type if isinstance(kind, ListType) else kind.value_type
    return tuple(path)


def test_lists_of_which_no_field_is_left_keep_their_lengths(tmp_path: Path) -> None:
    """All fields of their structs are new."""
    write(tmp_path, pa.list_(PAIR), [None, [], PAIRS])
    with handle(tmp_path).update_schema(allow_incompatible_changes=True) as update:
        for name in ("x", "l"):
            update.delete_column(("v", "element", name))
        update.add_column(("v", "element", "z"), LongType())
    assert scan(tmp_path).sort_by("k")["v"].to_pylist() == [None, [], [None, *[{"z": None}] * 3]]


def test_rows_that_others_have_deleted_are_left_out(tmp_path: Path) -> None:
    """Files of deletes name them by their places, also behind the first batch of a file."""
    values = [[{"x": n, "l": None}] if n % 3 else None for n in range(140_000)]
    write(tmp_path, pa.list_(PAIR), values)
    found = handle(tmp_path)
    (file,) = (task.file for task in found.scan().plan_files())
    gone = [0, 131_072, 139_999]
    pq.write_table(pa.table({"file_path": [file.file_path] * 3, "pos": gone}), tmp_path / "deletes.parquet")
    deletes = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=str(tmp_path / "deletes.parquet"),
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=3,
        file_size_in_bytes=(tmp_path / "deletes.parquet").stat().st_size,
    )
    task = FileScanTask(file, delete_files={deletes})
    rows = WholeScan(found.metadata, found.io, found.schema()).to_table([task])
    assert rows["k"].to_pylist() == [n for n in range(140_000) if n not in gone]
    assert rows["v"].to_pylist() == [values[n] for n in range(140_000) if n not in gone]


@pytest.mark.parametrize(
    ("kind", "item"),
    [
        (pa.large_list(PAIR), PAIRS[3]),
        (pa.list_(PAIR, 2), PAIRS[3]),
        (pa.list_(pa.int32(), 2), 1),
        (pa.list_(pa.large_list(PAIR), 2), PAIRS),
    ],
)
def test_lists_of_other_layouts_are_read_from_files_of_others(tmp_path: Path, kind: pa.DataType, item: Any) -> None:
    """Lists of a fixed length and large ones have their nulls."""
    values = [[item, None], None, [None, item]]
    columns_there = pa.schema([("k", pa.int64()), ("v", pa.list_(kind.value_type))])
    catalog_of(tmp_path).create_namespace("shop")
    catalog_of(tmp_path).create_table(NAME, columns_there)
    pq.write_table(pa.table({"k": range(3), "v": pa.array(values, kind)}), tmp_path / "theirs.parquet")
    handle(tmp_path).add_files([str(tmp_path / "theirs.parquet")])
    assert scan(tmp_path)["v"].to_pylist() == values

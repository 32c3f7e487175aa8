"""TableWriter with upsert_by: a table has one row for each key, the newest, whatever kind it is of."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError

from dagflow.engine.run import run
from dagflow.errors import DagflowError
from dagflow.execution.messages import WindowJob
from dagflow.plan.load import load_app
from dagflow.plan.logical import grouped
from dagflow.runtime.local import InlineRuntime
from dagflow.testing.faults import InjectedCrash
from operators.sink.table_writer import TableWriter
from tests.nightly import by_day, nightly
from tests.operators.sink.test_table_writer import app, columns

APP = """
name: newest
attributes: {{checkpoint: {root}/journal}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: {root}/in}}}}
  reader: {{class: BlockReader, properties: {{format: {{type: csv, columns: {{n: int64}}}}}}}}
  sums:
    class: Aggregate
    properties: {{by: shop, columns: {{total: sum(n), orders: count(*)}}, over: run}}
    partition: parallel
  table: {{class: TableWriter, properties: {{{table}, upsert_by: shop}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  rows: {{from: reader.messages, to: sums.input}}
  results: {{from: sums.output, to: table.input}}
"""
NAME = "shop.newest"


@dataclass(frozen=True)
class UpsertedTable:
    """A kind of table, as other programs make and read it."""

    properties: Callable[[Path], dict[str, Any]]
    rows: Callable[[Path], pa.Table | None]
    make: Callable[[Path, pa.Table], None]

    def write(self, root: Path, *batches: pa.RecordBatch, **properties: Any) -> list[tuple[Any, ...]]:
        """Run an app over batches; return the rows of the table, in the order of their text."""
        run(app(root, batches, **self.properties(root), **properties), runtime=InlineRuntime)
        return self.sorted_rows(root)

    def sorted_rows(self, root: Path) -> list[tuple[Any, ...]]:
        """The rows of the table, in the order of their text."""
        found = self.rows(root)
        assert found is not None
        return sorted((tuple(row.values()) for row in found.to_pylist()), key=str)


def catalog_of(root: Path) -> Catalog:
    """The catalog below a directory."""
    (root / "warehouse").mkdir(exist_ok=True, parents=True)
    return load_catalog("default", **_options(root))


def _options(root: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{root}/catalog.db", "warehouse": f"{root}/warehouse"}


def _iceberg_rows(root: Path) -> pa.Table | None:
    try:
        return catalog_of(root).load_table(NAME).scan().to_arrow()
    except NoSuchTableError:
        return None


def _make_iceberg(root: Path, rows: pa.Table) -> None:
    catalog_of(root).create_namespace_if_not_exists("shop")
    catalog_of(root).create_table(NAME, rows.schema).append(rows)


def _delta_rows(root: Path) -> pa.Table | None:
    path = str(root / "table")
    return DeltaTable(path).to_pyarrow_table() if DeltaTable.is_deltatable(path) else None


KINDS = {
    "delta": UpsertedTable(
        lambda root: {"table": f"delta:{root}/table"},
        _delta_rows,
        lambda root, rows: write_deltalake(str(root / "table"), rows),
    ),
    "iceberg": UpsertedTable(
        lambda root: {"table": f"iceberg:{NAME}", "catalog": _options(root)},
        _iceberg_rows,
        _make_iceberg,
    ),
}


@pytest.fixture(params=nightly(KINDS, "iceberg"))
def kind(request: pytest.FixtureRequest) -> UpsertedTable:
    """Each kind that takes upserts."""
    return KINDS[request.param]


def test_a_row_takes_the_place_of_the_one_with_its_key(tmp_path: Path, kind: UpsertedTable) -> None:
    """The last row of a window counts; keys that come no more stay."""
    first = columns(shop=["a", "b", "a"], n=[1, 2, 3])
    found = kind.write(tmp_path, first, columns(shop=["b", "c"], n=[20, 4]), upsert_by="shop")
    assert found == [("a", 3), ("b", 20), ("c", 4)]


@pytest.mark.parametrize("partition_by", [[], ["when"], ['Größe "1"', "when"]])
def test_any_names_and_missing_values_are_keys(tmp_path: Path, kind: UpsertedTable, partition_by: list[str]) -> None:
    """Names are taken as they are; a null equals a null."""
    name = 'Größe "1"'
    first = columns(**{name: ["a", None, "a"], "when": pa.array([1, 1, None], pa.date32()), "n": [1, 2, 3]})
    second = columns(**{name: ["a", None], "when": pa.array([None, 1], pa.date32()), "n": [30, 20]})
    kind.write(tmp_path, first, second, upsert_by=[name, "when"], partition_by=partition_by)
    found = kind.rows(tmp_path)
    assert found is not None and sorted(found["n"].to_pylist()) == [1, 20, 30]


@pytest.mark.parametrize("names", by_day(2, [["_max"], ["_min", "_list"], ["row", "row_max"], ["key 1", "key 0"]]))
def test_keys_may_be_called_as_anything(tmp_path: Path, kind: UpsertedTable, names: list[str]) -> None:
    """Also as columns of what finds the newest row of each."""
    first, second = (
        columns(**dict.fromkeys(names, pa.array(keys)), n=numbers) for keys, numbers in (([1, 2], [1, 2]), ([2], [3]))
    )
    assert kind.write(tmp_path, first, second, upsert_by=names) == [(*[1] * len(names), 1), (*[2] * len(names), 3)]


@pytest.mark.parametrize("partition_by", [(), "k"])
def test_the_last_record_of_a_key_in_a_group_counts(tmp_path: Path, kind: UpsertedTable, partition_by: str) -> None:
    """The last one within a window as well."""
    texts = [(None, 2), ("a", 3)], [(None, 4), ("b", 6), ("a", 7)], [(None, 9)]
    batches = [columns(k=pa.array([k for k, _ in rows], pa.string()), n=[n for _, n in rows]) for rows in texts]
    logical = app(tmp_path, batches, **kind.properties(tmp_path), upsert_by="k", partition_by=partition_by)
    assert run(grouped(logical), runtime=InlineRuntime).windows == 4, "one more merges what the others hold"
    found = kind.rows(tmp_path)
    assert found is not None and sorted(found["n"].to_pylist()) == [6, 7, 9]


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ("k", (), [("a", 2), ("b", 3), ("b", 4)]),
        ((), "k", [("a", 1), ("a", 2), ("b", 4)]),
        ("k", ["k", "n"], [("a", 2), ("b", 3), ("b", 4)]),
    ],
)
def test_what_waits_is_merged_by_the_keys_that_it_was_written_with(
    tmp_path: Path, kind: UpsertedTable, before: Any, after: Any, wanted: list[tuple[str, int]]
) -> None:
    """A run died before it merged, and the app has got other keys."""
    batches = [columns(k=[k], n=[n]) for k, n in (("a", 1), ("a", 2), ("b", 3), ("b", 4))]

    def die(window: WindowJob) -> None:
        if window.window_id == 3:
            raise InjectedCrash

    first, then = (
        grouped(app(tmp_path, given, **kind.properties(tmp_path), upsert_by=keys))
        for given, keys in ((batches[:2], before), (batches, after))
    )
    with contextlib.suppress(InjectedCrash):
        run(first, runtime=lambda program: InlineRuntime(program, before=die))
    assert not kind.rows(tmp_path)
    run(then, runtime=InlineRuntime)
    assert kind.sorted_rows(tmp_path) == wanted


def test_a_row_is_replaced_as_a_whole(tmp_path: Path, kind: UpsertedTable) -> None:
    """A column that comes later is added, and is null elsewhere; one that a record lacks is null in its row."""
    found = kind.write(tmp_path, columns(k=[1, 2], a=["x", "y"]), columns(k=[2, 3], b=[True, False]), upsert_by="k")
    assert found == [(1, "x", None), (2, None, True), (3, None, False)]


def test_rows_of_others_are_replaced_and_kept_as_well(tmp_path: Path, kind: UpsertedTable) -> None:
    """A table that another program made is joined."""
    kind.make(tmp_path, pa.table({"k": [1, 2], "n": [10, 20]}))
    found = kind.write(tmp_path, columns(k=pa.array([2, 3], pa.int16()), n=[21, 31]), upsert_by="k")
    assert found == [(1, 10), (2, 21), (3, 31)]


def test_one_row_takes_the_place_of_all_with_its_key(tmp_path: Path, kind: UpsertedTable) -> None:
    """Another program, or the app before it had keys, may have added several."""
    kind.make(tmp_path, pa.table({"k": ["a", "a", None, None, "b"], "n": [1, 2, 3, 4, 5], "long name": [1] * 5}))
    found = kind.write(tmp_path, columns(k=["a", None, "c"], n=[10, 30, 60]), upsert_by="k")
    assert found == [("a", 10, None), ("b", 5, 1), ("c", 60, None), (None, 30, None)]


@pytest.mark.parametrize(
    "values",
    by_day(
        3,
        [
            pa.array([b"a", b"\xff", b"a"]),
            pa.array([-1, 2**62, -1], pa.int64()),
            pa.array([1, 0, 1], pa.int8()).cast(pa.decimal128(9, 2)),
            pa.array([True, False, True]),
            pa.array([-719_162, 2_900_000, -719_162], pa.int32()).cast(pa.date32()),
            pa.array([-(2**60), 2**60, -(2**60)], pa.timestamp("us")),
            pa.array([0, 1, 0], pa.timestamp("us", "UTC")),
            pa.array([0, 1, 0], pa.time64("us")),
            pa.array([None, "a", None]),
        ],
    ),
    ids=lambda values: str(values.type),
)
def test_keys_of_all_types_find_their_rows(tmp_path: Path, kind: UpsertedTable, values: pa.Array) -> None:
    """Also values that Python lacks."""
    other = pa.array(["é" * 70], pa.string())
    first = columns(k=values[:2], n=[1, 2])
    second = columns(k=values[2:], n=[3], other=other)
    run(app(tmp_path, [first, second], **kind.properties(tmp_path), upsert_by="k"), runtime=InlineRuntime)
    found = kind.rows(tmp_path)
    assert found is not None and sorted(found["n"].to_pylist()) == [2, 3]


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        (
            {"table": "parquet:out", "upsert_by": "k"},
            "table parquet:.* has none; use table: delta:PATH, or another kind",
        ),
        ({"table": "delta:out", "upsert_by": ["k", "k"]}, "upsert_by names a column twice"),
        (
            {"table": "delta:out", "upsert_by": "k", "partition_by": "day"},
            "add 'day' to upsert_by, or do not partition",
        ),
    ],
)
def test_what_cannot_be_upserted_is_reported_before_a_run(properties: dict[str, Any], reason: str) -> None:
    """It is an error of `validate`, with what would be right."""
    with pytest.raises(ValueError, match=reason):
        TableWriter(**properties)


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (columns(n=[1]), "the records have no column 'k'; they have n"),
        (columns(k=[1.5]), "'k' is double, which is no key; cast it to a decimal or to text"),
        (columns(k=[[1]]), "'k' is list.*, which is no key"),
    ],
)
def test_records_without_a_key_end_the_run(
    tmp_path: Path, kind: UpsertedTable, batch: pa.RecordBatch, reason: str
) -> None:
    """Nothing of their window is committed."""
    with pytest.raises(DagflowError, match=reason):
        kind.write(tmp_path, batch, upsert_by="k")
    assert kind.rows(tmp_path) is None


@pytest.mark.parametrize(
    ("name", "batch", "value"),
    [
        ("k", columns(k=["A-7", "A-8"]), "A-7"),
        ("k", columns(k=[3, None], _rescued=[None, '{"k": "A-7", "_file": "/in/b", "_offset": 9}']), "A-7"),
        ("_file", columns(_file=[3, None], _rescued=[None, '{"__file": {"a": 1}, "_file": "/in/b"}']), '{"a": 1}'),
    ],
    ids=["by the writer", "by the reader", "by the reader, named as the place"],
)
def test_a_record_whose_key_is_rescued_ends_the_run(
    tmp_path: Path, kind: UpsertedTable, name: str, batch: pa.RecordBatch, value: str
) -> None:
    """All such records would have one key, null, and take each other's place."""
    first = columns(**{name: [1, 2]})
    text = value if value.startswith("{") else f'"{value}"'
    with pytest.raises(
        DagflowError, match=rf"column '{name}' \(int64\): {text} does not fit into table .*, and is a key of"
    ):
        kind.write(tmp_path, first, batch, upsert_by=name)
    assert kind.sorted_rows(tmp_path) == [(1,), (2,)]


def test_rescued_values_of_other_columns_are_upserted(tmp_path: Path, kind: UpsertedTable) -> None:
    """Also those of a record whose key is null."""
    first = columns(k=[1, 2], n=[1, 2])
    found = kind.write(tmp_path, first, columns(k=[2, None], n=["x", "y"]), upsert_by="k")
    rescued = '{"n": "%s", "_file": null, "_offset": null}'
    assert found == [(1, 1, None), (2, None, rescued % "x"), (None, None, rescued % "y")]


def test_keys_that_a_table_lacks_are_reported_before_a_run(tmp_path: Path, kind: UpsertedTable) -> None:
    """With the columns that it has."""
    kind.make(tmp_path, pa.table({"k": ["a"], "day": ["x"]}))
    with pytest.raises(DagflowError, match="has no column 'other' for upsert_by; it has k, day"):
        kind.write(tmp_path, columns(other=["a"]), upsert_by="other")


def test_a_key_without_any_value_is_refused_before_the_intent(tmp_path: Path, kind: UpsertedTable) -> None:
    """The table could not have its column; where it has one, the key is null."""
    nothing = columns(k=pa.nulls(1), n=[1])
    with pytest.raises(DagflowError, match="no type is known yet of the column 'k' of upsert_by"):
        kind.write(tmp_path, nothing, upsert_by="k")
    # As the error advises.
    kind.make(tmp_path, pa.table({"k": pa.array([], pa.string())}))
    assert kind.write(tmp_path, upsert_by="k") == [(None, 1)]
    found = kind.write(tmp_path / "2", columns(k=["a"], n=[1]), nothing, nothing, upsert_by="k")
    assert found == [("a", 1), (None, 1)]


def test_results_of_an_aggregate_are_kept_up_to_date(tmp_path: Path, kind: UpsertedTable) -> None:
    """One row for each group, whose total is the newest, in a run and in the next one."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("shop,n\na,1\nb,2\n")
    table = ", ".join(f"{name}: {str(value)!r}" for name, value in kind.properties(tmp_path).items())
    table = table.replace('"{', "{").replace('}"', "}")
    (tmp_path / "app.yaml").write_text(APP.format(root=tmp_path, table=table))
    total = [run(load_app(tmp_path / "app.yaml"), runtime=InlineRuntime)]
    assert kind.sorted_rows(tmp_path) == [("a", 1, 1), ("b", 2, 1)]
    (tmp_path / "in" / "b.csv").write_text("shop,n\na,10\nc,3\na,4\n")
    total.append(run(load_app(tmp_path / "app.yaml"), runtime=InlineRuntime))
    assert kind.sorted_rows(tmp_path) == [("a", 14, 2), ("b", 2, 1), ("c", 3, 1)]
    assert [each.state for each in total] == ["completed", "completed"]

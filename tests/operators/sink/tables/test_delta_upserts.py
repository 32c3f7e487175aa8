"""TableWriter with upsert_by: a table has one row for each key, the newest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.schema import PrimitiveType

from dagflow.engine.run import run
from dagflow.errors import DagflowError
from dagflow.plan.load import load_app
from dagflow.runtime.inline import InlineRuntime
from operators.sink.table_writer import TableWriter
from tests.operators.sink.test_table_writer import app, columns, read, write

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
  table: {{class: TableWriter, properties: {{table: "delta:{root}/table", upsert_by: shop}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  rows: {{from: reader.messages, to: sums.input}}
  results: {{from: sums.output, to: table.input}}
"""


def rows(root: Path) -> list[tuple[Any, ...]]:
    """The rows of the table, in the order of their text."""
    return sorted((tuple(row.values()) for row in read(root).to_pylist()), key=str)


def test_a_row_takes_the_place_of_the_one_with_its_key(tmp_path: Path) -> None:
    """Of a window the last one counts; keys that come no more stay; nothing is left beside the table."""
    first = columns(shop=["a", "b", "a"], n=[1, 2, 3])
    write(tmp_path, first, columns(shop=["b", "c"], n=[20, 4]), upsert_by="shop")
    assert rows(tmp_path) == [("a", 3), ("b", 20), ("c", 4)]
    named = {path.removeprefix("file://") for path in DeltaTable(str(tmp_path / "table")).file_uris()}
    assert len(list((tmp_path / "table").rglob("*.parquet"))) - len(named) == 1, "the file of the first version"


@pytest.mark.parametrize("partition_by", [[], ["when"], ['Größe "1"', "when"]])
def test_any_names_and_missing_values_are_keys(tmp_path: Path, partition_by: list[str]) -> None:
    """Names are taken as they are; a null equals a null, and in partition columns also an empty text."""
    name = 'Größe "1"'
    first = columns(**{name: ["a", None, "a"], "when": pa.array([1, 1, None], pa.date32()), "n": [1, 2, 3]})
    second = columns(**{name: ["a", None], "when": pa.array([None, 1], pa.date32()), "n": [30, 20]})
    write(tmp_path, first, second, upsert_by=[name, "when"], partition_by=partition_by)
    assert sorted(read(tmp_path)["n"].to_pylist()) == [1, 20, 30]
    write(
        tmp_path / "2",
        columns(k=["", None, "x"], n=[1, 2, 3]),
        columns(k=pa.array([None], pa.string()), n=[4]),
        upsert_by="k",
    )
    assert rows(tmp_path / "2") == [("", 1), ("x", 3), (None, 4)]
    write(
        tmp_path / "3",
        columns(k=["", "x"], n=[1, 3]),
        columns(k=pa.array([None], pa.string()), n=[4]),
        upsert_by="k",
        partition_by="k",
    )
    assert sorted(read(tmp_path / "3")["n"].to_pylist()) == [3, 4]


def test_a_row_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """A column that comes later is added, and is null elsewhere; one that a record lacks is null in its row."""
    write(tmp_path, columns(k=[1, 2], a=["x", "y"]), columns(k=[2, 3], b=[True, False]), upsert_by="k")
    assert rows(tmp_path) == [(1, "x", None), (2, None, True), (3, None, False)]


def test_rows_of_others_are_replaced_and_kept_as_well(tmp_path: Path) -> None:
    """A table that another program made is joined."""
    write_deltalake(str(tmp_path / "table"), pa.table({"k": [1, 2], "n": [10, 20]}))
    write(tmp_path, columns(k=pa.array([2, 3], pa.int16()), n=[21, 31]), upsert_by="k")
    assert rows(tmp_path) == [(1, 10), (2, 21), (3, 31)]


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        (
            {"table": "parquet:out", "upsert_by": "k"},
            "rows are replaced in delta tables only, and table parquet:.* none",
        ),
        ({"table": "delta:out", "upsert_by": ["k", "k"]}, "upsert_by names a column twice"),
        (
            {"table": "delta:out", "upsert_by": "k", "partition_by": "day"},
            "add 'day' to upsert_by, or do not partition",
        ),
        (
            {"table": "delta:out", "upsert_by": "k", "commit": {"bytes": 1}},
            "each window is a transaction; leave it out",
        ),
    ],
)
def test_what_cannot_be_upserted_is_told_before_a_run(properties: dict[str, Any], reason: str) -> None:
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
def test_records_without_a_key_end_the_run(tmp_path: Path, batch: pa.RecordBatch, reason: str) -> None:
    """Nothing of their window is committed."""
    with pytest.raises(DagflowError, match=reason):
        write(tmp_path, batch, upsert_by="k")
    assert not DeltaTable.is_deltatable(str(tmp_path / "table"))


@pytest.mark.parametrize(
    ("partition_by", "configuration", "reason"),
    [
        ([], {"delta.appendOnly": "true"}, "has delta.appendOnly, with which upsert_by cannot replace rows"),
        (["day"], {}, "partitioned by 'day', so that one key may be in several partitions"),
    ],
)
def test_a_table_whose_rows_cannot_be_replaced_is_refused(
    tmp_path: Path, partition_by: list[str], configuration: dict[str, str], reason: str
) -> None:
    """Before anything runs, with what to do."""
    schema = Schema([Field(name, PrimitiveType("string")) for name in ("k", "day")])
    table = str(tmp_path / "table")
    DeltaTable.create(table, schema, partition_by=partition_by, configuration=configuration)
    with pytest.raises(DagflowError, match=reason):
        run(app(tmp_path, [columns(k=["a"])], upsert_by="k"), runtime=InlineRuntime)
    with pytest.raises(DagflowError, match="has no column 'other' for upsert_by; it has k, day"):
        DeltaTable.create(str(tmp_path / "2" / "table"), schema)
        run(app(tmp_path / "2", [columns(other=["a"])], upsert_by="other"), runtime=InlineRuntime)


def test_a_table_with_deletion_vectors_is_refused(tmp_path: Path) -> None:
    """Rows that they hide could come back."""
    DeltaTable.create(str(tmp_path / "table"), Schema([Field("k", PrimitiveType("string"))]))
    entry = tmp_path / "table" / "_delta_log" / f"{0:020}.json"
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    actions = [{"protocol": {**protocol, **features}} if "protocol" in each else each for each in actions]
    entry.write_text("".join(f"{json.dumps(each)}\n" for each in actions))
    with pytest.raises(DagflowError, match="has deletion vectors, with which upsert_by cannot replace rows"):
        write(tmp_path, columns(k=["a"]), upsert_by="k")


def test_a_key_without_any_value_is_refused_before_the_intent(tmp_path: Path) -> None:
    """The table could not have its column; where it has one, the key is null."""
    nothing = columns(k=pa.nulls(1), n=[1])
    with pytest.raises(DagflowError, match="no type is known yet of the column 'k' of upsert_by"):
        write(tmp_path, nothing, upsert_by="k")
    # As the error advises.
    DeltaTable.create(str(tmp_path / "table"), Schema([Field("k", PrimitiveType("string"))]))
    write(tmp_path, upsert_by="k")
    assert rows(tmp_path) == [(None, 1)]
    write(tmp_path / "2", columns(k=["a"], n=[1]), nothing, nothing, upsert_by="k")
    assert rows(tmp_path / "2") == [("a", 1), (None, 1)]


def test_results_of_an_aggregate_are_kept_up_to_date(tmp_path: Path) -> None:
    """One row for each group, whose total is the newest, in a run and in the next one."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("shop,n\na,1\nb,2\n")
    (tmp_path / "app.yaml").write_text(APP.format(root=tmp_path))
    total = [run(load_app(tmp_path / "app.yaml"), runtime=InlineRuntime)]
    assert rows(tmp_path) == [("a", 1, 1), ("b", 2, 1)]
    (tmp_path / "in" / "b.csv").write_text("shop,n\na,10\nc,3\na,4\n")
    total.append(run(load_app(tmp_path / "app.yaml"), runtime=InlineRuntime))
    assert rows(tmp_path) == [("a", 14, 2), ("b", 2, 1), ("c", 3, 1)]
    assert [each.state for each in total] == ["completed", "completed"]

"""What errors about tables advise: followed to the letter, and no record is missing or there twice."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.schema import PrimitiveType
from pyiceberg.catalog.sql import SqlCatalog

from dagflow.engine import publishers
from dagflow.engine.run import run
from dagflow.engine.run_setup import RuntimeFactory
from dagflow.execution.messages import WindowJob
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from dagflow.testing.faults import InjectedCrash
from operators.sink.table_writer import TableWriter
from tests.engine.dags import dag
from tests.engine.sample_app import TextSource, words
from tests.engine.table_app import (
    TEXTS,
    FaultyWriter,
    delta_app,
    delta_rows,
    iceberg_app,
    iceberg_rows,
    in_groups,
    with_faults,
    work,
)
from tests.engine.table_app import app as words_app
from tests.faulty import Faults
from tests.operators.sink.test_table_writer import BATCHES, EmitsNamedBatch, columns
from tests.runs.remedy_app import refusal

UPSERTS = """
name: upserts
attributes: {{checkpoint: {root}/journal}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: {root}/in, batch_bytes: 0, max_files_per_window: 1}}}}
  reader: {{class: BlockReader, properties: {{format: {{type: json_lines, columns: {columns}}}}}}}
  table: {{class: TableWriter, properties: {{table: "delta:{root}/table", upsert_by: id}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  rows: {{from: reader.messages, to: table.input}}
{rejects}
"""
ONE, TWO = columns(n=[1]), columns(n=[2])


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for nothing between two attempts."""
    monkeypatch.setattr(publishers, "FIRST_PAUSE_S", 0.0)


def catalog_in(root: Path) -> dict[str, str]:
    """The options of a catalog in a directory."""
    return {"type": "sql", "uri": f"sqlite:///{root / 'catalog.db'}", "warehouse": f"file://{root / 'warehouse'}"}


def write(
    root: Path, table: str, *batches: pa.RecordBatch, runtime: RuntimeFactory = InlineRuntime, **properties: Any
) -> None:
    """Run an app over batches, one in each window; what a planned window takes is what its batch is now."""
    BATCHES.update({f"{root}/{number}": batch for number, batch in enumerate(batches)})
    texts = [f"{root}/{number}".encode() for number, _ in enumerate(batches)]
    if table.startswith("iceberg:"):
        properties["catalog"] = catalog_in(root)
    operators: dict[str, Any] = {
        "source": TextSource(texts=texts, per_window=1),
        "typed": (EmitsNamedBatch(), 1),
        "table": (TableWriter(table=table, **properties), "parallel"),
    }
    run(dag(root, operators, ["source.out typed.samples", "typed.output table.input"]), runtime=runtime)


def numbers(*tables: str, root: Path | None = None, name: str = "n") -> list[Any]:
    """The values of a column of all rows of some tables, sorted."""
    found: list[Any] = []
    for table in tables:
        kind, _, location = table.partition(":")
        if kind == "delta":
            rows = DeltaTable(location).to_pyarrow_table()
        elif kind == "parquet":
            rows = ds.dataset(location, format="parquet", partitioning="hive").to_table()
        else:
            assert root is not None
            with SqlCatalog("default", **catalog_in(root)) as catalog:
                rows = catalog.load_table(location).scan().to_arrow()
        found += rows[name].to_pylist()
    return sorted(found)


@pytest.mark.parametrize("remedy", ["add it", "drop it"])
def test_a_new_column_that_a_table_does_not_get_is_added_or_dropped(tmp_path: Path, remedy: str) -> None:
    """What was committed stays, and the window that failed runs again."""
    table, wider = f"delta:{tmp_path / 'table'}", columns(n=[2], more=["x"])
    refusal(
        lambda: write(tmp_path, table, ONE, wider, on_new_column="fail"),
        "add the column to the table, or drop it from the records",
    )
    assert numbers(table) == [1]
    if remedy == "add it":
        DeltaTable(str(tmp_path / "table")).alter.add_columns([Field("more", PrimitiveType("string"))])
    write(tmp_path, table, ONE, wider if remedy == "add it" else TWO, on_new_column="fail")
    assert numbers(table) == [1, 2]


def test_a_table_that_came_meanwhile_is_given_the_type_of_the_window(tmp_path: Path) -> None:
    """Another program makes it while the first window is being written, which is decided with another type."""
    place = tmp_path / "table"
    table = f"delta:{place}"

    def make(_: WindowJob) -> None:
        DeltaTable.create(str(place), Schema([Field("n", PrimitiveType("integer"))]), mode="ignore")

    refusal(
        lambda: write(tmp_path, table, ONE, TWO, runtime=lambda program: InlineRuntime(program, before=make)),
        r"column 'n' is int64: it is int32 there\n    change the column in the table to int64; the next run continues",
    )
    assert numbers(table) == []
    rows = pa.table({"n": pa.array([], pa.int64())})
    write_deltalake(str(place), rows, mode="overwrite", schema_mode="overwrite")
    write(tmp_path, table, ONE, TWO)
    assert numbers(table) == [1, 2]


def elsewhere(root: Path, kind: str) -> FaultyWriter:
    """A writer of another table."""
    if kind == "delta":
        return FaultyWriter(table=f"delta:{root / 'other'}")
    catalog = {"type": "sql", "uri": f"sqlite:///{root / 'catalog.db'}", "warehouse": str(root / "db")}
    return FaultyWriter(table="iceberg:shop.other", catalog=catalog)


@pytest.mark.parametrize("is_grouped", [False, True], ids=["windows", "groups"])
@pytest.mark.parametrize(
    ("kind", "made", "rows"), [("delta", delta_app, delta_rows), ("iceberg", iceberg_app, iceberg_rows)]
)
def test_a_decided_window_goes_into_the_table_that_it_was_decided_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    made: Callable[..., Any],
    rows: Callable[[Path], list[bytes]],
    is_grouped: bool,
) -> None:
    """Its driver died before the transaction; with the table of before nothing is missing."""
    form = in_groups if is_grouped else lambda logical: logical
    with_faults(monkeypatch, Faults(1))
    with contextlib.suppress(InjectedCrash):
        work(form(made(tmp_path, TEXTS)))
    with_faults(monkeypatch, Faults())
    refusal(
        lambda: work(form(words_app(tmp_path, TEXTS, table=elsewhere(tmp_path, kind)))),
        "was decided for another table than .*let the app name the table that it named before, until the window is",
    )
    work(form(made(tmp_path, TEXTS)))
    assert rows(tmp_path / "db") == words(TEXTS)


@pytest.mark.parametrize("change", ["rename", "drop"])
def test_a_column_whose_name_a_table_has_had_gets_another_name(tmp_path: Path, change: str) -> None:
    """The values of before stay where they are, and those of the window that failed are in the new column."""
    table, later = "iceberg:shop.orders", columns(n=[2], text=["new"])
    write(tmp_path, table, columns(n=[1], text=["old"]))
    with (
        SqlCatalog("default", **catalog_in(tmp_path)) as catalog,
        catalog.load_table("shop.orders").update_schema(allow_incompatible_changes=True) as update,
    ):
        if change == "rename":
            update.rename_column("text", "words")
        else:
            update.delete_column("text")
    why = "cannot have a new column 'text': a column of that name was .*leave one of them out, or give it another name"
    refusal(lambda: write(tmp_path, table, ONE, later, on_new_column="fail"), why)
    write(tmp_path, table, ONE, later.rename_columns(["n", "texts"]))
    assert numbers(table, root=tmp_path) == [1, 2]
    assert set(texts_of(tmp_path)) == {None, "new"}


def texts_of(root: Path) -> list[Any]:
    """The values of the column that was given another name."""
    with SqlCatalog("default", **catalog_in(root)) as catalog:
        found: list[Any] = catalog.load_table("shop.orders").scan().to_arrow()["texts"].to_pylist()
    return found


def test_records_for_a_table_with_rules_are_copied_from_another_one(tmp_path: Path) -> None:
    """A program that knows the rules of the table copies them."""
    first, other = f"delta:{tmp_path / 'table'}", f"delta:{tmp_path / 'other'}"
    write_deltalake(str(tmp_path / "table"), pa.table({"n": [0]}))
    DeltaTable(str(tmp_path / "table")).alter.add_constraint({"natural": "n >= 0"})
    refusal(lambda: write(tmp_path, first, ONE, TWO), "write into another table, and copy from there")
    write(tmp_path, other, ONE, TWO)
    write_deltalake(str(tmp_path / "table"), DeltaTable(str(tmp_path / "other")).to_pyarrow_table(), mode="append")
    assert numbers(first) == [0, 1, 2]


def make_notes(path: Path) -> None:
    """Put a file into a directory that is no table's."""
    path.mkdir(exist_ok=True)
    (path / "notes.txt").write_text("mine")


def make_two_partitionings(path: Path) -> None:
    """Put files of another partitioning into a dataset."""
    (path / "day=1").mkdir(parents=True)
    pq.write_table(pa.table({"n": [9]}), path / "day=1" / "others.parquet")
    pq.write_table(pa.table({"n": [9]}), path / "others.parquet")


def make_two_types(path: Path) -> None:
    """Put a file into a dataset whose column has another type."""
    path.mkdir(exist_ok=True)
    pq.write_table(pa.table({"n": ["nine"]}), path / "others.parquet")
    pq.write_table(pa.table({"n": [9]}), path / "more.parquet")


@pytest.mark.parametrize("is_there", [False, True], ids=["before the first run", "between two runs"])
@pytest.mark.parametrize(
    ("kind", "disturb", "advice"),
    [
        ("delta", make_notes, "let table name an empty directory, or a table"),
        ("parquet", make_notes, "let table name an empty directory, or one that holds a dataset and nothing else"),
        ("parquet", make_two_partitionings, "let table name a directory of one partitioning, or an empty one"),
        ("parquet", make_two_types, "let table name a directory whose files agree, or an empty one"),
    ],
)
def test_a_directory_of_other_files_is_left_for_an_empty_one(
    tmp_path: Path, kind: str, disturb: Callable[[Path], None], advice: str, is_there: bool
) -> None:
    """What others have put there stays, and so does what was written before."""
    first, other = f"{kind}:{tmp_path / 'table'}", f"{kind}:{tmp_path / 'other'}"
    if is_there:
        write(tmp_path, first, ONE)
    kept = {path: path.read_bytes() for path in tmp_path.glob("table/**/*") if path.is_file()}
    disturb(tmp_path / "table")
    if kind == "delta" and is_there:
        write(tmp_path, first, ONE, TWO)  # the log tells what is part of the table
        assert numbers(first) == [1, 2]
        return
    refusal(lambda: write(tmp_path, first, ONE, TWO), advice)
    write(tmp_path, other, ONE, TWO)
    assert numbers(other) == ([2] if is_there else [1, 2])
    assert {path: path.read_bytes() for path in kept} == kept


def test_a_table_that_is_partitioned_otherwise_says_by_what(tmp_path: Path) -> None:
    """Without partition_by the records are written as the table has it."""
    table = f"delta:{tmp_path / 'table'}"
    first, later = columns(n=[1], k=["a"], more=[1]), columns(n=[2], k=["a"], more=[2])
    write(tmp_path, table, first, partition_by=["k"])
    refusal(
        lambda: write(tmp_path, table, first, later, partition_by=["more"]),
        "leave partition_by out to take what the table has",
    )
    write(tmp_path, table, first, later)
    assert numbers(table) == [1, 2]
    assert DeltaTable(str(tmp_path / "table")).metadata().partition_columns == ["k"]


def test_a_record_whose_key_is_of_another_type_is_taken_aside(tmp_path: Path) -> None:
    """The table keeps all other records, and none takes the place of another one."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"id":1,"n":1}\n{"id":2,"n":2}\n')
    (tmp_path / "in" / "b.json").write_text('{"id":3,"n":3}\n{"id":"A-7","n":4}\n{"id":"A-8","n":5}\n{"id":4,"n":6}\n')

    def upserted(rejects: str = "") -> None:
        text = UPSERTS.format(root=tmp_path, columns="as_found", rejects=rejects)
        (tmp_path / "app.yaml").write_text(text)
        run(load_app(tmp_path / "app.yaml"), runtime=InlineRuntime)

    text = refusal(upserted, "to take such records aside, add `rejects: DIRECTORY` to the app")
    assert f"{tmp_path}/in/b.json offset 15: column 'id' (int64): \"A-7\" does not fit into table delta:" in text
    upserted(f"rejects: {tmp_path / 'rejects'}")
    assert numbers(f"delta:{tmp_path / 'table'}") == [1, 2, 3, 6]
    rejected = [path.read_text() for path in (tmp_path / "rejects").iterdir() if path.is_file()]
    assert ["A-7" in text and "A-8" in text for text in rejected] == [True]

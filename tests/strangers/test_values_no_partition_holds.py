"""Values by which a table cannot be partitioned: rescued, or rejected, as the app says; other rows arrive."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, Schema

from dagflow.engine.run import run
from dagflow.errors import DagflowError
from dagflow.plan.load import load_app
from dagflow.report.snapshot import RunSnapshot
from dagflow.runtime.local import InlineRuntime
from operators.sink.tables.partition_fields import PartitionField, partitionable
from tests.runs.table_kinds import catalog, rows_of

APP = """
name: odd
attributes: {{checkpoint: {root}/journal}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: {root}/in, batch_bytes: 0}}}}
  reader: {{class: BlockReader, properties: {{format: {format}}}}}
  table: {{class: TableWriter, properties: {properties}, partition: parallel}}{errors}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  rows: {{from: reader.messages, to: table.input}}{stream}
"""
ERRORS = "\n  rejects: {{class: RecordWriter, properties: {{path: {root}/rejects}}, partition: parallel}}"
STREAM = "\n  bad: {from: table.errors, to: rejects.input}"
UNHELD = ["__HIVE_DEFAULT_PARTITION__", "x" * 254, "日" * 85, "/" * 85]
HELD = ["a", "x" * 253, "日" * 84, "/" * 84, ".", "..", "\0", None]


def work(
    root: Path, kind: str, values: Sequence[str | None], *, has_errors: bool = False, **properties: Any
) -> RunSnapshot:
    """Run an app over one file with a record for each value; the partition is `k`."""
    (root / "in").mkdir(exist_ok=True)
    lines = [json.dumps({"n": number, "k": value, "s": "x"}) for number, value in enumerate(values)]
    if not (root / "in" / "a").exists():
        (root / "in" / "a").write_text("\n".join(lines) + "\n")
    table = {"table": "iceberg:shop.x", "catalog": catalog(root)}
    properties = {**(table if kind == "iceberg" else {"table": f"{kind}:{root / 'table'}"}), **properties}
    text = APP.format(
        root=root,
        properties=json.dumps({"partition_by": ["k"], **properties}),
        format="{type: json_lines, columns: {n: int64, k: string, s: string}}",
        errors=ERRORS.format(root=root) if has_errors else "",
        stream=STREAM if has_errors else "",
    )
    (root / "app.yaml").write_text(text)
    return run(load_app(str(root / "app.yaml")), runtime=InlineRuntime)


def by_number(root: Path, kind: str) -> dict[int, tuple[str | None, str | None]]:
    """The values of k and of _rescued, by the number of the row."""
    if kind == "parquet":
        known = pa.schema([("n", pa.int64()), ("_rescued", pa.string()), ("k", pa.string())])
        partitioning = ds.partitioning(pa.schema([("k", pa.string())]), flavor="hive")
        rows = ds.dataset(root / "table", schema=known, partitioning=partitioning).to_table()
    else:
        rows = rows_of(root, kind)
    return {row["n"]: (row["k"], row.get("_rescued")) for row in rows.to_pylist()}


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_value_that_no_directory_can_show_is_rescued(tmp_path: Path, kind: str) -> None:
    """Its row arrives, and so do all others of its batch, as they are."""
    assert work(tmp_path, kind, [*UNHELD, *HELD]).state == "completed"
    found = by_number(tmp_path, kind)
    assert len(found) == len(UNHELD) + len(HELD)
    assert [found[number][0] for number in range(len(UNHELD), len(found))] == HELD
    for number, value in enumerate(UNHELD):
        k, rescued = found[number]
        assert k is None and rescued is not None and json.loads(rescued)["k"] == value


@pytest.mark.parametrize("kind", ["delta", "parquet"])
@pytest.mark.parametrize("mode", ["widen", "fail"])
def test_an_empty_text_is_null_where_only_a_directory_shows_it(tmp_path: Path, kind: str, mode: str) -> None:
    """As Spark writes it and all readers read it, so that a field that is left empty costs nothing."""
    done = work(tmp_path, kind, ["", "a", None], on_type_change=mode)
    assert by_number(tmp_path, kind) == {0: (None, None), 1: ("a", None), 2: (None, None)}
    assert "rescued_values" not in str(done)


def test_an_empty_text_is_refused_where_the_table_allows_no_null(tmp_path: Path) -> None:
    """The others arrive."""
    schema = pa.schema([("n", pa.int64()), pa.field("k", pa.string(), nullable=False), ("s", pa.string())])
    DeltaTable.create(str(tmp_path / "table"), Schema.from_arrow(schema), partition_by=["k"])
    with pytest.raises(DagflowError, match=r"column 'k' \(string\): '' is empty, which means null in names of dir"):
        work(tmp_path, "delta", ["a", ""])
    assert work(tmp_path, "delta", ["a", ""], has_errors=True).rejected == 1
    assert by_number(tmp_path, "delta") == {0: ("a", None)}


def test_a_table_whose_files_hold_the_values_takes_all_texts(tmp_path: Path) -> None:
    """Its directories show nothing, so that nothing is rescued."""
    assert work(tmp_path, "iceberg", ["", *UNHELD, *HELD]).state == "completed"
    assert by_number(tmp_path, "iceberg") == {n: (value, None) for n, value in enumerate(["", *UNHELD, *HELD])}


@pytest.mark.parametrize("upsert_by", [[], ["k"]])
def test_such_a_record_is_rejected_where_its_value_must_not_be_missing(tmp_path: Path, upsert_by: list[str]) -> None:
    """By on_type_change: fail, and as a key; without a stream for rejects it is an error."""
    properties: dict[str, Any] = {"upsert_by": upsert_by} if upsert_by else {"on_type_change": "fail"}
    values = ["a", *UNHELD, "b"]
    with pytest.raises(DagflowError, match="add `rejects: DIRECTORY` to the app") as error:
        work(tmp_path, "delta", values, **properties)
    text = str(error.value)
    assert "column 'k' (string): '__HIVE_DEFAULT_PARTITION__' is " in text and "offset 29" in text
    assert work(tmp_path, "delta", values, has_errors=True, **properties).rejected == len(UNHELD)
    rejects = [json.loads(line) for file in (tmp_path / "rejects").iterdir() for line in file.read_text().splitlines()]
    assert [json.loads(base64.b64decode(each["raw"]))["k"] for each in rejects] == UNHELD
    assert all("column 'k' (string): " in each["reason"] for each in rejects)
    assert sorted(str(value) for value, _ in by_number(tmp_path, "delta").values()) == ["a", "b"]


@pytest.mark.parametrize(
    ("field", "values", "why"),
    [
        ("truncate(10, c)", pa.array([-(2**31), 5, None], pa.int32()), {0: "has no value in truncate(10, c)"}),
        ("c", pa.array([2**60, 0, None], pa.timestamp("us")), {0: "is outside of the years 1 to 9999"}),
        ("c", pa.array([2**31 - 1, 0, None], pa.date32()), {0: "is outside of the years 1 to 9999"}),
        ("day(c)", pa.array([2**60, 0, None], pa.timestamp("us")), {0: "is outside of the years 1 to 9999"}),
        ("hour(c)", pa.array([dt.datetime.max, None], pa.timestamp("us")), {}),
    ],
)
def test_numbers_and_times_without_a_partition_are_found(field: str, values: pa.Array, why: dict[int, str]) -> None:
    """No text of the table stands for them, or they are below all multiples of a width."""
    rows = pa.RecordBatch.from_arrays([values], ["c"])
    assert partitionable(rows, [PartitionField.parse(field)], ["c"], in_files=True)[1].get("c", {}) == why

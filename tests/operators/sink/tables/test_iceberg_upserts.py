"""TableWriter with upsert_by for Iceberg: which data files are written anew, and that no commit becomes slower."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table as Handle
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType, TimestampType, UUIDType

from tests.nightly import by_day
from tests.operators.sink.tables.test_table_files_upserted_rows import KINDS, NAME, catalog_of
from tests.operators.sink.test_table_writer import columns

ICEBERG = KINDS["iceberg"]


def handle(root: Path) -> Handle:
    """The table, as another program opens it."""
    return catalog_of(root).load_table(NAME)


def files(root: Path) -> set[str]:
    """The data files of the newest snapshot."""
    return {task.file.file_path.removeprefix("file://") for task in handle(root).scan().plan_files()}


def test_files_without_the_keys_stay_as_they_are(tmp_path: Path) -> None:
    """Whether their bounds or their rows show it; what the window has written goes."""
    ICEBERG.make(tmp_path, pa.table({"k": ["a", "c"], "n": [1, 2]}))
    for rows in (pa.table({"k": ["x", "z"], "n": [3, 4]}), pa.table({"k": ["b"], "n": [5]})):
        handle(tmp_path).append(rows)
    before = files(tmp_path)
    found = ICEBERG.write(tmp_path, columns(k=["b", "bb"], n=[50, 60]), upsert_by="k")
    assert found == [("a", 1), ("b", 50), ("bb", 60), ("c", 2), ("x", 3), ("z", 4)]
    assert len(files(tmp_path) & before) == 2 and len(files(tmp_path)) == 3
    left = {str(path) for path in (tmp_path / "warehouse").rglob("data/**/*.parquet")}
    assert left == before | files(tmp_path), "what a window had written is still there"


def test_the_snapshot_names_its_window(tmp_path: Path) -> None:
    """And says that it has replaced rows; earlier snapshots show what they had."""
    ICEBERG.write(tmp_path, columns(k=["a", "b"], n=[1, 2]), columns(k=["b"], n=[3]), upsert_by="k")
    first, newest = handle(tmp_path).snapshots()
    assert first.summary is not None and newest.summary is not None
    assert [each.summary["dagflow.window"] for each in (first, newest) if each.summary] == ["1", "2"]
    assert [first.summary.operation.value, newest.summary.operation.value] == ["append", "overwrite"]
    assert (newest.summary["added-records"], newest.summary["deleted-records"]) == ("2", "2")
    assert newest.summary["total-records"] == "2"
    assert sorted(handle(tmp_path).scan(snapshot_id=first.snapshot_id).to_arrow()["n"].to_pylist()) == [1, 2]


@pytest.mark.parametrize("partition_by", by_day(1, [["bucket(4, k)"], ["truncate(1, k)", "day(at)"], ["k", "at"]]))
def test_any_sequence_of_windows_leaves_the_newest_rows(tmp_path: Path, partition_by: list[str]) -> None:
    """As a dictionary would have them."""
    draw, wanted, batches = random.Random(7), {}, []
    for window in range(6):
        keys = [(draw.choice(["a", "ab", "b", "", None]), draw.randrange(3) * 86_400_000_000) for _ in range(8)]
        wanted.update({key: window * 100 + row for row, key in enumerate(keys)})
        batches.append(
            columns(
                k=pa.array([k for k, _ in keys], pa.string()),
                at=pa.array([at for _, at in keys], pa.timestamp("us")),
                n=[window * 100 + row for row in range(8)],
            )
        )
    ICEBERG.write(tmp_path, *batches, upsert_by=["k", "at"], partition_by=partition_by)
    found = ICEBERG.rows(tmp_path)
    assert found is not None
    row_keys = zip(found["k"].to_pylist(), found["at"].cast(pa.int64()).to_pylist(), strict=True)
    assert dict(zip(row_keys, found["n"].to_pylist(), strict=True)) == wanted and len(found) == len(wanted)


def test_manifests_of_what_was_replaced_are_not_kept(tmp_path: Path) -> None:
    """A commit reads them all, and would become slower with each window."""
    windows = [columns(k=["a", "b"], n=[window, window]) for window in range(8)]
    ICEBERG.write(tmp_path, *windows, upsert_by="k")
    found = handle(tmp_path)
    newest = found.current_snapshot()
    assert newest is not None and len(newest.manifests(found.io)) == 2, "one of what came, and one of what went"


def test_a_table_of_others_is_joined_with_its_types_and_its_partitioning(tmp_path: Path) -> None:
    """Required columns, identifiers of types that dagflow lacks, and files of an earlier partitioning."""
    schema = Schema(
        NestedField(1, "k", StringType(), required=True),
        NestedField(2, "at", TimestampType()),
        NestedField(3, "n", LongType()),
        NestedField(4, "id", UUIDType()),
        identifier_field_ids=[1],
    )
    catalog_of(tmp_path).create_namespace("shop")
    spec = PartitionSpec(PartitionField(source_id=1, field_id=1000, transform=IdentityTransform(), name="shard"))
    catalog_of(tmp_path).create_table(NAME, schema, partition_spec=spec)
    kinds = pa.schema(
        [
            pa.field("k", pa.string(), nullable=False),
            ("at", pa.timestamp("us")),
            ("n", pa.int64()),
            ("id", pa.binary(16)),
        ]
    )
    rows = {"k": ["a", "b"], "at": [0, 1], "n": [1, 2], "id": [b"0" * 16, b"1" * 16]}
    handle(tmp_path).append(pa.table(rows, schema=kinds))
    with handle(tmp_path).update_spec() as update:
        update.remove_field("shard")
        update.add_field("at", IdentityTransform(), "day")
    at = pa.array([1], pa.timestamp("us"))
    ICEBERG.write(tmp_path, columns(k=["b"], at=at, n=[20]), upsert_by=["k", "at"])
    found = ICEBERG.rows(tmp_path)
    assert found is not None
    assert sorted(zip(found["k"].to_pylist(), found["n"].to_pylist(), strict=True)) == [("a", 1), ("b", 20)]
    assert {str(each) for each in found["id"].to_pylist()} == {"30303030-3030-3030-3030-303030303030", "None"}

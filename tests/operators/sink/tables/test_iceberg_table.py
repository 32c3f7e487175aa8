"""Iceberg tables as targets: the laws of all targets, and tables that others have made."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField as IcebergField
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table as Handle
from pyiceberg.transforms import BucketTransform, VoidTransform
from pyiceberg.types import LongType, NestedField, StringType, StructType

from dagflow.api.transactions import DecidedWindow, Target
from dagflow.errors import DagflowError, StorageError
from dagflow.storage.context import StorageContext
from dagflow.storage.pending import FileFacts, PendingFile
from dagflow.testing.target_contract import TargetContract
from operators.sink.columns.table_columns import schema_text
from operators.sink.tables.iceberg_table import IcebergTable

STORAGE = StorageContext.default()
NAME = "shop.orders"
ROWS = pa.schema([("n", pa.int64()), ("text", pa.string())])


def options(root: Path) -> dict[str, str]:
    """A catalog in a directory, as an app names it."""
    return {"type": "sql", "uri": f"sqlite:///{root / 'catalog.db'}", "warehouse": str(root / "warehouse")}


def table(root: Path, partition_by: Sequence[str] = (), **properties: Any) -> IcebergTable:
    """The table of an app."""
    return IcebergTable(NAME, partition_by, **{"catalog": options(root), "on_new_column": "add", **properties})


def client(root: Path) -> Catalog:
    """The catalog, as another program opens it."""
    (root / "warehouse").mkdir(exist_ok=True)
    return load_catalog("default", **options(root))


def handle(root: Path) -> Handle:
    """The table, as another program opens it."""
    return client(root).load_table(NAME)


def numbers(window_id: int) -> list[int]:
    """The values of n in the rows of a window."""
    return [10 * window_id, 10 * window_id + 1]


def data_file(root: Path, window_id: int, schema: pa.Schema = ROWS) -> PendingFile:
    """A file of a window, in its place."""
    path = root / "warehouse" / "shop" / "orders" / "data" / f"part-{os.urandom(8).hex()}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    values = {"n": numbers(window_id)}
    rows = pa.table({each.name: pa.array(values.get(each.name, ["a", "b"])).cast(each.type) for each in schema})
    pq.write_table(rows, path)
    facts = FileFacts(
        "orders",
        schema_text(schema),
        nulls={"n": 0},
        least={"n": 10 * window_id},
        greatest={"n": 10 * window_id + 1},
    )
    return PendingFile(str(path), "", path.stat().st_size, 2, facts=facts)


class TestIcebergTarget(TargetContract):
    """Two rows for each window; others add rows and columns, compact, and expire snapshots."""

    def target(self, root: Path) -> Target:
        """A table of a catalog below the directory."""
        target: Target = table(root).target(STORAGE)
        return target

    def files(self, root: Path, window_id: int) -> Sequence[PendingFile]:
        """One file."""
        return [data_file(root, window_id)]

    def rows(self, root: Path) -> list[Any]:
        """The numbers."""
        return sorted(handle(root).scan().to_arrow()["n"].to_pylist())

    def rows_of(self, window_ids: Sequence[int]) -> list[Any]:
        """Two of them."""
        return sorted(n for window_id in window_ids for n in numbers(window_id))

    def change_by_others(self, root: Path) -> None:
        """Another program adds rows, writes all files anew, adds a column, and forgets all snapshots but the newest."""
        other = handle(root)
        other.append(pa.table({"n": [-1]}))
        other.overwrite(other.scan().to_arrow())
        with other.update_schema() as update:
            update.union_by_name(pa.schema([("later", pa.string())]))
        newest = other.metadata.current_snapshot_id
        with other.maintenance.expire_snapshots() as expiry:
            expiry.by_ids([each.snapshot_id for each in other.snapshots() if each.snapshot_id != newest])

    def others_rows(self) -> list[Any]:
        """What it has added."""
        return [-1]


@pytest.mark.nightly
class TestGrowingIcebergTarget(TestIcebergTarget):
    """Each window has a column that the table lacks, and is under the same laws."""

    def files(self, root: Path, window_id: int) -> Sequence[PendingFile]:
        """One file, whose texts have another name in each window."""
        return [data_file(root, window_id, pa.schema([("n", pa.int64()), (f"text{window_id}", pa.string())]))]


class TestUpsertingIcebergTarget(TestIcebergTarget):
    """Each window is added by its keys, and is under the same laws."""

    def files(self, root: Path, window_id: int) -> Sequence[PendingFile]:
        """One file whose rows are distinguished by their numbers."""
        file = data_file(root, window_id)
        assert file.facts is not None
        return [dataclasses.replace(file, facts=dataclasses.replace(file.facts, keys=["n"]))]

    def target(self, root: Path) -> Target:
        """A table of a catalog below the directory."""
        upserting = table(root)
        upserting.replace_by(["n"])
        target: Target = upserting.target(STORAGE)
        return target


class LossyCatalog(SqlCatalog):
    """A catalog in a database that does what it is asked, and every third time does not say so."""

    commits = 0

    def commit_table(self, *arguments: Any, **options: Any) -> Any:
        """Commit, and perhaps lose the answer."""
        found = super().commit_table(*arguments, **options)
        LossyCatalog.commits += 1
        if LossyCatalog.commits % 3 == 0:
            raise ConnectionResetError("the answer was lost")
        return found


class ConflictingCatalog(LossyCatalog):
    """One whose lost answers look like conflicts, as where a proxy has sent a request twice."""

    def commit_table(self, *arguments: Any, **options: Any) -> Any:
        """As before, with another error."""
        try:
            return super().commit_table(*arguments, **options)
        except ConnectionResetError as error:
            raise CommitFailedException("the table has changed") from error


@pytest.mark.parametrize("catalog", [LossyCatalog, ConflictingCatalog])
def test_lost_answers_of_a_catalog_add_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, catalog: type[SqlCatalog]
) -> None:
    """Ten windows of an app; every third is committed, and its answer is lost."""
    monkeypatch.setattr(LossyCatalog, "commits", 0)
    lossy = {**options(tmp_path), "py-catalog-impl": f"{__name__}.{catalog.__name__}"}
    del lossy["type"]
    target = table(tmp_path, catalog=lossy).target(STORAGE)
    for window_id in range(1, 11):
        window = DecidedWindow(window_id, f"decision {window_id}", (data_file(tmp_path, window_id),))
        while (state := target.open("w")).marker < window_id:
            with contextlib.suppress(StorageError):
                state.commit([window])
    assert LossyCatalog.commits == 10, "an attempt was made at what was there already"
    found = sorted(handle(tmp_path).scan().to_arrow()["n"].to_pylist())
    assert found == sorted(n for window_id in range(1, 11) for n in numbers(window_id))


def committed(root: Path, window_id: int = 1, schema: pa.Schema = ROWS, **properties: Any) -> Target:
    """A table with a window."""
    target: Target = table(root, **properties).target(STORAGE)
    target.open("w").commit([DecidedWindow(window_id, "d", (data_file(root, window_id, schema),))])
    return target


def test_the_marker_is_a_property_and_in_the_summary(tmp_path: Path) -> None:
    """One for the next run, which survives the expiry of snapshots, and one for people."""
    committed(tmp_path)
    found = handle(tmp_path)
    assert found.properties["w.window"] == "1" and found.properties["w.decision"] == "d"
    newest = found.current_snapshot()
    assert newest is not None and newest.summary is not None and newest.summary["dagflow.window"] == "1"


@pytest.mark.nightly
def test_older_snapshots_and_tags_stay(tmp_path: Path) -> None:
    """A transaction does not look at them, and drops none; old files of metadata go."""
    target = committed(tmp_path)
    first = handle(tmp_path).current_snapshot()
    assert first is not None
    handle(tmp_path).manage_snapshots().create_tag(first.snapshot_id, "audited").commit()
    for window_id in range(2, 121):
        target.open("w").commit([DecidedWindow(window_id, "d", (data_file(tmp_path, window_id),))])
    found = handle(tmp_path)
    assert len(found.snapshots()) == len(found.history()) == 120 and "audited" in found.refs()
    assert found.scan(snapshot_id=first.snapshot_id).to_arrow()["n"].to_pylist() == numbers(1)
    assert len(list((tmp_path / "warehouse/shop/orders/metadata").glob("*.metadata.json"))) == 101
    newest = found.current_snapshot()
    assert newest is not None and len(newest.manifests(found.io)) < 100, "manifests are merged"


@pytest.mark.parametrize("change", ["rename", "drop"])
def test_a_column_that_was_there_before_does_not_come_back(tmp_path: Path, change: str) -> None:
    """Files of before hold its name: the values would appear in the new column."""
    target = committed(tmp_path)
    with handle(tmp_path).update_schema(allow_incompatible_changes=True) as update:
        if change == "rename":
            update.rename_column("text", "words")
        else:
            update.delete_column("text")
    state = target.open("w")
    for act in (target.check, lambda files: state.commit([DecidedWindow(2, "d", files)])):
        with pytest.raises(DagflowError, match=r"cannot have a new column 'text': a column of that name was (re|dr)"):
            act((data_file(tmp_path, 2),))
    state.commit([DecidedWindow(2, "d", (data_file(tmp_path, 2, ROWS.remove(1)),))])
    assert target.open("w").marker == 2


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("l.element", pa.list_(pa.int64())),
        ("m.key", pa.map_(pa.string(), pa.int64())),
        ("m.value", pa.map_(pa.string(), pa.int64())),
        ("s.a.b", pa.struct({"a": pa.struct({"b": pa.int64()})})),
        ("l.element.a", pa.list_(pa.struct({"a": pa.int64()}))),
        ("s.a.b", pa.struct({"a": pa.struct({"b": pa.int64()}), "a.b": pa.int64()})),
        ("odd", pa.duration("s")),
    ],
)
def test_columns_that_iceberg_refuses_are_refused_before_the_intent(
    tmp_path: Path, name: str, kind: pa.DataType
) -> None:
    """Names of members, and what else its own checks find, of a new table and of one that is there."""
    nested = pa.schema([(name.partition(".")[0], kind)])
    both = nested if kind.num_fields > 1 or name == "odd" else nested.append(pa.field(name, pa.int64()))
    target = table(tmp_path).target(STORAGE)
    file = data_file(tmp_path, 1)
    for _ in range(2):
        facts = FileFacts("orders", schema_text(pa.schema([*ROWS, *both])))
        with pytest.raises(DagflowError, match=rf"cannot have two fields called '{name}'|cannot take the window: Uns"):
            target.check([dataclasses.replace(file, facts=facts)])
        target.open("w").commit([DecidedWindow(1, "d", (file,))])
        target.open("w")


@pytest.mark.parametrize("count", [1, 100])
def test_many_new_columns_are_added_by_few_looks_at_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """A look takes as long as there are columns, so that one for each would make a wide table slow."""
    target = committed(tmp_path)
    looks, look = [], Schema.as_struct

    def noted(schema: Schema) -> StructType:
        looks.append(1)
        return look(schema)

    monkeypatch.setattr(Schema, "as_struct", noted)
    wide = pa.schema([*ROWS, *((f"c{number}", pa.string()) for number in range(count))])
    files = (data_file(tmp_path, 2, wide),)
    state = target.open("w")
    target.check(files)
    state.commit([DecidedWindow(2, "d", files)])
    assert target.open("w").marker == 2 and len(looks) < 80


def test_a_table_of_others_is_joined_as_it_is(tmp_path: Path) -> None:
    """With its own place for data files, its names of partition fields, and without names of columns in files."""
    columns = Schema(NestedField(1, "n", LongType(), required=True), NestedField(2, "text", StringType()))
    spec = PartitionSpec(IcebergField(source_id=1, field_id=1000, transform=BucketTransform(4), name="shard"))
    client(tmp_path).create_namespace("shop")
    place = {"write.data.path": f"file://{tmp_path / 'elsewhere'}"}
    client(tmp_path).create_table(NAME, columns, partition_spec=spec, properties=place)
    shape = table(tmp_path).target(STORAGE).shape()
    assert shape.location == str(tmp_path / "elsewhere") and [str(each) for each in shape.partition_by] == [
        "bucket(4, n)"
    ]
    assert shape.columns is not None and not shape.columns.field("n").nullable
    with pytest.raises(DagflowError, match=r"is partitioned by bucket\(4, n\), and partition_by says text\n"):
        table(tmp_path, ["text"]).target(STORAGE).shape()


def test_columns_that_the_names_of_a_table_lack_are_found(tmp_path: Path) -> None:
    """A program has added a column, also within another one, and has left the names as they were; an alias stays."""
    kind = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    client(tmp_path).create_namespace("shop")
    client(tmp_path).create_table(NAME, pa.schema([("n", pa.int64()), ("s", kind), ("text", pa.string())]))
    names = [
        {"field-id": 1, "names": ["n", "number"]},
        {"field-id": 2, "names": ["s"], "fields": [{"field-id": 4, "names": ["a"]}]},
    ]
    with handle(tmp_path).transaction() as change:
        change.set_properties({"schema.name-mapping.default": json.dumps(names)})
    file = data_file(tmp_path, 1, pa.schema([("n", pa.int64()), ("text", pa.string())]))
    table(tmp_path).target(STORAGE).open("w").commit([DecidedWindow(1, "d", (file,))])
    found = handle(tmp_path)
    assert found.scan().to_arrow()["text"].to_pylist() == ["a", "b"]
    mapping = found.name_mapping()
    assert mapping is not None
    assert [(each.field_id, each.names) for each in mapping] == [(1, ["n", "number"]), (2, ["s"]), (3, ["text"])]
    assert [(each.field_id, each.names) for each in mapping.root[1].fields] == [(4, ["a"]), (5, ["b"])]


def test_a_transform_that_dagflow_does_not_know_is_refused(tmp_path: Path) -> None:
    """A writer cannot compute its values."""
    columns = Schema(NestedField(1, "n", LongType()))
    spec = PartitionSpec(IcebergField(source_id=1, field_id=1000, transform=VoidTransform(), name="void"))
    client(tmp_path).create_namespace("shop")
    client(tmp_path).create_table(NAME, columns, partition_spec=spec)
    with pytest.raises(DagflowError, match="is partitioned by void of n, which dagflow does not write"):
        table(tmp_path).target(STORAGE).shape()


@pytest.mark.parametrize(
    ("catalog", "reason"),
    [
        ({}, "type takes sql, rest, glue, hive; got none"),
        ({"type": "dynamodb"}, "type takes sql, rest, glue, hive; got dynamodb"),
        ({"type": "sql"}, "type sql needs uri and warehouse"),
        (
            {"type": "sql", "uri": "sqlite:///c.db", "warehouse": "gs://bucket/w"},
            "must be a directory of a local disk or of S3, not gs://bucket/w",
        ),
        (
            {"type": "sql", "uri": "sqlite:///c.db", "warehouse": "s3://bucket/w", "s3.secret-access-key": "x"},
            r"s3.secret-access-key is not used; say in attributes: \{storage: \{s3: …\}\} how S3 is reached",
        ),
    ],
)
def test_mistakes_in_a_catalog_are_reported(catalog: dict[str, str], reason: str) -> None:
    """`validate` reports them as errors."""
    with pytest.raises(ValueError, match=reason):
        IcebergTable(NAME, (), catalog=catalog)


@pytest.mark.parametrize("name", ["orders", "a.b.c", ".orders", "shop."])
def test_a_table_has_a_namespace_and_a_name(tmp_path: Path, name: str) -> None:
    """Catalogs in databases have no other tables."""
    with pytest.raises(ValueError, match=r"iceberg takes NAMESPACE.NAME, as in iceberg:shop.orders"):
        IcebergTable(name, (), catalog=options(tmp_path))


@pytest.mark.parametrize("text", ["week(placed)", "bucket(n)", "bucket(n, 4)", "day()"])
def test_a_transform_that_iceberg_lacks_is_refused(tmp_path: Path, text: str) -> None:
    """It would be taken for a column otherwise, which no record has."""
    with pytest.raises(ValueError, match=rf"there is no transform '\w+' as in '{re.escape(text)}'; iceberg has year"):
        table(tmp_path, [text])
    assert table(tmp_path, ["price (EUR)"]).partition_by[0].column == "price (EUR)"


def test_a_catalog_without_compare_and_swap_is_refused(tmp_path: Path) -> None:
    """One in memory is gone with its process, and others change a table whatever it is by then."""
    catalog = {"py-catalog-impl": "pyiceberg.catalog.memory.InMemoryCatalog", "warehouse": f"{tmp_path}/w"}
    with pytest.raises(DagflowError, match="a catalog of class InMemoryCatalog does not compare a table with"):
        IcebergTable(NAME, (), catalog=catalog).target(STORAGE).shape()


@pytest.mark.parametrize(
    ("package", "advice"),
    [
        ("pyiceberg", r"pip install 'dagflow\[iceberg\]'"),
        ("sqlalchemy", r"pip install 'dagflow\[iceberg,sql-catalog\]'"),
    ],
)
def test_a_missing_package_is_named_with_its_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, advice: str
) -> None:
    """Apps without such tables need none of them."""
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else found(name))
    with pytest.raises(ValueError, match=f"needs the package {package}; install it with: {advice}"):
        table(tmp_path)


def test_to_look_for_a_table_makes_nothing(tmp_path: Path) -> None:
    """`validate` leaves the disk as it is."""
    assert table(tmp_path).target(STORAGE).shape() == table(tmp_path).current_shape(STORAGE)
    assert table(tmp_path).current_shape(STORAGE).columns is None
    assert not list(tmp_path.iterdir())


def test_a_catalog_that_is_not_there_needs_no_client(tmp_path: Path) -> None:
    """`validate` knows the beginning of a table without pyiceberg, which takes most of a second to import."""
    (tmp_path / "in").mkdir()
    (tmp_path / "app.yaml").write_text(
        "name: x\nsteps:\n- files: in\n- read: {type: csv, columns: {n: int64}}\n"
        f"- table: iceberg:{NAME}\n  catalog: {options(tmp_path)}\n"
    )
    script = """
import sys
from click.testing import CliRunner
from dagflow.cli.main import command_line

assert CliRunner().invoke(command_line, ["validate", "app.yaml"]).exit_code == 0
assert "pyiceberg" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path)


def test_metadata_is_on_the_disk_before_the_catalog_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power loss in between leaves files that no table names, and no broken table."""
    synced, sync = set(), os.fsync

    def noted(descriptor: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    committed(tmp_path)
    files = {str(path) for path in (tmp_path / "warehouse/shop/orders/metadata").iterdir()}
    assert len(files) == 3 and files <= synced


def test_a_window_that_was_decided_for_another_place_is_refused(tmp_path: Path) -> None:
    """The app was changed between a crash and the next run."""
    target = committed(tmp_path)
    file = dataclasses.replace(data_file(tmp_path, 2), final_url="/elsewhere/part-1.parquet")
    with pytest.raises(DagflowError, match=r"part-1.parquet was decided for another table than table iceberg:shop"):
        target.open("w").commit([DecidedWindow(2, "d", (file,))])


def test_a_catalog_that_cannot_be_reached_is_an_error_of_the_store(tmp_path: Path) -> None:
    """What its client says is passed on, and tried again by the driver."""
    catalog = {"type": "rest", "uri": "http://127.0.0.1:9/", "warehouse": "shop"}
    with pytest.raises(StorageError, match="catalog: ConnectionError: "):
        IcebergTable(NAME, (), catalog=catalog).target(STORAGE).shape()

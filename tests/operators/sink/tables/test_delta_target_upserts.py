"""TableWriter with upsert_by for Delta: what tables of others may forbid, and what is left beside the table."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from dagflow.engine.run import run
from dagflow.errors import DagflowError
from dagflow.runtime.local import InlineRuntime
from tests.operators.sink.test_table_writer import app, columns, write


def test_nothing_is_left_beside_the_table(tmp_path: Path) -> None:
    """The files of windows go; those of earlier versions are a vacuum's."""
    write(tmp_path, columns(shop=["a", "b", "a"], n=[1, 2, 3]), columns(shop=["b", "c"], n=[20, 4]), upsert_by="shop")
    named = {path.removeprefix("file://") for path in DeltaTable(str(tmp_path / "table")).file_uris()}
    assert len(list((tmp_path / "table").rglob("*.parquet"))) - len(named) == 1, "the file of the first version"


@pytest.mark.parametrize("keys", [["", None, ""], [None, "", None]])
def test_texts_that_are_one_key_in_a_partition_keep_their_order(tmp_path: Path, keys: list[str | None]) -> None:
    """The last record counts, also where the values differ until the table has them."""
    batch = columns(k=pa.array(keys, pa.string()), n=[1, 2, 3])
    assert write(tmp_path, batch, upsert_by="k", partition_by="k")["n"].to_pylist() == [3]


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


@pytest.mark.parametrize("is_there", [False, True])
def test_partitions_by_numbers_with_a_fraction_are_refused(tmp_path: Path, is_there: bool) -> None:
    """Where deltalake would write 0.-5 for -0.5; whole numbers, and numbers as text, are taken."""
    by_text = columns(k=["a"], n=["-0.5"])
    assert write(tmp_path / "text", by_text, upsert_by=["k", "n"], partition_by="n")["n"].to_pylist() == ["-0.5"]
    for scale, value in ((0, Decimal(-5)), (1, Decimal("-0.5"))):
        root, keys = tmp_path / str(scale), {"upsert_by": ["k", "n"], "partition_by": "n"}
        batch = columns(k=["a"], n=pa.array([value], pa.decimal128(9, scale)))
        if is_there:
            table = DeltaTable.create(str(root / "table"), Schema.from_arrow(batch.schema), partition_by=["n"])
        if scale:
            with pytest.raises(DagflowError, match=r"partitioned by 'n', which is decimal128\(9, 1\), and deltalake"):
                write(root, batch, **keys)
            assert not is_there or DeltaTable(str(root / "table")).version() == table.version()
            assert is_there or not DeltaTable.is_deltatable(str(root / "table"))
        else:
            assert write(root, batch, **keys)["n"].to_pylist() == [value]

"""The data source `dagflow` in a session of Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import dagflow.spark

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


@pytest.fixture(scope="module")
def session(spark_context: Any) -> Any:
    """A session that knows the source, and pushes filters down."""
    from pyspark.sql import SparkSession

    session = SparkSession(spark_context).newSession()
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    dagflow.spark.register(session)
    return session


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Two files of CSV with quoted newlines."""
    for number in range(2):
        rows = b"".join(b'%d,"a\nb",2026-03-0%dT01:00:00Z,1.50\n' % (n, number + 1) for n in range(50))
        (tmp_path / f"{number}.csv").write_bytes(b"id,note,at,price\n" + rows)
    return tmp_path


COLUMNS = "{id: int64, at: 'timestamp[us, UTC]', price: 'decimal(10, 2)'}"


def test_a_dataframe_has_each_record_with_its_columns(session: Any, rows: Path) -> None:
    """In the types of Spark, cut anywhere, filtered by a file that need not be read, and pruned by a schema."""
    source = session.read.format("dagflow").option("record", "csv").option("columns", COLUMNS)
    frame = source.option("block_size", "100").option("batch_bytes", "0").option("_file", "true").load(str(rows))
    kinds = dict(frame.dtypes)
    assert kinds == {
        **{"id": "bigint", "note": "string", "at": "timestamp", "price": "decimal(10,2)"},
        "_file": "string",
    }
    table = frame.orderBy("at", "id").toArrow().to_pylist()
    assert [row["id"] for row in table] == [*range(50), *range(50)]
    assert {row["note"] for row in table} == {"a\nb"}
    assert table[0]["at"] == datetime(2026, 3, 1, 1, tzinfo=UTC)
    assert table[0]["price"] == Decimal("1.50")
    assert {row["_file"] for row in table} == {str(rows / "0.csv"), str(rows / "1.csv")}
    (rows / "1.csv").write_bytes(b"no,csv,of,these\n1\n")
    assert frame.where(f"_file = '{rows}/0.csv'").count() == 50
    (rows / "1.csv").unlink()
    pruned = session.read.format("dagflow").option("record", "csv").schema("note string, _offset bigint")
    assert pruned.load(str(rows)).first().asDict() == {"note": "a\nb", "_offset": 17}


def test_an_rdd_has_the_records_with_their_offsets(session: Any, tmp_path: Path) -> None:
    """As Hadoop's input formats gave them."""
    (tmp_path / "a.txt").write_bytes(b"one\\\nmore\ntwo\n")
    pairs = dagflow.spark.records(session.sparkContext, str(tmp_path), "escaped_lines").collect()
    assert pairs == [(0, b"one\\\nmore"), (10, b"two")]


def test_mistakes_are_named_before_anything_runs(session: Any, rows: Path) -> None:
    """By load, as by validate."""
    with pytest.raises(Exception, match="did you mean 'delimiter'"):
        session.read.format("dagflow").option("record", "csv").option("delimter", ";").load(str(rows))
    with pytest.raises(Exception, match="there is no column 'recrd'; did you mean 'record'"):
        session.read.format("dagflow").schema("recrd binary").load(str(rows)).count()

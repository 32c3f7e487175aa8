"""Datasets of Parquet as Spark reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dagflow.engine.run import run
from dagflow.runtime.local import InlineRuntime
from tests.nightly import by_day
from tests.operators.sink.test_table_writer import TYPES, app
from tests.runs.test_table_readers import BATCH, LENGTH, expected, plain, plain_value
from tests.runs.test_widened_columns import CHANGES
from tests.runs.test_widened_columns import app as changing

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def session(spark_context: Any) -> Iterator[Any]:
    """A session in UTC."""
    from pyspark.sql import SparkSession

    session = SparkSession(spark_context).newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.timeType.enabled", "true")
    yield session


@pytest.mark.nightly
def test_spark_sees_the_rows_and_types_of_a_dataset(session: Any, tmp_path: Path) -> None:
    """All types that are written, once, with the values of the input."""
    numbers = pa.array(range(LENGTH))
    batches = [BATCH.append_column("n", numbers), pa.RecordBatch.from_pydict({"n": [100], "k": [1]})]
    run(app(tmp_path, batches, table=f"parquet:{tmp_path / 'table'}"), runtime=InlineRuntime)
    found = session.read.option("mergeSchema", "true").parquet(str(tmp_path / "table")).orderBy("n").toArrow()
    assert found["k"].to_pylist() == [None] * LENGTH + [1]
    for number in range(len(TYPES)):
        wanted, values = expected("parquet", number)
        column = found[f"c{number}"].slice(0, LENGTH)
        assert plain(column.type) == wanted, TYPES[number][0].type
        rows = [plain_value(each) for each in column.to_pylist()]
        assert rows == values + [None] * (LENGTH - len(values)), TYPES[number][0].type


@pytest.mark.parametrize("case", by_day(1, [name for name, change in CHANGES.items() if "parquet" in change[3]]))
def test_spark_reads_files_of_both_types_by_a_declared_schema(session: Any, case: str, tmp_path: Path) -> None:
    """Its mergeSchema does not, but for decimals."""
    from pyspark.sql.pandas.types import from_arrow_schema

    narrow, wide, both, _ = CHANGES[case]
    run(changing(tmp_path, "parquet", case, "00"), runtime=InlineRuntime)
    run(changing(tmp_path, "parquet", case, "0001"), runtime=InlineRuntime)
    schema = from_arrow_schema(pa.schema([("id", pa.int64()), ("x", both)]))
    found = session.read.schema(schema).parquet(str(tmp_path / "table")).orderBy("id").toArrow()
    old, new = narrow.cast(both)[0].as_py(), wide[0].as_py()
    assert found["x"].to_pylist() == [old, old, old, new]

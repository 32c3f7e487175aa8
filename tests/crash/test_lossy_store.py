"""Tables in a bucket behind a proxy that loses every third answer to a change."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import s3fs
from deltalake import DeltaTable

from dagflow.engine import target_access
from dagflow.engine.reprocess import reprocess
from dagflow.engine.run import RunOptions, run
from dagflow.errors import JournalError, StorageError
from dagflow.plan.logical import LogicalPlan
from dagflow.runtime.inline import InlineRuntime
from dagflow.spec.app_spec import Attributes
from operators.sink.table_writer import TableWriter
from tests.crash.lossy_proxy import lossy, lost_answers
from tests.engine.dags import dag
from tests.engine.sample_app import Source, words
from tests.execution.sample_operators import Lines

pytestmark = pytest.mark.crash

TEXTS = [b"a b", b"c", b"d e", b"f", b"a%20b \xc3\xbc", b"g"]
MOST_RUNS = 30


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for little between two attempts."""
    monkeypatch.setattr(target_access, "FIRST_PAUSE_S", 0.0)


def app(tmp_path: Path, root: str, kind: str, address: str) -> LogicalPlan:
    """Words become rows of a table in a bucket; the checkpoint is there as well."""
    writer = TableWriter(table=f"{kind}:{root}/table", metadata_columns="window")
    operators: dict[str, Any] = {
        "source": Source(texts=TEXTS),
        "lines": (Lines(), 2),
        "table": (writer, "parallel"),
    }
    logical = dag(tmp_path, operators, ["source.out lines.samples", "lines.records table.input"])
    storage = {"s3": {"endpoint_url": address, "key": "testing", "secret": "testing"}}
    return LogicalPlan(logical.name, Attributes(f"{root}/journal", storage=storage), logical.operators, logical.edges)


def rows(root: str, kind: str) -> list[bytes]:
    """The records of the table, sorted."""
    if kind == "delta":
        found = DeltaTable(f"{root}/table", storage_options={"aws_allow_http": "true"}).to_pyarrow_table()
    else:
        store = s3fs.S3FileSystem()
        files = store.find(f"{root}/table")
        found = pa.concat_tables([pq.read_table(pa.BufferReader(store.cat_file(name))) for name in files])
    return sorted(found["record"].to_pylist())


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_store_that_loses_answers_has_every_record_once(
    tmp_path: Path, s3_server: str, s3_root: str, kind: str
) -> None:
    """Runs may end with an error, and are started again; at the end nothing is missing and nothing is there twice."""
    with lossy(s3_server) as address:
        logical = app(tmp_path, s3_root, kind, address)
        until_completed(lambda: run(logical, runtime=InlineRuntime))
        assert (rows(s3_root, kind), lost_answers(address) > 5) == (words(TEXTS), True)
        until_completed(lambda: reprocess(logical, RunOptions(), [1, 3], runtime=InlineRuntime))
        until_completed(lambda: run(logical, runtime=InlineRuntime))
    assert rows(s3_root, kind) == words(TEXTS)


def until_completed(work: Callable[[], Any]) -> None:
    """Do work until nothing is said against it."""
    for _ in range(MOST_RUNS):
        with contextlib.suppress(StorageError, JournalError):
            work()
            return
    pytest.fail("it never came through")

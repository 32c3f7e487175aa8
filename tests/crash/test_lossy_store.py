"""Tables in a bucket behind a proxy that loses every third answer to a change."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import s3fs
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from dagflow.engine import publishers
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_replay import replay_windows
from dagflow.errors import JournalError, StorageError
from dagflow.journal.reader import read_state
from dagflow.plan.logical import LogicalPlan, grouped
from dagflow.runtime.local import InlineRuntime
from dagflow.spec.app_spec import Attributes
from dagflow.storage.context import StorageContext
from operators.sink.table_writer import TableWriter
from tests.crash.lossy_proxy import lossy, lost_answers
from tests.engine.dags import dag
from tests.engine.sample_app import TextSource, words
from tests.execution.sample_operators import SampleWords
from tests.nightly import by_day

pytestmark = pytest.mark.crash

TEXTS = [b"a b", b"c", b"d e", b"f", b"a%20b \xc3\xbc", b"g"]
MOST_RUNS = 30
NAME = "shop.words"
SECRET = "hush-4711-hush"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for little between two attempts."""
    monkeypatch.setattr(publishers, "FIRST_PAUSE_S", 0.0)


def app(tmp_path: Path, root: str, kind: str, address: str, **properties: Any) -> LogicalPlan:
    """Words become rows of a table in a bucket; the checkpoint is there as well."""
    place: dict[str, Any] = {"table": f"{kind}:{root}/table"}
    if kind == "iceberg":
        catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"{root}/warehouse"}
        place = {"table": f"iceberg:{NAME}", "catalog": catalog}
    writer = TableWriter(**place, metadata_columns="window", **properties)
    operators: dict[str, Any] = {
        "source": TextSource(texts=TEXTS),
        "lines": (SampleWords(), 2),
        "table": (writer, "parallel"),
    }
    logical = dag(tmp_path, operators, ["source.out lines.samples", "lines.records table.input"])
    storage = {"s3": {"endpoint_url": address, "key": "testing", "secret": SECRET}}
    attributes = Attributes(f"{root}/journal", storage=storage)
    return grouped(LogicalPlan(logical.name, attributes, logical.operators, logical.edges))


def table(tmp_path: Path, root: str, kind: str) -> pa.Table:
    """The table, as other programs read it."""
    if kind == "delta":
        return DeltaTable(f"{root}/table", storage_options={"aws_allow_http": "true"}).to_pyarrow_table()
    if kind == "iceberg":
        options = {"uri": f"sqlite:///{tmp_path}/catalog.db", "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"}
        with SqlCatalog("default", **options, **{"s3.endpoint": os.environ["AWS_ENDPOINT_URL"]}) as catalog:
            return catalog.load_table(NAME).scan().to_arrow()
    store = s3fs.S3FileSystem()
    files = store.find(f"{root}/table")
    return pa.concat_tables([pq.read_table(pa.BufferReader(store.cat_file(name))) for name in files])


def rows(tmp_path: Path, root: str, kind: str) -> list[bytes]:
    """The records of the table, sorted."""
    return sorted(table(tmp_path, root, kind)["record"].to_pylist())


def require_no_secret(tmp_path: Path, root: str) -> None:
    """No object and no file holds the secret by which the app reaches the bucket."""
    store = s3fs.S3FileSystem()
    held = [store.cat_file(name) for name in store.find(root)]
    held += [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(held) > 10 and not [data for data in held if SECRET.encode() in data]


@pytest.mark.parametrize("kind", by_day(1, ["parquet", "delta", "iceberg"]))
def test_a_store_that_loses_answers_has_every_record_once(
    tmp_path: Path, s3_server: str, s3_root: str, kind: str
) -> None:
    """Runs may end with an error, and are started again; windows are merged, replayed, and there once."""
    with lossy(s3_server) as address:
        logical = app(tmp_path, s3_root, kind, address)
        until_completed(lambda: run(logical, runtime=InlineRuntime))
        assert (rows(tmp_path, s3_root, kind), lost_answers(address) > 5) == (words(TEXTS), True)
        state = read_state(StorageContext.default().objects(f"{s3_root}/journal"))
        assert state.last_done == (3 if kind == "parquet" else 4), "one more merges what the others hold"
        until_completed(lambda: replay_windows(logical, RunOptions(), [1, 3], runtime=InlineRuntime))
        until_completed(lambda: run(logical, runtime=InlineRuntime))
    assert rows(tmp_path, s3_root, kind) == words(TEXTS)
    require_no_secret(tmp_path, s3_root)
    assert not [name for name in s3fs.S3FileSystem().find(s3_root) if "/.dagflow-pending/" in name]


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["delta", pytest.param("iceberg", marks=pytest.mark.nightly)])
def test_a_store_that_loses_answers_has_the_newest_row_of_each_key(
    tmp_path: Path, s3_server: str, s3_root: str, kind: str
) -> None:
    """No row of a window takes the place of one of a later window."""
    with lossy(s3_server) as address:
        logical = app(tmp_path, s3_root, kind, address, upsert_by="record")
        vars(logical.operators["source"].operator)["texts"] = [*TEXTS, *TEXTS, b"h"]
        until_completed(lambda: run(logical, runtime=InlineRuntime))
        assert lost_answers(address) > 5
    found = table(tmp_path, s3_root, kind)
    newest = {word: window for window in (4, 5, 6) for word in words(TEXTS[2 * window - 8 : 2 * window - 6])}
    assert len(found) == len(newest) + 1
    pairs = zip(found["record"].to_pylist(), found["_dagflow_window"].to_pylist(), strict=True)
    assert dict(pairs) == {**newest, b"h": 7}


def until_completed(work: Callable[[], Any]) -> None:
    """Do work until nothing is said against it."""
    for _ in range(MOST_RUNS):
        with contextlib.suppress(StorageError, JournalError):
            work()
            return
    pytest.fail("it never came through")

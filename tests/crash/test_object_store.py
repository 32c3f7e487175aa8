"""Apps with input, output and checkpoint in a bucket that die at any request that changes it."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

from dagflow.api.operator import Operator
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.execution.messages import WindowJob
from dagflow.plan.logical import LogicalPlan, OperatorNode, grouped
from dagflow.plan.physical import Edge, PortRef
from dagflow.runtime.local import InlineRuntime
from dagflow.spec.app_spec import Attributes
from dagflow.storage.backends.s3.client import S3Client, S3Location
from dagflow.testing.faults import InjectedCrash
from operators.reader.block_reader import BlockReader
from operators.sink.record_writer import RecordWriter
from operators.sink.table_writer import TableWriter
from operators.splitter.splitter import FileSplitterInput
from operators.transform.record_filter import RecordFilter
from tests.faulty import Faults, Moment
from tests.nightly import IS_NIGHTLY

pytestmark = pytest.mark.crash

CHANGES = {
    "put_object",
    "create_multipart_upload",
    "upload_part",
    "complete_multipart_upload",
    "abort_multipart_upload",
    "delete_object",
    "delete_objects",
}
SAMPLES = int(os.environ.get("DAGFLOW_CRASH_SAMPLES", "8" if IS_NIGHTLY else "3"))
"""Of about 60 moments at which a run may die; as many as there are with a large number."""

LINES = [b"".join(b"%sline %d of %d\n" % (b"." if n % 3 == 0 else b"", n, file) for n in range(8)) for file in range(3)]


def bucket_app(root: str, writer: Operator | None = None) -> LogicalPlan:
    """Return an app of splitter, reader, filter and writer below one URL, with two windows or more."""
    writer = writer or RecordWriter(path=f"{root}/out", file_name="block")
    nodes = [
        OperatorNode("splitter", FileSplitterInput(files=[f"{root}/in"], block_size=64, blocks_threshold=3)),
        OperatorNode("reader", BlockReader(min_readers=2, max_readers=2)),
        OperatorNode("filter", RecordFilter(drop={"prefix": "."}), "parallel"),
        OperatorNode("writer", writer, "parallel"),
    ]
    ends = [
        ("splitter.blocks_metadata_output", "reader.blocks_metadata_input"),
        ("reader.messages", "filter.input"),
        ("filter.output", "writer.input"),
    ]
    edges = tuple(Edge(source, PortRef(*source.split(".")), PortRef(*target.split("."))) for source, target in ends)
    return LogicalPlan("bucket", Attributes(f"{root}/journal"), {node.name: node for node in nodes}, edges)


@contextlib.contextmanager
def dying(at: int, moment: Moment) -> Iterator[Faults]:
    """Let this process lose its bucket at the k-th changing request, before or after the change."""
    faults = Faults(at, moment)
    call = S3Location.call

    def counted(place: S3Location, method: str, action: str, **arguments: Any) -> Any:
        if method in CHANGES:
            return faults.call(lambda: call(place, method, action, **arguments))
        faults.require_alive()
        return call(place, method, action, **arguments)

    S3Location.call = counted  # type: ignore[assignment, method-assign]  # every request to a bucket passes here
    try:
        yield faults
    finally:
        S3Location.call = call  # type: ignore[method-assign]  # as above


def put_input(root: str, first: int = 0) -> None:
    """Write three objects, whose names are numbers."""
    filesystem, path = S3Client("s3", {}).locate(f"{root}/in")
    filesystem.pipe({f"{path}/{number}.log": content for number, content in enumerate(LINES, first)})


def published(root: str) -> dict[str, bytes]:
    """Return the objects below the output, by name."""
    filesystem, path = S3Client("s3", {}).locate(f"{root}/out")
    return {name.rpartition("/")[2]: filesystem.cat_file(name) for name in filesystem.find(path)}


def uploads(root: str) -> list[Any]:
    """Return the incomplete uploads below the output."""
    place = S3Client("s3", {}).location(f"{root}/out")
    assert place is not None
    found: list[Any] = place.call("list_multipart_uploads", "list", Prefix=place.key).get("Uploads", [])
    return found


def complete(app: LogicalPlan) -> None:
    """Run in this process, without faults, with nothing but the bucket."""
    assert run(app, RunOptions(), runtime=InlineRuntime).state == "completed"


def test_after_a_death_at_any_request_the_bucket_holds_every_record_once(s3_root: str) -> None:
    """A new process continues with nothing but the checkpoint; no upload of the dead one remains."""
    put_input(s3_root)
    undisturbed = f"{s3_root}/undisturbed"
    put_input(undisturbed)
    with dying(0, "before") as faults:
        complete(bucket_app(undisturbed))
    expected, calls = published(undisturbed), faults.calls
    kept = b"".join(line for content in LINES for line in content.splitlines(True) if line[:1] != b".")
    assert b"".join(expected[name] for name in sorted(expected)) == kept
    assert calls > 2 * len(expected)
    for at in sorted(random.Random(calls).sample(range(1, calls + 1), min(SAMPLES, calls))):
        root = f"{s3_root}/{at}"
        put_input(root)
        # After a request the bucket is as it is before the next one; before the first there is nothing.
        with dying(at, "after") as faults, contextlib.suppress(InjectedCrash):
            run(bucket_app(root), RunOptions(), runtime=InlineRuntime)
        assert faults.has_struck
        assert published(root).items() <= expected.items()
        complete(bucket_app(root))
        assert published(root) == expected
        assert uploads(root) == []


def test_uploads_of_a_dead_run_end_when_their_names_are_published(s3_root: str) -> None:
    """A run that follows its input has no end at which it would look for them, and a bucket charges for them."""
    put_input(s3_root)
    with dying(0, "before") as faults, contextlib.suppress(InjectedCrash):

        def die(window: WindowJob) -> None:
            faults.is_dead = window.window_id == 2

        run(bucket_app(s3_root), runtime=lambda program: InlineRuntime(program, before=die))
    dead = {each["UploadId"] for each in uploads(s3_root)}
    put_input(s3_root, first=3)
    seen: list[set[str]] = []

    def look(window: WindowJob) -> None:
        seen.append({each["UploadId"] for each in uploads(s3_root)} & dead)

    run(bucket_app(s3_root), runtime=lambda program: InlineRuntime(program, before=look))
    assert dead
    assert (seen[0], seen[-1]) == (dead, set())


def table_app(root: str, database: Path) -> LogicalPlan:
    """Return the app with a table of Iceberg, whose windows are one transaction; the catalog is a database."""
    catalog = {"type": "sql", "uri": f"sqlite:///{database}", "warehouse": f"{root}/out"}
    return grouped(bucket_app(root, TableWriter(table="iceberg:shop.lines", catalog=catalog)))


def rows(database: Path) -> list[bytes]:
    """Return the records of the table, sorted; none where there is no table."""
    options = {"uri": f"sqlite:///{database}", "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"}
    options["s3.endpoint"] = os.environ["AWS_ENDPOINT_URL"]
    with SqlCatalog("default", **options) as catalog:
        try:
            return sorted(catalog.load_table("shop.lines").scan().to_arrow()["record"].to_pylist())
        except NoSuchTableError:
            return []


@pytest.mark.nightly
def test_after_a_death_at_any_request_a_table_has_every_record_once(s3_root: str, tmp_path: Path) -> None:
    """Also where windows hold files that a later one merges; nothing of the dead process remains that is hidden."""
    put_input(s3_root)
    with dying(0, "before") as faults:
        complete(table_app(s3_root, tmp_path / "undisturbed.db"))
    expected, calls = rows(tmp_path / "undisturbed.db"), faults.calls
    assert len(expected) == sum(line[:1] != b"." for content in LINES for line in content.splitlines(True))
    for at in sorted(random.Random(calls).sample(range(1, calls + 1), min(SAMPLES, calls))):
        root, database = f"{s3_root}/{at}", tmp_path / f"{at}.db"
        put_input(root)
        with dying(at, "after") as faults, contextlib.suppress(InjectedCrash):
            run(table_app(root, database), RunOptions(), runtime=InlineRuntime)
        assert faults.has_struck
        assert rows(database) in ([], expected)
        complete(table_app(root, database))
        assert rows(database) == expected, f"died at {at}"
        filesystem, path = S3Client("s3", {}).locate(f"{root}/out")
        left = [*filesystem.find(path), *(upload["Key"] for upload in uploads(root))]
        assert not [name for name in left if "/.dagflow-pending/" in name]

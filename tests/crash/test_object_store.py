"""Apps with input, output and checkpoint in a bucket that die at any request that changes it."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

from dagflow.engine.run import RunOptions, run
from dagflow.plan.logical import LogicalPlan, OperatorNode
from dagflow.plan.physical import Edge, PortRef
from dagflow.runtime.inline import InlineRuntime
from dagflow.spec.app_spec import Attributes
from dagflow.storage.backends.s3.client import S3Client, S3Location
from dagflow.testing.faults import Faults, InjectedCrash, Moment
from operators.reader.block_reader import BlockReader
from operators.sink.record_writer import RecordWriter
from operators.splitter.splitter import FileSplitterInput
from operators.transform.record_filter import RecordFilter

pytestmark = pytest.mark.crash

CHANGES = {
    "put_object",
    "create_multipart_upload",
    "upload_part",
    "complete_multipart_upload",
    "abort_multipart_upload",
    "delete_objects",
}
SAMPLES = int(os.environ.get("DAGFLOW_CRASH_SAMPLES", "8"))
"""Of about 60 moments at which a run may die; as many as there are with a large number."""

LINES = [b"".join(b"%sline %d of %d\n" % (b"." if n % 3 == 0 else b"", n, file) for n in range(8)) for file in range(3)]


def bucket_app(root: str) -> LogicalPlan:
    """Return an app of splitter, reader, filter and writer below one URL, with two windows or more."""
    nodes = [
        OperatorNode("splitter", FileSplitterInput(files=[f"{root}/in"], block_size=64, blocks_threshold=3)),
        OperatorNode("reader", BlockReader(min_readers=2, max_readers=2)),
        OperatorNode("filter", RecordFilter(drop={"prefix": "."}), "parallel"),
        OperatorNode("writer", RecordWriter(path=f"{root}/out", file_name="block"), "parallel"),
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


def put_input(root: str) -> None:
    """Write three objects."""
    filesystem, path = S3Client("s3", {}).locate(f"{root}/in")
    filesystem.pipe({f"{path}/{number}.log": content for number, content in enumerate(LINES)})


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


def complete(root: str) -> None:
    """Run in this process, without faults, with nothing but the bucket."""
    summary = run(bucket_app(root), RunOptions(), runtime=InlineRuntime)
    assert summary.state == "completed"


def test_after_a_death_at_any_request_the_bucket_holds_every_record_once(s3_root: str) -> None:
    """A new process continues with nothing but the checkpoint; no upload of the dead one remains."""
    put_input(s3_root)
    undisturbed = f"{s3_root}/undisturbed"
    put_input(undisturbed)
    with dying(0, "before") as faults:
        complete(undisturbed)
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
        complete(root)
        assert published(root) == expected
        assert uploads(root) == []

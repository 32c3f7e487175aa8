"""The deadline autoscaler on Spark, with what the engine measures."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dagflow.engine.run import run
from dagflow.plan.load import load_app
from dagflow.report.reading import status
from dagflow.runtime.spark import SparkRuntime
from dagflow.storage.context import StorageContext

pytestmark = pytest.mark.spark

APP = """\
name: deadline
attributes: {checkpoint: ROOT/journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: ROOT/in, block_size: 1KiB, blocks_threshold: 4}}
  reader:
    class: BlockReader
    partitioner:
      class: DeadlinePartitioner
      properties: {target_millis: 2000, max_partitions: 4, cool_down_millis: 100}
  slow: {class: tests.execution.sample_operators.Slow, partition: parallel}
  writer: {class: RecordWriter, properties: {path: ROOT/out}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: slow.input}
  slowed: {from: slow.output, to: writer.input}
"""
BLOCKS = 96


@pytest.mark.nightly
def test_a_backlog_too_large_for_one_partition_gets_more_partitions(tmp_path: Path, spark_context: Any) -> None:
    """96 blocks of 50 ms within 2 s take three partitions and more; each step is journaled, with what it rests on."""
    (tmp_path / "in").mkdir()
    content = b"".join(b"record %08d\n" % number for number in range(BLOCKS * 1024 // 16))
    (tmp_path / "in" / "a.txt").write_bytes(content)
    (tmp_path / "app.yaml").write_text(APP.replace("ROOT", str(tmp_path)))
    run(load_app(tmp_path / "app.yaml"), runtime=lambda program: SparkRuntime(program, spark_context))
    published = sorted((tmp_path / "out").iterdir())
    assert b"".join(path.read_bytes() for path in published) == content
    start, *changes = status(str(tmp_path / "journal"), StorageContext.default()).decisions
    assert (start.before, start.after, start.reason) == (0, 1, "start")
    counts = [1, *(change.after for change in changes)]
    assert max(counts) >= 3
    assert all(after <= 2 * before for before, after in pairwise(counts))
    # Up to what it takes, and perhaps down again once; what one block less or more takes makes nothing flap.
    turns = [(later > now) != (now > before) for (before, now), (_, later) in pairwise(pairwise(counts))]
    assert sum(turns) <= 1
    for change in changes:
        assert " bytes/s each take " in change.reason
        assert change.reason.endswith(f": {change.before} to {change.after}")
    # Most of the file is not emitted when the first change is made, and counts all the same.
    assert int(changes[0].reason.split()[0]) > changes[0].backlog * 1024

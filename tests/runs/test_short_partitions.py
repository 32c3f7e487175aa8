"""Partitions that have little to do share a Spark task, and stay partitions."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

from dagflow.engine.run import run
from dagflow.execution.messages import TaskResult, WindowJob
from dagflow.plan.load import load_app
from dagflow.runtime.spark import SparkRuntime
from tests.operators.splitter.splitter_driver import write

APP = """
name: short
attributes: {{checkpoint: "{folder}/journal"}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: "{folder}/in", batch_bytes: 0}}}}
  reader: {{class: BlockReader, properties: {{min_readers: 8}}}}
  writer: {{class: RecordWriter, properties: {{path: "{folder}/out", file_name: part}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  lines: {{from: reader.messages, to: writer.input}}
"""


class WindowRecordingRuntime(SparkRuntime):
    """Remembers the windows that it ran."""

    windows: list[WindowJob]

    def submit(self, window: WindowJob) -> Future[list[TaskResult]]:
        """Begin a window."""
        self.windows.append(window)
        return super().submit(window)


def test_eight_short_partitions_are_two_tasks_of_spark(tmp_path: Path, spark_context: Any) -> None:
    """One for each core; each partition writes a file of its own."""
    for number in range(8):
        write(tmp_path / "in" / f"{number}.log", b"%d\n" % number)
    write(tmp_path / "app.yaml", APP.format(folder=tmp_path))
    runtimes: list[WindowRecordingRuntime] = []

    def start(program: Any) -> WindowRecordingRuntime:
        runtimes.append(WindowRecordingRuntime(program, spark_context))
        runtimes[0].windows = []
        return runtimes[0]

    assert run(load_app(str(tmp_path / "app.yaml")), runtime=start).state == "completed"
    [window] = runtimes[0].windows
    cores = runtimes[0].parallelism
    assert window.partitions == {"reader": 8}
    assert [len(task) for task in window.together] == [8 // cores] * cores
    assert sorted(path.read_bytes() for path in (tmp_path / "out").iterdir()) == [b"%d\n" % each for each in range(8)]

"""Partitions that run in one task, one after the other, send what another operator combines once."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from dagflow.api.records import RecordBatch
from dagflow.engine.run import run
from dagflow.execution.messages import ShuffleItem, WindowJob
from dagflow.execution.task import run_level
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime

APP = """
name: groups
attributes: {{checkpoint: "{root}/journal"}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: "{root}/in", block_size: 8}}}}
  reader:
    class: BlockReader
    properties: {{min_readers: 4, max_readers: 4, format: {{type: csv, columns: {{n: int64}}}}}}
  groups: {{class: {kind}, partition: parallel}}
  writer: {{class: RecordWriter, properties: {{path: "{root}/out", format: csv}}}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  read: {{from: reader.messages, to: groups.input}}
  grouped: {{from: groups.output, to: writer.input}}
"""

COUNTED = 'Aggregate, properties: {by: k, columns: {n: "count(*)", total: sum(n), most: max(n)}, over: OVER}'


class OneTask(InlineRuntime):
    """Runs all partitions of the lowest level in one task; says how many records leave it."""

    sent = 0

    def _run_slot(self, window: WindowJob, level: int, slot: int, items: Iterable[Any]) -> Iterable[Any]:
        slots = [(slot, items)]
        if not level:
            self._waiting = [*getattr(self, "_waiting", ()), *slots]
            if len(self._waiting) < self._program.plan.partitions_by_level(window.partitions)[0]:
                return []
            slots, self._waiting = self._waiting, []
        left = [*run_level(self._program, window, level, slots, self._board.record)]
        if not level:
            payloads = [item.payload for item in left if isinstance(item, ShuffleItem)]
            OneTask.sent += sum(len(payload) for payload in payloads if isinstance(payload, RecordBatch))
        return left


def results(root: Path, kind: str, runtime: type[InlineRuntime], keys: str = "abc") -> list[dict[str, str]]:
    """The rows that a run publishes of four files with a row for each of some keys."""
    (root / "in").mkdir(parents=True)
    for number in range(4):
        (root / "in" / f"{number}.csv").write_text("k,n\n" + "".join(f"{key},{number}\n" for key in keys))
    (root / "app.yaml").write_text(APP.format(root=root, kind=kind))
    assert run(load_app(root / "app.yaml"), runtime=runtime).state == "completed"
    return [row for path in sorted((root / "out").iterdir()) for row in csv.DictReader(path.read_text().splitlines())]


@pytest.mark.parametrize(
    "kind", [*(COUNTED.replace("OVER", over) for over in ("window", "run", "all")), "CountBy, properties: {by: [k]}"]
)
def test_partitions_of_a_task_send_each_group_once(tmp_path: Path, kind: str) -> None:
    """The results are those of partitions in tasks of their own."""
    OneTask.sent = 0
    assert results(tmp_path / "one", kind, OneTask) == results(tmp_path / "many", kind, InlineRuntime)
    assert OneTask.sent == 3


def test_sums_of_doubles_are_the_same_in_any_task(tmp_path: Path) -> None:
    """Which partitions share a task depends on the machine, and the last digits of such sums on what is added first."""
    kind = 'Aggregate, properties: {by: k, columns: {total: "sum(cast(n as double) * 0.1e0)"}}'
    one = results(tmp_path / "one", kind, OneTask, "a" * 9)
    assert one == results(tmp_path / "many", kind, InlineRuntime, "a" * 9)

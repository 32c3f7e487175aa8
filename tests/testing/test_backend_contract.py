"""The in-process runtime, processes of this machine and Spark publish the same bytes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dagflow.execution.messages import Program
from dagflow.runtime.base import Runtime
from dagflow.runtime.local import InlineRuntime, LocalRuntime
from tests.testing.backend_contract import BackendContract

FRAME = """\
name: contract
attributes: {{checkpoint: FOLDER/journal}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: FOLDER/in, block_size: 64{splitter}}}}}
  reader: {{class: BlockReader, partition: 3, properties: {{{reader}}}}}
{operators}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
{streams}
"""
WRITER = "  writer: {class: RecordWriter, properties: {path: FOLDER/out}, partition: "


def app_of(operators: str, streams: str, *, reader: str = "", splitter: str = "") -> str:
    """An app whose reader has three partitions."""
    return FRAME.format(operators=operators, streams=streams, reader=reader, splitter=splitter)


class AppsOfEveryShape(BackendContract):
    """Apps of every shape: fused, exchanged by key and round robin, with state, with a unifier, with a pre-scan."""

    def apps(self) -> Mapping[str, str]:
        """A handful of apps."""
        return {
            "fused": app_of(
                "  filter: {class: RecordFilter, properties: {drop: {prefix: 'b'}}, partition: parallel}\n"
                f"{WRITER}parallel}}",
                "  records: {from: reader.messages, to: filter.input}\n  kept: {from: filter.output, to: writer.input}",
            ),
            "exchanged": app_of(f"{WRITER}2}}", "  records: {from: reader.messages, to: writer.input}"),
            "keyed": app_of(
                "  counter: {class: KeyCounter, properties: {key: record}, partition: {by: record, count: 2}}\n"
                f"{WRITER}parallel}}",
                "  records: {from: reader.messages, to: counter.input}\n"
                "  counts: {from: counter.output, to: writer.input}",
                splitter=", blocks_threshold: 4",
            ),
            "unified": app_of(
                f"  counts: {{class: CountBy, properties: {{by: record}}, partition: parallel}}\n{WRITER}1}}",
                "  records: {from: reader.messages, to: counts.input}\n  rows: {from: counts.output, to: writer.input}",
            ),
            "pre-scanned": app_of(
                f"{WRITER}parallel}}",
                "  records: {from: reader.messages, to: writer.input}",
                reader="format: {type: csv, header: false, columns: [a, b]}",
            ),
        }

    def failing_app(self) -> str:
        """An operator raises in a task."""
        return app_of(
            f"  broken: {{class: tests.testing.broken.FailsAtFirstRecord, partition: parallel}}\n{WRITER}parallel}}",
            "  records: {from: reader.messages, to: broken.input}\n  kept: {from: broken.output, to: writer.input}",
        )

    def write_input(self, folder: Path) -> None:
        """Lines of one to three words, some of them quoted over a line's end."""
        for number in range(3):
            lines = [f'{letter}{number},"{letter}\n{row % 3}"' for row in range(9) for letter in "abc"]
            (folder / f"{number}.txt").write_text("\n".join(lines) + "\n")


class TestInProcess(AppsOfEveryShape):
    def start(self, program: Program) -> Runtime:
        """Start it."""
        return InlineRuntime(program)


class BesideTheDriver(AppsOfEveryShape):
    """Runtimes whose tasks run in other processes."""

    @pytest.mark.nightly
    def test_a_second_run_finds_nothing_to_do(self) -> None:
        """Nothing is sent to tasks then; by day the runtime of one process shows it."""
        super().test_a_second_run_finds_nothing_to_do()


class TestLocal(BesideTheDriver):
    def start(self, program: Program) -> Runtime:
        """Two processes of this machine."""
        return LocalRuntime(program, 2, self._root / "local.log")


@pytest.mark.spark
class TestSpark(BesideTheDriver):
    @pytest.fixture(autouse=True)
    def _context(self, spark_context: Any) -> None:
        self.context = spark_context

    def start(self, program: Program) -> Runtime:
        """One more user of the context of the tests."""
        from dagflow.runtime.spark import SparkRuntime

        return SparkRuntime(program, self.context)


@pytest.mark.nightly
class TestSessionOfAUser(TestSpark):
    def start(self, program: Program) -> Runtime:
        """In the context as in that of a user, to which modules are sent."""
        from dagflow.runtime.spark import SparkRuntime

        return SparkRuntime(program, self.context, is_guest=True)

"""Logs that are rotated while a run follows them, which is killed in between."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.crash.killing import LOCALLY, RunProcess, also_on_spark
from tests.operators.splitter.changes.renames.rotations import (
    compress_at_once,
    compress_later,
    copy_and_truncate,
    rename,
    rename_with_date,
)
from tests.properties.test_growing_files import append

pytestmark = pytest.mark.e2e

APP = """\
name: sample
attributes: {checkpoint: journal, master: "local[2]"}
operators:
  splitter: {class: FileSplitterInput, properties: {files: [logs], follow: true, scan_interval_millis: 200}}
  reader: {class: BlockReader}
  writer: {class: RecordWriter, properties: {path: out}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: writer.input}
"""


class Logs:
    """Writes lines to a log, and knows what a run has published of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "logs" / "app.log"
        self.log.parent.mkdir()
        self.lines: list[bytes] = []

    def write(self, lines: int) -> None:
        """Append lines that are all different."""
        for _ in range(lines):
            self.lines.append(b"line %d" % len(self.lines))
            append(self.log, self.lines[-1] + b"\n")

    def published(self) -> list[bytes]:
        """The lines that readers of the output see."""
        names = (self.folder / "out").glob("[!._]*")
        return [line for path in names for line in path.read_bytes().splitlines()]

    def is_whole(self) -> bool:
        """Whether as many lines are published as were written."""
        return len(self.published()) >= len(self.lines)


@also_on_spark
def test_a_run_that_follows_reads_each_line_of_rotated_logs_once(tmp_path: Path, options: Sequence[str]) -> None:
    """By a rename, a date, a copy, a compression; before and after the death of all its processes."""
    (tmp_path / "app.yaml").write_text(APP)
    logs = Logs(tmp_path)
    logs.write(5)
    for rotations, is_killed in (
        ((rename, copy_and_truncate, compress_at_once), True),
        ((rename_with_date, compress_later, rename), False),
    ):
        run = RunProcess(tmp_path, *options)
        try:
            assert run.wait_for(logs.is_whole)
            for rotate in rotations:
                logs.write(3)
                assert run.wait_for(logs.is_whole)
                # The tail is not read yet, and nor is what follows under the old name.
                append(logs.log, b"%s, the tail\n" % rotate.__name__.encode())
                logs.lines.append(b"%s, the tail" % rotate.__name__.encode())
                if rotate in (copy_and_truncate, compress_at_once, compress_later):
                    assert run.wait_for(logs.is_whole)
                rotate(logs.log)
                logs.write(2)
            if is_killed:
                run.destroy()
                rename(logs.log)
                logs.write(2)
                continue
            assert run.wait_for(logs.is_whole)
            run.process.send_signal(signal.SIGTERM)
            run.end()
        finally:
            run.destroy() if run.process.poll() is None else None
    assert Counter(logs.published()) == Counter(logs.lines)


ALL_ROTATIONS = [rename, copy_and_truncate, compress_at_once, compress_later, rename_with_date]


@pytest.mark.nightly
def test_last_records_of_rotated_logs_survive_the_death_of_runs(tmp_path: Path) -> None:
    """Each log ends without a newline; runs die at random moments before and after its rotation."""
    dice = random.Random(5)
    (tmp_path / "app.yaml").write_text(APP.replace("scan_interval_millis: 200", "scan_interval_millis: 50"))
    logs = Logs(tmp_path)
    logs.write(3)
    for rotate in dice.sample(ALL_ROTATIONS * 2, 2 * len(ALL_ROTATIONS)):
        run = RunProcess(tmp_path, *LOCALLY)
        try:
            assert run.wait_for(logs.is_whole)
            logs.lines.append(b"last of %d" % len(logs.lines))
            append(logs.log, logs.lines[-1])
            run.wait_for(lambda: False, dice.choice([0, 0.05, 0.5]))
            rotate(logs.log)
            run.wait_for(lambda: False, dice.choice([0, 0.1, 1.5]))
        finally:
            run.destroy()
        logs.write(2)
    run = RunProcess(tmp_path, *LOCALLY)
    try:
        assert run.wait_for(logs.is_whole)
        run.process.send_signal(signal.SIGTERM)
        run.end()
    finally:
        run.destroy() if run.process.poll() is None else None
    assert Counter(logs.published()) == Counter(logs.lines)

"""Fingerprints that readers report: on real files and a real journal, over restarts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import DagflowError
from dagflow.execution.messages import Program
from dagflow.plan.load import load_app
from dagflow.report.snapshot import RunSnapshot
from dagflow.runtime.base import Runtime
from dagflow.runtime.local import InlineRuntime
from tests.nightly import by_day
from tests.operators.splitter.splitter_driver import write
from tests.properties.test_growing_files import append

APP = """\
name: sample
attributes: {{checkpoint: {folder}/journal}}
operators:
  splitter:
    class: FileSplitterInput
    properties: {{files: ["{folder}/in"],
        batch_bytes: {batch}, block_size: {block}, on_change: {{appended: {appended}}}}}
  reader: {{class: BlockReader}}
  writer: {{class: RecordWriter, properties: {{path: "{folder}/out"}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: writer.input}}
"""

WITHOUT_READER = """\
name: sample
attributes: {{checkpoint: {folder}/journal}}
operators:
  splitter:
    class: FileSplitterInput
    properties: {{files: ["{folder}/in"], batch_bytes: {batch}, block_size: {block}, on_change: {{appended: reread}}}}
  names: {{class: MetadataWriter, properties: {{path: "{folder}/names"}}}}
streams:
  files: {{from: splitter.files_metadata_output, to: names.input}}
"""

WAYS = pytest.mark.parametrize(
    ("batch", "block"), [("0", 1 << 20), ("0", 2), ("16MiB", 1 << 20)], ids=["alone", "in blocks", "in a batch"]
)


class FingerprintCountingRuntime(InlineRuntime):
    """Counts the files that tasks look at for the splitter."""

    looked = 0

    def map(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        """Apply it at once."""
        FingerprintCountingRuntime.looked += sum(map(len, items))
        return super().map(function, items)


def once(folder: Path, batch: str = "16MiB", block: int = 1 << 20, appended: str = "tail") -> tuple[RunSnapshot, int]:
    """Run the app to completion; how it went, and at how many files tasks looked for the splitter."""
    write(folder / "app.yaml", APP.format(folder=folder, batch=batch, block=block, appended=appended))
    FingerprintCountingRuntime.looked = 0
    summary = run(load_app(str(folder / "app.yaml")), RunOptions(), runtime=FingerprintCountingRuntime)
    return summary, FingerprintCountingRuntime.looked


def published(folder: Path) -> list[bytes]:
    """All records of the output, sorted."""
    return sorted(line for path in (folder / "out").iterdir() for line in path.read_bytes().splitlines())


@WAYS
def test_a_later_run_distinguishes_an_append_from_a_rewrite(tmp_path: Path, batch: str, block: int) -> None:
    """Tasks look only at files of several blocks; the reports of the last window are not lost with the driver."""
    for number in range(6):
        write(tmp_path / "in" / str(number), b"%d\n" % number * 3)
    assert once(tmp_path, batch, block)[1] == (6 if block == 2 else 0)
    append(tmp_path / "in" / "2", b"appended\n")
    (tmp_path / "in" / "4").write_bytes(b"rewritten, longer\n")
    summary, looked = once(tmp_path, batch, block)
    assert looked == (4 if block == 2 else 2)
    assert (summary.counts["splitter:files_appended"], summary.counts["splitter:files_replaced"]) == (1, 1)
    expected = [b"%d" % number for number in range(6) for _ in range(3)] + [b"appended", b"rewritten, longer"]
    assert published(tmp_path) == sorted(expected)
    assert once(tmp_path, batch, block)[0].windows == 0


@WAYS
def test_a_file_without_a_fingerprint_is_opened_once(tmp_path: Path, batch: str, block: int) -> None:
    """As where nothing has read it before; the next run remembers, also where nothing else was new."""
    for number in range(6):
        write(tmp_path / "in" / str(number), b"%d\n" % number)
    write(tmp_path / "in" / "empty", b"")
    write(tmp_path / "app.yaml", WITHOUT_READER.format(folder=tmp_path, batch=batch, block=block))
    assert run(load_app(str(tmp_path / "app.yaml")), RunOptions(), runtime=FingerprintCountingRuntime).files == 7
    summary, looked = once(tmp_path, batch, block)
    assert (looked, summary.files, summary.windows) == (6, 0, 1)
    assert once(tmp_path, batch, block)[1] == 0
    (tmp_path / "in" / "3").write_bytes(b"7\n8\n")
    assert once(tmp_path, batch, block)[0].counts["splitter:files_replaced"] == 1


@WAYS
def test_an_app_that_asks_for_tails_later_knows_them(tmp_path: Path, batch: str, block: int) -> None:
    """Readers report fingerprints whatever becomes of a change, so no file is opened for one."""
    for number in range(6):
        write(tmp_path / "in" / str(number), b"%d\n" % number)
    once(tmp_path, batch, block, "reread")
    (tmp_path / "in" / "3").write_bytes(b"7\n8\n")
    summary, _ = once(tmp_path, batch, block)
    assert (summary.counts["splitter:files_replaced"], summary.files) == (1, 1)


@WAYS
@pytest.mark.parametrize("dies_at", by_day(2, range(1, 5)))
def test_a_death_between_windows_loses_no_fingerprint(tmp_path: Path, batch: str, block: int, dies_at: int) -> None:
    """Whatever window it strikes: a rewrite before the next run is distinguished from an append."""
    for number in range(8):
        write(tmp_path / "in" / str(number), b"%d\n" % number)
    text = APP.format(folder=tmp_path, batch=batch, block=block, appended="tail")
    write(tmp_path / "app.yaml", text.replace("block_size", "max_files_per_window: 2, block_size"))
    app = load_app(str(tmp_path / "app.yaml"))

    def die(window: Any) -> None:
        if window.window_id == dies_at:
            raise DagflowError("the machine is gone")

    def dying(program: Program) -> Runtime:
        return InlineRuntime(program, before=die)

    with pytest.raises(DagflowError, match="the machine is gone"):
        run(app, RunOptions(), runtime=dying)
    done = 2 * (dies_at - 1)
    for number in range(done):
        (tmp_path / "in" / str(number)).write_bytes(b"rewritten %d\n" % number)
    summary = run(app, RunOptions(), runtime=InlineRuntime)
    assert summary.counts.get("splitter:files_replaced", 0) == done
    expected = [b"%d" % number for number in range(8)] + [b"rewritten %d" % number for number in range(done)]
    assert published(tmp_path) == sorted(expected)

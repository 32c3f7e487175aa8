"""Try-outs of whole apps: exactly the first records, in a directory of their own."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from dagflow.engine.limited_run import limited_run
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import DagflowError
from dagflow.plan.load import load_app
from dagflow.report.snapshot import RunSnapshot
from dagflow.runtime.local import InlineRuntime
from tests.nightly import by_day

APP = """\
name: tried
attributes: {checkpoint: journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: in, block_size: 100FOLLOW}}
  reader: {class: BlockReader, properties: {format: lines, min_readers: 3}}
OPERATORS
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
STREAMS
"""

WRITER = "  writer: {class: RecordWriter, properties: {path: PATH}, partition: PARTITION}"
FUSED = WRITER.replace("PATH", "out").replace("PARTITION", "parallel"), "  a: {from: reader.messages, to: writer.input}"
EXCHANGED = WRITER.replace("PATH", "out").replace("PARTITION", "3"), "  a: {from: reader.messages, to: writer.input}"
COUNTED = (
    "  count: {class: CountBy, properties: {by: record}, partition: parallel}\n"
    "  writer: {class: RecordWriter, properties: {path: out, format: json_lines}}",
    "  a: {from: reader.messages, to: count.input}\n  b: {from: count.output, to: writer.input}",
)
REFUSING = (
    f"{FUSED[0]}\n  rejects: {{class: RecordWriter, properties: {{path: rejects}}, partition: parallel}}",
    f"{FUSED[1]}\n  b: {{from: reader.errors, to: rejects.input}}",
)
TABLE = (
    "  writer: {class: TableWriter, properties: {table: 'delta:out'}, partition: parallel}",
    "  a: {from: reader.messages, to: writer.input}",
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    """A working directory with 1,000 lines in 10 files."""
    (tmp_path / "in").mkdir()
    for file in range(10):
        lines = "".join(f"line {100 * file + n:03}\n" for n in range(100))
        (tmp_path / "in" / f"{file}.log").write_text(lines)
    with contextlib.chdir(tmp_path):
        yield tmp_path


def try_out(parts: tuple[str, str], records: int, *, follow: str = "", format: str = "lines") -> RunSnapshot:
    """Read so many records of an app of these parts."""
    text = APP.replace("OPERATORS", parts[0]).replace("STREAMS", parts[1]).replace("FOLLOW", follow)
    text = text.replace("format: lines", f"format: {format}")
    Path("app.yaml").write_text(text)
    with limited_run(load_app("app.yaml"), RunOptions(), records) as (app, options):
        return run(app, options)


def lines_below(directory: Path) -> list[str]:
    """The lines of all files."""
    return sorted(line for path in directory.glob("*") if path.is_file() for line in path.read_text().splitlines())


@pytest.mark.parametrize("records", by_day(4, [1, 7, 100, 150, 999, 1000, 5000]))
@pytest.mark.parametrize("parts", [FUSED, EXCHANGED], ids=["fused", "exchange"])
def test_so_many_records_are_published_and_no_more(folder: Path, parts: tuple[str, str], records: int) -> None:
    """Apart from the app's own output and checkpoint, which a run afterwards fills with all records."""
    done = try_out(parts, records)
    expected = min(records, 1000)
    assert (done.state, done.records["reader.messages"]) == ("completed", expected)
    assert len(lines_below(folder / ".dagflow" / "tried.limit" / "out")) == expected
    assert {path.name for path in folder.iterdir()} == {"in", "app.yaml", ".dagflow"}
    assert [path.name for path in (folder / ".dagflow" / "tried.limit").iterdir()] == ["out"]
    assert run(load_app("app.yaml"), runtime=InlineRuntime).records["reader.messages"] == 1000
    assert len(lines_below(folder / "out")) == 1000


@pytest.mark.parametrize("records", [1, 7, 150, 1000])
def test_the_byte_accounting_is_that_of_whole_blocks(folder: Path, records: int) -> None:
    """It adds up where the last block was not read to its end; its published rejects are counted all the same."""
    for path in (folder / "in").iterdir():
        # As long as no record lies in two blocks.
        path.write_bytes((b"line 00\xff0\n" + b"line 0000\n") * 50)
    done = try_out(REFUSING, records, format="{type: lines, encoding: utf-8, on_bad_bytes: reject}")
    accounting = done.byte_accounting()
    assert accounting["bytes"] == done.bytes == sum(accounting[part] for part in accounting.keys() - {"bytes"})
    assert done.rejected == len(lines_below(folder / ".dagflow" / "tried.limit" / "rejects")) > 0


def test_what_is_counted_is_the_records_that_were_read(folder: Path) -> None:
    """A result of the whole run is published at its end."""
    try_out(COUNTED, 25)
    rows = map(json.loads, lines_below(folder / ".dagflow" / "tried.limit" / "out"))
    assert [(row["record"], row["count"]) for row in rows] == [(f"line {n:03}", 1) for n in range(25)]


def test_a_table_is_one_of_its_own(folder: Path) -> None:
    """With the same layout; each try-out makes it anew."""
    for records in (30, 20):
        try_out(TABLE, records)
        table = DeltaTable(folder / ".dagflow" / "tried.limit" / "out").to_pyarrow_table()
        assert sorted(table["record"].to_pylist()) == [b"line %03d" % n for n in range(records)]
    assert not (folder / "out").exists()


def test_an_app_that_follows_ends(folder: Path) -> None:
    """With what there is."""
    assert try_out(FUSED, 2000, follow=", follow: true").records["reader.messages"] == 1000


def test_source_files_are_not_removed(folder: Path) -> None:
    """What would remove them is left out."""
    cleaner = "\n  cleaner: {class: SourceCleaner, properties: {action: remove}}"
    read = "\n  read: {from: reader.blocks_metadata_output, to: cleaner.input}"
    assert try_out((FUSED[0] + cleaner, FUSED[1] + read), 1000).records["reader.messages"] == 1000
    assert len(list((folder / "in").iterdir())) == 10


def test_an_operator_that_would_publish_elsewhere_is_refused(folder: Path) -> None:
    """An author's operator whose property does not declare a location; derived as the advice says, it may run."""
    (folder / "limit_ops.py").write_text(
        "from dagflow.api.operator import Operator\nfrom dagflow.api.ports import InputPort\n"
        "from dagflow.storage.location import relocated\n\n\n"
        "class Stuck(Operator):\n    place: str\n    input = InputPort()\n\n"
        "    @input.batch\n    def take(self, batch):\n        pass\n\n"
        "    def prepare(self, run):\n        run.claim(self.place)\n\n\n"
        "class Moving(Stuck):\n    def properties_below(self, directory):\n"
        "        return {'place': relocated(self.place, directory)}\n"
    )
    (folder / "mine").mkdir()
    stream = "  a: {from: reader.messages, to: mine.input}"
    stuck = "  mine: {class: limit_ops.Stuck, properties: {place: mine}, partition: parallel}"
    with pytest.raises(DagflowError, match=f"operator 'mine' publishes into {folder}/mine, and a run with --limit"):
        try_out((stuck, stream), 10)
    assert try_out((stuck.replace("Stuck", "Moving"), stream), 10).records["reader.messages"] == 10
    inside = stuck.replace("place: mine", "place: .dagflow/tried.limit/mine")
    assert try_out((inside, stream), 10).records["reader.messages"] == 10


UNCLAIMED = """\
from dagflow import ControlOperator, InputPort, Operator
from dagflow.storage.location import relocated
from operators import BlockMetadata


class Sink(Operator):
    place: str
    input = InputPort()

    def setup(self, context):
        self.context = context

    def begin_window(self, window_id):
        self.name, self.records = f"{window_id}-{self.context.partition}", 0

    @input.batch
    def take(self, batch):
        self.records += len(batch)

    def end_window(self):
        if self.records:
            file = self.context.outputs.open(f"{self.place}/{self.name}")
            file.write(b"x")
            file.close(records=self.records)


class Report(ControlOperator):
    place: str
    input = InputPort(BlockMetadata)

    def setup(self, context):
        self.outputs = context.outputs

    @input.each
    def take(self, block):
        file = self.outputs.open(f"{self.place}/{block.block_id}")
        file.write(b"x")
        file.close(records=1)


class MovingSink(Sink):
    def properties_below(self, directory):
        return {"place": relocated(self.place, directory)}


class MovingReport(Report):
    def properties_below(self, directory):
        return {"place": relocated(self.place, directory)}
"""


@pytest.mark.parametrize(
    ("kind", "port"), [("Sink", "messages"), ("Report", "blocks_metadata_output")], ids=["task", "driver"]
)
def test_an_operator_that_claims_nothing_is_refused_too(folder: Path, kind: str, port: str) -> None:
    """Before anything is written elsewhere; either advice makes it run."""
    (folder / "unclaimed_ops.py").write_text(UNCLAIMED)
    stream = f"  a: {{from: reader.{port}, to: mine.input}}"
    stuck = f"  mine: {{class: unclaimed_ops.{kind}, properties: {{place: mine}}}}"
    with pytest.raises(DagflowError, match=f"operator 'mine'.* opens mine/.*{folder}/.dagflow/tried.limit alone") as it:
        try_out((stuck, stream), 100)
    assert it.value.hint.startswith(
        "give it a location there with --set OPERATOR.PROPERTY=VALUE, or define properties_below()"
    )
    assert not (folder / "mine").exists()
    assert list((folder / ".dagflow" / "tried.limit").iterdir()) == []
    for allowed in (stuck.replace(kind, f"Moving{kind}"), stuck.replace(": mine}", ": .dagflow/tried.limit/mine}")):
        assert try_out((allowed, stream), 100).state == "completed"
        assert list((folder / ".dagflow" / "tried.limit" / "mine").iterdir())
        assert not (folder / "mine").exists()

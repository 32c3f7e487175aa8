"""How YAML names an output format, and a format that is not built in."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.context import OperatorContext
from dagflow.api.records import RecordBatch
from dagflow.engine.run import run
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from dagflow.testing.operators import MemoryOutputs
from operators.sink.file_sink import FileSink
from operators.sink.formats import SINK_FORMATS
from operators.sink.formats.base import SinkFormat
from tests.nightly import by_day
from tests.operators.sink.formats.sink_records import decompressed
from tests.visitors import test_logfmt_sink
from tests.visitors.logfmt_sink import LogfmtSink

LOGFMT = "tests.visitors.logfmt_sink.LogfmtSink"


APP = """\
name: logfmt
attributes: {{checkpoint: {root}/journal}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: {root}/in.csv}}}}
  reader: {{class: BlockReader, properties: {{format: {{type: csv, columns: {{n: int64}}}}}}}}
  writer: {{class: RecordWriter, properties: {{path: {root}/out, format: {{type: {logfmt}, compression: gzip}}}}}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  rows: {{from: reader.messages, to: writer.input}}
"""


def test_an_app_names_a_format_by_its_dotted_path(tmp_path: Path) -> None:
    """It takes options, and its files have its extension."""
    (tmp_path / "in.csv").write_text("n,t\n1,x y\n2,z\n")
    app = tmp_path / "app.yaml"
    app.write_text(APP.format(root=tmp_path, logfmt=LOGFMT))
    run(load_app(str(app)), runtime=InlineRuntime)
    (path,) = (tmp_path / "out").iterdir()
    assert path.name == "part-00000001-00000-0000.log.gz"
    assert decompressed(path.read_bytes(), SINK_FORMATS.make({"type": LOGFMT, "compression": "gzip"})) == (
        b'n=1 t="x y"\nn=2 t="z"\n'
    )


class EmptiesOne(LogfmtSink):
    """A format that gets it wrong: of each batch the last record is empty."""

    def encode(self, batch: RecordBatch) -> pa.BinaryArray:
        return pa.array([*super().encode(batch).to_pylist()[:-1], b"\n"][: len(batch)], pa.binary())


class NumbersLines(LogfmtSink):
    """A format that gets it wrong: its bytes depend on what it has written before."""

    def encode(self, batch: RecordBatch) -> pa.BinaryArray:
        lines = super().encode(batch).to_pylist()
        self._count = getattr(self, "_count", 0) + len(lines)
        # A comment, which the reader of the test passes over.
        return pa.array([line[:-1] + f" #{self._count}\n".encode() for line in lines], pa.binary())


class WithoutDot(LogfmtSink):
    """A format that gets it wrong: its files are called 0000log."""

    suffix: ClassVar[str] = "log"


class RefusesNumbers(LogfmtSink):
    """A format that gets it wrong: it writes what it has refused."""

    def check_columns(self, arriving: StreamColumns) -> None:
        raise ValueError("no numbers")


class HeadedByTheFirst(LogfmtSink):
    """A format that gets it wrong: its heading has names, and files may hold records of others."""

    def heading(self, batch: RecordBatch) -> bytes:
        return f"{' '.join(batch.to_arrow().schema.names)}\n".encode()


class WithUntriedLayout(LogfmtSink):
    """A format whose test gets it wrong: it has layouts, and the test draws records of one."""

    def layout_of(self, batch: RecordBatch) -> list[str]:
        return list(batch.to_arrow().schema.names)


@pytest.mark.parametrize(
    ("wrong", "law", "finding"),
    by_day(
        2,
        [
            (
                HeadedByTheFirst,
                "a_heading_that_depends_on_columns_is_a_layout",
                "begin with another heading, and may hold",
            ),
            (WithUntriedLayout, "each_layout_has_a_file_of_its_own", "has a layout_of: define other_batches"),
            (
                NumbersLines,
                "a_window_that_runs_again_gives_the_same_bytes",
                "other bytes when a window is written again",
            ),
            (
                RefusesNumbers,
                "columns_that_are_written_are_not_refused",
                "refuses records that are written: no numbers",
            ),
            (WithoutDot, "a_file_without_records_is_a_file_of_its_format", "'log' has no dot"),
            # As in test files, the assert shows what was found and what was expected.
            (EmptiesOne, "any_records_are_read_back_from_any_files", r"assert \[\{.*\] == \["),
        ],
    ),
)
def test_the_suite_finds_an_output_format_that_is_wrong(wrong: type[SinkFormat], law: str, finding: str) -> None:
    """One law fails for it."""

    class WrongContract(test_logfmt_sink.TestLogfmt):
        __test__ = False
        formats: ClassVar = [f"{wrong.__module__}.{wrong.__name__}"]

    with pytest.raises(AssertionError, match=finding):
        getattr(WrongContract(), f"test_{law}")()


class GivenLines(LogfmtSink):
    """A format that gives what a test says in place of the lines of three records."""

    given: ClassVar[Any] = None

    def encode(self, batch: RecordBatch) -> Any:
        return self.given


@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            pa.array([b"1\n", b"2\n", b"3\n"], pa.large_binary()),
            "GivenLines.encode gave large_binary with 0 nulls",
        ),
        (pa.array([b"1\n", None, b"3\n"], pa.binary()), "GivenLines.encode gave binary with 1 nulls"),
        ([b"1\n", b"2\n", b"3\n"], "GivenLines.encode gave list; it must give one pa.BinaryArray without nulls"),
        (
            pa.array([b"1\n"], pa.binary()),
            "format 'logfmt' made 1 rows of 3 records; rows_of, or encode, must",
        ),
        (pa.array([b"1\n"] * 4, pa.binary()), "format 'logfmt' made 4 rows of 3 records"),
    ],
)
def test_rows_that_are_not_those_of_the_records_are_refused(
    given: Any, problem: str, is_named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records would be lost, and the run would say that all went well."""
    monkeypatch.setattr(GivenLines, "given", given)
    batch = RecordBatch(pa.RecordBatch.from_pydict({"n": [1, 2, 3]}))
    sink = FileSink(OperatorContext(outputs=MemoryOutputs()), "out")
    sink.begin_window(1)
    with pytest.raises(ValueError, match=problem):
        if is_named:
            sink.write_named(batch, GivenLines(), "one")
        else:
            sink.write(batch, GivenLines())


@pytest.mark.parametrize("format", ["auto", "csv", "json_lines", "parquet", LOGFMT])
@pytest.mark.parametrize("is_named", [False, True])
def test_two_columns_of_one_name_are_refused(format: str, is_named: bool) -> None:
    """Also by a format that would take the records as mappings, where one column is missing."""
    column = pa.array([1])
    batch = RecordBatch(pa.RecordBatch.from_arrays([column, column], ["a", "a"]))
    sink = FileSink(OperatorContext(outputs=MemoryOutputs()), "out")
    sink.begin_window(1)
    with pytest.raises(ValueError, match=r"^two columns have one name: a, a$"):
        if is_named:
            sink.write_named(batch, SINK_FORMATS.make(format), "one")
        else:
            sink.write(batch, SINK_FORMATS.make(format))


def test_raw_files_refuse_columns_before_their_names() -> None:
    """Else a writer whose columns got names of their own would be refused again."""
    column = pa.array([1])
    batch = RecordBatch(pa.RecordBatch.from_arrays([column, column], ["a", "a"]))
    sink = FileSink(OperatorContext(outputs=MemoryOutputs()), "out")
    sink.begin_window(1)
    with pytest.raises(ValueError, match=r"raw writes raw records, not columns \(a, a\); say format: json_lines"):
        sink.write(batch, SINK_FORMATS.make("raw"))


class HeadedWithText(LogfmtSink):
    """A format that gets it wrong: its heading is text."""

    def heading(self, batch: RecordBatch) -> bytes:
        return "n\n"  # type: ignore[return-value]  # this is what authors do


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_heading_that_is_not_bytes_is_refused(compression: str) -> None:
    """By the name of the method."""
    sink = FileSink(OperatorContext(outputs=MemoryOutputs()), "out")
    sink.begin_window(1)
    with pytest.raises(ValueError, match=r"^HeadedWithText.heading gave str; it must give bytes$"):
        sink.write(RecordBatch(pa.RecordBatch.from_pydict({"n": [1]})), HeadedWithText(compression=compression))


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("cvs", "there is no format 'cvs'; did you mean 'csv'\\? formats: auto, csv, json_lines, parquet, raw"),
        ("json", "there is no format 'json'; did you mean 'json_lines'"),
        ({"type": "parquet", "codec": "zstd"}, "format 'parquet' has no option 'codec'.*it takes: compression"),
        ({"type": "parquet", "compression": "lzo"}, "format 'parquet', option 'compression'"),
        ({"compression": "gzip"}, "a format is a name, or a mapping with 'type' and options"),
        ("os.path.Nothing", "has no 'Nothing'; it is .*path.py"),
        (".LogfmtSink", "format '.LogfmtSink' is not a dotted path: that is a module, a dot, and the name in it"),
        ("./my_formats.py", "format './my_formats.py' is not a dotted path: that is a module, a dot, and the name"),
        ("operators.sink.formats.base.SinkFormat", "does not define extension, start"),
        ("operators.reader.formats.csv.Csv", "is not a subclass of SinkFormat"),
    ],
)
def test_a_mistake_in_a_format_is_named(value: object, problem: str) -> None:
    """With the nearest valid name."""
    with pytest.raises(ValueError, match=problem):
        SINK_FORMATS.make(value)


@pytest.mark.parametrize(
    ("format", "extension"),
    [
        ("raw", ""),
        ({"type": "raw", "compression": "gzip"}, ".gz"),
        ("json_lines", ".jsonl"),
        ({"type": "csv", "compression": "zstd"}, ".csv.zst"),
        ({"type": "parquet", "compression": "gzip"}, ".parquet"),
    ],
)
def test_names_end_as_usual(format: object, extension: str) -> None:
    """Raw records may be anything, and have no extension."""
    assert SINK_FORMATS.make(format).extension == extension


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("class Pairs(\n", r"SyntaxError.*broken_formats\.py, line 1"),
        ("Pairs = nothing\n", "NameError.*name 'nothing' is not defined"),
        ("import sys; sys.exit(3)\n", "SystemExit"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, problem: str
) -> None:
    """A mistake in the Python of a format is one of its property, whatever it raises."""
    (tmp_path / "broken_formats.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=f"'broken_formats.Pairs': cannot import broken_formats: {problem}"):
        SINK_FORMATS.make("broken_formats.Pairs")

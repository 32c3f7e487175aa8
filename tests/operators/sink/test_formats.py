"""How YAML names an output format, and a format that is not built in."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest

from dagflow.api.records import RecordBatch
from dagflow.engine.run import run
from dagflow.plan.load import load_app
from dagflow.runtime.inline import InlineRuntime
from operators.sink.formats import SINK_FORMATS
from operators.sink.formats.json_lines import JsonLinesSink
from tests.operators.sink.formats.sink_records import decompressed
from tests.visitors import test_logfmt_sink

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
    assert path.name == "part-00000001-00001-0000.log.gz"
    assert decompressed(path.read_bytes(), SINK_FORMATS.make({"type": LOGFMT, "compression": "gzip"})) == (
        b'n=1 t="x y"\nn=2 t="z"\n'
    )


class LosesOne(JsonLinesSink):
    """A format that gets it wrong: of each batch the last record is missing."""

    name: ClassVar[str] = "loses_one"

    def encode(self, batch: RecordBatch) -> pa.BinaryArray:
        return super().encode(batch).slice(0, max(0, len(batch) - 1))


class WrongSinkContract(test_logfmt_sink.TestLogfmt):
    __test__ = False
    formats: ClassVar = [f"{LosesOne.__module__}.{LosesOne.__name__}"]


def test_the_suite_finds_an_output_format_that_is_wrong() -> None:
    """The law of records fails for a format that loses one."""
    with pytest.raises(AssertionError):
        WrongSinkContract().test_any_records_are_read_back_from_any_files()


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("cvs", "there is no format 'cvs'; did you mean 'csv'\\? formats: auto, csv, json_lines, parquet, raw"),
        ("json", "there is no format 'json'; did you mean 'json_lines'"),
        ({"type": "parquet", "codec": "zstd"}, "format 'parquet' has no option 'codec'.*it takes: compression"),
        ({"type": "parquet", "compression": "lzo"}, "format 'parquet', option 'compression'"),
        ({"compression": "gzip"}, "a format is a name, or a mapping with 'type' and options"),
        ("os.path.Nothing", "has no 'Nothing'"),
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

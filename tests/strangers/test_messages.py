"""What is said of bad input: what is wrong, where, and what to do."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from dagflow.api.columns.column_values import values_by_column
from dagflow.cli.commands.preview import Column, listed_columns, table
from dagflow.cli.main import command_line
from dagflow.errors import AppError, DagflowError, OperatorError, Problem, StorageError
from dagflow.storage.backends.fsspec.client import FsspecClient
from dagflow.testing.operators import run_operator
from operators.reader.byte_source import BufferSlice
from operators.reader.columns.literals import values_of, why_not
from operators.reader.columns.types import ColumnType
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting
from operators.testing import block_of, read_cut
from operators.transform.parse import Parse
from tests.cli.commands.inspected_app import invoke
from tests.cli.processes import environment
from tests.strangers.test_high_ratios import steps_of


def reasons(format: Any, content: bytes) -> list[str]:
    """Why records of a file are refused."""
    made = RECORD_FORMATS.make(format)
    rejects: list[bytes] = []
    accounting = ByteAccounting("file", Counter(), rejects.append)
    block = block_of(content, 0, len(content))
    for batch in made.read(BufferSlice(memoryview(content), 0, len(content)), block, accounting):
        accounting.parse(made, batch)
    return [json.loads(reject)["reason"] for reject in rejects]


@pytest.mark.parametrize(
    ("text", "type", "why"),
    [
        (
            "2024-01-01T10:00:00.1234567",
            "timestamp[us]",
            "is finer than us, which has 6 digits of a fraction of a second",
        ),
        (
            "2024-01-01T10:00:00.1Z",
            "timestamp[s, UTC]",
            "is finer than s, which has 0 digits of a fraction of a second",
        ),
        ("10:00:00.1234", "time32[ms]", "is finer than ms, which has 3 digits of a fraction of a second"),
        ("2024-02-30T10:00", "timestamp[us]", "is no day of the calendar: 2024-02-30"),
        ("2024-02-29T24:00", "timestamp[us]", "is no time of a clock"),
        ("24:00", "time64[us]", "is no time of a clock"),
        ("2300-01-01", "timestamp[ns]", "is not of the years 1678 to 2261, which nanoseconds have room for"),
    ],
)
def test_a_time_is_refused_for_one_reason(text: str, type: str, why: str) -> None:
    """The reason that it has, and not one of three."""
    kind = ColumnType.of(type)
    assert not values_of(pa.array([text]), kind)[0].is_valid
    assert why_not(text, kind) == why


@pytest.mark.parametrize("columns", [None, {"a": "string"}, "as_found"])
@pytest.mark.parametrize("text", ['{"a":"\\ud83d"}', '{"a":"x\\udc00y"}', '{"\\uD800":1,"a":"b"}'])
def test_half_a_character_is_named(columns: Any, text: str) -> None:
    """An escape that is no character is in the file as it should be, and nothing is cut off."""
    format = {"type": "json_lines"} | ({} if columns is None else {"columns": columns})
    (reason,) = reasons(format, text.encode() + b"\n")
    assert "is half of a character, and the other half is missing" in reason


@pytest.mark.parametrize("separator", ["||", "§", "", "\\u2502"])
@pytest.mark.parametrize("option", ["delimiter", "quote", "escape"])
def test_other_text_between_fields_is_refused_and_read_by_the_advice(option: str, separator: str) -> None:
    """No regular expression is shown to an author, and no length."""
    with pytest.raises(ValueError, match=r"it is one ASCII character, such as ; or .*split the lines with Parse; got"):
        RECORD_FORMATS.make({"type": "csv", option: separator})
    if separator:
        split = Parse(split={"delimiter": separator, "names": ["a", "b"]})
        found = run_operator(split, [f"1{separator}2".encode()])
        assert found["output"] == [{"a": "1", "b": "2"}]


def test_a_killed_preview_leaves_nothing_for_ever(tmp_path: Path) -> None:
    """The next one removes what it has left."""
    (tmp_path / "slow.py").write_text(
        "import signal\nfrom dagflow import InputPort, Operator, OutputPort\n\n\nclass Slow(Operator):\n"
        "    input = InputPort()\n    output = OutputPort()\n\n    @input.batch\n    def take(self, batch):\n"
        "        print('here', flush=True)\n        signal.pause()\n"
    )
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("a\n")
    app = """
name: killed
attributes: {checkpoint: journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: in}}
  reader: {class: BlockReader}
  slow: {class: slow.Slow}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: slow.input}
"""
    (tmp_path / "app.yaml").write_text(app)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    own = environment(TMPDIR=str(temporary))
    command = [sys.executable, "-m", "dagflow", "preview", "-v", "app.yaml"]
    port = ["--at", "slow.output"]
    with subprocess.Popen(command + port, cwd=tmp_path, env=own, stderr=subprocess.PIPE, text=True) as killed:
        assert killed.stderr is not None
        while "here" not in killed.stderr.readline():
            assert killed.poll() is None
        killed.send_signal(signal.SIGKILL)
    assert list(temporary.iterdir())
    subprocess.run([*command, "--at", "reader.messages"], cwd=tmp_path, env=own, check=True, capture_output=True)
    assert list(temporary.iterdir()) == []


LONG = "n" * 70_000


@pytest.mark.parametrize(
    ("format", "content"),
    [
        ({"type": "csv", "columns": {LONG: "int64"}}, f"{LONG}\nx\n"),
        ({"type": "csv"}, f"{LONG},{LONG}\n1,2\n"),
        ({"type": "csv", "columns": {"a": "int64"}}, f"{LONG}\n1\n"),
        ({"type": "json_lines", "columns": {LONG: "int64"}}, f'{{"{LONG}":"x"}}\n'),
        ({"type": "json_lines", "columns": {"a": f"struct<{LONG}: int64>"}}, f'{{"a":{{"{LONG}":"x"}}}}\n'),
        ({"type": "json_lines", "columns": {"a": "int64"}}, f'{{"a":1,"{LONG}":1,"{LONG}":2}}\n'),
        ({"type": "csv", "header": False, "columns": {"a": "int64"}}, f"{LONG}\n"),
    ],
)
def test_a_reason_is_short_whatever_it_quotes(format: Any, content: str) -> None:
    """A name of 70,000 characters is not printed for each record."""
    for reason in reasons(format, content.encode()):
        assert len(reason) < 1100


def test_a_table_and_a_problem_are_short_whatever_they_quote() -> None:
    """Over a column of a preview, and in the mistakes of an app."""
    text, _ = table([Column(LONG, "int64", [1, 2])], None)
    assert len(text) < 2_000
    assert len(listed_columns([Column(LONG, "int64", [])])) < 300
    assert len(str(AppError([Problem("app.yaml", 1, 1, f"there is no column '{LONG}'")]))) < 5_000


@pytest.mark.parametrize(("tag", "is_said"), [("Item", False), ("item", True)])
def test_a_tag_that_never_occurs_is_said(tag: str, is_said: bool, caplog: pytest.LogCaptureFixture) -> None:
    """With the names that the file has; also where it is read in several blocks, once."""
    content = b"<r><Item>1</Item>" + b" " * 100 + b"<Item/></r>"
    made = RECORD_FORMATS.make({"type": "xml", "tag": tag})
    for chunk_bytes, block_size in ((1, 1000), (1 << 20, 1000), (1 << 20, 20), (16, 20)):
        caplog.clear()
        made.chunk_bytes = chunk_bytes
        read_cut(made, content, block_size)
        said = [record.getMessage() for record in caplog.records]
        # The first bytes that are held show the names.
        names = "'r', 'Item'" if chunk_bytes > 1 else "'r'"
        assert said == ([f"no element {tag}, only {names} url=memory.bin"] if is_said else [])


def test_an_operator_has_the_name_that_its_author_gave(tmp_path: Path) -> None:
    """A query is several operators, and its author knows one."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("k,v\na,1\nb,2\n")
    (tmp_path / "app.yaml").write_text("""
name: query
attributes: {checkpoint: journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: in}}
  reader: {class: BlockReader, properties: {format: {type: csv, columns: {v: int64}}}}
  q: {class: Sql, properties: {query: "select k, sum(v) as s from input group by k order by s limit 1"}}
  writer: {class: RecordWriter, properties: {path: out}}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  rows: {from: reader.messages, to: q.input}
  sums: {from: q.output, to: writer.input}
""")
    for arguments, shown in (
        (["preview"], r"\n    q +1 of 2\n?$"),
        (["run", "--local", "--workers", "1"], "q.output 1\n"),
    ):
        with contextlib.chdir(tmp_path):
            code, out, err = invoke(*arguments, "app.yaml")
        said = out + err
        assert code == 0 and "q#" not in said and "q/" not in said
        assert re.search(shown, said), said
    error = OperatorError("process() raised", operator="q#top", window_id=1, partition=0)
    assert str(error) == "window 1, operator 'q' partition 0: process() raised"


def test_a_preview_says_what_it_finds_in_the_content(tmp_path: Path) -> None:
    """A tag that never occurs, as a run does; what is left out of the input is part of its result, and is said once."""
    (tmp_path / "a.xml").write_text("<r><Item>1</Item></r>")
    (tmp_path / "app.yaml").write_text(f"""
name: tags
steps:
- files: {tmp_path}/*.xml
- read: {{type: xml, tag: item}}
- write: {tmp_path}/out
""")
    done = CliRunner().invoke(command_line, ["preview", f"{tmp_path}/app.yaml"])
    assert "no element item, only 'r', 'Item'" in done.stderr


@pytest.mark.parametrize(("name", "content"), [("a.snappy", b"\x05\x10plain"), ("a.lz4", b"\x02\x21\x4c\x18\1\0\0\0a")])
def test_the_form_of_a_compression_that_is_read_is_named(name: str, content: bytes, tmp_path: Path) -> None:
    """A single block of Snappy, or LZ4's old form, is no other compression."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DagflowError, match=r"but its content is not (snappy in its framing|lz4 in its frame) format"):
        steps_of(tmp_path / name, "lines")


@pytest.mark.parametrize("scheme", ["zip", "tar"])
def test_a_cut_archive_is_called_damaged_and_no_lost_connection(tmp_path: Path, scheme: str) -> None:
    """With what to do; an archive that is not there, and a server that does not answer, are called so."""
    whole = shutil.make_archive(str(tmp_path / "whole"), scheme, __file__.rpartition("/")[0], "fuzzing.py")
    path = tmp_path / "cut"
    path.write_bytes(Path(whole).read_bytes()[:300])
    client = FsspecClient(scheme, {})
    for archive, message in [
        (str(path), r"cannot open the archive: .* header|not a zip file[\s\S]*put the whole archive in its place"),
        (f"{path}-gone", "cannot open the archive: .*No such file"),
        ("http://127.0.0.1:1/a", "cannot connect to the server: .*127.0.0.1"),
    ]:
        with pytest.raises(StorageError, match=message):
            client.locate(f"{scheme}://x::{archive}")


def test_options_that_a_store_lacks_are_no_lost_connection() -> None:
    """They are named, with the place where they are given."""
    with pytest.raises(StorageError, match=r"(?s)cannot use reference://: .*'fo'.*as storage: \{reference:"):
        FsspecClient("reference", {}).locate("reference://x")


@pytest.mark.parametrize("command", [["run", "--local", "--workers", "1"], ["preview"]])
def test_the_failure_of_an_operator_names_its_line_of_the_app(command: list[str], tmp_path: Path) -> None:
    """Such as of one that needs a column which one of several files lacks: nothing before the run knows it."""
    for name, header in {"a": "id,city", "b": "id,town"}.items():
        (tmp_path / f"{name}.csv").write_text(f"{header}\n1,Ulm\n")
    (tmp_path / "app.yaml").write_text(
        "name: t\nattributes: {checkpoint: journal}\nsteps:\n- files: '*.csv'\n- read: csv\n"
        "- select: {place: city || id}\n- write: out\n"
    )
    with contextlib.chdir(tmp_path):
        done = CliRunner().invoke(command_line, [command[0], "app.yaml", *command[1:]])
    assert "operator 'select'" in done.stderr and "there is no column 'city'; there are id, town" in done.stderr
    assert "\n    the operator is at app.yaml:6:3\n" in done.stderr


def test_times_that_python_lacks_are_of_the_type_that_an_app_gives() -> None:
    """Not of the one that Arrow names differently."""
    moments = pa.array([1], pa.timestamp("ns", "UTC"))
    with pytest.raises(ValueError, match=r"column 't' is timestamp\[ns, UTC\], and has nanoseconds"):
        values_by_column(pa.record_batch({"t": moments}))

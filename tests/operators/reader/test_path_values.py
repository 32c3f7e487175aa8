"""Columns in the paths of files, in whole apps."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import AppError, RecordError
from dagflow.plan.load import load_app
from dagflow.report.open_rejects import RejectChoice
from dagflow.report.reading import status
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from operators.reader.path_values import inferred_types

APP = """\
name: paths
attributes: {checkpoint: journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: [in], block_size: 16, batch_bytes: BATCH}}
  reader: {class: BlockReader, properties: {format: FORMAT, partition_values: VALUES, MORE}}
  writer: {class: RecordWriter, properties: {path: out, format: json_lines}, partition: parallel}
STREAMS
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: writer.input}
"""
PLAIN = "streams:"
REFUSED = """\
  refused: {class: RecordWriter, properties: {path: refused}, partition: parallel}
streams:
  bad: {from: reader.errors, to: refused.input}"""
CSV = "{type: csv, columns: {n: int64}}"
ROWS = b"n,s\n1,a\n2,b\n3,c\n4,d\n5,e\n"


def write_app(
    values: str = "hive", *, format: str = CSV, batch: int = 0, streams: str = REFUSED, more: str = "on_error: fail"
) -> None:
    """Write the app."""
    text = APP.replace("FORMAT", format).replace("VALUES", values).replace("BATCH", str(batch))
    Path("app.yaml").write_text(text.replace("STREAMS", streams).replace("MORE", more))


def put(path: str, content: bytes = ROWS) -> None:
    """Write an input file."""
    Path("in", path).parent.mkdir(parents=True, exist_ok=True)
    Path("in", path).write_bytes(content)


def read(options: RunOptions | None = None) -> list[dict[str, Any]]:
    """Run the app; return all that it has published."""
    run(load_app("app.yaml"), options or RunOptions(), runtime=InlineRuntime)
    files = sorted(Path("out").glob("[!.]*")) if Path("out").exists() else ()
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    """The working directory."""
    with contextlib.chdir(tmp_path):
        yield tmp_path


@pytest.mark.parametrize(
    ("format", "content"),
    [(CSV, ROWS), ("{type: json_lines, columns: {n: int64}}", b"".join(b'{"n": %d}\n' % n for n in range(1, 6)))],
    ids=["csv", "json_lines"],
)
@pytest.mark.parametrize("batch", [0, 4096], ids=["blocks", "small files"])
def test_directories_become_typed_columns(format: str, content: bytes, batch: int) -> None:
    """In files of many blocks and in small ones; each record has the values of its own file."""
    write_app(format=format, batch=batch)
    put("dt=2026-01-01/country=D%20E/hour=7/a", content)
    put("dt=2026-01-02/country=__HIVE_DEFAULT_PARTITION__/hour=12/b", content)
    found = sorted(read(), key=lambda row: (row["dt"], row["n"]))
    assert [row["n"] for row in found] == [1, 2, 3, 4, 5] * 2
    assert {(row["dt"], row["country"], row["hour"]) for row in found} == {
        ("2026-01-01", "D E", 7),
        ("2026-01-02", None, 12),
    }
    assert list(found[0])[-3:] == ["dt", "country", "hour"]


def test_types_stay_what_the_first_files_decided() -> None:
    """A later run has the same columns, and refuses what does not fit them."""
    write_app()
    put("k=1/a")
    assert len(read()) == 5
    for path in ("k=2/b", "k=x/c", "d", "k=3/l=4/e", "k=1/k=2/f"):
        put(path)
    assert sorted({row["k"] for row in read()}) == [1, 2]
    lines = [line for path in Path("refused").glob("[!.]*") for line in path.read_text().splitlines()]
    reasons = {Path(each["url"]).name: (each["reason"], each["length"]) for each in map(json.loads, lines)}
    assert reasons == {
        "c": ("column 'k' (int64): 'x' is no whole number, in its path", len(ROWS)),
        "d": ("no directory in its path gives a value to column 'k', as k=…", len(ROWS)),
        "e": ("a directory in its path names column 'l', which the first files lacked", len(ROWS)),
        "f": ("a directory in its path gives a value to a name that has one already", len(ROWS)),
    }
    assert status("journal", StorageContext.default()).rejected == 4


def test_a_refused_file_comes_back_when_its_column_has_another_type() -> None:
    """All blocks of the file are read again."""
    write_app("{k: int64}")
    put("k=1/a")
    put("k=x/b")
    assert len(read()) == 5
    write_app("{k: string}")
    assert len(read(RunOptions(rejects=RejectChoice()))) == 10


def test_declared_columns_are_taken_and_no_others() -> None:
    """With their types, patterns too."""
    write_app('{d: {type: date32, format: "%Y%m%d"}}')
    put("d=20260131/other=1/a")
    assert {tuple(row) for row in read()} == {("n", "s", "d")}


def test_a_path_that_does_not_fit_ends_the_run_or_is_left_out() -> None:
    """Where rejects are not taken in, as for a bad header."""
    put("k=x/a")
    write_app("{k: int64}", streams=PLAIN)
    with pytest.raises(RecordError, match=r"column 'k' \(int64\): 'x' is no whole number, in its path"):
        read()
    write_app("{k: int64}", streams=PLAIN, more="on_error: skip")
    assert read() == []
    assert status("journal", StorageContext.default()).left_out.ranges > 0


def test_a_column_that_the_records_have_too_ends_the_run() -> None:
    """It is not known which of the two is meant; where the others are named, the records keep theirs."""
    put("n=7/k=1/a")
    write_app()
    with pytest.raises(RecordError, match="column 'n' is in the records, and in the path of their file"):
        read()
    write_app("{k: int64}")
    assert [(row["n"], row["k"]) for row in read()] == [(number, 1) for number in range(1, 6)]


def test_formats_without_columns_are_refused() -> None:
    """Before anything runs."""
    write_app(format="lines")
    with pytest.raises(AppError, match="records of the format lines are bytes"):
        load_app("app.yaml")


@given(st.lists(st.one_of(st.dates().map(str), st.integers().map(str), st.text("0159x", min_size=1)), min_size=1))
def test_an_inferred_type_loses_nothing(texts: list[str]) -> None:
    """A value that is read by its type and written again is the same text."""
    kind = (inferred_types(f"/a/k={text}/f" for text in texts) or {})["k"]
    for text in texts:
        assert (
            str(int(text)) if kind == "int64" else str(date.fromisoformat(text)) if kind == "date32" else text
        ) == text

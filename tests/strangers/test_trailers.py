"""CSV files whose last rows say how many rows they have."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError

from dagflow.errors import DagflowError
from dagflow.testing.apps import AppOutputs, run_app
from operators.reader.block_reader import BlockReader
from operators.reader.formats.base import RecordFormat
from operators.testing import FormatContract, Records, Rejects
from tests.nightly import IS_NIGHTLY
from tests.reference.csv import csv_records, csv_rows


class TestTrailers(FormatContract):
    """Rows that look like trailers in the middle, counts that are wrong, and quotes that are never closed."""

    formats: ClassVar = [{"type": "csv", "header": False, "columns": ["a"], "trailer": {"rows": r"T(?P<count>\d+)"}}]
    pieces: ClassVar = [b"T1\n", b"T0", b"\n", b'"a']
    longest = 4 if IS_NIGHTLY else 3

    def reference(self, content: bytes, format: RecordFormat) -> tuple[Records, Rejects]:
        """The rows before the longest run of trailers at the end, if each of these counts them right."""
        rows = [row for row in csv_rows(content, b",", b'"', None) if row.raw.strip(b"\r\n")]
        counts: list[int] = []
        while rows and (match := re.fullmatch(rb"T(\d+)[\r\n]*", rows[-1].raw)):
            counts.append(int(match[1]))
            rows.pop()
        if not counts or set(counts) != {len(rows)}:
            return [], [(0, len(content))] if content else []
        return csv_records(rows, 1)


APP = """
name: counted
steps:
  - files: inbox
    block_size: 64
    batch_bytes: 0
    blocks_threshold: 2
  - read: {type: csv, encoding: %s, trailer: {rows: 'T;(?P<count>\\d+)'}}%s
  - write: out
    format: csv
"""


def content(rows: int, count: int | None, encoding: str = "utf-8") -> bytes:
    """A file of many blocks with a trailer."""
    trailer = "" if count is None else f"T;{count}\r\n"
    return ("id,note\r\n" + "".join(f'{row},"a\r\nb"\r\n' for row in range(rows)) + trailer).encode(encoding)


def run(tmp_path: Path, files: dict[str, bytes], reader: str = "", encoding: str = "utf-8") -> AppOutputs:
    """Run the app, many windows a file, over some files."""
    path = tmp_path / "app.yaml"
    path.write_text(APP % (encoding, reader))
    return run_app(path, {f"inbox/{name}": data for name, data in files.items()})


@pytest.mark.parametrize("count", [None, 39, 41])
def test_a_file_with_a_wrong_trailer_publishes_nothing(count: int | None, tmp_path: Path) -> None:
    """None of its blocks, whichever window has them; the other files are read if the app leaves such files out."""
    files = {"a.csv": content(40, count), "b.csv": content(30, 30)}
    what = "its trailer is missing" if count is None else f"its trailer says that it has {count} rows, and it has 40"
    with pytest.raises(DagflowError, match=f"a.csv offset 0: {what}(.|\n)*on_error: skip"):
        run(tmp_path, files)
    outputs = run(tmp_path, files, "\n    on_error: skip")
    assert outputs.snapshot.windows > 5
    assert outputs.text("out").count('"a') == 30


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_trailers_are_no_records(encoding: str, tmp_path: Path) -> None:
    """In compressed files and in those of wide units, too."""
    data = content(40, 40, encoding)
    outputs = run(tmp_path, {"a.csv": data, "b.csv.gz": gzip.compress(data)}, encoding=encoding)
    assert outputs.records["read.messages"] == 80
    assert "T;" not in outputs.text("out")


@pytest.mark.parametrize(
    ("trailer", "match"),
    [({"rows": r"T,(?P<sum>\d+)"}, "named count, got 'sum'"), ({"rows": "("}, "RE2"), ({"row": "T"}, "row")],
)
def test_a_trailer_that_cannot_be_checked_is_refused(trailer: dict[str, Any], match: str) -> None:
    """A total of another name is not passed over."""
    with pytest.raises((ValidationError, ValueError), match=match):
        BlockReader(format={"type": "csv", "trailer": trailer})

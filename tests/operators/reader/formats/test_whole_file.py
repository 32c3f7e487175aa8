"""Files that are one record each."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import ClassVar

import pytest

from dagflow.errors import RecordError
from operators.files.metadata import BlockMetadata, FileVersion
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting, RecordFormat
from operators.reader.formats.whole_file import WholeFile
from operators.testing import URL, FormatContract, MemorySource, Records, Rejects, block_of, read_range


class TestWholeFile(FormatContract):
    """The first block has the file, the others nothing."""

    formats: ClassVar = [
        "whole_file",
        {"type": "whole_file", "columns": True},
        {"type": "whole_file", "max_record": 2, "on_long": "reject"},
        {"type": "whole_file", "max_record": 2, "on_long": "skip"},
    ]
    pieces: ClassVar = [b"a", b"\n"]
    longest = 4

    def reference(self, content: bytes, format: RecordFormat) -> tuple[Records, Rejects]:
        assert isinstance(format, WholeFile)
        if len(content) > format.max_record:
            return [], [(0, len(content))] if format.on_long == "reject" else []
        return ([(0, content)] if content else []), []


def test_an_empty_file_is_a_record() -> None:
    """Where a block says that the file is there."""
    made = RECORD_FORMATS.make("whole_file")
    block = BlockMetadata(0, URL, FileVersion(0), 0, 0, True)
    [batch] = made.read(MemorySource(b""), block, ByteAccounting(URL, Counter(), None))
    assert batch.to_pylist() == [b""]


def test_columns_name_the_file() -> None:
    """Path and content, one row a file."""
    made = RECORD_FORMATS.make({"type": "whole_file", "columns": True})
    accounting = ByteAccounting(URL, Counter(), None)
    [batch] = made.read(MemorySource(b"a\nb"), block_of(b"a\nb", 0, 3), accounting)
    assert made.parse(batch, accounting).batch.to_arrow().to_pylist() == [{"path": URL, "content": b"a\nb"}]


def test_the_columns_are_known_before_a_run() -> None:
    """So that others can be added to them, as from directories of a path."""
    traits = RECORD_FORMATS.make({"type": "whole_file", "columns": True}).traits
    assert traits.has_columns and traits.columns is not None and traits.columns.schema.names == ["path", "content"]


def test_a_path_that_is_no_text_is_escaped() -> None:
    """A column of text cannot hold its bytes, and the record has to have a path."""
    made = RECORD_FORMATS.make({"type": "whole_file", "columns": True})
    accounting = ByteAccounting(URL, Counter(), None)
    block = replace(block_of(b"a", 0, 1), url=os.fsdecode(b"/in/\xc3\xbc-\xff"))
    [batch] = made.read(MemorySource(b"a"), block, accounting)
    assert made.parse(batch, accounting).batch.to_arrow().to_pylist() == [{"path": "/in/ü-\\xff", "content": b"a"}]


def test_a_file_that_is_too_long_fails_with_a_way_out() -> None:
    """on_long: fail is the default."""
    with pytest.raises(RecordError, match=r"longer than max_record, 2 bytes\n.*on_long"):
        read_range(RECORD_FORMATS.make({"type": "whole_file", "max_record": 2}), b"abc", 0, 3)

"""Blocks without an app."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.errors import MissingError, RecordError
from operators import read_block
from tests.reference.lines import newline_records


@given(st.lists(st.sampled_from([b"\r", b"\n", b"a", b"\xff"]), max_size=30).map(b"".join), st.integers(1, 12))
def test_the_blocks_of_a_real_file_give_its_lines(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, block_size: int
) -> None:
    """Offsets and records of all blocks are those of the file, also through the storage layer."""
    path = tmp_path_factory.getbasetemp() / "lines.bin"
    path.write_bytes(content)
    starts = range(0, len(content), block_size)
    found = [record for start in starts for record in read_block(str(path), start, start + block_size)]
    assert found == newline_records(content)


def test_the_format_is_what_yaml_takes(tmp_path: Path) -> None:
    """A name, or a mapping with options."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"a||b||")
    assert list(read_block(str(path), 0, 6, {"type": "lines", "delimiter": "||"})) == [(0, b"a"), (3, b"b")]
    assert list(read_block(f"file://{path}", 0, 6, {"type": "fixed", "length": 4, "tail": "keep"})) == [
        (0, b"a||b"),
        (4, b"||"),
    ]


def test_mistakes_are_reported_before_anything_is_read(tmp_path: Path) -> None:
    """Format and range are checked by the call, the file when records are asked for."""
    with pytest.raises(ValueError, match="did you mean 'lines'"):
        read_block("x", 0, 1, "line")
    with pytest.raises(ValueError, match=r"got \[3, 2\)"):
        read_block("x", 3, 2)
    with pytest.raises(MissingError, match=r"none\.txt"):
        next(read_block(str(tmp_path / "none.txt"), 0, 1))


def test_a_bad_record_is_an_error(tmp_path: Path) -> None:
    """A function has no port for rejects."""
    path = tmp_path / "a.bin"
    path.write_bytes(b"abcde")
    with pytest.raises(RecordError, match="2 of the 3 bytes"):
        list(read_block(str(path), 0, 5, {"type": "fixed", "length": 3}))

"""Records that are framed one at a time."""

from __future__ import annotations

from operators.files.metadata import BlockMetadata, FileVersion
from operators.reader.scanning.framing import frame_one, one_unended

BLOCK = BlockMetadata(1, "x", FileVersion(10), 0, 10, True)


def test_only_delimiters_that_were_read_are_counted_as_read() -> None:
    """The last record of a file may lack one; a writer puts one behind it all the same."""
    assert frame_one(b"abc", b"\n", BLOCK, 3).content_bytes() == (3, 1)
    last = one_unended(b"abc", b"\n", BLOCK, 7)
    assert last.content_bytes() == (3, 0)
    assert (last.to_pylist(), last.framed().to_pylist(), last.offsets().tolist()) == ([b"abc"], [b"abc\n"], [7])

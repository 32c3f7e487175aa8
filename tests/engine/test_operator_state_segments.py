"""Segments are read as they were written, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.engine.operator_state import INLINE_BYTES, SEGMENTS, SegmentStore
from dagflow.errors import JournalError
from dagflow.storage.context import StorageContext

DATA = bytes(range(256)) * 16


@pytest.fixture
def segments(tmp_path: Path) -> SegmentStore:
    """The segments of a checkpoint."""
    return SegmentStore(StorageContext.default().objects(str(tmp_path)), 1)


def test_a_small_state_makes_no_object(segments: SegmentStore) -> None:
    """A small state is stored in the intent."""
    assert segments.create(1, "keep", 0, bytes(INLINE_BYTES)) == ""


@pytest.mark.parametrize(
    "damaged",
    [b"", DATA[:-1], DATA + b"\0", DATA[:2000] + b"\x01" + DATA[2001:], bytes(len(DATA))],
    ids=["empty", "cut off", "longer", "a byte", "zeros"],
)
def test_a_segment_that_was_damaged_is_refused(segments: SegmentStore, tmp_path: Path, damaged: bytes) -> None:
    """Its keys and values may still be read, and would be others."""
    name = segments.create(1, "keep", 0, DATA)
    assert segments.read(name) == DATA
    (tmp_path / SEGMENTS / name).write_bytes(damaged)
    with pytest.raises(JournalError, match=f"was damaged after it was written: segments/{name}"):
        segments.read(name)


def test_a_segment_in_the_place_of_another_is_refused(segments: SegmentStore, tmp_path: Path) -> None:
    """As where files of a copy are renamed."""
    name, other = (segments.create(1, "keep", partition, bytes([partition]) * 5000) for partition in (0, 1))
    (tmp_path / SEGMENTS / other).replace(tmp_path / SEGMENTS / name)
    with pytest.raises(JournalError, match="was damaged"):
        segments.read(name)
    with pytest.raises(JournalError, match="is gone"):
        segments.read(other)

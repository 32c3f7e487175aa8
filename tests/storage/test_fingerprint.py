"""Fingerprints of a file's ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.storage.fingerprint import (
    PROBED_BYTES,
    UNKNOWN,
    file_id_of,
    fingerprint,
    fingerprints_of,
)

CONTENT = bytes(range(256)) * 12


@pytest.mark.parametrize("size", [0, 1, PROBED_BYTES, PROBED_BYTES + 1, 2 * PROBED_BYTES, len(CONTENT)])
def test_an_append_does_not_change_the_fingerprint_of_what_was_there(tmp_path: Path, size: int) -> None:
    """Only the bytes that were asked for count, and their number does not stand in the way."""
    path = tmp_path / "a"
    path.write_bytes(CONTENT[:size])
    before = fingerprint(os.fsencode(path), size)
    path.write_bytes(CONTENT[:size] + b"more")
    assert fingerprint(os.fsencode(path), size) == before != UNKNOWN


@pytest.mark.parametrize("place", [0, PROBED_BYTES - 1, len(CONTENT) - PROBED_BYTES, len(CONTENT) - 1])
def test_a_change_at_either_end_is_seen(tmp_path: Path, place: int) -> None:
    """One byte is enough."""
    path = tmp_path / "a"
    path.write_bytes(CONTENT)
    before = fingerprint(os.fsencode(path), len(CONTENT))
    path.write_bytes(CONTENT[:place] + b"\xff\xfe"[CONTENT[place] == 255 :][:1] + CONTENT[place + 1 :])
    assert fingerprint(os.fsencode(path), len(CONTENT)) not in (before, UNKNOWN)


def test_what_is_not_there_has_no_fingerprint(tmp_path: Path) -> None:
    """Neither a missing file nor one that is shorter by now is compared with anything."""
    path = tmp_path / "a"
    assert fingerprint(os.fsencode(path), 4) == UNKNOWN
    path.write_bytes(b"abc")
    assert fingerprint(os.fsencode(path), 4) == UNKNOWN


def test_files_in_a_buffer_have_the_fingerprints_of_those_on_disk(tmp_path: Path) -> None:
    """Wherever they lie in it, and whatever lies between them."""
    path, gap = tmp_path / "a", b"between"
    sizes = [0, 1, PROBED_BYTES - 1, PROBED_BYTES, PROBED_BYTES + 1, 2 * PROBED_BYTES - 1, 2 * PROBED_BYTES + 1, 3000]
    found, data, starts = [], b"", []
    for size in sizes:
        path.write_bytes(content := os.urandom(size))
        found.append(fingerprint(os.fsencode(path), size))
        data += gap
        starts.append(len(data))
        data += content
    assert fingerprints_of(memoryview(data), starts, sizes) == found
    assert len({*found}) == len(sizes), "all differ"


@given(st.integers(0, (1 << 64) - 1))
def test_an_inode_number_of_any_size_is_kept_in_64_signed_bits(inode: int) -> None:
    """Different numbers stay different, those of usual mounts stay as they are, and only 0 stands for none."""
    file_id = file_id_of(inode)
    assert file_id % (1 << 64) == inode
    assert -(1 << 63) <= file_id < 1 << 63
    assert file_id == inode or inode >= 1 << 63

"""Source files that are archived."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from dagflow.errors import StorageError
from tests.storage.shared import STORAGE

SOURCES = STORAGE.backend("/").sources


def test_a_move_that_was_cut_off_is_finished(tmp_path: Path) -> None:
    """The file has its new name, and still its old one: it is no stranger that is in the way."""
    source, target = tmp_path / "source", tmp_path / "archive" / "source"
    source.write_bytes(b"x")
    target.parent.mkdir()
    expected = STORAGE.stat(str(source))
    os.link(source, target)
    assert SOURCES.archive_version(expected, str(target)) == ""
    assert (source.exists(), target.read_bytes()) == (False, b"x")


def test_a_move_of_a_link_that_was_cut_off_is_finished(tmp_path: Path) -> None:
    """Of a link that means the link, wherever it leads."""
    source, target = tmp_path / "source", tmp_path / "archive" / "source"
    (tmp_path / "file").write_bytes(b"x")
    source.symlink_to("file")
    target.parent.mkdir()
    expected = STORAGE.stat(str(source))
    target.symlink_to(tmp_path / "file")
    assert SOURCES.archive_version(expected, str(target)) == ""
    assert (os.path.lexists(source), target.read_bytes()) == (False, b"x")


def test_a_stranger_in_the_archive_stays_and_so_does_the_source_file(tmp_path: Path) -> None:
    """However alike they are."""
    source, target = tmp_path / "source", tmp_path / "target"
    for path in (source, target):
        path.write_bytes(b"x")
    assert SOURCES.archive_version(STORAGE.stat(str(source)), str(target)) == f"{target} exists"
    assert source.exists()


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs another file system")
def test_an_archive_on_another_file_system_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """A file cannot be moved there at once; the system's words for that are a riddle."""
    source = tmp_path / "source"
    source.write_bytes(b"x")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        if os.stat(elsewhere).st_dev == os.stat(tmp_path).st_dev:
            pytest.skip("needs another file system")
        with pytest.raises(StorageError, match=r"another file system\n.*put the archive on the file system"):
            SOURCES.archive_version(STORAGE.stat(str(source)), f"{elsewhere}/source")
    assert source.exists()

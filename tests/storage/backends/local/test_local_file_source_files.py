"""Source files that are removed or archived."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from pathlib import Path

import pytest

from dagflow.errors import MissingError, SourceChangedError, StorageError
from dagflow.storage.backends.local.local_file import hidden_name
from dagflow.storage.files import FileStat
from dagflow.testing.faults import InjectedCrash, crashing_disk, watched_disk
from tests.faulty import InjectedPause
from tests.storage.shared import STORAGE

SOURCES = STORAGE.backend("/").sources


def test_a_move_that_was_cut_off_is_finished(tmp_path: Path) -> None:
    """The file has its new name, and still a hidden one: it is no stranger that is in the way."""
    source, target = tmp_path / "source", tmp_path / "archive" / "source"
    source.write_bytes(b"x")
    target.parent.mkdir()
    expected = STORAGE.stat(str(source))
    source.rename(hidden_name(expected))
    os.link(hidden_name(expected), target)
    assert SOURCES.archive_version(expected, str(target)) == ""
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]
    assert target.read_bytes() == b"x"


def test_a_move_of_a_link_that_was_cut_off_is_finished(tmp_path: Path) -> None:
    """A move of a link moves the link itself, wherever it leads."""
    source, target = tmp_path / "source", tmp_path / "archive" / "source"
    (tmp_path / "file").write_bytes(b"x")
    source.symlink_to("file")
    target.parent.mkdir()
    expected = STORAGE.stat(str(source))
    source.rename(hidden_name(expected))
    target.symlink_to(tmp_path / "file")
    assert SOURCES.archive_version(expected, str(target)) == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "file"]
    assert target.read_bytes() == b"x"


def put_away(expected: FileStat, action: str, root: Path) -> str:
    """Remove or archive a version; what became of it, in a word."""
    try:
        if action == "remove":
            return SOURCES.remove_version(expected)
        return SOURCES.archive_version(expected, str(root / "archive" / "f"))
    except MissingError:
        return "gone"
    except SourceChangedError:
        return "changed"


def move(source: Path, target: Path) -> None:
    """Put a file in the place of another."""
    source.rename(target)


def contents_of(directory: Path) -> dict[str, str]:
    """The contents of the files in a directory."""
    return {path.name: path.read_text() for path in directory.iterdir()}


@pytest.mark.parametrize("action", ["remove", "archive"])
def test_a_version_that_comes_meanwhile_is_never_put_away(tmp_path: Path, action: str) -> None:
    """Wherever it comes, and wherever the process dies then; after a repetition it has its name."""
    crashes = 0
    for comes_at in itertools.count(1):
        for dies_at in itertools.count(1):
            root = tmp_path / f"{comes_at}-{dies_at}"
            (root / "in").mkdir(parents=True)
            (root / "in" / "f").write_text("first")
            (root / "second").write_text("second version")
            expected = STORAGE.stat(str(root / "in" / "f"))
            come = InjectedPause(comes_at, functools.partial(move, root / "second", root / "in" / "f"))
            with (
                crashing_disk(str(root / "in"), dies_at) as death,
                contextlib.suppress(InjectedCrash),
                watched_disk(str(root / "in"), come),
            ):
                put_away(expected, action, root)
            put_away(expected, action, root)
            if come.has_struck and not (root / "second").exists():
                assert contents_of(root / "in") == {"f": "second version"}
            if action == "archive" and (root / "archive").exists():
                assert set(contents_of(root / "archive").values()) <= {"first"}
            crashes += death.has_struck
            if not death.has_struck:
                break
        if not come.has_struck:
            break
    assert crashes > 5


@pytest.mark.parametrize("action", ["remove", "archive"])
def test_of_two_versions_that_come_meanwhile_both_are_kept(tmp_path: Path, action: str) -> None:
    """The one that has no name left has a hidden one, which the reason names; with a name again it goes on."""
    source = tmp_path / "in" / "f"
    source.parent.mkdir()
    source.write_text("first")
    expected = STORAGE.stat(str(source))

    for name in ("second", "third"):
        (tmp_path / name).write_text(f"the {name} version")
    with (
        # Before the file gets its hidden name; and before what is caught in its place gets it back.
        watched_disk(str(tmp_path / "in"), InjectedPause(1, lambda: move(tmp_path / "second", source))),
        watched_disk(str(tmp_path / "in"), InjectedPause(3, lambda: move(tmp_path / "third", source))),
    ):
        reason = put_away(expected, action, tmp_path)
    hidden = Path(hidden_name(expected))
    assert str(hidden) in reason
    assert contents_of(source.parent) == {"f": "the third version", hidden.name: "the second version"}
    assert put_away(expected, action, tmp_path) == reason
    source.unlink()
    assert put_away(expected, action, tmp_path) == "changed"
    assert contents_of(source.parent) == {"f": "the second version"}


@pytest.mark.parametrize("kind", ["directory", "pipe", "link"])
def test_what_comes_in_place_of_a_file_is_put_back(tmp_path: Path, kind: str) -> None:
    """Also where it is no file."""
    source, other = tmp_path / "in" / "f", tmp_path / "other"
    source.parent.mkdir()
    source.write_text("first")
    expected = STORAGE.stat(str(source))
    if kind == "directory":
        other.mkdir()
    elif kind == "pipe":
        os.mkfifo(other)
    else:
        other.symlink_to("nowhere")

    def replace_it() -> None:
        source.unlink()
        other.rename(source)

    with watched_disk(str(source.parent), InjectedPause(1, replace_it)):
        assert put_away(expected, "remove", tmp_path) == "changed"
    assert [path.name for path in source.parent.iterdir()] == ["f"]
    assert {"directory": source.is_dir(), "pipe": source.is_fifo(), "link": source.is_symlink()}[kind]


def test_a_stranger_in_the_archive_stays_and_so_does_the_source_file(tmp_path: Path) -> None:
    """However alike they are."""
    source, target = tmp_path / "source", tmp_path / "target"
    for path in (source, target):
        path.write_bytes(b"x")
    assert SOURCES.archive_version(STORAGE.stat(str(source)), str(target)) == f"{target} exists"
    assert contents_of(tmp_path) == {"source": "x", "target": "x"}


def test_an_archive_on_another_file_system_is_refused_with_what_to_do(tmp_path: Path, elsewhere: Path) -> None:
    """A file cannot be moved there at once; the system's words for that are a riddle."""
    source = tmp_path / "source"
    source.write_bytes(b"x")
    with pytest.raises(StorageError, match=r"another file system\n.*put the archive on the file system"):
        SOURCES.archive_version(STORAGE.stat(str(source)), f"{elsewhere}/source")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]

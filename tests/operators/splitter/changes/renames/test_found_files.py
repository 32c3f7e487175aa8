"""Which versions of an inode may be what a file was before: on real files, beside a plain look at each of them."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from dagflow.storage.fingerprint import file_id_of
from operators.files.metadata import FileVersion
from operators.splitter.changes.renames import found_files
from operators.splitter.changes.renames.found_files import (
    FoundFile,
    TakenVersion,
    VersionsOfInode,
    stat_behind_links,
)
from operators.splitter.index.entries import SLOTS, IndexEntry
from operators.splitter.scan.listed_files import ListedFiles
from operators.splitter.scan.local_listing import LocalLister
from operators.splitter.scan.scan_roots import Root


def suspect_of(root: Path, path: bytes) -> FoundFile:
    """A file as a scan of a directory lists it."""
    now = os.stat(path)
    stat = FileVersion(now.st_size, now.st_mtime_ns, "", file_id_of(now.st_ino))
    found = Root(str(root), "directory", os.fsencode(root), LocalLister())
    return FoundFile(ListedFiles.single(found, path, stat), None)


def left_one_by_one(sources: list[TakenVersion], suspect: FoundFile) -> list[TakenVersion]:
    """The same, with a look at each version for each file."""
    stat, left = suspect.stat, []
    for source in sources:
        entry = source.entry
        is_same = (entry.size_bytes, entry.mtime_ns) == (stat.size_bytes, stat.mtime_ns)
        has_grown = entry.size_bytes < stat.size_bytes and entry.mtime_ns <= stat.mtime_ns
        if not entry.size_bytes or not (is_same or has_grown):
            continue
        if source.path == suspect.path:
            is_back = suspect.name not in {each.name for each in sources}
            has_left = is_back and source.taken_name != suspect.name
        else:
            now = stat_behind_links(source.path)
            has_left = now is None or file_id_of(now.st_ino) != stat.file_id or suspect.is_behind(source.path)
        if has_left:
            left.append(source)
    return left


@pytest.mark.parametrize("seed", range(40))
def test_versions_are_those_of_a_look_at_each(tmp_path: Path, seed: int) -> None:
    """Names that are gone, that are other files, links to a file, hard links, and versions of one name before."""
    dice = random.Random(seed)
    root = tmp_path / "in"
    root.mkdir()
    first = root / "first"
    first.write_bytes(b"12345678")
    paths = [root / name for name in "abcdefgh"]
    for path in paths:
        state = dice.choice(("gone", "other", "hard link", "hard link", "link", "chain"))
        if state == "other":
            path.write_bytes(b"1234")
        elif state == "hard link":
            os.link(first, path)
        elif state != "gone":
            path.symlink_to(first if state == "link" else dice.choice(paths))
    identity = file_id_of(os.stat(first).st_ino)
    times = [os.stat(first).st_mtime_ns + change for change in (-1, 0, 0, 1)]
    sources = [
        TakenVersion(
            os.fsencode(path) + dice.choice((b"", b"", *SLOTS)), os.fsencode(path), IndexEntry(size, time, identity)
        )
        for path in dice.choices([first, *paths], k=20)
        for size, time in [(dice.choice((0, 4, 8, 8, 9)), dice.choice(times))]
    ]
    versions = VersionsOfInode(identity, sources)
    files = [os.fsencode(path) for path in (first, *paths) if not path.is_symlink() and path.exists()]
    for suspect in (suspect_of(root, path) for path in files):
        if suspect.stat.file_id == identity:
            assert list(versions.left(suspect)) == left_one_by_one(sources, suspect)


def test_names_of_a_hard_link_are_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not for each other one: 10,000 names of one file took more than a minute."""
    looks: list[bytes] = []

    def look(path: bytes) -> os.stat_result | None:
        looks.append(path)
        return stat_behind_links(path)

    monkeypatch.setattr(found_files, "stat_behind_links", look)
    first = tmp_path / "00"
    first.write_bytes(b"1")
    paths = [os.fsencode(first), *(os.fsencode(tmp_path / f"{number:02}") for number in range(1, 50))]
    for path in paths[1:]:
        os.link(first, path)
    now = os.stat(first)
    sources = [TakenVersion(path, path, IndexEntry(1, now.st_mtime_ns, file_id_of(now.st_ino))) for path in paths[:25]]
    versions = VersionsOfInode(file_id_of(now.st_ino), sources)
    for path in paths[25:]:
        assert list(versions.left(suspect_of(tmp_path, path))) == []
    assert sorted(looks) == paths[:25]

"""A scan finds the members of archives in the place of the archives."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.errors import StorageError
from dagflow.storage.context import StorageContext
from operators.splitter import FileSplitterInput
from operators.splitter.changes.detection_rules import CompletenessRules
from operators.splitter.explanation import InputExplanation
from operators.splitter.scan.scanner import Scanner
from operators.splitter.scan.selection import Selection
from tests.operators.splitter.scan.test_scanner import below, scan
from tests.operators.splitter.splitter_driver import write
from tests.storage.test_archives import tarred, zipped

NAMES = {
    "orders/1.csv": b"a\n",
    "x.txt": b"b\n",
    "__MACOSX/._x.txt": b"c\n",
    ".git/config": b"d\n",
    "log/2.csv": b"e\n",
}


def put(root: Path, *names: str) -> None:
    """Make archives with the same members."""
    for name in names:
        write(root / name, zipped(NAMES) if name.endswith(".zip") else tarred(NAMES, "w:gz"))


def test_the_members_of_an_archive_are_selected_by_their_own_names(tmp_path: Path) -> None:
    """As files of a directory are; the archive's name has to match only what selects archives."""
    put(tmp_path, "a.zip", "d/b.tar.gz", ".c.zip")
    write(tmp_path / "d" / "c.csv", b"1\n")
    csv = ["a.zip!log/2.csv", "a.zip!orders/1.csv", "d/b.tar.gz!log/2.csv", "d/b.tar.gz!orders/1.csv", "d/c.csv"]
    assert below(tmp_path, tmp_path, file_pattern=r".*\.csv") == csv
    assert below(tmp_path, tmp_path, ignore_pattern=r"log|x\.txt|.*\.gz") == ["a.zip!orders/1.csv", "d/c.csv"]
    assert below(tmp_path, tmp_path, recursive=False) == ["a.zip!x.txt"]
    assert below(tmp_path, tmp_path / "d" / "b.tar.gz", file_pattern="x.*") == ["d/b.tar.gz!x.txt"]
    assert below(tmp_path, f"{tmp_path}/a.zip!log/2.csv") == ["a.zip!log/2.csv"]
    assert below(tmp_path, f"{tmp_path}/?.zip", file_pattern="[12].csv") == csv[:2]
    with pytest.raises(StorageError, match=r"a glob cannot be read\n.*name the archive, and choose its members"):
        scan(f"{tmp_path}/a.zip!log/*.csv")


def test_archives_are_files_where_the_app_says_so(tmp_path: Path) -> None:
    """Then a pattern chooses archives by their names, too."""
    put(tmp_path, "a.zip", "b.tgz")
    assert below(tmp_path, tmp_path, archives="whole") == ["a.zip", "b.tgz"]
    assert below(tmp_path, tmp_path, archives="whole", file_pattern=r".*\.zip") == ["a.zip"]


@settings(max_examples=40)
@given(names=st.sets(st.text("a! .z", min_size=1, max_size=4).map(lambda end: f"a.zip{end}"), max_size=6))
def test_members_come_in_their_order_among_any_neighbours(names: set[str]) -> None:
    """Keys ascend, also where the names of other files come between that of an archive and those of its members."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("PYTEST_TMPDIR")) as directory:
        root = Path(directory)
        put(root, "a.zip", "a.zip.zip")
        for name in names - {"a.zip.zip"}:
            write(root / name, b"1\n")
        plain = [name for name in names if name != "a.zip.zip"]
        members = [f"{name}!{path}" for name in ("a.zip", "a.zip.zip") for path in NAMES if "/." not in f"/{path}"]
        assert below(root, root, root / "a.zip") == sorted([*plain, *members])


def test_an_estimate_decompresses_no_archive(tmp_path: Path) -> None:
    """It counts one that must be decompressed to find its members as one file, and the members of others."""
    put(tmp_path, "a.zip", "b.tgz")
    estimate = FileSplitterInput(files=[str(tmp_path)], file_pattern=r".*\.csv").estimate(10)
    assert (estimate.files, estimate.bytes) == (3, 4 + (tmp_path / "b.tgz").stat().st_size)


def test_an_archive_that_cannot_be_read_is_a_file_without_a_name(tmp_path: Path) -> None:
    """Its reader fails as the listing did, whatever names are selected, so that no data are left out unseen."""
    write(tmp_path / "a.zip", b"PK\x03\x04")
    write(tmp_path / "b.csv", b"1\n")
    assert below(tmp_path, tmp_path, file_pattern=r".*\.csv") == ["a.zip!", "b.csv"]


def test_members_of_compressed_archives_are_listed_in_tasks_and_once(tmp_path: Path) -> None:
    """The driver decompresses nothing; a scan that finds the same version of the archive asks no task again."""
    put(tmp_path, "a.zip", "b.tgz")
    asked = Counter[str]()

    def in_tasks(function: Callable[[Any], Any], requests: list[Any]) -> list[Any]:
        asked.update(archive.url for _, archive in requests)
        return list(map(function, requests))

    scanner = Scanner([str(tmp_path)], Selection(), archive_tasks=in_tasks)
    first, second = ([key for files in scanner.scan() for key in files.keys] for _ in range(2))
    assert first == second
    assert len(first) == 6
    assert asked == {f"{tmp_path}/b.tgz": 1}


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("a.zip!orders/1.csv", "It is selected"),
        ("a.zip!x.txt", "file_pattern, ignore_pattern or recursive leave the member 'x.txt' out"),
        ("a.zip!orders/2.csv", "there is no such file now"),
        ("log/a.zip!orders/1.csv", "ignore_pattern 'log' matches the directory 'log'"),
    ],
)
def test_the_reason_why_a_member_is_not_taken_is_found(path: str, reason: str, tmp_path: Path) -> None:
    """By the rules of the scan, for its archive and for itself."""
    put(tmp_path, "a.zip", "log/a.zip")
    selection = Selection(file_pattern=r".*\.csv", ignore_pattern="log")
    explanation = InputExplanation([str(tmp_path)], selection, CompletenessRules(), StorageContext.default(), 0)
    is_taken, why = explanation.explain(f"{tmp_path}/{path}")
    assert reason in why
    assert is_taken == (f"{tmp_path}/{path}" in scan(tmp_path, file_pattern=r".*\.csv", ignore_pattern="log"))

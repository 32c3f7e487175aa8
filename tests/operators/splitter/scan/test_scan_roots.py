"""What a location is taken for, where its store has no directories."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dagflow.errors import MissingError, StorageError
from dagflow.storage.context import StorageContext
from operators.splitter.scan.scan_roots import find_root
from operators.splitter.scan.scanner import Scanner
from operators.splitter.scan.selection import Selection
from tests.operators.splitter.splitter_driver import write
from tests.serving import serving
from tests.web_server import WebServer

STORAGE = StorageContext.default()
BY_NAME = "name each file by its own URL"


@pytest.fixture
def server() -> Iterator[WebServer]:
    """A web server with a file, and the index of a directory."""
    pytest.importorskip("aiohttp", reason="fsspec reads HTTP by it")
    with serving(WebServer()) as server:
        server.files = {"/logs/one": b"one\n", "/logs/": b"<html>", "/logs": b"<html>", "/get?f=1": b"1\n"}
        yield server


def test_from_a_web_server_single_files_are_read(server: WebServer) -> None:
    """Its directories are pages for people, so that neither they nor globs are taken for files."""
    for name in ("logs/one", "get?f=1"):
        assert find_root(f"{server.url}/{name}", STORAGE).kind == "file"
    for name in ("logs/", "logs/*", "logs/[a-z]ne"):
        with pytest.raises(StorageError, match=BY_NAME) as raised:
            find_root(f"{server.url}/{name}", STORAGE)
        # A run that follows would wait for what is missing.
        assert not isinstance(raised.value, MissingError)
    for name in ("logs/two", "get?f=2"):
        with pytest.raises(MissingError, match="no such file"):
            find_root(f"{server.url}/{name}", STORAGE)


def test_of_an_archive_single_files_are_read(tmp_path: Path) -> None:
    """The names of what lies in it would be put behind the name of the archive."""
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a.log", "a\n")
        archive.writestr("dir/b.log", "b\n")
    for name in ("a.log", "dir/b.log"):
        assert find_root(f"zip://{name}::{tmp_path}/x.zip", STORAGE).kind == "file"
    for name in ("", "dir", "*.log", "dir/*"):
        with pytest.raises(StorageError, match="only single files of an archive can be read: name each of them"):
            find_root(f"zip://{name}::{tmp_path}/x.zip", STORAGE)


def test_a_file_that_is_named_as_a_directory_is_named_again(tmp_path: Path) -> None:
    """As the system refuses it; without the slash it is read."""
    path = write(tmp_path / "a", b"line\n")
    with pytest.raises(StorageError, match="take the slash off its end"):
        find_root(f"{path}/", STORAGE)
    assert find_root(str(path), STORAGE).kind == "file"
    assert find_root(f"{tmp_path}/", STORAGE).kind == "directory"


@pytest.mark.parametrize("header", ["ETag", "Last-Modified", ""])
def test_a_location_with_nothing_but_sizes_is_warned_of_once(
    server: WebServer, caplog: pytest.LogCaptureFixture, header: str
) -> None:
    """Its new versions of the same size are not noticed."""
    server.headers = {header: "Mon, 23 Nov 2026 10:00:00 GMT"} if header else {}
    scanner = Scanner([f"{server.url}/get?f=1"], Selection(), storage=STORAGE)
    for _ in range(2):
        assert len(list(scanner.scan())) == 1
    said = [record.getMessage() for record in caplog.records]
    assert [("gives neither" in each, each.endswith("/get?***")) for each in said] == [(True, True)] * (not header)

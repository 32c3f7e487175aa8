"""Three answers of a web server: a file that is missing, one that is refused, and a server that fails."""

from __future__ import annotations

import socket
import uuid
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import fsspec
import pytest
from botocore import exceptions
from botocore.parsers import ResponseParserError

from dagflow.errors import CredentialsError, MissingError, StorageError, TransientStorageError
from dagflow.storage.context import StorageContext
from tests.serving import serving
from tests.storage.shared import STORAGE, content, publish, s3_client, write


class AnswersStatusOfPath(BaseHTTPRequestHandler):
    """Answers with the status that stands in the path."""

    def do_GET(self) -> None:
        """Answer a request."""
        self.send_error(int(self.path[1:]))

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Keep silent."""


@pytest.fixture
def server() -> Iterator[str]:
    """The address of a server."""
    pytest.importorskip("aiohttp", reason="fsspec reads HTTP by it")
    with serving(HTTPServer(("127.0.0.1", 0), AnswersStatusOfPath)) as server:
        yield f"http://127.0.0.1:{server.server_port}"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, MissingError),
        (410, MissingError),
        (403, StorageError),
        (401, CredentialsError),
        (503, TransientStorageError),
    ],
)
def test_only_a_server_says_that_a_file_is_missing(server: str, status: int, kind: type[StorageError]) -> None:
    """What is missing may be left out of a run; what cannot be read now must not be."""
    with pytest.raises(StorageError, match=str(status)) as raised:
        StorageContext.default().stat(f"{server}/{status}")
    assert type(raised.value) is kind


def test_a_server_that_does_not_answer_is_tried_again() -> None:
    """It has not said that anything is missing."""
    pytest.importorskip("aiohttp", reason="fsspec reads HTTP by it")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(TransientStorageError, match="Cannot connect to host"):
        StorageContext.default().stat(f"http://127.0.0.1:{port}/a")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (exceptions.ReadTimeoutError(endpoint_url="http://store"), TransientStorageError),
        (exceptions.ResponseStreamingError(error="reset"), TransientStorageError),
        (exceptions.HTTPClientError(error="reset"), TransientStorageError),
        (exceptions.ConnectionClosedError(endpoint_url="http://store"), TransientStorageError),
        (exceptions.SSLError(endpoint_url="http://store", error="reset"), TransientStorageError),
        (exceptions.IncompleteReadError(actual_bytes=1, expected_bytes=2), TransientStorageError),
        (ResponseParserError("no XML"), TransientStorageError),
        (exceptions.NoCredentialsError(), CredentialsError),
        (exceptions.PartialCredentialsError(provider="env", cred_var="secret"), CredentialsError),
        (exceptions.CredentialRetrievalError(provider="role", error_msg="none"), CredentialsError),
        (exceptions.UnauthorizedSSOTokenError(), CredentialsError),
        (exceptions.ProfileNotFound(profile="work"), CredentialsError),
        (exceptions.ParamValidationError(report="unknown"), StorageError),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_s3s_client_raises_says_nothing_of_the_file(error: Exception, kind: type[StorageError]) -> None:
    """Where no answer came, or none could be asked for, the file may be as good as any other."""
    with (
        pytest.raises(StorageError, match="cannot read at 0: ") as raised,
        s3_client().translated("s3://b/k", "read at 0"),
    ):
        raise error
    assert type(raised.value) is kind


def test_colons_in_a_path_make_no_chain() -> None:
    """The paths of a listing are read, though fsspec takes `::` for the link of a chain."""
    place = uuid.uuid4().hex
    fsspec.filesystem("memory").pipe_file(f"/{place}/ut::a::b.log", b"12")
    (found,) = STORAGE.list_directory(f"memory://{place}")
    assert found.url == f"memory://{place}/ut::a::b.log"
    assert STORAGE.stat(found.url) == found
    assert content(found.url) == b"12"


def test_colons_in_a_key_of_s3_make_no_chain(s3_root: str) -> None:
    """Objects are published, kept in a journal, listed and read."""
    publish(write(f"{s3_root}/o::ut/a::b", b"12"))
    STORAGE.objects(f"{s3_root}/o::ut").create_if_absent("c::d", b"34")
    found = list(STORAGE.list_directory(f"{s3_root}/o::ut"))
    assert [each.url.removeprefix(s3_root) for each in found] == ["/o::ut/a::b", "/o::ut/c::d"]
    assert [content(each.url) for each in found] == [b"12", b"34"]


def test_a_file_in_an_archive_is_reached_by_a_chain(tmp_path: Path) -> None:
    """There the link stands behind the path."""
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a.log", "12")
    assert content(f"zip://a.log::{tmp_path}/x.zip") == b"12"


def test_a_store_below_an_archive_takes_its_options(
    tmp_path: Path, s3_server: str, s3_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each link of a chain is constructed with the options of its own protocol."""
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a.log", "12")
    publish(write(f"{s3_root}/x.zip", (tmp_path / "x.zip").read_bytes()))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    # A client that was made with the environment's credentials would be taken again.
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    storage = StorageContext({"s3": {"endpoint_url": s3_server, "key": "testing", "secret": "testing"}})
    assert storage.stat(f"zip://a.log::{s3_root}/x.zip").size_bytes == 2


@pytest.mark.parametrize("cache", ["simplecache", "filecache", "blockcache"])
def test_a_cache_of_files_is_left_out_of_a_location(cache: str) -> None:
    """It would give the bytes that a file had before; without it the location has the file."""
    store = f"memory://{uuid.uuid4().hex}"
    storage = StorageContext.default()
    storage.objects(store).create_if_absent("a", b"line")
    for url in (f"{cache}::{store}/a", f"{cache}://a::{store}/a"):
        with pytest.raises(StorageError, match=f"{cache}.* keeps copies of files") as raised:
            storage.stat(url)
        assert raised.value.hint == f"name it without the cache: {store}/a"
    with pytest.raises(StorageError, match="name it without the cache: zip://a::memory://b"):
        storage.stat(f"zip://a::{cache}::memory://b")
    assert storage.stat(f"{store}/a").size_bytes == 4

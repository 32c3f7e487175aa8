"""Files of web servers: one version of a file, or an error that says what the server does amiss."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from dagflow.errors import SourceChangedError, StorageError, TransientStorageError
from dagflow.storage.context import StorageContext
from dagflow.storage.files import ReadableFile
from tests.serving import serving
from tests.web_server import WebServer

DATA = b"0123456789"
MONDAY, LATER = "Mon, 23 Nov 2026 10:00:00 GMT", "Mon, 23 Nov 2026 10:00:01 GMT"


@pytest.fixture
def server() -> Iterator[WebServer]:
    """A web server with one file."""
    pytest.importorskip("aiohttp", reason="fsspec reads HTTP by it")
    with serving(WebServer()) as server:
        server.files["/a"] = DATA
        yield server


def opened(url: str) -> ReadableFile:
    return StorageContext.default().open_file(url)


def read(url: str, offset: int = 0, length: int = 10) -> bytes:
    buffer = bytearray(length)
    with opened(url) as file:
        return bytes(buffer[: file.read_into(offset, memoryview(buffer))])


def test_a_file_is_read_in_parts_as_it_is(server: WebServer) -> None:
    """No server is given leave to compress it, which would change its length; other headers are sent as well."""
    assert (read(f"{server.url}/a", 2, 3), read(f"{server.url}/a", 8, 9)) == (b"234", b"89")
    assert {accepted for *_, accepted in server.requests} == {"identity"}
    storage = StorageContext.of({"http": {"headers": {"X-Key": "k", "Accept-Encoding": "gzip"}}}, {})
    with storage.open_file(f"{server.url}/a") as file:
        file.read_into(0, memoryview(bytearray(3)))
    assert {accepted for *_, accepted in server.requests} == {"identity"}


def test_a_server_without_ranges_is_asked_for_whole_files_only(server: WebServer) -> None:
    """What it sends for a part is the whole file, which is not read: the file has not changed."""
    server.has_ranges = False
    assert read(f"{server.url}/a") == DATA
    with pytest.raises(StorageError, match="sends the file whole, and it was asked for 3 of its 10 bytes") as raised:
        read(f"{server.url}/a", 2, 3)
    assert not isinstance(raised.value, SourceChangedError)
    server.has_ranges = True
    assert read(f"{server.url}/a", 2, 3) == b"234"


def test_a_server_that_compresses_all_it_sends_is_not_read(server: WebServer) -> None:
    """The bytes of the range would be others."""
    with opened(f"{server.url}/a") as file:
        server.files["/a"], server.headers = gzip.compress(DATA), {"Content-Encoding": "gzip"}
        with pytest.raises(StorageError, match="sends the file compressed, though it was asked for 10"):
            file.read_into(0, memoryview(bytearray(10)))


@pytest.mark.parametrize(
    ("sent", "message"),
    [((1, 4), "bytes 1-3 for 2-4"), ((3, 5), "bytes 3-4 for 2-4"), ((2, 6), "bytes 2-5 for 2-4")],
)
def test_another_range_than_was_asked_for_is_not_believed(
    server: WebServer, sent: tuple[int, int], message: str
) -> None:
    """Its bytes would be taken for those of the range."""
    with opened(f"{server.url}/a") as file:
        server.range_of = lambda start, end: sent
        with pytest.raises(StorageError, match=message) as raised:
            file.read_into(2, memoryview(bytearray(3)))
        assert not isinstance(raised.value, SourceChangedError | TransientStorageError)


def test_a_range_that_does_not_say_where_it_is_is_not_believed(server: WebServer) -> None:
    """A part without its place may be any part."""
    server.statuses["GET", "/a"] = 206
    with pytest.raises(StorageError, match="does not say which bytes it sent for 2-4"):
        read(f"{server.url}/a", 2, 3)


def test_a_part_of_a_range_is_followed_by_the_rest(server: WebServer) -> None:
    """A server may send less than it was asked for, and say so."""
    server.range_of = lambda start, end: (start, min(end, start + 4))
    assert read(f"{server.url}/a") == DATA
    assert [asked for method, _, asked, _ in server.requests if method == "GET"] == [
        "bytes=0-9",
        "bytes=4-9",
        "bytes=8-9",
    ]


@pytest.mark.parametrize("sends_length", [True, False])
def test_of_a_range_that_breaks_off_the_rest_is_requested(server: WebServer, sends_length: bool) -> None:
    """Whether the answer says how long it is, or ends with its connection; no byte is asked for twice."""
    server.breaks_after, server.sends_length = 4, sends_length
    assert read(f"{server.url}/a") == DATA
    assert [asked for method, _, asked, _ in server.requests if method == "GET"] == [
        "bytes=0-9",
        "bytes=4-9",
        "bytes=8-9",
    ]


@pytest.mark.parametrize(("has_ranges", "breaks_after"), [(True, 0), (False, 4)])
def test_an_answer_that_breaks_off_is_no_other_version(server: WebServer, has_ranges: bool, breaks_after: int) -> None:
    """Without a length an answer ends where its connection does, and may be whole when it is asked for again."""
    server.has_ranges, server.breaks_after = has_ranges, breaks_after
    with pytest.raises(TransientStorageError, match=f"ended after {breaks_after} of the 10 bytes"):
        read(f"{server.url}/a")
    server.breaks_after = None
    assert read(f"{server.url}/a") == DATA


@pytest.mark.parametrize("sends_length", [True, False])
def test_a_whole_file_that_breaks_off_is_read_from_its_beginning(server: WebServer, sends_length: bool) -> None:
    """A server without ranges sends it so; what came before is not put in front of it."""
    server.has_ranges, server.breaks_after, server.sends_length = False, 4, sends_length

    def act(method: str, path: str) -> None:
        if [each[0] for each in server.requests].count("GET") == 3:
            server.breaks_after = None

    server.act = act
    assert read(f"{server.url}/a") == DATA


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
@pytest.mark.parametrize("methods", [("GET",), ("HEAD", "GET")])
def test_a_server_that_fails_for_a_moment_is_asked_again(
    server: WebServer, status: int, methods: tuple[str, ...]
) -> None:
    """For a look at a file, and for its bytes: a following run, and one that has begun, outlive it."""

    def act(method: str, path: str) -> None:
        failed = sum(each[0] in methods for each in server.requests) <= 4
        server.statuses = {(each, path): status for each in methods if failed}

    server.act = act
    assert read(f"{server.url}/a") == DATA


@pytest.mark.parametrize("left", [b"", b"0123"])
def test_a_file_that_is_cut_and_sent_in_chunks_has_changed(server: WebServer, left: bytes) -> None:
    """It is not asked for again: a server that sends it whole has no more of it."""
    server.has_ranges = False
    with opened(f"{server.url}/a") as file:
        server.files["/a"], server.is_chunked = left, True
        with pytest.raises(SourceChangedError, match=f"it had 10 bytes, now it ends at {len(left)}"):
            file.read_into(0, memoryview(bytearray(10)))
    assert [method for method, *_ in server.requests] == ["HEAD", "GET"]


def test_the_weak_and_the_strong_form_of_a_tag_are_one_version(server: WebServer) -> None:
    """A server that compresses some of its answers gives both; checkpoints hold the weak one as it was sent."""
    server.headers = {"ETag": 'W/"1"'}
    assert StorageContext.default().stat(f"{server.url}/a").etag == 'W/"1'
    with opened(f"{server.url}/a") as file:
        for tag in ('"1"', 'W/"1"'):
            server.headers = {"ETag": tag}
            assert file.read_into(0, memoryview(bytearray(3))) == 3
        server.headers = {"ETag": '"2"'}
        with pytest.raises(SourceChangedError, match="its etag was 1, now it is 2"):
            file.read_into(0, memoryview(bytearray(3)))


@pytest.mark.parametrize("kind", ["chunked", "compressed"])
def test_a_file_of_unknown_length_is_copied_and_not_empty(server: WebServer, tmp_path: Path, kind: str) -> None:
    """Its end cannot be distinguished from a connection that broke."""
    server.is_chunked = kind == "chunked"
    server.headers = {"Content-Encoding": "gzip"} if kind == "compressed" else {}
    with pytest.raises(StorageError, match="the store does not say how long the file is"):
        read(f"{server.url}/a")
    (tmp_path / "copy").write_bytes(DATA)
    assert read(str(tmp_path / "copy")) == DATA


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ({"ETag": '"1"'}, {"ETag": '"2"'}, "its etag was 1, now it is 2"),
        ({"Last-Modified": MONDAY}, {"Last-Modified": LATER}, "it was modified at 1795428000000000000 ns, now at"),
        ({}, {}, "it had 10 bytes, now it has 11"),
    ],
    ids=["tag", "time", "size"],
)
def test_an_answer_of_another_version_is_refused(
    server: WebServer, before: dict[str, str], after: dict[str, str], message: str
) -> None:
    """Each answer says what it is of, so that two versions are not mixed."""
    server.headers = before
    with opened(f"{server.url}/a") as file:
        file.read_into(0, memoryview(bytearray(3)))
        server.headers, server.files["/a"] = after, b"abcdefghij" if after else b"abcdefghijk"
        with pytest.raises(SourceChangedError, match=message):
            file.read_into(3, memoryview(bytearray(3)))


@pytest.mark.parametrize(("said", "seconds"), [(MONDAY, 1795428000), ("yesterday", 0), ("", 0)])
def test_the_time_of_a_file_is_its_last_modification(server: WebServer, said: str, seconds: int) -> None:
    """A time that is none is not known."""
    server.headers = {"Last-Modified": said} if said else {}
    assert StorageContext.default().stat(f"{server.url}/a").mtime_ns == seconds * 10**9


def test_the_index_of_a_directory_is_no_file(server: WebServer) -> None:
    """A server redirects to it; of a file elsewhere, or one that a query names, that is no matter."""
    server.files |= {"/logs/": b"<html>", "/?f=1": DATA, "/b": DATA}
    server.moved = {"/logs": "/logs/", "/a": "/b"}
    for url in (f"{server.url}/logs", f"{server.url}/"):
        server.files["/"] = b"<html>"
        with pytest.raises(StorageError, match="it is a directory of a web server"):
            read(url)
    with pytest.raises(StorageError, match="it cannot be listed"):
        next(StorageContext.default().list_directory(f"{server.url}/logs"))
    assert [read(f"{server.url}{path}") for path in ("/a", "/?f=1")] == [DATA, DATA]

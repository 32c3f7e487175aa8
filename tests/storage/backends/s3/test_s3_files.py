"""Files in S3's buckets."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from dagflow.errors import CredentialsError, MissingError, SourceChangedError, StorageError, TransientStorageError
from dagflow.storage.context import StorageContext
from dagflow.storage.files import SmallFiles
from tests.nightly import by_day
from tests.s3_faults import Fault, FaultInjectingProxy, faulty_store
from tests.storage.shared import STORAGE, content, put, s3_client


@pytest.fixture
def store(s3_server: str) -> Iterator[FaultInjectingProxy]:
    """A proxy before the server."""
    with faulty_store(s3_server) as store:
        yield store


def behind(store: FaultInjectingProxy) -> StorageContext:
    """A context that asks a proxy, once."""
    config = {"retries": {"max_attempts": 0}}
    access = {"endpoint_url": store.url, "key": "testing", "secret": "testing"}
    return StorageContext({"s3": {**access, "config_kwargs": config}})


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    by_day(
        5,
        [
            (503, "Busy", TransientStorageError),
            (503, "SlowDownRead", TransientStorageError),
            (429, "TooManyRequests", TransientStorageError),
            (500, "InternalServerError", TransientStorageError),
            (502, "BadGateway", TransientStorageError),
            (504, "GatewayTimeout", TransientStorageError),
            (400, "RequestTimeout", TransientStorageError),
            (400, "ExpiredToken", CredentialsError),
            (400, "InvalidToken", CredentialsError),
            (403, "InvalidAccessKeyId", CredentialsError),
            (403, "SignatureDoesNotMatch", CredentialsError),
            (403, "RequestTimeTooSkewed", CredentialsError),
            (403, "AccessDenied", StorageError),
        ],
    ),
)
def test_a_refusal_of_s3_is_reported_by_code_and_status(
    s3_root: str, store: FaultInjectingProxy, status: int, code: str, kind: type[StorageError]
) -> None:
    """Also by a look at an object, which has no code, and by reads of small objects together."""
    url = put(f"{s3_root}/in/a", b"12")
    storage = behind(store)
    found = storage.stat(url)
    planned = storage.backend(url).files.open_planned(found)
    assert planned is not None
    small = SmallFiles(f"{s3_root}/in/", ["a"], [2], [found.mtime_ns], [found.etag])
    store.faults = [Fault(".*", s3_root.removeprefix("s3:/"), status, code)]

    def load() -> None:
        buffer = memoryview(bytearray(small.buffer_bytes))
        raise storage.backend(url).files.load(small, buffer, b"").failures[0]

    for ask in (
        load,
        lambda: storage.stat(url),
        lambda: list(storage.list_directory(f"{s3_root}/in")),
        lambda: planned.fetch(0, 2),
    ):
        with pytest.raises(StorageError, match="in") as raised:
            ask()
        assert type(raised.value) is kind


def test_a_listing_need_not_count_its_keys(s3_root: str, store: FaultInjectingProxy) -> None:
    """What it shows is there; a directory without anything in the listing is not."""
    put(f"{s3_root}/d/a", b"12")
    put(f"{s3_root}/d/e/b", b"12")
    storage = behind(store)
    store.edit = lambda body: re.sub(rb"<KeyCount>\d+</KeyCount>", b"", body)
    assert [each.url for each in storage.list_directory(f"{s3_root}/d")] == [f"{s3_root}/d/a", f"{s3_root}/d/e"]
    assert storage.backend(s3_root).files.is_also_directory(f"{s3_root}/d")
    assert not storage.backend(s3_root).files.is_also_directory(f"{s3_root}/d/a")
    with pytest.raises(MissingError, match="no such directory"):
        list(storage.list_directory(f"{s3_root}/x"))


def test_an_object_that_marks_a_directory_is_no_object_of_a_journal(s3_root: str) -> None:
    """Tools that copy a checkpoint create one for each of its directories."""
    objects, marker = STORAGE.objects(s3_root), s3_client().location(f"{s3_root}/log/")
    objects.create("log/000000000001", b"1")
    marker.call("put_object", "mark a directory", Key=marker.key, Body=b"")
    assert list(objects.list("log/")) == ["log/000000000001"]


def test_an_s3_file_that_is_replaced_while_it_is_open_is_noticed(s3_root: str) -> None:
    """Every request names the version, so two versions are never mixed."""
    url = put(f"{s3_root}/f", b"0123456789")
    with STORAGE.open_file(url) as file:
        put(url, b"9876543210")
        with pytest.raises(SourceChangedError, match="replaced while it was read"):
            file.read_into(0, memoryview(bytearray(4)))


def test_a_listing_of_s3_goes_over_pages(s3_root: str) -> None:
    """Keys beyond the first answer are found, in order, also behind a key to start after."""
    names = [f"d/{number}" for number in range(8)]
    for name in names:
        put(f"{s3_root}/{name}", b"")
    place = s3_client().location(s3_root)
    pages = list(place.list("list", Prefix="d/", StartAfter="d/0", MaxKeys=3))
    assert [[entry["Key"] for entry in page["Contents"]] for page in pages] == [names[1:4], names[4:7], names[7:]]


def test_a_listing_shows_directories_without_a_name(s3_root: str) -> None:
    """A slash at the end of a location is part of its name, also directly in the bucket."""
    for key in ("/d/a", "/d//b", "//c", "///e"):
        put(s3_root + key, b"12")

    def listed(url: str) -> list[tuple[str, bool]]:
        return [(found.url.removeprefix(s3_root), found.is_directory) for found in STORAGE.list_directory(url)]

    assert listed(s3_root) == [("/", True), ("/d", True)]
    assert listed(f"{s3_root}/") == [("//", True), ("//c", False)]
    assert listed(f"{s3_root}//") == [("///e", False)]
    assert listed(f"{s3_root}/d") == [("/d/", True), ("/d/a", False)]
    assert listed(f"{s3_root}/d/") == [("/d//b", False)]


@pytest.mark.parametrize(("base", "names"), [("/d/", ["a", "/a"]), ("/d//", ["a", "/a"]), ("/", ["d/a", "/d/a"])])
def test_objects_below_directories_without_a_name_are_read(s3_root: str, base: str, names: list[str]) -> None:
    """One by one and as small files, each by its own key."""
    urls = [put(s3_root + base + name, name.encode()) for name in names]
    assert [content(url) for url in urls] == [name.encode() for name in names]
    found = [STORAGE.stat(url) for url in urls]
    columns = [each.size_bytes for each in found], [each.mtime_ns for each in found], [each.etag for each in found]
    files = SmallFiles(s3_root + base, names, *columns)
    buffer = memoryview(bytearray(files.buffer_bytes))
    loaded = STORAGE.backend(s3_root).files.load(files, buffer, b"")
    assert (bytes(buffer[: loaded.borders[-1]]), loaded.failures) == ("".join(names).encode(), {})

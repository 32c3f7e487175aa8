"""The quick client for whole objects of S3, beside s3fs, which has the last word."""

from __future__ import annotations

import logging
import socket
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from aiobotocore.credentials import AioRefreshableCredentials
from fsspec.asyn import sync
from obstore.store import S3Store

from benchmarks.slow_store import Store
from dagflow.storage.backends import s3
from dagflow.storage.backends.s3 import FastObjects, open_bucket
from dagflow.storage.backends.s3.client import CONNECTIONS
from dagflow.storage.context import StorageContext
from dagflow.storage.files import SmallFiles
from tests.serving import serving
from tests.storage.shared import STORAGE, filesystem_of, put

ODD = ["a b", "%20", "a%2Fb", "+", "é", "e\u0301", "*?[x]", "#", "&=", "{}", "~", "'", '"', "\\", "x;y", "^|`<>"]
NO_PATHS = ["a//b", "./a", "a/../b", "a\tb"]


def loaded(base: str, contents: dict[str, tuple[bytes, str]], storage: StorageContext = STORAGE) -> list[bytes]:
    """What is read of objects with these contents and etags."""
    names, values = list(contents), [content for content, _ in contents.values()]
    files = SmallFiles(base, names, list(map(len, values)), [0] * len(names), [etag for _, etag in contents.values()])
    buffer = memoryview(bytearray(files.buffer_bytes))
    answer = storage.backend(base).files.load(files, buffer, b"")
    assert not answer.failures
    return [bytes(buffer[start:end]) for start, end in zip(answer.borders, answer.borders[1:], strict=False)]


def test_a_key_may_be_any_text(s3_root: str) -> None:
    """Each key leads to its own object, also those that are no paths, which are left to s3fs."""
    filesystem, bucket = filesystem_of(s3_root)
    contents = {}
    for key in [*ODD, *NO_PATHS, "a/b", "a"]:
        filesystem.call_s3("put_object", Bucket=bucket, Key=f"in/{key}", Body=key.encode())
        etag = filesystem.call_s3("head_object", Bucket=bucket, Key=f"in/{key}")["ETag"].strip('"')
        contents[key] = (key.encode(), etag)
    assert loaded(f"{s3_root}/in/", contents) == [content for content, _ in contents.values()]
    objects = open_bucket(filesystem, bucket, {})
    assert objects is not None
    for key, (content, etag) in contents.items():
        found = objects.read(f"in/{key}", etag)
        assert (None if found is None else bytes(found)) == (None if key in NO_PATHS else content)
    assert objects.read("in/a", contents["a/b"][1]) is None
    assert objects.read("in/gone", contents["a"][1]) is None


def test_objects_of_several_buckets_are_read_together(s3_root: str) -> None:
    """Each from its own bucket, also where both have the same key."""
    urls = [f"{s3_root}/a", f"{s3_root}/b/a", f"{s3_root}-b/a", f"{s3_root}-b//a"]
    contents = {}
    for url in urls:
        put(url, url.encode())
        contents[url.removeprefix("s3://")] = (url.encode(), STORAGE.stat(url).etag)
    assert loaded("s3://", contents) == list(map(str.encode, urls))


@pytest.mark.parametrize(
    "options",
    [
        {"requester_pays": True},
        {"s3_additional_kwargs": {"SSECustomerAlgorithm": "AES256"}},
        {"config_kwargs": {"proxies": {"http": "http://127.0.0.1:1"}}},
        {"client_kwargs": {"verify": False}},
        {"cache_regions": True},
    ],
)
def test_what_only_s3fs_understands_is_left_to_it(options: dict[str, Any], s3_server: str) -> None:
    """An option that the quick client would not heed."""
    filesystem, bucket = filesystem_of("s3://bucket", {"s3": options})
    assert open_bucket(filesystem, bucket, {}) is None
    filesystem, bucket = filesystem_of("s3://bucket")
    assert open_bucket(filesystem, bucket, {}) is not None


@pytest.mark.parametrize(
    ("options", "endpoint"),
    [
        ({}, "https://bucket.s3.eu-central-1.amazonaws.com"),
        ({"config_kwargs": {}}, "https://bucket.s3.eu-central-1.amazonaws.com"),
        ({"endpoint_url": "http://127.0.0.1:9000"}, "http://127.0.0.1:9000"),
        ({"client_kwargs": {"endpoint_url": "https://minio.example/s3"}}, "https://minio.example/s3"),
    ],
)
def test_it_asks_the_endpoint_that_s3fs_would(
    options: dict[str, Any], endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Amazon's cloud the bucket is a host, elsewhere a part of the path."""
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    filesystem, bucket = filesystem_of("s3://bucket", {"s3": {"key": "any", "secret": "any", **options}})
    objects = open_bucket(filesystem, bucket, {})
    assert objects is not None
    store = objects.store
    assert store.config["endpoint"] == endpoint
    assert store.config["region"] == "eu-central-1"
    # It gives flags back as text.
    assert str(store.config["virtual_hosted_style_request"]) == ("true" if "bucket" in endpoint else "false")
    assert str((store.client_options or {})["allow_http"]) == ("true" if endpoint.startswith("http:") else "false")
    assert store.credential_provider is not None
    assert store.credential_provider() == {
        "access_key_id": "any",
        "secret_access_key": "any",
        "token": None,
        "expires_at": None,
    }


def test_credentials_that_change_are_asked_for_again(s3_server: str) -> None:
    """Credentials of a role are valid for some time only, and s3fs gets new ones before."""
    filesystem, _ = filesystem_of("s3://bucket")
    sync(filesystem.loop, filesystem.set_session)
    credentials = s3._Credentials(filesystem)()
    assert (credentials["access_key_id"], credentials["expires_at"]) == ("testing", None)
    count = iter(range(9))

    async def refreshed() -> dict[str, str]:
        expires = datetime.now(UTC) + timedelta(hours=1)
        return {
            "access_key": f"key {next(count)}",
            "secret_key": "secret",
            "token": "token",
            "expiry_time": expires.isoformat(),
        }

    class Session:
        """One of a machine that has a role."""

        @staticmethod
        async def get_credentials() -> AioRefreshableCredentials:
            """Its credentials, new each time."""
            return AioRefreshableCredentials.create_from_metadata(await refreshed(), refreshed, "role")

    filesystem.session, before = Session(), filesystem.session
    try:
        provider = s3._Credentials(filesystem)
        first, second = provider(), provider()
    finally:
        filesystem.session = before
    assert (first["access_key_id"], second["access_key_id"], second["token"]) == ("key 0", "key 1", "token")
    assert datetime.now(UTC) < first["expires_at"] < datetime.now(UTC) + timedelta(minutes=15)


def test_a_store_that_it_does_not_get_on_with_is_left_to_s3fs(caplog: pytest.LogCaptureFixture) -> None:
    """After a few failures it does not try any more, and says why."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # no server listens there
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
        store = S3Store(
            "bucket",
            endpoint=endpoint,
            skip_signature=True,
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )
        objects = FastObjects(store, {})
        caplog.set_level(logging.WARNING)
        assert {objects.read("a", "etag") for _ in range(20)} == {None}
    (credentials,) = caplog.records
    assert "read by s3fs" in credentials.getMessage()
    assert endpoint in credentials.getMessage()


class AnswersRequestsTogether(ThreadingHTTPServer):
    """A store that answers no request before so many requests are there."""

    daemon_threads = True
    request_queue_size = CONNECTIONS

    def __init__(self, store: Store, count: int) -> None:
        super().__init__(("127.0.0.1", 0), RequestCountingHandler)
        self.store = store
        self.all_there = threading.Barrier(count)
        self.lock = threading.Lock()
        self.under_way = self.most = 0


class RequestCountingHandler(BaseHTTPRequestHandler):
    """Counts a request from when it has come until its answer is on its way."""

    protocol_version = "HTTP/1.1"
    server: AnswersRequestsTogether

    def do_GET(self) -> None:
        """Answer like the store, whose answers are whole."""
        server = self.server
        with server.lock:
            server.under_way += 1
            server.most = max(server.most, server.under_way)
        server.all_there.wait(60)
        with server.lock:
            server.under_way -= 1
        self.wfile.write(server.store.answer(self.path))

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize(("base", "below"), [("s3://bench/in/", ""), ("s3://", "bench/in/")])
def test_many_requests_are_under_way_at_once_and_no_more(base: str, below: str) -> None:
    """As many as hide how long each takes, also of several buckets; a store refuses those who ask for ever more."""
    count = 3 * CONNECTIONS
    store = Store(count, 100, 0)
    head, _, content = store.answer("/bench/in/000000").partition(b"\r\n\r\n")
    etag = head.partition(b'ETag: "')[2].partition(b'"')[0].decode()
    with serving(AnswersRequestsTogether(store, CONNECTIONS)) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        storage = StorageContext({"s3": {"endpoint_url": address, "key": "any", "secret": "any"}})
        contents = {f"{below}{number:06}": (content, etag) for number in range(count)}
        assert loaded(base, contents, storage) == [content] * count
    assert server.most == CONNECTIONS

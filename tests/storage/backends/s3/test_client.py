"""What S3's client is spared, and what it hands on to others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiobotocore.session import AioSession
from botocore.utils import parse_timestamp

from dagflow.errors import CredentialsError, StorageError, TransientStorageError
from dagflow.storage.backends.fsspec.files import TRIES
from dagflow.storage.backends.s3.client import USER_AGENT, parsed_time
from dagflow.storage.context import StorageContext
from dagflow.storage.files import SmallFiles
from tests.s3_faults import Fault, faulty_store
from tests.storage.shared import STORAGE, filesystem_of, put, s3_client, write

TIMES = [
    "2024-02-29T23:59:59.123Z",
    "2024-02-29T23:59:59+01:00",
    "2024-02-29T23:59:59",
    "2024-02-29",
    "20240229T235959Z",
    "Thu, 29 Feb 2024 23:59:59 GMT",
    "Thu, 29 Feb 2024 23:59:59 -0000",
    "Thu, 29 Feb 2024 23:59:59 -0500",
    "1709251199",
    "1709251199.25",
    1709251199,
    1709251199.25,
]


@pytest.mark.parametrize("text", TIMES)
def test_a_time_is_what_the_client_takes_it_for(text: Any) -> None:
    """In each form that an answer may have, with or without a zone."""
    found, expected = parsed_time(text), parse_timestamp(text)
    assert (found, found.utcoffset()) == (expected, expected.utcoffset())


@pytest.mark.parametrize("text", ["", "soon", "2024-02-30T00:00:00Z", "Thu, 30 Feb 2024 23:59:59 GMT"])
def test_what_is_no_time_is_refused_as_by_the_client(text: str) -> None:
    """With the client's own words."""
    with pytest.raises(ValueError, match="Invalid timestamp"):
        parsed_time(text)


def test_listings_and_reads_do_without_the_parser_of_any_form(s3_root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a twentieth of a millisecond for each object listed or read."""

    def refuse(value: str, **_: Any) -> None:
        raise AssertionError(f"{value} was parsed the slow way")

    filesystem, path = filesystem_of(s3_root)
    filesystem.pipe_file(f"{path}/one", b"1")
    monkeypatch.setattr("dateutil.parser.parse", refuse)
    (found,) = STORAGE.list_directory(s3_root)
    files = SmallFiles(f"{s3_root}/", ["one"], [found.size_bytes], [found.mtime_ns], [found.etag])
    buffer = memoryview(bytearray(files.buffer_bytes))
    assert STORAGE.backend(s3_root).files.load(files, buffer, b"").failures == {}
    assert (bytes(buffer[:1]), found.mtime_ns > 0) == (b"1", True)


def test_what_an_app_says_of_the_client_holds() -> None:
    """Its own session and user agent stay as they are."""
    own = AioSession()
    options = {"s3": {"session": own, "config_kwargs": {"user_agent": "own"}}}
    theirs, _ = filesystem_of("s3://bucket/key", options)
    ours, _ = filesystem_of("s3://bucket/key")
    assert (theirs.session, theirs.config_kwargs["user_agent"]) == (own, "own")
    assert ours.config_kwargs["user_agent"] == USER_AGENT


def test_a_profile_is_the_sessions() -> None:
    """An option that s3fs hands on to the session that it makes itself."""
    filesystem, _ = filesystem_of("s3://bucket/key", {"s3": {"profile": "work"}})
    assert filesystem.session.profile == "work"


def handed_on(options: dict[str, Any]) -> dict[str, str]:
    """The options of a bucket that deltalake gets."""
    return s3_client({"s3": options}).object_store_options("s3://bucket/table")


def access_in(options: dict[str, str]) -> list[str | None]:
    """Key, secret and token among what is handed on."""
    return [options.get(f"aws_{name}") for name in ("access_key_id", "secret_access_key", "session_token")]


@pytest.fixture
def profiles(tmp_path: Path, s3_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of profiles; the environment names none of them."""
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = other\naws_secret_access_key = no\n"
        "[work]\naws_access_key_id = AK\naws_secret_access_key = SK\naws_session_token = TK\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


@pytest.mark.parametrize(
    ("options", "access"),
    [
        ({"key": "AK", "secret": "SK"}, ["AK", "SK", None]),
        ({"key": "AK", "secret": "SK", "token": "TK"}, ["AK", "SK", "TK"]),
        ({"profile": "work"}, ["AK", "SK", "TK"]),
        ({"client_kwargs": {"aws_access_key_id": "AK", "aws_secret_access_key": "SK"}}, ["AK", "SK", None]),
        ({}, [None, None, None]),
        ({"anon": True}, [None, None, None]),
    ],
)
def test_deltalake_is_given_the_credentials_that_options_lead_to(
    options: dict[str, Any], access: list[str | None], profiles: None
) -> None:
    """By whatever option; those of the environment it finds by itself."""
    assert access_in(handed_on(options)) == access


def test_deltalake_is_given_the_credentials_of_a_session(profiles: None) -> None:
    """An app in Python may bring its own."""
    assert access_in(handed_on({"session": AioSession(profile="work")})) == ["AK", "SK", "TK"]


def test_a_profile_without_credentials_is_reported_as_such(profiles: None, tmp_path: Path) -> None:
    """And not taken for a store that does not answer."""
    with pytest.raises(CredentialsError, match=r"profile .*absent"):
        handed_on({"profile": "absent"})
    (tmp_path / "credentials").write_text("[empty]\nregion = x\n")
    with pytest.raises(CredentialsError, match="there are no valid credentials: Unable to locate credentials"):
        handed_on({"session": AioSession(profile="empty")})


def test_deltalake_is_given_who_pays_and_how_objects_are_encrypted(s3_server: str) -> None:
    """An option that it has no name for is refused: it would write otherwise than dagflow does."""
    encryption = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "k1", "BucketKeyEnabled": True}
    found = handed_on({"requester_pays": True, "s3_additional_kwargs": encryption, "client_kwargs": {"verify": False}})
    given = {
        "aws_request_payer": "true",
        "aws_server_side_encryption": "aws:kms",
        "aws_sse_kms_key_id": "k1",
        "aws_sse_bucket_key_enabled": "true",
        "allow_invalid_certificates": "true",
    }
    assert {name: found.get(name) for name in given} == given
    assert not given.keys() & handed_on({}).keys()
    for options in (
        {"s3_additional_kwargs": {"ACL": "private"}},
        {"client_kwargs": {"api_version": "2006-03-01"}},
        {"config_kwargs": {"proxies": {"http": "http://127.0.0.1:1"}}},
    ):
        with pytest.raises(StorageError, match="cannot be handed on to deltalake"):
            handed_on(options)


def test_a_store_without_conditional_writes_says_so(s3_server: str, s3_root: str) -> None:
    """Where a journal begins, and where output is published; other requests that it does not know stay as they are."""
    message = "told by the store: the store does not know conditional writes.*\n *put the checkpoint on"
    with faulty_store(s3_server) as store:
        storage = StorageContext({"s3": {"endpoint_url": store.url, "key": "testing", "secret": "testing"}})
        store.faults = [Fault("PUT", "/heartbeat/1$|/out$", 501, "NotImplemented")]
        with pytest.raises(StorageError, match=f"cannot create heartbeat/1: .*{message}"):
            storage.objects(s3_root).create("heartbeat/1", b"1")
        empty = write(f"{s3_root}/out", b"")
        with pytest.raises(StorageError, match=f"cannot publish: .*{message}"):
            storage.backend(s3_root).pending.publish(empty)
        with pytest.raises(StorageError, match=r"cannot replace out: .*told by the store$"):
            storage.objects(s3_root).replace("out", b"1")


def test_a_body_that_breaks_off_is_requested_again(s3_server: str, s3_root: str) -> None:
    """The client does so with requests only; a run would end by one broken answer while its journal is read."""
    put(f"{s3_root}/a", b"0123456789")
    with faulty_store(s3_server) as store:
        storage = StorageContext({"s3": {"endpoint_url": store.url, "key": "testing", "secret": "testing"}})
        with storage.open_file(f"{s3_root}/a") as file:
            store.cuts = 2
            buffer = bytearray(3)
            assert file.read_into(4, memoryview(buffer)) == 3
            assert bytes(buffer) == b"456"
            store.cuts = 2
            assert storage.objects(s3_root).read("a") == b"0123456789"
            store.cuts = TRIES
            with pytest.raises(TransientStorageError, match="cannot read a: "):
                storage.objects(s3_root).read("a")
            assert store.cuts == 0

"""Options of stores, and the credentials among them."""

from __future__ import annotations

import pytest

from dagflow.errors import StorageError
from dagflow.storage.location import redacted
from dagflow.storage.options import backend_option, name_one_store, options_of, secrets_of, without_credentials
from tests.storage.shared import filesystem_of

SECRET = "wJalrXUtnFEMI"
OPTIONS = {"s3": {"endpoint_url": "http://127.0.0.1:9", "key": "AKIAQ7ZJ", "client_kwargs": {"aws_token": SECRET}}}


def test_options_hold_for_every_name_of_a_store() -> None:
    """What is said of s3 holds for s3a, and for nothing else."""
    assert options_of(OPTIONS, "s3")["key"] == options_of(OPTIONS, "s3a")["key"] == "AKIAQ7ZJ"
    assert options_of(OPTIONS, "gs") == {}


def test_names_of_one_store_with_other_options_are_two_stores() -> None:
    """Each may have an endpoint of its own; what is said of one name holds for the other ones."""
    assert name_one_store(OPTIONS, "s3", "s3a")
    assert name_one_store({}, "gs", "gcs")
    assert name_one_store({}, "hdfs", "hdfs")
    assert not name_one_store({**OPTIONS, "s3a": {"endpoint_url": "http://127.0.0.1:10"}}, "s3", "s3a")
    assert not name_one_store({}, "s3", "gs")
    assert not name_one_store({}, "hdfs", "viewfs")


def test_no_client_is_given_the_name_of_an_authors_backend() -> None:
    """It would not know the option; the backend holds for every name of the store."""
    options = {"s3": {"anon": True, "backend": "my_stores.Archive"}}
    assert options_of(options, "s3a") == {"anon": True}
    assert (backend_option(options, "s3a"), backend_option(options, "gs")) == ("my_stores.Archive", "")


def test_a_file_system_is_made_with_the_options_of_the_app() -> None:
    """With what they say, and without a cache of listings."""
    filesystem, path = filesystem_of("s3://bucket/key", OPTIONS)
    assert (filesystem.key, filesystem.endpoint_url, path) == ("AKIAQ7ZJ", "http://127.0.0.1:9", "bucket/key")
    assert filesystem.dircache.use_listings_cache is False


def test_whatever_is_not_known_to_be_harmless_is_a_secret() -> None:
    """At any depth; what says where a store is may be shown."""
    assert secrets_of(OPTIONS) == {"AKIAQ7ZJ", SECRET}
    assert secrets_of({"s3": {"endpoint_url": "http://me:hidden@host"}}) == {"http://me:hidden@host"}
    assert secrets_of({"abfs": {"own": ["in-a-list", {"deep": "deeper"}]}}) == {"in-a-list", "deeper"}
    assert secrets_of({"sftp": {"username": "a user", "port": 2222, "anon": True, "pw": "abc"}}) == set()


def test_a_clients_error_is_shown_without_them() -> None:
    """Clients quote what they were given."""
    assert without_credentials(f"key AKIAQ7ZJ, token {SECRET}, end", OPTIONS) == "key ***, token ***, end"


@pytest.mark.parametrize(
    "url",
    [
        "ftp://me:hidden@host/a",
        "ftp://me:hid@den@host/a",
        "sftp://:hidden@host",
        "simplecache::ftp://me:hidden@host/a",
        "https://host/a?X-Amz-Signature=hidden&x=1",
        "https://account.blob.core.windows.net/c/a?sv=2024&sig=hidden",
        "zip://a.log::https://host/x.zip?token=hidden",
        "zip://a.log::ftp://me:hidden@host/x.zip",
    ],
)
def test_a_location_with_a_credential_is_refused_and_not_shown(url: str) -> None:
    """Locations are journaled; the error says where the credential belongs."""
    with pytest.raises(StorageError, match=r"holds a credential(.|\n)*storage: \{") as caught:
        filesystem_of(url)
    assert "hid" not in str(caught.value).replace("***", "")
    assert "hid" not in redacted(url)


def test_the_link_that_holds_a_credential_is_named() -> None:
    """Only the link of a chain that needs a credential takes options for it."""
    with pytest.raises(StorageError, match=r"storage: \{https: \{\.\.\.: \$\{NAME\}\}\}"):
        filesystem_of("zip://a.log::https://host/x.zip?token=hidden")


@pytest.mark.parametrize("url", ["abfs://container@account.dfs.core.windows.net/a", "memory://a@b/c:d@e"])
def test_what_only_looks_like_a_user_is_no_credential(url: str) -> None:
    """Azure names containers where others name users, and names of files may hold any character."""
    if url.startswith("abfs"):
        assert redacted(url) == url
    else:
        assert filesystem_of(url)[1].endswith("c:d@e")

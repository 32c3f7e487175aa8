"""Names of settings, and texts, that show that a value is secret."""

from __future__ import annotations

import pytest

from dagflow.secret_names import (
    assigns_secret,
    is_secret,
    is_secret_flag,
    is_secret_name,
    is_secret_option,
    mentions_secret,
)


@pytest.mark.parametrize(
    "name",
    [
        "secret",
        "aws_secret_access_key",
        "spark.hadoop.fs.s3a.access.key",
        "accountKey",
        "apikey",
        "private_key",
        "passphrase",
        "pass",
        "dbPass",
        "DB_PW",
        "passwd",
        "sas",
        "auth",
        "oauth2",
        "Authorization",
        "Cookie",
        "connection_string",
        "creds",
    ],
)
def test_a_name_suggests_a_secret(name: str) -> None:
    """In any spelling, for every kind of setting."""
    assert is_secret_name(name) and is_secret_option(name)


@pytest.mark.parametrize(
    "name", ["path", "author", "bypasses", "disaster", "spin", "key", "keys", "max_keys", "by_key"]
)
def test_a_name_suggests_no_secret(name: str) -> None:
    """Also where it holds the letters of one that does; a key is a column as a rule."""
    assert not is_secret_name(name)


@pytest.mark.parametrize("name", ["key", "X-Key", "client_key_id"])
def test_a_key_of_a_store_or_header_is_a_secret(name: str) -> None:
    """Stores and headers have no columns that could be called so."""
    assert is_secret_option(name)


def test_a_switch_is_no_secret() -> None:
    """Whatever its name says."""
    assert not any(is_secret("spark.authenticate", value) for value in ("true", "False", ""))
    assert is_secret("spark.authenticate.secret", "abc")


def test_texts_that_give_a_secret_a_value() -> None:
    """As connection strings, mappings and command lines do."""
    texts = [
        "host=db password=abc",
        "{'api_key': 1}",
        "SharedAccess;AccountKey=abc",
        "notify --token abc",
        "${PW:-abc}",
    ]
    assert [text for text in texts if not assigns_secret(text)] == []
    assert not any(map(assigns_secret, ["a token", "${A_SECRET}/in", "key = 3", "--path token", "f-token x"]))


def test_words_of_a_command_that_announce_a_secret() -> None:
    """An option that holds its value itself announces none."""
    assert [is_secret_flag(word) for word in ("--password", "-token", "--password=abc", "password", "--path")] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_prose_that_speaks_of_secrets() -> None:
    """Or that is an option that was taken out; not what passes by."""
    assert all(map(mentions_secret, ["the password is abc", "key: abc", " sas = abc"]))
    assert not any(map(mentions_secret, ["the key of a record", "records pass by", "x: 1"]))


def test_long_texts_are_looked_at_in_one_go() -> None:
    """The time grows with the text, and not with its square."""
    for text in ("a" * 1_000_000, "a." * 500_000, "--a " * 250_000):
        assert not assigns_secret(text) and not mentions_secret(text)

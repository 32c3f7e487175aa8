import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.storage.location import (
    absolute,
    is_local,
    join,
    moved_with,
    name_of,
    parent,
    redacted,
    redacted_within,
)


@pytest.mark.parametrize("url", ["a/b", "/a/b", "file:///a/b", "a:b", "1s3://x", "é://x"])
def test_paths_and_file_urls_are_local(url: str) -> None:
    """Only what looks like a scheme is one."""
    assert is_local(url)


@pytest.mark.parametrize("url", ["s3://b/k", "memory://x", "gs://b", "simplecache::s3://b/k"])
def test_other_schemes_are_remote(url: str) -> None:
    """Everything that fsspec would have to open is remote."""
    assert not is_local(url)


def test_a_local_location_has_one_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths, file://, and slashes at the end and the beginning all name the same place."""
    monkeypatch.chdir(tmp_path)
    spellings = ["a/b", "./a/b/", "a/c/../b", f"file://{tmp_path}/a/b", f"{tmp_path}//a/b"]
    spellings += [f"{slashes}{tmp_path}/a/b" for slashes in ("/", "//", "file:///")]
    assert {absolute(url) for url in spellings} == {f"{tmp_path}/a/b"}
    assert {absolute(url) for url in ("/", "//", "///", "//..", "file:////")} == {"/"}


def test_a_remote_location_loses_only_slashes_at_its_end() -> None:
    """Keys of object stores are not paths: dots and double slashes mean themselves."""
    assert absolute("s3://b/a/../c//d/") == "s3://b/a/../c//d"
    assert absolute("memory://") == "memory://"


def test_a_relative_path_is_moved_to_another_working_directory() -> None:
    """A location that was given relative to the working directory lies elsewhere in another one."""
    assert moved_with("/now/out/a", "/was", "/now") == "/was/out/a"
    assert moved_with("s3://b/out", "/was", "/now") == "s3://b/out"


NAMES = st.binary(min_size=1, max_size=20).filter(lambda b: b"/" not in b and b"\0" not in b).map(os.fsdecode)


@given(root=st.sampled_from(["/", "/a", "s3://b", "memory://"]), names=st.lists(NAMES, min_size=1, max_size=4))
def test_a_joined_name_can_be_taken_apart(root: str, names: list[str]) -> None:
    """Whatever bytes a name has, join, parent and name_of agree."""
    url = join(root, *names)
    assert name_of(url) == names[-1]
    assert join(parent(url), name_of(url)) == url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("ftp://me:secret@host/a@b", "ftp://***@host/a@b"),
        ("s3://key@bucket/a", "s3://***@bucket/a"),
        ("https://host/a?sig=secret", "https://host/a?***"),
        ("s3://bucket/a?b", "s3://bucket/a?b"),
        ("/a/me:x@b", "/a/me:x@b"),
        ("zip://a?.log::https://host/x.zip?token=a::b", "zip://a?.log::https://host/x.zip?***"),
        ("zip://a.log::ftp://me:secret@host/x.zip", "zip://a.log::ftp://***@host/x.zip"),
        ("zip://a.log::abfs://box@store/x.zip", "zip://a.log::abfs://box@store/x.zip"),
        ("tar://a::zip://b::HTTPS://me@host/c?sig=d", "tar://a::zip://b::HTTPS://***@host/c?***"),
    ],
)
def test_no_secret_is_shown(url: str, shown: str) -> None:
    """Users, passwords and signatures never reach a message; names of files do."""
    assert redacted(url) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ftp://me:p/w@d@host/a", "ftp://***@host/a"),
        ("from redis://u:a b@h/0 to x", "from redis://***@h/0 to x"),
        ("s3://key@bucket/a", "s3://***@bucket/a"),
        ("s3://bucket/a@b:c", "s3://bucket/a@b:c"),
        ("abfss://box@account/a, wasb://me:pw@account/a", "abfss://box@account/a, wasb://***@account/a"),
        ("see HTTPS://host/a?sig=b and c?", "see HTTPS://host/a?*** and c?"),
        ("mail me@host", "mail me@host"),
    ],
)
def test_no_secret_of_a_url_in_a_text_is_shown(text: str, shown: str) -> None:
    """Also where a password holds what ends a login as a rule."""
    assert redacted_within(text) == shown


def test_a_long_text_is_looked_at_in_one_go() -> None:
    """The time grows with the text, and not with its square."""
    for text in ("://" * 300_000, "http://" * 150_000, "a:" * 500_000):
        assert redacted_within(text) == text

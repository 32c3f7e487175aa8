"""Locations that are remembered by the names of their roots."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.errors import StorageError
from dagflow.storage.location import Roots

urls = st.from_regex(r"(/mnt|/mnt/data|/mnt/database|s3://b/logs|s3://b)(/[a-z\n ]{0,3}){0,3}", fullmatch=True)
BEFORE = {"data": "/mnt/data", "logs": "s3://b/logs"}
AFTER = {"data": "/srv/elsewhere", "logs": "/mnt/logs"}
ROOTS = Roots.of(BEFORE)


@given(urls)
def test_what_is_shortened_is_expanded_to_where_its_root_is(url: str) -> None:
    """To the same location while the root stays, to its new one when it was moved; others stay as they are."""
    text, name = ROOTS.shorten(url), ROOTS.name_of(url)
    assert ROOTS.expand(text) == url
    assert (text != url) == bool(name)
    assert Roots.of(AFTER).expand(text) == (AFTER[name] + url.removeprefix(BEFORE[name]) if name else url)


LOCATIONS = st.sampled_from(["/", "/srv/x"])


@given(st.from_regex(r"(/[a-z]{1,3}){0,3}", fullmatch=True), LOCATIONS, LOCATIONS)
def test_the_root_of_the_disk_is_a_root_like_others(rest: str, before: str, after: str) -> None:
    """What lies in it moves to another root, and from another one to it."""
    short = Roots.of({"all": before}).shorten(before.rstrip("/") + rest or before)
    assert Roots.of({"all": after}).expand(short) == (after.rstrip("/") + rest or after)


def test_only_whole_names_are_taken_for_a_root() -> None:
    """What begins alike lies elsewhere."""
    assert ROOTS.shorten("/mnt/database/a") == "/mnt/database/a"
    assert ROOTS.shorten("/mnt/data") != "/mnt/data"


def test_texts_in_json_values_are_shortened_wherever_they_stand() -> None:
    """In lists and mappings, as keys too; without roots nothing is even looked at."""
    value = {"files": [{"/mnt/data/a": ["/mnt/data/b", 1, None]}], "other": "/x"}
    short = ROOTS.shorten_all(value)
    assert "/mnt/data" not in repr(short)
    assert ROOTS.expand_all(short) == value
    assert Roots().shorten_all(value) is value


def test_roots_do_not_lie_in_each_other() -> None:
    """It would not be clear which of them a file moves with."""
    with pytest.raises(StorageError, match="root 'b' lies in root 'a'"):
        Roots.of({"a": "/x", "b": "/x/y", "c": "/x-z"})


def test_what_is_read_lies_in_one_root_or_in_none() -> None:
    """Keys below a location that holds a root would have no common order."""
    assert ROOTS.key_prefix(b"/mnt/data/sub") == (b"/mnt/data", b"\0data")
    assert ROOTS.key_prefix(b"/other") == (b"", b"")
    with pytest.raises(StorageError, match="root 'data' lies below it"):
        ROOTS.key_prefix(b"/mnt")

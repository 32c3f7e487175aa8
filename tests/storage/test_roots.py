"""Locations that are remembered by the names of their roots."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.errors import StorageError
from dagflow.storage.roots import (
    expanded,
    expanded_all,
    key_prefix,
    root_of,
    roots_in_use,
    shortened,
    shortened_all,
)

urls = st.from_regex(r"(/mnt|/mnt/data|/mnt/database|s3://b/logs|s3://b)(/[a-z\n ]{0,3}){0,3}", fullmatch=True)
BEFORE = {"data": "/mnt/data", "logs": "s3://b/logs"}
AFTER = {"data": "/srv/elsewhere", "logs": "/mnt/logs"}


@given(urls)
def test_what_is_shortened_is_expanded_to_where_its_root_is(url: str) -> None:
    """To the same location while the root stays, to its new one when it was moved; others stay as they are."""
    with roots_in_use(BEFORE):
        text, name = shortened(url), root_of(url)
        assert expanded(text) == url
        assert (text != url) == bool(name)
    with roots_in_use(AFTER):
        assert expanded(text) == (AFTER[name] + url.removeprefix(BEFORE[name]) if name else url)


def test_only_whole_names_are_taken_for_a_root() -> None:
    """What begins alike lies elsewhere."""
    with roots_in_use(BEFORE):
        assert shortened("/mnt/database/a") == "/mnt/database/a"
        assert shortened("/mnt/data") != "/mnt/data"


def test_texts_in_json_values_are_shortened_wherever_they_stand() -> None:
    """In lists and mappings, as keys too; without roots nothing is even looked at."""
    value = {"files": [{"/mnt/data/a": ["/mnt/data/b", 1, None]}], "other": "/x"}
    with roots_in_use(BEFORE):
        short = shortened_all(value)
        assert "/mnt/data" not in repr(short)
        assert expanded_all(short) == value
    assert shortened_all(value) is value


def test_roots_do_not_lie_in_each_other() -> None:
    """It would not be clear which of them a file moves with."""
    with (
        pytest.raises(StorageError, match="root 'b' lies in root 'a'"),
        roots_in_use({"a": "/x", "b": "/x/y", "c": "/x-z"}),
    ):
        pass


def test_what_is_read_lies_in_one_root_or_in_none() -> None:
    """Keys below a location that holds a root would have no common order."""
    with roots_in_use(BEFORE):
        assert key_prefix(b"/mnt/data/sub") == (b"/mnt/data", b"\0data")
        assert key_prefix(b"/other") == (b"", b"")
        with pytest.raises(StorageError, match="root 'data' lies below it"):
            key_prefix(b"/mnt")

"""How a run reaches storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.errors import StorageError
from dagflow.storage.context import StorageContext


def test_an_empty_location_is_not_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a user works on is never listed or deleted because a location was not set."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StorageError, match="an empty location holds no objects"):
        StorageContext.default().objects("")


@pytest.mark.parametrize(
    ("url", "other", "expected"),
    [
        ("s3a://b/in/out", "s3://b/in", "s3://b/in/out"),
        ("s3://b/out", "s3a://c", "s3a://b/out"),
        ("gs://b/out", "s3://b", "gs://b/out"),
        ("/s3a/out", "s3://b", "/s3a/out"),
        ("s3a://b/out", "/in", "s3a://b/out"),
        ("zip://a::s3a://b/out", "s3://b", "zip://a::s3a://b/out"),
    ],
)
def test_locations_are_compared_by_one_scheme_of_a_store(url: str, other: str, expected: str) -> None:
    """The same bucket may be named by several schemes."""
    assert StorageContext.default().named_like(url, other) == expected

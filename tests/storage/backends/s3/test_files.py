"""Files in S3's buckets."""

from __future__ import annotations

import pytest

from dagflow.errors import SourceChangedError
from tests.storage.shared import STORAGE, put, s3_client


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

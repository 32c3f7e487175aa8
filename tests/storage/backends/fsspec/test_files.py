"""Files of any store that fsspec reaches."""

from __future__ import annotations

import uuid

import fsspec
import pytest

from tests.storage.shared import STORAGE


def test_a_directory_that_cannot_be_listed_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Fsspec has no path for one without a name: what else there is is listed, and a warning says what is not."""
    place = uuid.uuid4().hex
    for name in ("a", "/b", "c/d", "c//e"):
        fsspec.filesystem("memory").pipe_file(f"/{place}/{name}", b"12")
    for _ in range(2):
        names = [each.url.rpartition("/")[2] for each in STORAGE.list_directory(f"memory://{place}")]
        assert names == ["a", "c"]
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.endswith(f"url=memory://{place}//")

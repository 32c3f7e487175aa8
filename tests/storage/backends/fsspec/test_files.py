"""Files of any store that fsspec reaches."""

from __future__ import annotations

import uuid

import fsspec
import pytest

from dagflow.errors import StorageError
from dagflow.storage.backends.fsspec.files import stat_of
from tests.storage.shared import STORAGE


def test_a_directory_that_cannot_be_listed_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """Fsspec has no path for one without a name: what else there is is listed, and a warning says what is not."""
    place = uuid.uuid4().hex
    for name in ("a", "/b", "c/d", "c//e"):
        fsspec.filesystem("memory").pipe_file(f"/{place}/{name}", b"12")
    for _ in range(2):
        names = [each.url.rpartition("/")[2] for each in STORAGE.list_directory(f"memory://{place}")]
        assert names == ["a", "c"]
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.endswith(f"url=memory://{place}//")


def test_content_under_the_name_of_a_directory_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """An object whose key ends in a slash is shown without a name; an empty one only says that a directory is there."""
    place = uuid.uuid4().hex
    memory = fsspec.filesystem("memory")
    for name, data in (("a", b"12"), ("b/c", b"12"), ("full", b"12"), ("empty", b"")):
        memory.pipe_file(f"/{place}/{name}", data)
    for directory, name in (("", "full"), ("b/", "empty")):  # its own functions take the slash off
        memory.store[f"/{place}/{directory}"] = memory.store.pop(f"/{place}/{name}")
    shown = [(each.url, each.size_bytes) for each in STORAGE.list_directory(f"memory://{place}")]
    assert shown == [(f"memory://{place}/{name}", size) for name, size in (("", 2), ("a", 2), ("b", 0))]
    assert [each.url for each in STORAGE.list_directory(f"memory://{place}/b")] == [f"memory://{place}/b/c"]
    assert not caplog.records


@pytest.mark.parametrize(
    ("modified", "seconds"),
    [("20261123100000", 1795428000), ("20261123100000.123", 1795428000), ("Nov 23 10:00", 0), ("", 0)],
)
def test_a_file_of_ftp_has_the_time_that_its_server_says(modified: str, seconds: int) -> None:
    """The time in a listing for people is not used: it changes its form when the file is half a year old."""
    found = stat_of("ftp://h/a", {"type": "file", "size": 3, "modify": modified})
    assert (found.size_bytes, found.mtime_ns) == (3, seconds * 10**9)


def test_a_file_without_a_size_is_not_an_empty_one() -> None:
    """An empty file would count as read."""
    assert stat_of("x://h/a", {"type": "file", "size": 0}).size_bytes == 0
    for info in ({"size": None}, {}):
        with pytest.raises(StorageError, match="does not say how long"):
            stat_of("x://h/a", {"type": "file", **info})

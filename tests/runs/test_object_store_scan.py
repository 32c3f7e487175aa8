from __future__ import annotations

from typing import Any

import fsspec
import pytest

from dagflow.api.context import WindowBudget
from dagflow.errors import MissingError
from operators.splitter import FileSplitterInput
from tests.operators.splitter.splitter_driver import InProcessServices, SplitterDriver


def put(url: str, content: bytes = b"0123456789") -> None:
    """Write an object."""
    fsspec.core.url_to_fs(url)[0].pipe_file(url, content)


def split(
    *files: str, services: InProcessServices | None = None, state: Any = None, **properties: Any
) -> SplitterDriver:
    """A run to completion."""
    return SplitterDriver(FileSplitterInput(files=list(files), **properties), services, state)


def test_a_bucket_is_scanned_as_a_directory_is(s3_root: str) -> None:
    """The same order, the same hidden names, the same blocks."""
    for name in ("a/z", "a-b", "a.b", "a/b/c", "_SUCCESS", ".hidden", "Z"):
        put(f"{s3_root}/{name}")
    window = split(s3_root, block_size=6).everything()
    assert [file.url for file in window.files if not file.is_directory] == [
        f"{s3_root}/{name}" for name in ("Z", "a-b", "a.b", "a/b/c", "a/z")
    ]
    assert window.ranges == [(0, 6), (6, 10)] * 5
    assert all(block.version.etag for block in window.blocks)


def test_a_glob_goes_over_a_bucket(s3_root: str) -> None:
    """Locations on one store are merged: an object is given once, as the outermost location has it."""
    for name in ("2026/01/a.log", "2026/02/b.log", "2026/02/b.txt", "other/c.log"):
        put(f"{s3_root}/{name}")
    found = split(f"{s3_root}/2026/*/*.log", f"{s3_root}/**/c.log", f"{s3_root}/2026/01/a.log").window().paths
    assert found == ["01/a.log", "02/b.log", "other/c.log"]


def test_what_is_not_in_a_bucket_is_an_error(s3_root: str) -> None:
    """With the nearest name."""
    put(f"{s3_root}/access.log")
    with pytest.raises(MissingError, match=r"no such file or directory\n.*did you mean s3://.*/access.log\?"):
        split(f"{s3_root}/acces.log").window()
    with pytest.raises(MissingError, match="the glob matches nothing"):
        split(f"{s3_root}/x*").window()


def test_an_object_is_known_by_its_etag(s3_root: str) -> None:
    """The same content put again is no news; other content is a replacement, also when it is longer."""
    put(f"{s3_root}/same")
    put(f"{s3_root}/other")
    state = split(s3_root).everything().state
    put(f"{s3_root}/same")
    put(f"{s3_root}/other", b"0123456789 and more")
    driver = split(s3_root, state=state)
    window = driver.everything()
    assert (window.paths, window.ranges) == (["other"], [(0, 19)])
    assert driver.counters["files_replaced"] == 1


@pytest.mark.nightly
def test_an_index_in_a_bucket_survives_a_restart(s3_root: str) -> None:
    """Runs are objects, and a driver anywhere goes on with them."""
    for number in range(520):
        put(f"{s3_root}/in/{number:03}", b"")
    services = InProcessServices(state_url=f"{s3_root}/checkpoint/index", budget=WindowBudget(510, 100))
    first = split(f"{s3_root}/in", services=services).window()
    assert [run.level for run in first.state.taken.index.runs] == [0]
    rest = split(f"{s3_root}/in", services=services, state=first.state).everything()
    assert first.paths + rest.paths == [f"{number:03}" for number in range(520)]

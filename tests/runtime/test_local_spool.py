"""Files that carry items to the tasks of a higher level."""

from __future__ import annotations

import contextlib
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dagflow.errors import MissingError, StorageError
from dagflow.execution.messages import PickledTuples, ShuffleItem
from dagflow.plan.physical import PortRef
from dagflow.runtime.local import SpoolWriter, read_spooled
from tests.small_disk import disk

__all__ = ["disk"]


def item_of(size: int) -> ShuffleItem:
    return ShuffleItem(1, 0, (0,), PortRef("lines", "samples"), PickledTuples.of([b"x" * size]))


def stored(directory: Path, sizes: list[int]) -> None:
    with SpoolWriter(str(directory)) as spool:
        for size in sizes:
            spool.write(item_of(size))


def full(root: Path) -> Path:
    with (root / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    return root


@pytest.mark.parametrize("sizes", [[1 << 20], [100] * 3000, [100]], ids=["large", "many", "close"])
def test_a_full_disk_is_named_with_what_helps(disk: Callable[[str], Path], sizes: list[int]) -> None:
    """Whether the first bytes do not fit, or the last ones, which are written when the file is closed."""
    root = full(disk("size=64k"))
    with pytest.raises(StorageError, match=rf"^{root}: cannot store records .*No space left") as caught:
        stored(root, sizes)
    assert "free some space" in caught.value.hint and "let TMPDIR name a directory" in caught.value.hint


def test_a_limit_of_the_size_of_files_is_named(tmp_path: Path) -> None:
    """The disk may have space."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    try:
        with pytest.raises(StorageError, match=rf"^{tmp_path}: cannot store records .*too large\n.*ulimit -f"):
            stored(tmp_path, [1 << 20])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_directory_that_is_gone_is_named(tmp_path: Path) -> None:
    """A system that tidies up may remove it before the first item, or before it is read."""
    place = tmp_path / "place"
    with pytest.raises(MissingError, match=f"^{place}: cannot store records that go to another stage"):
        stored(place, [1])
    place.mkdir()
    with SpoolWriter(str(place)) as spool:
        spool.write(item_of(1))
    assert list(read_spooled(spool.spooled)) == [item_of(1)]
    shutil.rmtree(place)
    with pytest.raises(MissingError, match=f"^{place}/.*: cannot read records that come from another stage"):
        list(read_spooled(spool.spooled))


def test_the_first_error_is_the_one_that_is_raised(disk: Callable[[str], Path]) -> None:
    """What a task had stored does not fit either, and does not matter any more."""
    with pytest.raises(ValueError, match="an operator's"), SpoolWriter(str(full(disk("size=64k")))) as spool:
        spool.write(item_of(100))
        raise ValueError("an operator's")

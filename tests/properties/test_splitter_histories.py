"""Any history of a directory: each version of each file is announced once, and its blocks cover it exactly."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.files.metadata import BlockMetadata
from tests.nightly import examples
from tests.operators.splitter.splitter_driver import FollowingDriver

PATHS = st.sampled_from(["a", "b", "b.txt", "c/a", "c/d/e", "c-"])
CONTENTS = st.binary(min_size=1, max_size=40)


def write_in_place(path: Path, content: bytes) -> None:
    """Create a file, or overwrite it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def append(path: Path, content: bytes) -> None:
    """Append to a file, if it is there."""
    if path.exists():
        with path.open("ab") as file:
            file.write(content)


def replace(path: Path, content: bytes) -> None:
    """Rename another file over it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    other = path.with_name(".other")
    other.write_bytes(content)
    other.rename(path)


def delete(path: Path, _: bytes) -> None:
    """Delete a file, if it is there."""
    path.unlink(missing_ok=True)


def empty(path: Path, _: bytes) -> None:
    """Truncate a file to nothing, or create it empty."""
    write_in_place(path, b"")


Act = tuple[Callable[[Path, bytes], None], str, bytes]
ACTS = st.tuples(st.sampled_from([write_in_place, append, replace, delete, empty]), PATHS, CONTENTS)


class Model:
    """What was taken of each path, and what must be read of it next."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._taken: dict[str, tuple[int, int, bytes]] = {}

    def due(self) -> dict[str, tuple[int, int]]:
        """By path the range of the bytes that are to be read, of all files that are not as they were taken."""
        found = {}
        for path in (each for each in self._root.rglob("*") if each.is_file()):
            name, status, content = str(path.relative_to(self._root)), path.stat(), path.read_bytes()
            inode, mtime_ns, before = self._taken.get(name, (0, 0, b""))
            if not inode:
                found[name] = (0, len(content))
            elif (len(before), mtime_ns) != (len(content), status.st_mtime_ns):
                is_append = inode == status.st_ino and len(content) > len(before) and content.startswith(before)
                found[name] = (len(before) if is_append else 0, len(content))
            self._taken[name] = status.st_ino, status.st_mtime_ns, content
        return found


def merged(blocks: list[BlockMetadata], block_size: int) -> tuple[int, int]:
    """The range that the blocks of one file cover without a gap, each cut at multiples of the block size."""
    for before, after in itertools.pairwise(blocks):
        assert after.start == before.end
        assert after.previous_block_id == before.block_id
        assert after.start % block_size == 0
    assert [block.is_last for block in blocks] == [False] * (len(blocks) - 1) + [True]
    assert all(block.size_bytes <= block_size for block in blocks)
    return blocks[0].start, blocks[-1].end


@settings(max_examples=examples(60), deadline=None)  # a tree is written for each
@given(
    rounds=st.lists(st.lists(ACTS, max_size=6), min_size=1, max_size=5),
    block_size=st.integers(1, 50),
    batch_bytes=st.sampled_from([0, 320, 1 << 20]),
    blocks_threshold=st.sampled_from([None, 1, 3]),
    is_restarted=st.booleans(),
)
def test_each_version_is_announced_once_and_covered_by_its_blocks(
    tmp_path_factory: pytest.TempPathFactory,
    rounds: list[list[Act]],
    block_size: int,
    batch_bytes: int,
    blocks_threshold: int | None,
    is_restarted: bool,
) -> None:
    """Files are added, appended to, replaced, emptied and deleted between scans, and the splitter may be restarted."""
    root = tmp_path_factory.mktemp("tree")
    properties: dict[str, Any] = {
        "block_size": block_size,
        "batch_bytes": batch_bytes,
        "blocks_threshold": blocks_threshold,
    }
    model, modified, state = Model(root), itertools.count(1), None
    follower = FollowingDriver(files=str(root), **properties)
    try:
        for number, acts in enumerate(rounds):
            for act, name, content in acts:
                act(root / name, content)
                if (root / name).exists():
                    # Two versions of one length must not have one time.
                    os.utime(root / name, ns=(0, next(modified) * 10**9))
            due = model.due()
            first = follower.next_scan() if number and not is_restarted else follower.scanned()
            windows = [first, *follower.windows()]
            announced = [file for window in windows for file in window.files if not file.is_directory]
            blocks = [block for window in windows for block in window.blocks]
            assert sorted(file.relative_path for file in announced) == sorted(due)
            for file in announced:
                own = [block for block in blocks if block.url == file.url]
                start, end = due[file.relative_path]
                assert len(own) == file.block_count == (-(-end // block_size) - start // block_size if end else 0)
                assert not own or merged(own, block_size) == (start, end)
            assert len(blocks) == sum(file.block_count for file in announced)
            if is_restarted:
                state = follower.window().state
                follower.following.teardown()
                follower = FollowingDriver(files=str(root), state=state, **properties)
    finally:
        follower.following.teardown()

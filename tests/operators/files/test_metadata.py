"""Files and blocks as the journal keeps them."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from dagflow.api.saved_values import RowTable, RowTuple
from operators.files.metadata import BlockMetadata, Continuation, DecompressedRange, FileMetadata, FileVersion

BLOCKS = st.builds(
    BlockMetadata,
    block_id=st.integers(1, 9),
    url=st.sampled_from(["a", "b"]),
    version=st.builds(FileVersion, st.integers(0, 2), st.integers(0, 1)),
    start=st.integers(0, 4),
    end=st.integers(4, 9),
    is_last=st.booleans(),
    previous_block_id=st.integers(-1, 3),
    entry_state=st.integers(0, 1),
    continuation=st.builds(
        Continuation,
        is_open=st.booleans(),
        resumes=st.booleans(),
        fingerprint=st.integers(0, 1),
        content_start=st.integers(0, 1),
        tail_start=st.integers(0, 1),
        is_gone=st.booleans(),
        read_fingerprint=st.integers(0, 1),
        moved_from=st.sampled_from(["", "c"]),
        decompressed=st.sampled_from(
            [None, *(DecompressedRange(n, n, n, n, n, n) for n in (0, 1)), DecompressedRange(0, 1, 2, 3, 4, 5)]
        ),
    ),
)

T = TypeVar("T", bound=RowTuple)


def through_json(kind: type[T], tuples: list[T]) -> list[T]:
    """Tuples after they were written as JSON and read back."""
    return list(kind.from_table(RowTable(**json.loads(json.dumps(asdict(kind.to_table(tuples)))))))


@given(st.lists(BLOCKS, max_size=8))
def test_unpacking_gives_back_the_blocks_that_were_packed(blocks: list[BlockMetadata]) -> None:
    """Whatever blocks follow each other, also such as no splitter would make."""
    assert through_json(BlockMetadata, blocks) == blocks


def test_a_big_file_is_one_row_however_many_blocks_it_has() -> None:
    """The journal's plan of a window grows with its files, not with its blocks."""
    version = FileVersion(1_000_005, 1)
    blocks = [
        BlockMetadata(
            index + 7,
            "big",
            version,
            index * 10,
            min(index * 10 + 10, 1_000_005),
            index == 100_000,
            index + 6 if index else -1,
        )
        for index in range(100_001)
    ]
    packed = BlockMetadata.to_table(blocks)
    assert len(packed.rows) == 1
    assert list(BlockMetadata.from_table(packed)) == blocks


FILES = st.builds(
    FileMetadata,
    url=st.text(),
    relative_path=st.text(),
    version=st.builds(FileVersion, st.integers(0, 9), st.integers(0, 9), st.text(), st.integers(0, 9)),
    block_size=st.integers(0, 9),
    first_block_id=st.integers(0, 9),
    block_count=st.integers(0, 9),
    is_directory=st.booleans(),
    discovered_ms=st.integers(0, 9),
)


@given(st.lists(FILES, max_size=4))
def test_files_come_back_as_they_were(files: list[FileMetadata]) -> None:
    """With each of their attributes."""
    assert through_json(FileMetadata, files) == files


def test_an_etag_is_an_identity_and_otherwise_the_inode_is() -> None:
    """The index holds a number for either."""
    assert FileVersion(1, 2, "", 77).identity == 77
    assert (
        FileVersion(1, 2, "abc").identity == FileVersion(5, 6, "abc", 9).identity != FileVersion(1, 2, "abd").identity
    )

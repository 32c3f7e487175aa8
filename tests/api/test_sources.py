"""The sources of output files as numbers, and the blocks of parts of a batch."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.api.records import LINE_FEED, UNKNOWN, Origin, RecordBatch
from dagflow.api.sources import (
    UNKNOWN_BLOCK,
    FileSources,
    block_id_of,
    block_runs,
    decode_sources,
    discovered_ms_of,
    encode_sources,
    is_file_part,
    is_source_range,
    moved_from_of,
    url_of,
)
from operators.files.metadata import BlockMetadata, FileInfo, FileMetadata, FileVersion

IDS = st.lists(st.integers(0, 40) | st.integers(2**60, 2**60 + 9), max_size=12)
SOURCES = st.builds(FileSources.of, IDS, st.none(), st.integers(-1, 9), st.integers(-1, 9))


@given(st.lists(st.none() | SOURCES, max_size=6))
def test_sources_come_back_as_they_were_written(files: list[FileSources | None]) -> None:
    """In any order of ids, also where those of some files are not known."""
    encoded = json.loads(json.dumps(encode_sources(files)))
    assert decode_sources(encoded, len(files)) == files


@given(IDS)
def test_ids_are_kept_as_runs(ids: list[int]) -> None:
    """Each id once, ascending, with the sum of its counts."""
    sources = FileSources.of(ids, [number + 1 for number in range(len(ids))])
    assert sources.counts == tuple(
        sum(number + 1 for number, other in enumerate(ids) if other == block_id) for block_id in sources.ids()
    )
    assert sources.ids() == sorted(set(ids))
    assert all(a + n < b for a, n, b in zip(sources.runs[::2], sources.runs[1::2], sources.runs[2::2], strict=False))


def test_sources_of_thousands_of_files_compress_to_nearly_nothing() -> None:
    """Numbers of blocks have sixteen digits, most of them equal; what is not known takes nothing."""
    files = [FileSources.of([(3 << 48) + number]) for number in range(10_000)]
    assert len(zlib.compress(json.dumps(encode_sources(files)).encode())) < 3 * len(files)
    assert encode_sources([None, None]) == []


@dataclass(frozen=True)
class NumberedBlock:
    """A block."""

    block_id: int


def ids_of(batch: RecordBatch, first: int, last: int) -> list[int]:
    """The ids of known blocks."""
    found = block_runs(batch, first, last)
    assert found is not None
    return sorted(set(map(int, found[0])))


def test_the_blocks_of_a_part_of_a_batch_are_those_of_its_records() -> None:
    """And not known where an operator did not keep them."""
    blocks = tuple(map(NumberedBlock, [5, 6, 9]))
    records = [b"a", b"b", b"c", b"d"]
    batch = RecordBatch.from_records(records, LINE_FEED, Origin(blocks, None, 0, np.array([0, 2, 2, 1], np.int32)))
    assert ids_of(batch, 0, 4) == [5, 6, 9]
    assert ids_of(batch, 1, 3) == [9]
    assert ids_of(batch.take(np.array([3, 0])), 0, 1) == [6]
    assert ids_of(batch.filter(pa.array([True, False, False, True])), 0, 2) == [5, 6]
    unknown = RecordBatch.from_records(
        records, LINE_FEED, Origin(blocks, None, 0, np.array([0, UNKNOWN, 2, 1], np.int32))
    )
    assert block_runs(unknown, 0, 4) is None
    assert ids_of(unknown, 2, 4) == [6, 9]
    assert block_runs(RecordBatch.from_records(records, LINE_FEED, None), 0, 4) is None
    assert ids_of(RecordBatch.from_records([], LINE_FEED, Origin(blocks[:1])), 0, 0) == [5]
    assert block_runs(RecordBatch.from_records(records, LINE_FEED, Origin(("own class",))), 0, 4) is None


@given(
    st.lists(st.sampled_from([0, 1, 2, UNKNOWN]), min_size=1, max_size=12),
    st.lists(st.lists(st.booleans(), min_size=12, max_size=12), max_size=2),
    st.integers(0, 12),
    st.integers(1, 12),
)
def test_blocks_are_found_behind_filters_as_record_by_record(
    codes: list[int], masks: list[list[bool]], first: int, count: int
) -> None:
    """Whatever filters left, and whichever part of it goes to a file."""
    blocks = tuple(map(NumberedBlock, [5, 6, 9]))
    origin = Origin(blocks, None, 0, np.array(codes, np.int32))
    batch, left = RecordBatch.from_records([b"a"] * len(codes), LINE_FEED, origin), codes
    for mask in masks:
        batch = batch.filter(pa.array(mask[: len(left)], pa.bool_()))
        left = [code for code, is_kept in zip(left, mask, strict=False) if is_kept]
    for start, end in ((0, len(left)), (first, min(first + count, len(left)))):
        if start < end:
            found = block_runs(batch, start, end)
            read = [blocks[code].block_id for code in left[start:end] if code != UNKNOWN]
            expected = None if UNKNOWN in left[start:end] else read
            assert (found if found is None else np.repeat(*found).tolist()) == expected


@dataclass(frozen=True)
class Part:
    """A tuple of an author's class that names no version."""

    url: str
    start: int
    end: int


@dataclass(frozen=True)
class VersionPart(Part):
    """And one that names it, without an id."""

    version: FileVersion


VERSION = FileVersion(9)
BLOCK = BlockMetadata(7, "a", VERSION, 0, 9, is_last=True, discovered_ms=5).continued(moved_from="b")


@pytest.mark.parametrize(
    ("item", "is_part", "is_range"),
    [
        (BLOCK, True, True),
        (VersionPart("a", 0, 9, VERSION), True, True),
        (Part("a", 0, 9), True, False),
        (FileMetadata("a", "a", VERSION, 4, 7, 3), False, False),
        (FileInfo("a"), False, False),
        (7, False, False),
        (None, False, False),
    ],
)
def test_a_tuple_of_any_class_may_name_a_range_of_a_file(item: Any, is_part: bool, is_range: bool) -> None:
    """By its attributes: it extends nothing."""
    assert (is_file_part(item), is_source_range(item)) == (is_part, is_range)
    assert url_of(item) == ("" if item in (7, None) else "a")


def test_what_a_tuple_does_not_say_of_its_file_is_not_known() -> None:
    """Its id, the time of its discovery and its earlier name."""
    part = Part("a", 0, 9)
    assert (block_id_of(BLOCK), discovered_ms_of(BLOCK), moved_from_of(BLOCK)) == (7, 5, "b")
    assert (block_id_of(part), discovered_ms_of(part), moved_from_of(part)) == (UNKNOWN_BLOCK, 0, "")

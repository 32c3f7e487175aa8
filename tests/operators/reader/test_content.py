"""Compressed files that are read while they are written, or appended to."""

from __future__ import annotations

import gzip
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dagflow.metrics.names import RESUMED_BYTES, WAITING_BYTES
from operators.files.metadata import BlockMetadata, FileVersion
from operators.reader.compression.stream import CorruptArchiveError, IncompleteArchiveError
from operators.reader.content import ContentReader
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting
from operators.testing import MemorySource, Records, read_cut
from tests.nightly import by_day, examples
from tests.operators.reader.test_content_compression import COMPRESS, SUFFIX, skippable

FORMATS: list[Any] = [
    "lines",
    {"type": "lines", "skip_header": 1},
    "paragraphs",
    {"type": "fixed", "length": 3},
    {"type": "csv", "columns": ["a"], "header": False},
    {"type": "xml", "tag": "a"},
]
PIECES = ["a", "\n", '"', "<a/>", "<a>", "</a>"]
CONTENTS = st.lists(st.sampled_from(PIECES), max_size=9).map(lambda pieces: "".join(pieces).encode())


def read_version(
    format: Any, url: str, compressed: bytes, start: int, accounting: ByteAccounting, *, is_open: bool = True
) -> Records:
    """What the block from where the version before ended to the end of this one gives."""
    version = FileVersion(len(compressed))
    block = BlockMetadata(1, url, version, start, len(compressed), True).continued(is_open=is_open, resumes=start > 0)
    made = RECORD_FORMATS.make(format)
    records: Records = []
    for batch in ContentReader(made, "auto").read(MemorySource(compressed), block, accounting):
        raw = accounting.parse(made, batch).raw
        records += zip(raw.offsets().tolist(), raw.to_pylist(), strict=True)
    return records


@settings(max_examples=examples(80))
@given(
    compression=st.sampled_from(sorted(COMPRESS)),
    format=st.sampled_from(FORMATS),
    parts=st.lists(CONTENTS, min_size=1, max_size=4),
    data=st.data(),
)
def test_a_growing_file_gives_each_record_once(
    compression: str, format: Any, parts: list[bytes], data: st.DataObject
) -> None:
    """Whenever it is looked at: the records of the compressed content; the last one may wait for its end."""
    compressed = b"".join(map(COMPRESS[compression], parts))
    # The beginning of a file that is none of CSV is refused, whatever comes later.
    assume(compressed and ("csv" not in str(format) or not b"".join(parts).lstrip().startswith(b"<")))
    sizes = sorted(data.draw(st.sets(st.integers(1, len(compressed)), max_size=5)) | {len(compressed)})
    accounting = ByteAccounting("x", Counter(), lambda reject: None)
    records: Records = []
    for start, size in zip([0, *sizes], sizes, strict=False):
        records += read_version(format, f"x{SUFFIX[compression]}", compressed[:size], start, accounting)
    content = b"".join(parts)
    whole = read_cut(RECORD_FORMATS.make(format), content, max(1, len(content)))[0]
    assert records == whole[: len(records)]
    assert len(whole) - len(records) <= 1
    end = RECORD_FORMATS.make(format).complete_end(MemorySource(content))
    waiting = accounting.counters[WAITING_BYTES] - accounting.counters[RESUMED_BYTES]
    assert waiting == len(content) - (end or 0)
    assert accounting.due == accounting.covered


@pytest.mark.parametrize("compression", by_day(3, sorted(COMPRESS)))
def test_what_was_read_is_not_read_again_wherever_the_next_version_ends(compression: str) -> None:
    """The next version may end in a chunk, or in the first bytes of a frame without data."""
    frame = b"\x50\x2a\x4d\x18\2\0\0\0ab" if compression in ("zstd", "lz4") else b""
    first, second = (frame + COMPRESS[compression](content) for content in (b"one\n", b"two\n"))
    compressed, url = first + second, f"x{SUFFIX[compression]}"
    for size in range(1, len(compressed)):
        sizes = [0, *sorted({len(first), size}), len(compressed)]
        accounting = ByteAccounting("x", Counter(), None)
        found: Records = []
        for start, end in pairwise(sizes):
            found += read_version("lines", url, compressed[:end], start, accounting)
        assert found == [(0, b"one"), (4, b"two")]
        assert accounting.counters[WAITING_BYTES] == accounting.counters[RESUMED_BYTES]


def test_a_file_that_cannot_be_appended_to_waits_while_incomplete() -> None:
    """Nothing of the longer version is read until it is complete; then all of it is."""
    first, second = gzip.compress(b"one"), gzip.compress(b"two")
    accounting = ByteAccounting("x", Counter(), None)
    assert read_version("whole_file", "x.gz", first, 0, accounting) == [(0, b"one")]
    cut = (first + second)[:-3]
    assert read_version("whole_file", "x.gz", cut, len(first), accounting) == []
    assert read_version("whole_file", "x.gz", first + second, len(cut), accounting) == [(0, b"onetwo")]


@pytest.mark.parametrize("compression", sorted(COMPRESS))
def test_a_format_that_cannot_go_on_has_a_file_when_it_is_whole(compression: str) -> None:
    """All of it is read at once, and again with bytes behind it."""
    compressed = COMPRESS[compression](b"one") + COMPRESS[compression](b"two")
    accounting = ByteAccounting("x", Counter(), None)
    url = f"x{SUFFIX[compression]}"
    lengths = [1, 5, len(COMPRESS[compression](b"one")) + 3]
    for start, size in zip([0, *lengths], lengths, strict=False):
        assert read_version("whole_file", url, compressed[:size], start, accounting) == []
    assert read_version("whole_file", url, compressed, lengths[-1], accounting) == [(0, b"onetwo")]
    again = read_version("whole_file", url, compressed * 2, len(compressed), accounting)
    assert again == [(0, b"onetwoonetwo")]


def test_what_was_appended_to_a_whole_file_is_read_by_itself() -> None:
    """A run that does not follow files reads it too; offsets count from the beginning."""
    first, second = gzip.compress(b"one\ntwo\n"), gzip.compress(b"three\n")
    accounting = ByteAccounting("x", Counter(), None)
    found = read_version("lines", "x.gz", first + second, len(first), accounting, is_open=False)
    assert found == [(8, b"three")]
    with pytest.raises(IncompleteArchiveError, match="it ends in the middle") as caught:
        read_version("lines", "x.gz", (first + second)[:-3], len(first), accounting, is_open=False)
    assert "settle_millis" in caught.value.hint


def test_a_growing_file_that_is_damaged_is_an_error() -> None:
    """The error comes before any record, because no appended byte can repair the file."""
    compressed = bytearray(gzip.compress(b"one\n") + gzip.compress(b"two\n"))
    compressed[14] ^= 0xFF
    with pytest.raises(CorruptArchiveError, match="damaged"):
        read_version("lines", "x.gz", bytes(compressed), 0, ByteAccounting("x", Counter(), None))


@pytest.mark.parametrize(("compression", "name"), [("zstd", "x"), ("lz4", "x.lz4")])
def test_a_growing_file_waits_behind_a_frame_without_data(compression: str, name: str) -> None:
    """No part of the file is text."""
    skipped = skippable(b"hello")
    compressed = skipped + skippable(b"") + COMPRESS[compression](b"one\n")
    for length in range(4, len(compressed)):
        accounting = ByteAccounting(name, Counter(), None)
        assert read_version("lines", name, compressed[:length], 0, accounting) == []
        assert (accounting.waiting_bytes > 0) == (length not in (len(skipped), len(skipped) + 8))
        found = read_version("lines", name, compressed, length, ByteAccounting(name, Counter(), None))
        assert found == [(0, b"one")]


def test_only_the_first_block_of_a_growing_file_has_records() -> None:
    """The first block has all records of a file that the splitter took for plain; the last one counts what waits."""
    compressed = gzip.compress(b"one\ntw")
    accounting = ByteAccounting("x", Counter(), None)
    found: Records = []
    for start in range(0, len(compressed), 10):
        end = min(start + 10, len(compressed))
        block = BlockMetadata(1, "x", FileVersion(len(compressed)), start, end, end == len(compressed)).continued(
            is_open=True
        )
        for batch in ContentReader(RECORD_FORMATS.make("lines"), "auto").read(
            MemorySource(compressed), block, accounting
        ):
            accounting.count(batch)
            found += zip(batch.offsets().tolist(), batch.to_pylist(), strict=True)
    assert found == [(0, b"one")]
    assert (accounting.counters[WAITING_BYTES], accounting.waiting_bytes) == (2, 2)


@pytest.mark.parametrize("on_long", ["fail", "skip", "cut", "reject"])
@pytest.mark.parametrize("compression", by_day(2, sorted(COMPRESS)))
@pytest.mark.parametrize("type", ["lines", "escaped_lines", "paragraphs", "regex", "json_lines", "csv"])
def test_a_header_may_be_a_long_record_up_to_the_end(type: str, compression: str, on_long: str) -> None:
    """The size of the content is not known before: each byte is accounted for all the same."""
    options: dict[str, dict[str, Any]] = {"regex": {"pattern": "x"}, "csv": {"header": False, "columns": ["a"]}}
    format = {"type": type, "skip_header": 1, "max_record": 4, "on_long": on_long, **options.get(type, {})}
    for content in (b"aaaaaaa", b"aaaaaaa\n", b"a\n", b""):
        accounting = ByteAccounting("", Counter(), lambda reject: None)
        url = f"a{SUFFIX[compression]}"
        assert read_version(format, url, COMPRESS[compression](content), 0, accounting, is_open=False) == []
        assert accounting.due == accounting.covered == len(content)

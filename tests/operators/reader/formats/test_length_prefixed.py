"""Records that say how long they are."""

from __future__ import annotations

import struct
from collections import Counter
from typing import ClassVar

import pytest

from dagflow.errors import RecordError
from operators.files.metadata import BlockMetadata, FileVersion
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting, RecordFormat
from operators.reader.formats.length_prefixed import LengthPrefixed, Prefixed
from operators.testing import URL, FormatContract, MemorySource, Records, Rejects, columns_of, read_cut
from tests.nightly import IS_NIGHTLY
from tests.reference.others import prefixed_records


class LengthPrefixedContract(FormatContract):
    def reference(self, content: bytes, format: RecordFormat) -> tuple[Records, Rejects]:
        assert isinstance(format, LengthPrefixed)
        return prefixed_records(content, format.prefix, format.byte_order, format.max_record)


class TestNumbers(LengthPrefixedContract):
    """Lengths of fixed size; torn and impossible ones are refused with the rest of the file."""

    formats: ClassVar = [
        {"type": "length_prefixed", "prefix": prefix, "byte_order": byte_order, "max_record": longest}
        for prefix, byte_order, longest in ((1, "little", 100), (2, "big", 2), (2, "little", 100))
    ]
    pieces: ClassVar = [b"\x00", b"\x01", b"\x02"]
    longest = 5 if IS_NIGHTLY else 4


class TestWideNumbers(LengthPrefixedContract):
    """Four and eight bytes."""

    formats: ClassVar = [
        {"type": "length_prefixed", "prefix": prefix, "byte_order": byte_order}
        for prefix in (4, 8)
        for byte_order in ("little", "big")
    ]
    pieces: ClassVar = [struct.pack("<I", 2), struct.pack(">Q", 1), b"\x00", b"ab"]
    longest = 2


class TestVarints(LengthPrefixedContract):
    """Lengths as in protobuf, of one byte and more."""

    formats: ClassVar = [{"type": "length_prefixed", "prefix": "varint", "max_record": 200}]
    pieces: ClassVar = [b"\x00", b"\x02", b"\x80", b"\xff" * 5]
    longest = 3


def test_a_wrong_length_fails_with_its_place() -> None:
    """The error says what the length was."""
    made = RECORD_FORMATS.make({"type": "length_prefixed", "max_record": 1000})
    content = struct.pack("<I", 1) + b"a" + struct.pack("<I", 5000) + b"b"
    accounting = ByteAccounting(URL, Counter(), None)
    block = BlockMetadata(0, URL, FileVersion(len(content)), 0, len(content), True)
    with pytest.raises(RecordError, match=r"offset 5 \(5 bytes\): the length says 5000 bytes, which is above max_reco"):
        list(made.read(MemorySource(content), block, accounting))


class Signed(Prefixed):
    """A format of a user, whose lengths are numbers with a sign."""

    def content_range(self, data: memoryview, position: int) -> tuple[int, int] | None:
        (length,) = struct.unpack_from("b", data, position)
        return position + 1, position + 1 + length


def test_a_length_below_0_is_wrong() -> None:
    """The rest of the file is refused, where reading would go back for ever."""
    content = b"\x01a\xfeb"
    assert read_cut(Signed(), content, 3) == ([(0, b"a")], [(2, 2)])
    rejects = columns_of(Signed(), content)[1]
    assert [reject["reason"] for reject in rejects] == ["the length says -2 bytes, which is below 0"]


def test_blocks_that_follow_each_other_are_not_walked_through_again() -> None:
    """The second block begins where the first one stopped, without a look at what lies before."""
    content = b"".join(struct.pack("<I", 10) + b"0123456789" for _ in range(100))
    made = RECORD_FORMATS.make("length_prefixed")
    made.chunk_bytes = 14
    read: list[int] = []

    class Source(MemorySource):
        def read_into(self, offset: int, buffer: memoryview) -> int:
            read.append(offset)
            return super().read_into(offset, buffer)

    version = FileVersion(len(content))
    accounting = ByteAccounting(URL, Counter(), None)
    for start, end in ((0, 700), (700, 1400)):
        read.clear()
        found = list(made.read(Source(content), BlockMetadata(0, URL, version, start, end, False), accounting))
        assert sum(map(len, found)) == 50
        assert min(read) == start


def test_a_long_file_gives_the_same_at_every_cut() -> None:
    """Records that are larger than chunks and blocks, and empty ones."""
    content = b"".join(struct.pack(">H", size) + b"x" * size for size in (0, 1, 5000, 0, 60_000, 3, 0))
    made = RECORD_FORMATS.make({"type": "length_prefixed", "prefix": 2, "byte_order": "big"})
    made.chunk_bytes = 1000
    for block_size in (7, 999, 5003, 70_000):
        assert read_cut(made, content, block_size) == prefixed_records(content, 2, "big", 1 << 30)

"""The members of an array of a JSON document as records."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting, RecordFormat
from operators.reader.formats.json import Json
from operators.testing import URL, FormatContract, MemorySource, Records, Rejects, block_of, read_cut
from tests.nightly import IS_NIGHTLY, by_day, cuts
from tests.operators.reader.formats.test_json_lines import VALUES, columns_of, fits
from tests.reference.json_members import member_records


class JsonContract(FormatContract):
    def reference(self, content: bytes, format: RecordFormat) -> tuple[Records, Rejects]:
        assert isinstance(format, Json)
        has_columns = format.columns is not None
        records, rejects = member_records(content, format.records.removesuffix("[*]").split(".")[1:], has_columns)
        if has_columns:
            rejects += [(offset, len(member)) for offset, member in records if not fits(member)]
            records = [(offset, member) for offset, member in records if fits(member)]
        return records, sorted(rejects)


class TestArrays(JsonContract):
    """Members with brackets, commas and quotes, balanced and not, and what follows the array."""

    formats: ClassVar = ["json"]
    pieces: ClassVar = [b"[", b"]", b",", b'"', b"1", b" "]
    longest = 4 if IS_NIGHTLY else 3


class TestEscapedQuotesInArrays(JsonContract):
    """Escaped quotes, also behind runs of backslashes."""

    formats: ClassVar = ["json"]
    pieces: ClassVar = [b'["', b"\\", b'"', b",", b"]"]
    longest = 4 if IS_NIGHTLY else 3


class TestArraysInObjects(JsonContract):
    """An array among the members of an object, and columns."""

    formats: ClassVar = [
        {"type": "json", "records": "$.a[*]"},
        {"type": "json", "records": "$.a.a[*]", "columns": {"a": "int64"}},
    ]
    pieces: ClassVar = [b'{"a":', b"[", b"1", b"}", b",", b"]"]
    longest = 4 if IS_NIGHTLY else 3


class TestCommasBetweenObjects(JsonContract):
    """Commas between members, in arrays and in strings of members, and what only looks like them."""

    formats: ClassVar = ["json", {"type": "json", "columns": {"a": "int64"}}]
    pieces: ClassVar = [b'[{"a":1}', b" , ", b'{"a":[{},{}]}', b'{"a":"},{"}', b"{},{", b"]"]
    longest = 3 if IS_NIGHTLY else 2


def refused(options: dict[str, Any], content: bytes) -> dict[int, str]:
    """Why a file, or what is at an offset in it, is refused."""
    rejects: list[bytes] = []
    columns_of(RECORD_FORMATS.make({"type": "json", **options}), content, rejects)
    return {facts["offset"]: facts["reason"] for facts in map(json.loads, rejects)}


@given(
    st.lists(VALUES, max_size=8), st.sampled_from([None, 0, 3]), st.booleans(), st.integers(1, 40), st.integers(1, 9)
)
def test_the_members_of_any_array_come_out_at_any_cut(
    values: list[Any], indent: int | None, is_inner: bool, block_size: int, chunk_bytes: int
) -> None:
    """With their offsets, however the document is indented, and where the array is a member of an object."""
    document = {"before": values, "it's \"": {"a b": values, "": [[]]}, "z": {}} if is_inner else values
    content = json.dumps(document, indent=indent).encode()
    made = RECORD_FORMATS.make({"type": "json", "records": "$.it's \".a b[*]" if is_inner else "$[*]"})
    made.chunk_bytes = chunk_bytes
    records, rejects = read_cut(made, content, block_size)
    assert [json.loads(record) for _, record in records] == values
    assert not rejects
    assert all(content.startswith(record, offset) for offset, record in records)


def test_a_bad_member_is_refused_alone_if_its_brackets_are_balanced() -> None:
    """And otherwise with the rest of the file, in which it is not known where a member begins."""
    made = RECORD_FORMATS.make("json")
    content = b'[{"a": 1}, {"a": nil}, {a}, {"a": [2}}, {"a": 3}]'
    records, rejects = read_cut(made, content, 7)
    assert [record for _, record in records] == [b'{"a": 1}', b'{"a": 3}']
    assert rejects == [(11, 10), (23, 3), (28, 10)]
    content = b'[{"a": 1}, {"a": "2}, {"a": 3}]'
    records, rejects = read_cut(made, content, 7)
    assert ([record for _, record in records], rejects) == ([b'{"a": 1}'], [(11, 20)])
    assert "this member's brackets or quotes are not closed" in refused({}, content)[11]


@pytest.mark.parametrize(
    ("options", "content", "reason"),
    [
        ({}, b'{"a": [1]}', r"there is no array at $[*]: $ is an object"),
        ({}, b'{"a": 1}\n{"a": 2}\n', r"there is no array at $[*]: $ is an object"),
        ({"records": "$.a.b[*]"}, b'{"a": {"c": 1, "d": 2}}', "$.a has no member 'b'; it has 'c', 'd'"),
        ({"records": "$.a[*]"}, b'{"a": 1}', "$.a is no array"),
        ({}, '["a"]'.encode("utf-16"), "the file is in UTF-16"),
        ({}, b" ", "$ is no array"),
    ],
)
def test_a_file_without_the_array_is_refused_as_a_whole(options: dict[str, str], content: bytes, reason: str) -> None:
    """With what it has instead."""
    assert reason in refused(options, content)[0]


@pytest.mark.parametrize(
    ("content", "offset", "reason"),
    [
        (b"[1]\n[2]\n", 4, "other text follows the document"),
        (b"[1,,2]", 3, "a member is missing before ','"),
        (b"[1,2,]", 5, "a member is missing before ']'"),
        (b"[1,2", 3, "the file ends within the array"),
        (b"[1, ", 2, "the file ends within the array: it is cut"),
        (b"[", 0, "the file ends within the array: it is cut"),
        (b"[" + b"[" * 101 + b"]" * 102, 1, "nested more than 100 levels deep"),
    ],
)
def test_nothing_is_passed_over_in_silence(content: bytes, offset: int, reason: str) -> None:
    """Neither a second document, nor a comma too many, nor the missing end of a file."""
    assert list(refused({}, content)) == [offset]
    assert reason in refused({}, content)[offset]


@pytest.mark.parametrize("chunk_bytes", by_day(2, [7, 1, 1 << 20]))
def test_a_member_that_is_too_long_is_refused_and_passed(chunk_bytes: int) -> None:
    """Up to where it ends, at any cut, and the white space around members may be of any length."""
    made = RECORD_FORMATS.make({"type": "json", "max_record": 9})
    made.chunk_bytes = chunk_bytes
    content = b"[1" + b" " * 99 + b', {"a": "' + b"," * 50 + b'"} ,' + b"\n" * 99 + b'"12345678" ,"123456789"  ]'
    for block_size in cuts(len(content)):
        records, rejects = read_cut(made, content, block_size)
        assert [record for _, record in records] == [b"1"]
        assert [length for _, length in rejects] == [59, 10, 11]


@pytest.mark.parametrize(
    "content", [b"[\x01" + b" " * 30, b"[},{1 ]  ", b'[1 , "2]' + b" " * 9, b"  [1, 2 ]  ,  [3]  "]
)
def test_a_reject_up_to_the_end_of_a_file_counts_its_bytes_once(content: bytes) -> None:
    """Blocks behind its beginning count none of them, however the file is cut."""
    for block_size in range(1, len(content) + 1):
        _, rejects = read_cut(RECORD_FORMATS.make("json"), content, block_size)
        assert sum(rejects[-1]) == len(content)


def test_columns_are_those_of_lines() -> None:
    """Declared, inferred and as they are found, also of members over several lines."""
    content = json.dumps([{"a": 1, "b": "x"}, {"a": 2, "b": None}, {"a": "?", "b": "y"}], indent=2).encode()
    for columns in ({"a": "int64", "b": "string"}, "infer"):
        rejects: list[bytes] = []
        rows = columns_of(RECORD_FORMATS.make({"type": "json", "columns": columns}), content, rejects)
        assert rows == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
        assert "column 'a'" in json.loads(rejects[0])["reason"]
    rows = columns_of(RECORD_FORMATS.make({"type": "json", "columns": "as_found"}), content)
    assert [row["b"] for row in rows] == ["x", None, "y"]


def test_no_more_than_chunks_are_read_at_a_time() -> None:
    """An array is not held whole, nor is a long member, whether it ends or not."""
    made = RECORD_FORMATS.make({"type": "json", "max_record": 1 << 10})
    made.chunk_bytes = 1 << 10

    class Source(MemorySource):
        longest = 0

        def read_into(self, offset: int, buffer: memoryview) -> int:
            self.longest = max(self.longest, len(buffer))
            return super().read_into(offset, buffer)

    member = b'{"a": [1, 2]},'
    long = b'{"a": "' + b"x" * (8 << 20) + b'"},'
    for content in (b"[" + member * 200_000 + b"1]", b"[" + long + member * 10 + b"1]", b"[" + long[:-3]):
        source, accounting = Source(content), ByteAccounting(URL, Counter())
        for batch in made.read(source, block_of(content, 0, len(content)), accounting):
            assert batch.content_bytes()[0] <= 16 << 10
        assert source.longest <= 1 << 20

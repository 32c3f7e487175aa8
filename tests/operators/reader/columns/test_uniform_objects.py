"""Objects that are written alike: the text around their values; test_uniform_objects_flat tests what is read."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dagflow.api.records import Delimiters, RecordBatch
from operators.reader.columns.uniform_objects import LEAST_LINES, ObjectLayout, read_uniform

SCHEMA = pa.schema({"a": pa.int64(), "c": pa.string()})
USUAL = b'{"a": 1, "c": "x"}'


@pytest.mark.parametrize(
    ("line", "gaps", "names", "in_quotes"),
    [
        (b'{"a":1}', (b'{"a":', b"}"), ("a",), (False,)),
        (b'{ "a" : "x" ,"b":null } ', (b'{ "a" : "', b'" ,"b":', b" } "), ("a", "b"), (True, False)),
        (b'{"":"}{,:"}', (b'{"":"', b'"}'), ("",), (True,)),
        ('{"ä": "ö"}'.encode(), ('{"ä": "'.encode(), b'"}'), ("ä",), (True,)),
    ],
)
def test_a_layout_is_the_text_around_values(
    line: bytes, gaps: tuple[bytes, ...], names: tuple[str, ...], in_quotes: tuple[bool, ...]
) -> None:
    """With the quotes of text, blanks and separators."""
    assert ObjectLayout.of(line) == ObjectLayout(gaps, names, in_quotes)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"1",
        b'["a"]',
        b'{"a":[1]}',
        b'{"a":{"b":1}}',
        b'{"a":1',
        b'{"a":1,}',
        b'{"a":1}}',
        b'{"a":1}{"a":2}',
        b'{"a":1 2}',
        b'{"a" 1}',
        b'{"a":}',
        b"{a:1}",
        b'{"a":1,"a":2}',
        b'{"a":1 "b":2}',
    ],
)
def test_lines_that_are_no_flat_objects_have_no_layout(line: bytes) -> None:
    """Nor have objects with a member that is there twice."""
    assert ObjectLayout.of(line) is None


def test_a_member_of_another_name_is_another_member() -> None:
    """Though it has the same quotes at the same places."""
    lines = [USUAL] * LEAST_LINES + [USUAL.replace(b'"c"', b'"C"')]
    found = read_uniform(RecordBatch.raw(lines, Delimiters((b"\n",))), SCHEMA, takes_others=True)
    assert found is not None
    assert found.left.tolist() == [LEAST_LINES]


@pytest.mark.parametrize("value", [b"1.5", b"1e3", b"9223372036854775808", b"1-1", b"1 1", b"1_0", b"1,2"])
def test_a_number_that_has_no_room_fails_the_batch(value: bytes) -> None:
    """A parser has to say which it is."""
    lines = [USUAL] * LEAST_LINES + [USUAL.replace(b'"a": 1', b'"a": ' + value)]
    with pytest.raises(pa.ArrowInvalid, match="Failed to parse"):
        read_uniform(RecordBatch.raw(lines, Delimiters((b"\n",))), SCHEMA, takes_others=True)


def test_lines_of_which_less_than_half_are_alike_are_left() -> None:
    """A parser reads all of them faster than both together."""
    lines = [b'{"a": %d, "c": "%s"}' % (number, b"\\t" if number % 2 else b"x") for number in range(LEAST_LINES)]
    assert read_uniform(RecordBatch.raw(lines, Delimiters((b"\n",))), SCHEMA, takes_others=True) is None

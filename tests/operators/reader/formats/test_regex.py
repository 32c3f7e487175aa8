"""Entries that begin with a line that matches."""

from __future__ import annotations

import itertools
from typing import ClassVar

import pytest

from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import RecordFormat
from operators.reader.formats.regex import Regex
from operators.testing import FormatContract, Records, Rejects, columns_of, read_cut
from tests.nightly import IS_NIGHTLY, by_day, cuts
from tests.reference.lines import without_header, without_long
from tests.reference.others import entry_records


class RegexContract(FormatContract):
    def reference(self, content: bytes, format: RecordFormat) -> tuple[Records, Rejects]:
        assert isinstance(format, Regex)
        start = 3 if content.startswith(b"\xef\xbb\xbf") else 0
        records = [(start + offset, record) for offset, record in entry_records(content[start:], format.pattern)]
        return without_long(without_header(records, format.skip_header), format.max_record, format.on_long)


class TestRegex(RegexContract):
    """Patterns for the beginning, for the whole line, for an empty line, for what no line has."""

    formats: ClassVar = [{"type": "regex", "pattern": pattern} for pattern in ("a", "a$|b", "$", "a|ab", r"\D\s", "c")]
    pieces: ClassVar = [b"a", b"b", b"\n"]
    longest = 4 if IS_NIGHTLY else 3


class TestRegexWithReturns(RegexContract):
    """The pattern does not see the CR of a CR LF, and sees any other."""

    formats: ClassVar = [{"type": "regex", "pattern": "a$"}, {"type": "regex", "pattern": r"\r"}]
    pieces: ClassVar = [b"a", b"\r", b"\n"]
    longest = 4 if IS_NIGHTLY else 3


class TestLongEntries(RegexContract):
    """Entries beyond max_record, with lines that the pattern sees whole."""

    formats: ClassVar = [
        {"type": "regex", "pattern": "a", "max_record": size, "on_long": action}
        for size in (1, 3)
        for action in ("skip", "reject", "cut")
    ]
    pieces: ClassVar = [b"a", b"b", b"\n"]
    longest = 4 if IS_NIGHTLY else 3


@pytest.mark.parametrize("length", by_day(1, [6, 4, 5, 7]))
def test_the_last_byte_that_the_pattern_sees_may_be_of_a_newline(length: int) -> None:
    """At every cut, and however much is read at a time, a line of about max_record bytes before CR LF is one line."""
    content = b"9\r\n" + b"a" * (length - 1) + b"9\r\nb\r\n"
    for pattern, action in itertools.product((".*9$", r".*9\r"), ("skip", "reject", "cut")):
        made = RECORD_FORMATS.make({"type": "regex", "pattern": pattern, "max_record": 6, "on_long": action})
        made.chunk_bytes = 1 << 20
        expected = read_cut(made, content, len(content))
        for made.chunk_bytes, block_size in itertools.product((1, 2, 7), range(1, len(content))):
            assert read_cut(made, content, block_size) == expected


def test_a_stack_trace_stays_with_its_log_line() -> None:
    """At every block size."""
    entries = [b"2024-05-01 x\n  at y\n  at z", b"2024-05-02 ok", b"2024-05-03 \xff"]
    content = b"\n".join(entries) + b"\n"
    made = RECORD_FORMATS.make({"type": "regex", "pattern": r"\d{4}-\d\d-\d\d "})
    for block_size in cuts(len(content)):
        assert [record for _, record in read_cut(made, content, block_size)[0]] == entries


def test_a_pattern_sees_characters_not_bytes() -> None:
    """At every block size, also beside lines that are not UTF-8, which it sees byte by byte."""
    entries = ["é1\nà cont".encode(), "È2\nñ cont".encode(), "é3".encode() + b"\n\xff cont"]
    content = b"\n".join(entries) + b"\n"
    made = RECORD_FORMATS.make({"type": "regex", "pattern": r"(?i)[éè]\d$"})
    for block_size in cuts(len(content)):
        assert [record for _, record in read_cut(made, content, block_size)[0]] == entries


def test_a_vertical_tab_is_no_blank_of_a_pattern() -> None:
    """RE2's class of blanks is smaller than Python's."""
    made = RECORD_FORMATS.make({"type": "regex", "pattern": r"\D\s"})
    content = b"a\nb\x0b\nc \n"
    assert read_cut(made, content, 3)[0] == entry_records(content, r"\D\s") == [(0, b"a\nb\x0b"), (5, b"c ")]


def test_a_pattern_that_is_none_is_refused() -> None:
    """The error says what is wrong with the pattern."""
    with pytest.raises(ValueError, match=r"'\(' is not a valid RE2 expression"):
        RECORD_FORMATS.make({"type": "regex", "pattern": "("})
    with pytest.raises(ValueError, match="needs option 'pattern'"):
        RECORD_FORMATS.make("regex")


def test_entries_become_columns_by_a_second_expression() -> None:
    """The pattern finds where they begin, and regex matches each as a whole; at every cut."""
    content = b"1 a\n at x\n2 b\r\n3\n\xe9\n4 c"
    spec = {"type": "regex", "pattern": r"\d", "regex": r"(?s)(?P<n>\d) (?P<text>.*)", "columns": {"n": "int8"}}
    for block_size in cuts(len(content)):
        rows, rejects = columns_of(RECORD_FORMATS.make(spec), content, block_size)
        assert rows == [{"n": 1, "text": "a\n at x"}, {"n": 2, "text": "b"}, {"n": 4, "text": "c"}]
        assert [reject["offset"] for reject in rejects] == [15]
    with pytest.raises(ValueError, match="give exactly one of regex, split, key_value, fields, json; got none"):
        RECORD_FORMATS.make({"type": "regex", "pattern": ".", "columns": {"n": "int8"}})

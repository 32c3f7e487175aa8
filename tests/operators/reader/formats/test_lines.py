"""Lines: newlines of every kind, delimiters of every shape."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.api.capabilities import WantedRows
from dagflow.errors import RecordError
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting, RecordFormat
from operators.reader.formats.lines import SPLITTER, Lines
from operators.testing import URL, FormatContract, MemorySource, Records, Rejects, block_of, read_cut, read_range
from tests.nightly import IS_NIGHTLY, cuts
from tests.reference.lines import delimited_records, newline_records, without_header, without_long


def accounting_without_rejects() -> ByteAccounting:
    """An accounting to which rejects are errors."""
    return ByteAccounting(URL, Counter(), None)


class LinesContract(FormatContract):
    """What the file holds, by the options of the format."""

    def reference(self, content: bytes, format: RecordFormat) -> tuple[Records, Rejects]:
        assert isinstance(format, Lines)
        start = 3 if content.startswith(b"\xef\xbb\xbf") else 0
        text, delimiter = content[start:], format.delimiter
        records = newline_records(text) if delimiter is None else delimited_records(text, delimiter.encode())
        records = [(start + offset, record) for offset, record in without_header(records, format.skip_header)]
        return without_long(records, format.max_record, format.on_long)


class TestNewlines(LinesContract):
    """LF, CR LF and CR, as they come."""

    formats: ClassVar = ["lines"]
    pieces: ClassVar = [b"\r", b"\n", b"a"]
    longest = 5 if IS_NIGHTLY else 4


class TestOverlappingDelimiters(LinesContract):
    """Delimiters whose occurrences can share bytes."""

    formats: ClassVar = [{"type": "lines", "delimiter": text} for text in ("||", "|+|", "+||+")]
    pieces: ClassVar = [b"|", b"+"]
    longest = 6 if IS_NIGHTLY else 5


class TestPlainDelimiters(LinesContract):
    """Delimiters whose occurrences cannot share bytes."""

    formats: ClassVar = [{"type": "lines", "delimiter": text} for text in ("+", "+-", "+--", "++-")]
    pieces: ClassVar = [b"+", b"-"]
    longest = 6 if IS_NIGHTLY else 5


class TestHeadersAndMarks(LinesContract):
    """What comes before the first record."""

    formats: ClassVar = [
        {"type": "lines", "skip_header": 1},
        {"type": "lines", "skip_header": 2},
        {"type": "lines", "skip_header": 1, "delimiter": "\n\n"},
    ]
    pieces: ClassVar = [b"\xef\xbb\xbf", b"\n", b"a"]
    longest = 4 if IS_NIGHTLY else 3


class TestLongRecords(LinesContract):
    """Records beyond max_record."""

    formats: ClassVar = [
        {"type": "lines", "max_record": size, "on_long": action}
        for size in (1, 3)
        for action in ("skip", "cut", "reject")
    ] + [{"type": "lines", "delimiter": "aa", "max_record": 2, "on_long": "cut"}]
    pieces: ClassVar = [b"a", b"\r", b"\n"]
    longest = 4 if IS_NIGHTLY else 3


@pytest.mark.parametrize(
    ("content", "delimiter", "expected"),
    [
        (b"abc+def++ghi", "+", [b"abc", b"def", b"", b"ghi"]),
        (b"abc|+||+|defghi|+|xyz", "|+|", [b"abc", b"", b"defghi", b"xyz"]),
        (b"abc+def+-ghi+jkl+-z", "+-", [b"abc+def", b"ghi+jkl", b"z"]),
        (b"abc\n+def\n+ghi\nx", "\n+", [b"abc", b"def", b"ghi\nx"]),
        (b"abc\ndef+\nghi+\njkl\nm", "+\n", [b"abc\ndef", b"ghi", b"jkl\nm"]),
        (b"a\r\nb\rc\nd\r\n", None, [b"a", b"b", b"c", b"d"]),
        (b"123456789\r\r\n", None, [b"123456789", b""]),
        (
            b"a\nbb\n\nccc\rdddd\r\r\r\n\r\neeeee",
            None,
            [b"a", b"bb", b"", b"ccc", b"dddd", b"", b"", b"", b"eeeee"],
        ),
        ("abcd€bdcd€".encode(), "bd", ["abcd€".encode(), "cd€".encode()]),
        ("abc\u200axyz".encode(), None, ["abc\u200axyz".encode()]),
        (b"abc$$$$def\n$$$$", "$$$$", [b"abc", b"def\n"]),
    ],
)
def test_cases_known_to_go_wrong_elsewhere(content: bytes, delimiter: str | None, expected: list[bytes]) -> None:
    """Each comes out the same at every block size."""
    made = RECORD_FORMATS.make({"type": "lines", "delimiter": delimiter})
    for block_size in cuts(len(content) + 1):
        assert [record for _, record in read_cut(made, content, block_size)[0]] == expected


def test_a_run_of_delimiter_bytes_over_many_blocks_keeps_its_phase() -> None:
    """In a run of an odd number of bytes, every block knows which two belong together."""
    content = b"x" + b"|" * 100_001 + b"y|z"
    made = RECORD_FORMATS.make({"type": "lines", "delimiter": "||"})
    expected = delimited_records(content, b"||")
    assert read_cut(made, content, 4099)[0] == expected
    assert expected[-1] == (100_001, b"|y|z")


def test_a_record_over_many_blocks_belongs_to_the_first() -> None:
    """Blocks that lie inside of it give nothing."""
    content = b"a" * 5000 + b"\nb"
    made = RECORD_FORMATS.make("lines")
    assert read_range(made, content, 0, 10)[0] == [(0, b"a" * 5000)]
    assert read_range(made, content, 10, 5000)[0] == []
    assert read_range(made, content, 5000, 5002)[0] == [(5001, b"b")]


def test_a_long_record_fails_with_its_place_and_a_way_out() -> None:
    """on_long: fail is the default, and names file, offset and the option."""
    made = RECORD_FORMATS.make({"type": "lines", "max_record": "1KiB"})
    with pytest.raises(RecordError, match=r"memory\.bin offset 2 .*longer than max_record, 1024 bytes\n.*on_long"):
        read_range(made, b"a\n" + b"b" * 2000, 0, 2002)


def test_at_most_a_block_and_a_longest_record_are_read() -> None:
    """A file without any delimiter does not make the reader run away."""
    made = RECORD_FORMATS.make({"type": "lines", "max_record": 10_000, "on_long": "cut"})
    content = b"a" * 1_000_000
    source = MemorySource(content)

    batches = list(made.read(source, block_of(content, 0, 1000), accounting_without_rejects()))
    assert [batch.to_pylist() for batch in batches] == [[b"a" * 10_000]]
    assert source.furthest <= 1000 + 10_000 + 2


def test_kept_delimiters_are_part_of_the_record() -> None:
    """The records side by side are the file, also where the last delimiter is missing."""
    made = RECORD_FORMATS.make({"type": "lines", "keep_delimiter": True})
    content = b"a\r\n\nb\rc"
    assert read_cut(made, content, 3)[0] == [(0, b"a\r\n"), (3, b"\n"), (4, b"b\r"), (6, b"c")]


def test_a_last_record_without_delimiter_is_framed_with_the_default_one() -> None:
    """A writer ends it; the record itself does not change."""
    made = RECORD_FORMATS.make({"type": "lines", "delimiter": "||"})
    content = b"a||b"
    batches = list(made.read(MemorySource(content), block_of(content, 0, 4), accounting_without_rejects()))
    assert b"".join(batch.framed().to_pylist()[0] for batch in batches) == b"a||b||"
    assert [batch.to_pylist() for batch in batches] == [[b"a"], [b"b"]]


def test_framed_batches_hold_each_record_with_the_newline_it_had() -> None:
    """What a writer copies is the file."""
    made = RECORD_FORMATS.make("lines")
    content = b"a\r\nb\n\rc\r\n"
    batches = list(made.read(MemorySource(content), block_of(content, 0, len(content)), accounting_without_rejects()))
    assert b"".join(record for batch in batches for record in batch.framed().to_pylist()) == content


def has_four_bytes(record: bytes) -> bool:
    """Validates records that are known to have four bytes."""
    return len(record) == 4


VALIDATOR = f"{has_four_bytes.__module__}.{has_four_bytes.__name__}"


def test_validate_leaves_out_what_is_no_record() -> None:
    """Whatever the cuts, the records for which it gives false are passed over."""
    content = b"aaaa\nbb\ncccc\nddddd\n"
    made = RECORD_FORMATS.make({"type": "lines", "validate": VALIDATOR})
    for block_size in cuts(len(content) + 1):
        assert [record for _, record in read_cut(made, content, block_size)[0]] == [b"aaaa", b"cccc"]


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("nowhere.check", r"validate: function 'nowhere\.check': cannot import nowhere: ModuleNotFoundError"),
        ("os.path.is_abs", r"module os\.path has no 'is_abs'; did you mean 'isabs'\?"),
        ("os.path.sep", r"validate: 'os\.path\.sep' is not a function"),
        ("./checks.is_sound", r"validate: function '\./checks\.is_sound' is not a dotted path"),
        ("is_sound", r"validate: function 'is_sound' is not a dotted path"),
    ],
)
def test_a_validate_that_is_no_function_is_refused(path: str, problem: str) -> None:
    """It is looked up when the app is checked."""
    with pytest.raises(ValueError, match=problem):
        RECORD_FORMATS.make({"type": "lines", "validate": path})


@given(
    spec=st.sampled_from([{}, {"delimiter": "|"}, *({"max_record": 40, "on_long": what} for what in ("cut", "skip"))]),
    pieces=st.lists(
        st.sampled_from([*[b"\n", b"|"] * 4, b"\r\n", b"\0" * 5, *(b"a" * size for size in (3, 9, 30, 70))]),
        max_size=90,
    ),
    sizes=st.tuples(st.integers(20, 400), st.integers(20, 400)),
)
def test_machine_code_finds_the_same_records(spec: Any, pieces: list[bytes], sizes: tuple[int, int]) -> None:
    """With the same accounting, where columns are wanted; it copies the records while it looks for their ends."""
    pytest.importorskip("numba", reason="needs numba")
    SPLITTER.after(1 << 40)
    content = b"x" + b"".join(pieces)
    formats = [RECORD_FORMATS.make({"type": "lines", **spec}) for _ in range(2)]
    formats[1].wanted = WantedRows(columns=frozenset({"record"}))
    for format in formats:
        format.chunk_bytes = sizes[0]
    without, compiled = (read_cut(format, content, sizes[1]) for format in formats)
    assert compiled == without

"""Lines in other encodings than UTF-8."""

from __future__ import annotations

import encodings
import encodings.aliases
import pkgutil
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.api.refused_records import Reject
from dagflow.errors import RecordError
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting, RecordFormat
from operators.reader.formats.lines import Lines
from operators.reader.scanning.charset import UndecodedRejects
from operators.testing import FormatContract, Records, Rejects, read_cut
from tests.nightly import IS_NIGHTLY, by_day
from tests.operators.reader.columns.test_xml_shapes import batch_of
from tests.reference.encodings import decoded_records


class EncodedContract(FormatContract):
    """What the file holds, by a parser that goes from one code unit to the next."""

    def reference(self, content: bytes, format: RecordFormat) -> tuple[Records, Rejects]:
        assert isinstance(format, Lines)
        assert format.encoding is not None
        return decoded_records(content, format.encoding, format.delimiter, format.on_bad_bytes)


class TestUtf16Lines(EncodedContract):
    """Delimiters lie at even places only, whatever the cuts; torn and unpaired units are refused or replaced."""

    formats: ClassVar = [
        {"type": "lines", "encoding": encoding, "delimiter": delimiter, "on_bad_bytes": action}
        for encoding in ("utf-16-le", "utf-16-be", "utf-16")
        for delimiter, action in ((None, "reject"), ("\n\n", "replace"))
    ]
    pieces: ClassVar = [b"\n", b"\x00", b"\r"]
    longest = 4 if IS_NIGHTLY else 3


class TestMarks(EncodedContract):
    """A byte order mark decides the order, and is in no record."""

    formats: ClassVar = [
        {"type": "lines", "encoding": encoding, "on_bad_bytes": "replace"}
        for encoding in ("utf-16", "utf-16-le", "utf-8", "utf-32")
    ]
    pieces: ClassVar = [b"\xff\xfe", b"\xfe\xff", b"\n\x00", b"\x00\xd8"]
    longest = 3 if IS_NIGHTLY else 2


class TestSingleBytes(EncodedContract):
    """Every byte is a character, and not every byte need be one."""

    formats: ClassVar = [
        {"type": "lines", "encoding": encoding, "on_bad_bytes": "reject"}
        for encoding in ("latin-1", "cp1252", "ascii", "utf-8", "shift_jis", "cp037")
    ]
    pieces: ClassVar = [b"\n", b"\x81", b"\x25", b"\xe9"]
    longest = 3 if IS_NIGHTLY else 2


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\n\ufeff")), max_size=8),
    st.sampled_from(["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "utf-8", "gb18030"]),
    st.integers(1, 30),
)
def test_text_comes_through_whatever_it_was_encoded_in(texts: list[str], encoding: str, block_size: int) -> None:
    """Every line is the text that was written, as UTF-8."""
    content = "".join(text + "\n" for text in texts).encode(encoding)
    made = RECORD_FORMATS.make({"type": "lines", "encoding": encoding})
    assert [record.decode() for _, record in read_cut(made, content, block_size)[0]] == texts


def test_a_bad_byte_fails_with_its_place_and_a_way_out() -> None:
    """on_bad_bytes: fail is the default."""
    made = RECORD_FORMATS.make({"type": "lines", "encoding": "ascii"})
    with pytest.raises(RecordError, match=r"offset 3 \(4 bytes\): not valid ascii: .* at byte 3 .*\n.*on_bad_bytes"):
        read_cut(made, b"ab\nJos\xe9\nAlice", 100)


def test_utf_8_is_checked_record_by_record() -> None:
    """A character that is torn between two records is in neither."""
    made = RECORD_FORMATS.make({"type": "lines", "encoding": "utf-8", "delimiter": "|", "on_bad_bytes": "reject"})
    assert read_cut(made, b"a\xc3|\xa9|b", 100) == ([(5, b"b")], [(0, 2), (3, 1)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoding": "utf-9"}, "not one that Python knows"),
        ({"encoding": "rot13"}, "is not one of text"),
        ({"encoding": "iso2022_jp"}, "cannot be cut"),
        ({"encoding": "latin-1", "delimiter": "€"}, "'€' cannot be written in iso8859-1"),
        ({"encoding": "shift_jis", "delimiter": "|"}, "cannot be distinguished from the second byte"),
    ],
)
def test_encodings_that_cannot_be_cut_are_refused(options: dict[str, str], message: str) -> None:
    """Each error says why."""
    with pytest.raises(ValueError, match=message):
        RECORD_FORMATS.make({"type": "lines", **options})


MODULES = {module.name for module in pkgutil.iter_modules(encodings.__path__)}
STATEFUL = ("iso2022", "utf_7", "hz", "punycode", "idna", "unicode_escape", "raw_unicode_escape", "undefined")


@pytest.mark.parametrize("stateful", STATEFUL)
def test_stateful_encodings_are_refused_by_each_of_their_names(stateful: str) -> None:
    """With hyphens or underscores, and by aliases, whatever the delimiter."""
    modules = {module for module in MODULES if module.startswith(stateful)}
    names = modules | {alias for alias, module in encodings.aliases.aliases.items() if module in modules}
    assert names
    for name in names | {name.replace("_", "-") for name in names}:
        with pytest.raises(ValueError, match=f"text in '{name}' cannot be cut: the meaning of its bytes depends on"):
            RECORD_FORMATS.make({"type": "lines", "encoding": name, "delimiter": " "})


CHARACTERS = [
    *map(chr, range(0xA0, 0x600)),
    *"\u2014\u20ac\u30a2\u30bd\u4e00\u8868\uac00\uff71\U00020000\U0001f600",
]
"""Letters of single bytes and of several; in some encodings the second byte of \u30bd and \u8868 is a backslash."""


def test_every_encoding_of_python_is_either_refused_or_read() -> None:
    """No codec fails in the middle of a run, and no text depends on blocks or on the lines beside it."""
    for name in by_day(8, sorted(MODULES | set(encodings.aliases.aliases.values()))):
        try:
            made = RECORD_FORMATS.make({"type": "lines", "encoding": name})
        except ValueError:
            continue
        own = [each for each in CHARACTERS if each.encode(name, "ignore").decode(name, "ignore") == each]
        texts = [
            "one",
            r"C:\new \u00e9 \x41 +AOk- ~{ab~}",
            *("".join(own[at : at + 40]) for at in range(0, len(own), 40)),
            "",
            "two",
        ]
        texts = [text for text in texts if text.encode(name, "ignore").decode(name, "ignore") == text]
        content = "".join(text + "\n" for text in texts).encode(name)
        for block_size in (3, 16, len(content) + 1):
            found = [record.decode() for _, record in read_cut(made, content, block_size)[0]]
            assert found == texts, (name, block_size)


def test_one_refused_record_has_the_bytes_of_its_file_like_many() -> None:
    """Whichever way of refusing a format takes: none of them passes silently."""
    found: list[Reject] = []
    accounting = ByteAccounting("f", listener=lambda reject: found.append(Reject.from_bytes(reject)))
    rejects = UndecodedRejects(batch_of([b"\xe4"]), accounting)
    rejects.reject(0, 1, "one", "\xe4".encode())
    rejects.reject_all([0], ["\xe4".encode()], ["many"])
    assert [(reject.offset, reject.length, reject.reason, reject.raw) for reject in found] == [
        (0, 1, "one", b"\xe4"),
        (0, 1, "many", b"\xe4"),
    ]

"""Elements as records."""

from __future__ import annotations

from typing import ClassVar

import pytest

from dagflow.errors import RecordError
from dagflow.storage.file_kinds import wide_encoding
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import RecordFormat
from operators.reader.formats.xml import Xml
from operators.testing import FormatContract, MemorySource, Records, Rejects, read_cut, read_range
from tests.nightly import IS_NIGHTLY
from tests.reference.xml import element_records


class XmlContract(FormatContract):
    def reference(self, content: bytes, format: RecordFormat) -> tuple[Records, Rejects]:
        assert isinstance(format, Xml)
        if wide_encoding(content)[0]:
            return [], [(0, len(content))]
        return element_records(content, format.tag.encode())


class TestElements(XmlContract):
    """Elements in each other, empty ones, and what only looks like them."""

    formats: ClassVar = [{"type": "xml", "tag": "a"}]
    pieces: ClassVar = [b"<a>", b"</a>", b"<a/>", b"<!--", b"-->"]
    longest = 3 if IS_NIGHTLY else 2


class TestTags(XmlContract):
    """Attributes with `>` in them, blanks, and torn tags."""

    formats: ClassVar = [{"type": "xml", "tag": "a"}]
    pieces: ClassVar = [b"<a", b" b='", b"'", b">", b"</a >", b"/"]
    longest = 3 if IS_NIGHTLY else 2


class TestAsides(XmlContract):
    """CDATA and instructions hide what is in them."""

    formats: ClassVar = [{"type": "xml", "tag": "a"}]
    pieces: ClassVar = [b"<a>", b"</a>", b"<![CDATA[", b"]]>", b"<?", b"?>"]
    longest = 3 if IS_NIGHTLY else 2


def test_pages_of_an_export_come_out_whole() -> None:
    """At every block size, with the head and what lies between passed over."""
    head = b'<?xml version="1.0"?>\n<!DOCTYPE x [ <!ELEMENT page (#PCDATA)> ]>\n<x>\n<!-- <page>no</page> -->\n'
    pages = [b'<page n="1>2">a<page/>b</page>', b"<page>\n<![CDATA[</page>]]></page>", b"<page/>"]
    content = head + b"\n  ".join(pages) + b"\n</x>\n"
    made = RECORD_FORMATS.make({"type": "xml", "tag": "page"})
    for block_size in range(1, len(content) + 1):
        records = read_cut(made, content, block_size)[0]
        assert [record for _, record in records] == pages
        assert all(content.startswith(record, offset) for offset, record in records)


@pytest.mark.parametrize(
    "subset",
    [
        b"<!-- list[a]> of <r>, it's -->",
        b'<!ENTITY e "a]>b<r>c</r>">',
        b"<!ENTITY e 'a]>\"<r>'>",
        b"<?p ]> <r> ' ?><!ELEMENT x (r)>",
    ],
)
def test_a_document_type_ends_where_its_own_bracket_is_closed(subset: bytes) -> None:
    """What stands in its comments, instructions and quotes neither closes it nor is an element."""
    content = b"<!DOCTYPE x [" + subset + b"]><x><r>3</r></x>"
    made = RECORD_FORMATS.make({"type": "xml", "tag": "r"})
    for block_size in range(1, len(content) + 1):
        assert read_cut(made, content, block_size)[:1] == ([(content.index(b"<r>3"), b"<r>3</r>")],)


def test_what_cannot_be_read_fails_with_its_place() -> None:
    """Elements that are too long."""
    made = RECORD_FORMATS.make({"type": "xml", "tag": "a", "max_record": 10})
    made.chunk_bytes = 4
    with pytest.raises(RecordError, match=r"offset 1 .*the element a is longer than max_record, 10 bytes"):
        read_range(made, b" <a>" + b"x" * 100 + b"</a>", 0, 50)
    with pytest.raises(ValueError, match="option 'tag'"):
        RECORD_FORMATS.make({"type": "xml", "tag": "a b"})


def test_an_element_that_is_too_long_and_never_closed_fails_at_any_cut() -> None:
    """Whether the end of the file was in sight when its length was found does not count."""
    made = RECORD_FORMATS.make({"type": "xml", "tag": "a", "max_record": 10})
    content = b" <a>" + b"x" * 20
    for chunk_bytes in (1, 4, 1 << 20):
        made.chunk_bytes = chunk_bytes
        for block_size in (1, 5, len(content)):
            with pytest.raises(RecordError, match=r"offset 1 .*the element a is longer than max_record, 10 bytes"):
                read_cut(made, content, block_size)


class TestUtf16(XmlContract):
    """Where a tag is not its ASCII bytes, the file is one reject."""

    formats: ClassVar = [{"type": "xml", "tag": "a"}]
    pieces: ClassVar = [b"\xff\xfe", b"\xfe\xff", b"<a/>"]
    longest = 3 if IS_NIGHTLY else 2


class TestUtf16WithoutMark(XmlContract):
    """A zero byte beside the first character shows the encoding as well."""

    formats: ClassVar = [{"type": "xml", "tag": "a"}]
    pieces: ClassVar = [b"<", b"\0", b"<a/>"]
    longest = 3 if IS_NIGHTLY else 2


@pytest.mark.parametrize("zeros", range(1, 6))
def test_a_hole_of_zero_bytes_at_the_beginning_hides_nothing(zeros: int) -> None:
    """As a file has that was truncated by another program than the one that writes to it."""
    content = bytes(zeros) + b"\n<x><a>1</a></x>"
    made = RECORD_FORMATS.make({"type": "xml", "tag": "a"})
    assert read_cut(made, content, 5)[:2] == ([(zeros + 4, b"<a>1</a>")], [])


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_file_in_utf_16_or_utf_32_is_one_reject(encoding: str, mark: str) -> None:
    """With a byte order mark or without, and however it is cut."""
    made = RECORD_FORMATS.make({"type": "xml", "tag": "a"})
    content = f"{mark}<x><a>1</a></x>".encode(encoding)
    for block_size in (1, 7, len(content)):
        assert read_cut(made, content, block_size)[:2] == ([], [(0, len(content))])
    assert made.complete_end(MemorySource(content)) is None

"""Elements as records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, ClassVar
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.errors import RecordError
from dagflow.storage.file_kinds import wide_encoding
from operators.reader.columns import xml_shapes
from operators.reader.columns.machine_code import MachineCode
from operators.reader.formats import RECORD_FORMATS, xml
from operators.reader.formats.base import RecordFormat
from operators.reader.formats.xml import Xml
from operators.testing import FormatContract, MemorySource, Records, Rejects, read_cut, read_range
from tests.nightly import IS_NIGHTLY, cuts
from tests.operators.reader.formats.test_json_lines import columns_of
from tests.reference.xml import element_records


@pytest.fixture(autouse=True, scope="module", params=[1, 1 << 40], ids=["machine code", "expat"])
def _machine_code(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test runs with machine code from the first byte on, and without it."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((xml, "PLAIN_ELEMENTS"), (xml_shapes, "MARKUP")):
            patch.setattr(module, name, MachineCode(getattr(module, name).path, request.param))
        yield


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
    for block_size in cuts(len(content)):
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
    for block_size in cuts(len(content)):
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


@pytest.mark.parametrize("encoding", ["hz", "ISO-2022-JP", "utf-7", "x-none"])
def test_a_file_in_an_encoding_that_nothing_can_search_is_one_reject(encoding: str) -> None:
    """Read as if ASCII characters were themselves, its texts would be others without a word."""
    made = RECORD_FORMATS.make({"type": "xml", "tag": "a"})
    text = f"<?xml version='1.0' encoding='{encoding}'?><x><a>\u65e5\u672c</a></x>"
    content = text.encode("hz" if encoding == "x-none" else encoding)
    for block_size in (1, 7, len(content)):
        assert read_cut(made, content, block_size)[:2] == ([], [(0, len(content))])
    assert made.complete_end(MemorySource(content)) is None


def rows_of(
    columns: object, content: bytes, rejects: list[bytes] | None = None, **options: Any
) -> list[dict[str, Any]]:
    """The rows of elements named r."""
    return columns_of(RECORD_FORMATS.make({"type": "xml", "tag": "r", "columns": columns, **options}), content, rejects)


TEXTS = st.text(st.sampled_from("ab&<>'\"\u00e9 "), min_size=1, max_size=4).map(str.strip)
ROWS = st.lists(
    st.tuples(TEXTS, st.lists(TEXTS, max_size=3), st.lists(st.tuples(TEXTS, TEXTS), max_size=2)), max_size=5
)


@given(ROWS, st.sampled_from(["utf-8", "latin-1", "cp1252"]), st.integers(1, 60), st.integers(1, 9))
def test_paths_and_attributes_are_columns_at_any_cut(rows: Any, encoding: str, size: int, chunk_bytes: int) -> None:
    """What another writer wrote, in any encoding, comes out as it was."""
    root = ElementTree.Element("root")
    for ident, words, pairs in rows:
        record = ElementTree.SubElement(root, "r", {"id": ident})
        for word in words:
            ElementTree.SubElement(record, "w").text = word
        for sku, text in pairs:
            line = ElementTree.SubElement(record, "line", {"sku": sku})
            ElementTree.SubElement(line, "t").text = text
    content = ElementTree.tostring(root, encoding, xml_declaration=True)
    columns = {"@id": "string", "w": "list<string>", "line/@sku": "list<string>", "line/t": "list<string>"}
    made = RECORD_FORMATS.make({"type": "xml", "tag": "r", "columns": columns})
    made.chunk_bytes = chunk_bytes
    records, rejects = read_cut(made, content, size)
    assert (len(records), rejects) == (len(rows), [])
    assert columns_of(made, content) == [
        {
            "@id": ident,
            "w": words or None,
            "line/@sku": [sku for sku, _ in pairs] or None,
            "line/t": [text for _, text in pairs] or None,
        }
        for ident, words, pairs in rows
    ]


@pytest.mark.parametrize("name", ["UTF8", "utf_8", "UTF-16", "utf-16le", "utf_32"])
def test_utf_8_is_read_under_other_names(name: str) -> None:
    """Without its hyphen, or with the name of what was converted; a reference leaves an element to expat."""
    text = f"<?xml version='1.0' encoding='{name}'?><x>{'<r><a>é</a></r>' * 9}<r><a>é&#233;</a></r></x>"
    assert rows_of({"a": "string"}, text.encode()) == [{"a": "é"}] * 9 + [{"a": "éé"}]


def test_texts_have_the_types_of_columns() -> None:
    """White space around numbers and dates means nothing; that of text stays, and an empty element is no number."""
    columns = {"n": "int64", "d": "date32", "t": "string", "l": "list<decimal(4, 2)>", "a/b": "bool", ".": "string"}
    content = b"""<x><r><n>
      7 </n><d>2024-02-29</d><t> a<!-- - -->b</t><l>1.5</l><l/><l>2</l><a> <b>true</b> </a></r>
      <r><n/><t/><t2>left out</t2>own<![CDATA[ & ]]>text</r></x>"""
    first, second = rows_of(columns, content)
    assert [str(first[name]) for name in ("n", "d", "t", "a/b")] == ["7", "2024-02-29", " ab", "True"]
    assert [str(value) for value in first["l"]] == ["1.50", "None", "2.00"]
    assert {name: value for name, value in second.items() if value is not None} == {"t": "", ".": "own & text"}


@pytest.mark.parametrize(
    ("element", "reason"),
    [
        (b"<r><n>x</n></r>", "column 'n' (int64): 'x' "),
        (b"<r><n>1</n><n>2</n></r>", "column 'n' (int64): it is there 2 times, and takes no list"),
        (b"<r><n>1</m></r>", "not well-formed XML: mismatched tag"),
        (b"<r><n>&lol;</n></r>", "not well-formed XML: undefined entity"),
        (b"<r><n>\xff</n></r>", "not well-formed XML"),
        (b"<r>" + b"<n>" * 101 + b"</n>" * 101 + b"</r>", "elements are nested more than 100 levels deep"),
    ],
)
def test_an_element_that_does_not_fit_is_refused_alone(element: bytes, reason: str) -> None:
    """With its place; entities of the file's own are never expanded, so that none of them is a bomb."""
    head = b'<!DOCTYPE x [<!ENTITY lol "lol"><!ENTITY lol2 "&lol;&lol;&lol;">]><x><r><n>1</n></r>'
    rejects: list[bytes] = []
    rows = rows_of({"n": "int64"}, head + element + b"<r><n>3</n></r></x>", rejects)
    (facts,) = map(json.loads, rejects)
    assert (rows, facts["offset"], facts["length"]) == ([{"n": 1}, {"n": 3}], len(head), len(element))
    assert facts["reason"].startswith(reason)


def test_inferred_columns_are_all_texts_of_the_first_file() -> None:
    """Lists where a path repeats; a later element with another path is refused."""
    made = RECORD_FORMATS.make({"type": "xml", "tag": "r", "columns": "infer", "null_values": ["-"]})
    assert isinstance(made, Xml)
    content = b"<x xmlns:y='u'><r xmlns='v' i='1'><y:a>-</y:a></r><r><y:a>2</y:a><y:a>3</y:a></r></x>"
    assert columns_of(made, content) == [{"@i": "1", "y:a": [None]}, {"@i": None, "y:a": ["2", "3"]}]
    rejects: list[bytes] = []
    assert columns_of(made, b"<x><r i='4'/><r><b>1</b></r></x>", rejects) == [{"@i": "4", "y:a": None}]
    assert "b is in none of the columns that were inferred" in json.loads(rejects[0])["reason"]


def test_columns_that_no_text_can_be_are_refused() -> None:
    """Objects and lists of lists: their parts have paths of their own."""
    for kind in ("struct<a: int64>", "list<list<int64>>"):
        with pytest.raises(ValueError, match="is no list of values; name each path below it"):
            RECORD_FORMATS.make({"type": "xml", "tag": "r", "columns": {"n": kind}})

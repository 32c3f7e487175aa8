"""Elements of few shapes, whose texts are found at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.api.records import LINE_FEED, RECORD, Origin, RecordBatch
from operators.files.metadata import BlockMetadata, FileVersion
from operators.reader.columns import xml_shapes
from operators.reader.columns.machine_code import MachineCode
from operators.reader.columns.types import ColumnType
from operators.reader.columns.typing import RowRejects
from operators.reader.columns.xml_elements import ElementColumns

TYPES = {"@id": "int64", "a": "string", "a/@k": "string", "n": "list<int64>", "b/c": "string", ".": "string"}
PIECES = [
    *(b"<a>x</a>", b"<a/>", b"<a k='1'>\xc3\xa9</a>", b"<a> </a>", b'<a k="it\'s"/>', b"<a k='>'/>", b"<a k='\n'/>"),
    *(b"<n>1</n>", b"<n/>", b"<n> 2\n</n>", b"<n>x</n>", b"<b><c>y</c></b>", b"<b> <c/>\n</b>", b"<b>t<c>z</c></b>"),
    *(
        b"\n  ",
        b"own",
        b"&amp;lt;",
        b"<a k='&quot;&#65;'>&lt;a&gt;&#x41;</a>",
        b"<a>&#10;&#150;&#9999;</a>",
        b"<b>&#32;<c>&apos;</c></b>",
        b"&nbsp;",
        b"<a>&amp</a>",
        b"<a k='&'/>",
        b"&#0;",
        b"&#xD800;",
        b"&#128512;",
        b"<!-- <a> -->",
        b"<![CDATA[<]]>",
        b"<?p?>",
        b"\r\n",
        b"\x01",
        b"\xff",
        b"\xef\xbf\xbf",
    ),
    *(b"<d", b">", b"</a>", b"<a k='1' k='2'/>", b"<a k=1/>", b"]]>", b"\xef\xbc\x8c", b"'", b'"'),
]
ELEMENTS = st.tuples(
    st.sampled_from([b"<r>", b"<r id='7'>", b"<r id='' x='\"'>"]),
    st.lists(st.one_of(st.sampled_from(PIECES[:14]), st.sampled_from(PIECES)), max_size=4).map(b"".join),
).map(lambda parts: parts[0] + parts[1] + b"</r>")


@pytest.fixture(autouse=True, scope="module")
def _machine_code() -> Iterator[None]:
    """Machine code is used from the first byte on."""
    pytest.importorskip("numba", reason="needs numba")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(xml_shapes, "MARKUP", MachineCode(xml_shapes.MARKUP.path, 1))
        yield


def batch_of(elements: list[bytes]) -> RecordBatch:
    block = BlockMetadata(1, "f", FileVersion(1, 1), 0, 1, True)
    column = pa.RecordBatch.from_arrays([pa.array(elements, pa.binary())], [RECORD])
    return RecordBatch(column, delimiters=LINE_FEED, origin=Origin((block,), np.arange(len(elements)), 0))


def parsed(columns: ElementColumns, elements: list[bytes], encoding: str) -> tuple[list[Any], dict[int, str]]:
    rejects = RowRejects()
    found = columns.parse(batch_of(elements), encoding, rejects)
    return found.columns.to_pylist() if found.columns else [], rejects.reasons


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
@given(elements=st.lists(ELEMENTS, min_size=1, max_size=4), takes_others=st.booleans())
def test_elements_together_are_as_each_alone(elements: list[bytes], takes_others: bool, encoding: str) -> None:
    """Whatever is unusual in some of them, and whichever shapes are among each other."""
    columns = ElementColumns({path: ColumnType.of(kind) for path, kind in TYPES.items()}, ["x"], takes_others)
    alone = [parsed(columns, [element], encoding) for element in elements]
    rows, reasons = parsed(columns, elements * 9, encoding)
    assert rows == [row for found, _ in alone * 9 for row in found]
    assert reasons == {row: why[0] for row, (_, why) in enumerate(alone * 9) if why}


@pytest.mark.parametrize(
    "element", [b"<r id='7'>\n <a>x</a>\n <n>1</n><n>2</n>\n <b>\n <c>y</c></b>\n</r>", b'<r id="7"><a/></r>']
)
def test_usual_elements_are_parsed_at_once(element: bytes) -> None:
    """Expat meets one of each shape."""
    columns = ElementColumns({path: ColumnType.of(kind) for path, kind in TYPES.items()})
    parsed(columns, [element] * 1000, "utf-8")
    assert columns._shapes is not None
    assert len(columns._shapes.found(batch_of([element] * 1000).record, columns._lists)[0]) == 1000


def test_few_shapes_are_kept_of_elements_that_have_many() -> None:
    """All elements are parsed."""
    columns = ElementColumns({"a": ColumnType.of("string")})
    for first in range(0, 3 * xml_shapes.MOST_SHAPES, 512):
        elements = [b"<r><a>%d</a><b%d/></r>" % (number, number) for number in range(first, first + 512)]
        assert [row["a"] for row in parsed(columns, elements * 8, "utf-8")[0]] == [
            str(number) for number in range(first, first + 512)
        ] * 8
    assert columns._shapes is not None
    assert len(columns._shapes._known) <= xml_shapes.MOST_SHAPES

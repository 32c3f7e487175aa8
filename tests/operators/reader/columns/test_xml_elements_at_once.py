"""Elements of a stretch that are found at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference.xml import element_records

pytest.importorskip("numba", reason="needs numba")

from operators.reader.columns.xml_kernels import plain_elements  # compiles with numba

PIECES = [
    *(b"<a>", b"</a>", b"<a/>", b"<ab>", b"<a b='>'>", b'<a b="it\'s">', b"<a b='<a>'>", b"</a >", b"<b c='\"'/>"),
    *(b"<!--", b"-->", b"<![CDATA[", b"]]>", b"<?", b"?>", b"<!DOCTYPE a>", b"<!x>", b"text", b"\n", b"'", b'"', b">"),
]


@given(st.lists(st.sampled_from([*PIECES, b" " * 40]), max_size=30).map(b"".join))
def test_elements_found_at_once_are_the_first_of_all(content: bytes) -> None:
    """Whatever hides others, is torn, or stands in quotes."""
    starts, stops = plain_elements(content, b"a")
    found = [(start, content[start:stop]) for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
    assert found == element_records(content, b"a")[0][: len(found)]


@pytest.mark.parametrize(
    "element",
    [
        b"<a/>",
        b"<a x='1' y=\"it's\"><b>1</b><c/></a>",
        b"<a x='>'><a>in it</a></a >",
        b"<a><!-- </a> --><![CDATA[<a>]]><?php <a> ?></a>",
    ],
)
def test_elements_that_are_usual_are_all_found_at_once(element: bytes) -> None:
    """Up to one that may go on behind the stretch."""
    assert len(plain_elements(b"<x>\n" + (element + b"\n") * 1000 + b"</x>", b"a")[0]) == 1000

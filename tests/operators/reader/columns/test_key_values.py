"""Separators outside of quoted values become marks."""

from __future__ import annotations

import pyarrow as pa

from operators.reader.columns.key_values import with_marks


def test_separators_outside_of_quotes_are_marked() -> None:
    """All bytes of them, also in a slice of an array."""
    texts = pa.array(["x", 'm="a§b"§a=1', "a=1§b=2"]).slice(1)
    marked, _ = with_marks(texts, "§", "=")
    assert marked is not None
    assert marked.to_pylist() == ['m="a§b"'.encode() + b"\xff\xffa=1", b"a=1\xff\xffb=2"]


def test_nothing_is_marked_where_no_separator_is_quoted() -> None:
    """Quotes in the middle of values, and those of pairs without a value, quote nothing."""
    for texts in ([], ["a=1 b=2"], ['m="a" b=2'], ['m=x"a b" c=1'], ['"a b" c=1']):
        marked, refused = with_marks(pa.array(texts, pa.string()), " ", "=")
        assert (marked, len(refused)) == (None, 0)

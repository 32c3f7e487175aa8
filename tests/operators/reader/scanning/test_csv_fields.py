"""Rows of CSV: fields that are cut out of the bytes are those that Arrow's parser gives."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from operators.reader.scanning.csv_fields import MarkedRows, split_rows
from operators.reader.scanning.quoting import Dialect, RowMarks

NAMES = ("a", "b", "c")
TEXTS = st.text(st.sampled_from('xé,;"\n\r N0'), max_size=5)


def quoted(text: str, always: bool) -> str:
    """A field as writers of CSV write it."""
    return '"' + text.replace('"', '""') + '"' if always or set(text) & set(',"\r\n') else text


def rows_of(text: str) -> MarkedRows:
    """The rows of a text."""
    data = np.frombuffer(text.encode(), np.uint8)
    marks = RowMarks(data, Dialect(ord(","), ord('"')))
    ends = marks.newlines(True).stops
    borders = np.unique(np.concatenate([[0], ends, [len(data)]])).astype(np.int64)
    return MarkedRows(borders, marks)


def by_arrow(text: str, made: list[str], nulls: list[str]) -> pa.RecordBatch:
    """The columns as Arrow's parser gives them."""
    table = split_rows(text.encode(), NAMES, (",", '"', False), nulls, made)
    return table.combine_chunks().to_batches()[0]


@given(
    rows=st.lists(st.tuples(*[st.tuples(TEXTS, st.booleans())] * 3), min_size=1, max_size=8),
    newline=st.sampled_from(["\n", "\r\n", "\r"]),
    is_ended=st.booleans(),
    made=st.sampled_from([["a"], ["c", "b"], [*NAMES]]),
    nulls=st.sampled_from([[], [""], ["N", "0"]]),
)
def test_rows_that_are_written_well_are_cut_as_arrow_does(
    rows: list[tuple[tuple[str, bool], ...]], newline: str, is_ended: bool, made: list[str], nulls: list[str]
) -> None:
    """Whatever their fields have, and which of them are wanted."""
    text = newline.join(",".join(quoted(*field) for field in row) for row in rows)
    columns = rows_of(text + newline * is_ended).columns(NAMES, made, nulls)
    assert columns is not None
    # Arrow takes an empty field that nothing ends for a quoted one, behind a quoted one.
    assert columns.to_pydict() == by_arrow(text + newline, made, nulls).to_pydict()
    assert columns.num_rows == len(rows)


@example('a,b,c\n"d" ,e,f\n')
@example("a,b,c\nd,e\nf,g,h,i\n")
@example('a,b,"c\n')
@given(st.text(st.sampled_from('x,"\n'), max_size=24))
def test_other_text_is_cut_as_arrow_does_or_left_to_it(text: str) -> None:
    """Quotes within text, quotes that are open, and rows with other numbers of fields are not cut."""
    rows = rows_of(text)
    columns = rows.columns(NAMES, NAMES, []) if len(rows.borders) > 1 else None
    if columns is not None:
        assert columns.to_pydict() == by_arrow(text, [*NAMES], []).to_pydict()


@pytest.mark.parametrize("text", ['a,b,c\n"d" ,e,f\n', "a,b,c\nd,e\nf,g,h,i\n", 'a,b,"c\n', 'x"y,b,c\n'])
def test_irregular_rows_are_left_to_arrow(text: str) -> None:
    """Its parser says what is wrong, or takes a quote for text."""
    assert rows_of(text).columns(NAMES, NAMES, []) is None

"""Record batches: what survives filtering, taking, mapping and pickling."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.api.records import LINE_FEED, NO_DELIMITER, UNKNOWN, Delimiters, Origin, RecordBatch

TABLE = (b"\n", b"\r\n", b"\r", b"")
RECORDS = st.lists(st.tuples(st.binary(max_size=6), st.integers(0, 3)), max_size=20)


def framed_batch(rows: list[tuple[bytes, int]]) -> RecordBatch:
    """A batch as a reader makes it: framed, of two blocks, with a delimiter per record."""
    codes = np.array([code for _, code in rows], np.uint8)
    values = pa.array([record + TABLE[code] for record, code in rows], pa.binary())
    lengths = [len(record) + len(TABLE[code]) for record, code in rows]
    starts = np.concatenate([[0], np.cumsum(lengths)])[:-1].astype(np.int64)
    blocks = np.array([index % 2 for index in range(len(rows))], np.int32)
    origin = Origin(("a", "b"), starts, 1000, blocks)
    return RecordBatch(framed=values, delimiters=Delimiters(TABLE, codes), origin=origin)


def facts(batch: RecordBatch) -> list[tuple[bytes, bytes, int, object]]:
    """Each record with what it is written as, its offset and its block."""
    framed = batch.framed().to_pylist()
    blocks = [batch.block_of(position) for position in range(len(batch))]
    return list(zip(batch.to_pylist(), framed, batch.offsets().tolist(), blocks, strict=True))


def test_offsets_begin_anew_in_each_block() -> None:
    """Also of a part of the records, in any order, and in another process."""
    found: Any = np.array([10])  # whose items are numbers of NumPy
    single = RecordBatch.from_records([b"1"], origin=Origin(("a",), np.array([3]), found[0]))
    assert single.offsets().tolist() == [13]
    base = np.array([-10, 1 << 40], np.int64)
    origin = Origin(("a", "b"), np.array([10, 13, 0, 4], np.int32), base, np.array([0, 0, 1, 1], np.int32))
    batch = RecordBatch.from_records([b"1", b"2", b"3", b"4"], origin=origin)
    assert batch.offsets().tolist() == [0, 3, 1 << 40, (1 << 40) + 4]
    some = batch.filter(pa.array([False, True, True, True])).take(np.array([2, 0]))
    for each in (some, pickle.loads(pickle.dumps(some))):
        assert each.offsets().tolist() == [(1 << 40) + 4, 3]


@given(RECORDS)
def test_the_record_column_is_the_records_without_their_delimiters(rows: list[tuple[bytes, int]]) -> None:
    """Framing is a matter of the inside only."""
    batch = framed_batch(rows)
    assert batch.to_pylist() == [record for record, _ in rows]
    assert batch.to_arrow().schema.names == ["record"]
    assert batch.to_arrow().column(0).to_pylist() == [record for record, _ in rows]


@given(RECORDS, st.data())
def test_a_filter_keeps_every_fact_of_what_it_keeps(rows: list[tuple[bytes, int]], data: st.DataObject) -> None:
    """Filtering twice is the same as filtering once by both."""
    batch = framed_batch(rows)
    mask = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    kept = batch.filter(pa.array(mask, pa.bool_()))
    assert facts(kept) == [fact for fact, keep in zip(facts(batch), mask, strict=True) if keep]
    again = data.draw(st.lists(st.booleans(), min_size=len(kept), max_size=len(kept)))
    expected = [fact for fact, keep in zip(facts(kept), again, strict=True) if keep]
    assert facts(kept.filter(pa.array(again, pa.bool_()))) == expected


def test_a_filter_drops_what_is_null() -> None:
    """Whatever bit lies below the null; offsets and delimiters stay with their records."""
    batch = framed_batch([(b"a", 0), (b"b", 1), (b"c", 2)])
    bits = [pa.py_buffer(bytes([0b101])), pa.py_buffer(bytes([0b111]))]
    mask = pa.BooleanArray.from_buffers(pa.bool_(), 3, bits)
    assert mask.to_pylist() == [True, None, True]
    assert facts(batch.filter(mask)) == [facts(batch)[0], facts(batch)[2]]


@given(RECORDS, st.data())
def test_taking_keeps_every_fact_of_what_it_takes(rows: list[tuple[bytes, int]], data: st.DataObject) -> None:
    """Also when a record is taken twice, or after a filter."""
    batch = framed_batch(rows)
    indices = data.draw(st.lists(st.integers(0, max(len(rows) - 1, 0)), max_size=8 if rows else 0))
    taken = batch.take(np.array(indices, np.int64))
    assert facts(taken) == [facts(batch)[index] for index in indices]


@given(RECORDS, st.data())
def test_a_batch_survives_pickling(rows: list[tuple[bytes, int]], data: st.DataObject) -> None:
    """What crosses an exchange arrives with every fact, also when it is a part of something larger."""
    batch = framed_batch(rows)
    mask = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    kept = batch.filter(pa.array(mask, pa.bool_()))
    assert facts(pickle.loads(pickle.dumps(kept))) == facts(kept)


def test_a_derived_batch_of_another_length_keeps_the_blocks_only() -> None:
    """Rows that an operator made by Arrow's own means are not guessed to be at some offset."""
    batch = framed_batch([(b"a", 0), (b"b", 0)])
    derived = batch.derive(batch.to_arrow().slice(1))
    assert derived.offsets().tolist() == [UNKNOWN]
    assert derived.blocks == ("a", "b")
    assert derived.block_of(0) is None


def test_an_escaped_delimiter_inside_a_record_stays_there() -> None:
    """Splitting the bytes again must not find more records than there are."""
    values = pa.array([b"a\\\nb\n", b"c\n"], pa.binary())
    assert RecordBatch(framed=values, delimiters=LINE_FEED).to_pylist() == [b"a\\\nb", b"c"]


def test_records_of_fixed_length_are_written_without_anything_between() -> None:
    """No delimiter is not the same as an unknown one, which is a line feed."""
    assert RecordBatch.from_records([b"ab", b"cd"], NO_DELIMITER).framed().to_pylist() == [b"ab", b"cd"]
    assert RecordBatch.from_records([b"ab"]).framed().to_pylist() == [b"ab\n"]


def test_no_record_loses_a_column_that_the_first_lacks() -> None:
    """The columns of a batch are those of all of its records."""
    rows = [{}, {"a": 1}, {"b": b"x", "a": 2}]
    batch = RecordBatch.from_records(rows)
    assert batch.to_pylist() == [{"a": None, "b": None}, {"a": 1, "b": None}, {"a": 2, "b": b"x"}]
    with pytest.raises(ValueError, match="records have at least one column"):
        RecordBatch.from_records([{}])


def test_records_with_columns_are_mappings_whatever_a_column_is_called() -> None:
    """A column of the name of the raw one does not stand for the record."""
    assert RecordBatch.from_records([{"record": b"a", "count": 2}]).to_pylist() == [{"record": b"a", "count": 2}]


def test_mixed_records_are_refused() -> None:
    """Bytes and mappings do not make a batch together."""
    with pytest.raises(TypeError, match="got bytes, dict"):
        RecordBatch.from_records([b"a", {"b": 1}])


@pytest.mark.parametrize("value", ["text", 1])
def test_a_column_that_is_called_record_is_no_raw_record(value: object) -> None:
    """It may come out of a file; only bytes are records that can be written as they are."""
    batch = RecordBatch.from_records([{"record": value}])
    assert not batch.is_raw
    assert batch.to_pylist() == [{"record": value}]
    with pytest.raises(KeyError, match="not raw"):
        batch.framed()


def test_columns_beside_the_record_cannot_be_framed() -> None:
    """They would be lost with the next filter, as there is no place for them in a frame."""
    batch = RecordBatch.from_records([{"record": b"a", "n": 1}])
    with pytest.raises(KeyError, match="not raw; they have columns: record, n"):
        batch.framed()


def test_views_of_text_and_bytes_become_text_and_bytes_wherever_they_are() -> None:
    """As polars gives them; Arrow takes no rows of views, and dagflow's operators do."""
    values = {
        "text": ("a", pa.string_view(), pa.string()),
        "bytes": (b"a", pa.binary_view(), pa.binary()),
        "list": (["a"], pa.list_(pa.string_view()), pa.list_(pa.string())),
        "struct": ({"x": {"y": b"a"}}, *(pa.struct({"x": pa.struct({"y": k()})}) for k in (pa.binary_view, pa.binary))),
        "number": (1, pa.int8(), pa.int8()),
        "category": ("a", *(pa.dictionary(pa.uint8(), k, ordered=True) for k in (pa.string_view(), pa.string()))),
    }
    given = {name: pa.array([None, value], kind) for name, (value, kind, _) in values.items() if name != "category"}
    given["category"] = pa.DictionaryArray.from_arrays(
        pa.array([None, 0], pa.uint8()), pa.array(["a"], pa.string_view()), ordered=True
    )
    schema = pa.schema({name: kind for name, (_, _, kind) in values.items()})
    whole = RecordBatch.from_records([dict.fromkeys(values, 1)] * 2)
    for batch in (RecordBatch(pa.record_batch(given)), whole.derive(pa.record_batch(given))):
        assert batch.to_arrow().schema == schema
        assert batch.take(np.array([1])).to_pylist() == [{name: value for name, (value, *_) in values.items()}]


def test_columns_without_views_are_those_that_were_given() -> None:
    """The names of items, and what is said of fields, stay."""
    kind = pa.list_(pa.field("element", pa.string(), nullable=False, metadata={"a": "b"}))
    arrow = pa.record_batch([pa.array([["a"]], kind)], pa.schema([pa.field("c", kind)], {"of": "all"}))
    assert RecordBatch(arrow).to_arrow() is arrow

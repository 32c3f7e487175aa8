"""Refused records cost the same each, however many there are."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dagflow.api.records import Origin, RecordBatch
from dagflow.api.refused_records import Reject
from dagflow.testing.operators import OperatorHarness
from operators import Check, Parse, Select
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting
from operators.testing import URL, MemorySource, block_of
from tests.nightly import by_day

RECORDS = 2000
MOST_CALLS = 80
"""Calls of functions for each refused record."""

WAYS_TO_READ: list[tuple[Any, bytes, bytes]] = [
    ({"type": "csv", "columns": {"a": "int64"}}, b"a\n", b"x%d\n"),
    ({"type": "csv", "columns": {"a": "int8"}}, b"a\n", b"1%03d\n"),
    ({"type": "csv", "columns": {"a": "timestamp"}}, b"a\n", b"2024-13-01 10:00:00.%d\n"),
    ({"type": "csv", "columns": {"a": "timestamp[s]"}}, b"a\n", b"2024-01-01 10:00:00.%d1\n"),
    ({"type": "csv", "columns": {"a": "decimal(4, 2)"}}, b"a\n", b"1%03d.5\n"),
    ({"type": "csv", "columns": ["a", "b"], "header": False}, b"", b"%d\n"),
    ({"type": "csv", "columns": {"a": "int64"}, "encoding": "latin-1"}, b"a\n", b"\xe4%d\n"),
    ({"type": "csv", "columns": ["a"], "header": False}, b"", b"\xff%d\n"),
    ("json_lines", b"", b"{'n': %d}\n"),
    ({"type": "json_lines", "columns": {"n": "int64"}}, b"", b'{"n": "x%d"}\n'),
    ({"type": "json_lines", "columns": {"n": "int8"}}, b"", b'{"n": 1%03d}\n'),
    ({"type": "json_lines", "columns": {"n": "struct<a: int64, b: int64>"}}, b"", b'{"n": {"a": 1, "b": "%d"}}\n'),
    ({"type": "json_lines", "columns": "as_found"}, b"", b'{"n": 1, "n": %d}\n'),
    ({"type": "lines", "encoding": "utf-8", "on_bad_bytes": "reject"}, b"", b"\xff%d\n"),
    ({"type": "lines", "max_record": 2, "on_long": "reject"}, b"", b"%03d\n"),
    ({"type": "regex", "pattern": "[0-9]", "max_record": 2, "on_long": "reject"}, b"", b"%03d\n"),
    ({"type": "paragraphs", "fields": True, "columns": {"a": "int64"}}, b"", b"x%d\n\n"),
    ({"type": "paragraphs", "fields": True, "columns": {"a": "int64"}}, b"", b"a: x%d\n\n"),
    ({"type": "fixed", "length": 5, "columns": {"a": [0, 5, "int64"]}}, b"", b"x%04d"),
    ({"type": "fixed", "length": 4, "columns": {"a": [0, 4, "packed(7)"]}}, b"", b"%04d"),
    ({"type": "xml", "tag": "r", "columns": {"a": "int64"}}, b"", b"<r><a>%d</b></r>"),
    ({"type": "xml", "tag": "r", "columns": {"a": "int64"}}, b"", b"<r><a>x%d</a></r>"),
]
WAYS_TO_COMPUTE: list[Callable[[], Any]] = [
    lambda: Parse(regex="(?P<a>[a-z]+)"),
    lambda: Parse(regex="(?P<a>.+)", columns={"a": "date32"}),
    lambda: Parse(split={"delimiter": ",", "names": ["a", "b"]}),
    lambda: Parse(key_value={"keys": ["a"]}),
    lambda: Parse(json=True, columns={"a": "int64"}),
    lambda: Check(expect="a = ''"),
    lambda: Select(columns={"b": "cast(a as boolean)"}),
    lambda: Select(columns={"b": "cast(a as tinyint) / 0"}),
    lambda: Select(where="cast(cast(a as double) * 1e20 as bigint) > 0"),
    lambda: Select(columns={"b": "cast(a || '000000000' as decimal(9, 2))"}),
    lambda: Select(columns={"b": "cast(a as bigint) * 9223372036854775807"}),
    lambda: Select(columns={"b": f"cast(a as decimal(38, 0)) + cast('{'9' * 38}' as decimal(38, 0))"}),
    lambda: Select(columns={"b": "cast(a as decimal(9, 2)) / 0"}),
    lambda: Select(columns={"b": "-(cast(a as int) * 0 - 2147483647 - 1)"}),
    lambda: Select(columns={"b": "cast(floor(cast(a as double)) as tinyint)"}),
    lambda: Select(columns={"b": "sqrt(-cast(a as double))"}),
    lambda: Select(columns={"b": "log10(0 * cast(a as int))"}),
    lambda: Select(columns={"b": "make_date(cast(a as int), 2, 30)"}),
    lambda: Select(columns={"b": "cast('2026-03-29 02:30:00.' || a as timestamp) at time zone 'Europe/Paris'"}),
]


def calls(work: Callable[[], Any]) -> int:
    """How many functions of Python and C are called."""
    count = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def batch_of(records: int) -> RecordBatch:
    """Numbers from 200 on, each with a place."""
    origin = Origin((block_of(b"", 0, 0),), np.arange(records) * 4)
    return RecordBatch.from_records([b"%d" % (number + 200) for number in range(records)], origin=origin)


@pytest.mark.parametrize(("format", "head", "record"), by_day(8, WAYS_TO_READ), ids=lambda value: str(value)[:60])
def test_a_reader_refuses_each_record_with_little_work(format: Any, head: bytes, record: bytes) -> None:
    """All records are refused in order, and no search among them or copy of all takes place for each."""
    content = head + b"".join(record % number for number in range(RECORDS))
    rejects: list[bytes] = []
    made = RECORD_FORMATS.make(format)
    accounting = ByteAccounting(URL, Counter(), rejects.append)

    def read() -> None:
        for batch in made.read(MemorySource(content), block_of(content, 0, len(content)), accounting):
            assert not len(made.parse(batch, accounting).raw)

    assert calls(read) < MOST_CALLS * RECORDS
    offsets = [Reject.from_bytes(reject).offset for reject in rejects]
    assert len(offsets) == RECORDS
    assert offsets == sorted(offsets)


@pytest.mark.parametrize("make", by_day(7, WAYS_TO_COMPUTE))
def test_an_operator_refuses_each_record_with_little_work(make: Callable[[], Any]) -> None:
    """The same holds for operators that parse, check and compute."""
    operator = make()
    batch = batch_of(RECORDS)
    if not isinstance(operator, Parse):
        batch = batch.with_columns(pa.record_batch([batch.record.cast(pa.string())], ["a"]))
    harness = OperatorHarness(operator)
    assert calls(lambda: harness.window({"input": batch})) < MOST_CALLS * RECORDS
    assert [Reject.from_bytes(reject).offset for reject in harness.emitted["errors"]] == list(batch.offsets())


def test_a_batch_computes_the_offsets_of_its_records_once() -> None:
    """What asks for the place of each record does not copy the places of all."""
    batch = batch_of(3)
    assert batch.offsets() is batch.offsets()


def test_a_reject_is_json_whatever_is_in_it() -> None:
    """Control characters, quotes and lone surrogates of a name come back as they were."""
    reject = Reject('/in/\udcff"\n\\', 7, 3, "column 'ä\x00' (int64): '\u2028' is no number", b'\x00\xff"')
    assert Reject.from_bytes(reject.to_bytes()) == reject
    assert b"\n" not in reject.to_bytes()

"""Tests of dagflow.api.refused_records."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dagflow.api.refused_records import (
    GATHERED_RECORDS,
    MAX_REASONS,
    OTHER_REASONS,
    SHOWN_BYTES,
    SHOWN_RECORDS,
    RefusedLog,
    RefusedRecords,
    blocks_in,
    general_reasons,
)

REASONS = [
    ("column 'a' (int64): 'x1' is no whole number, in: x1", "column 'a' (int64): … is no whole number"),
    ("column 'a' (int8): 300 is not from -128 to 127, in: 300", "column 'a' (int8): … is not from -128 to 127"),
    ("column 'a' (string): \"'\\\"\" is no number, in: 1", "column 'a' (string): … is no number"),
    (
        "column 'a' (struct<b: double, c: list<int64>>): member 'c': 'x' is no number, in: {}",
        "column 'a' (struct<b: double, c: list<int64>>): member 'c': … is no number",
    ),
    (
        "column 'a' (decimal(9, 2)): an object is no number, in: {}",
        "column 'a' (decimal(9, 2)): an object is no number",
    ),
    (
        "column 'p' (packed(5), bytes 0 to 3): '40 40 40' in hexadecimal is no packed decimal, in: @@@",
        "column 'p' (packed(5), bytes 0 to 3): … in hexadecimal is no packed decimal",
    ),
    ("member 'n' is there twice, in: {", "member 'n' is there twice"),
    ("the row has 3 fields; there are 2 columns", "the row has … fields; there are … columns"),
    (
        "not valid utf-8: invalid start byte at byte 7 of the record",
        "not valid utf-8: invalid start byte at byte … of the record",
    ),
]
MEMORY = """
from dagflow.api.refused_records import RefusedLog, RefusedRecords
from benchmarks.measuring import peak_mib

log = RefusedLog()
def add(batches):
    for number in range(batches):
        offsets = [*range(10_000 * number, 10_000 * (number + 1))]
        reasons = [f"column 'a' (int64): 'x{each}' is no number" for each in offsets]
        log.add(1, offsets, [3] * 10_000, reasons, [b"abc"] * 10_000)
add(3)
before = peak_mib()
add(27)
data = log.to_bytes()
print(sum(map(len, RefusedRecords.parts(data))), peak_mib() - before)
"""


@pytest.mark.parametrize(("reason", "general"), REASONS)
def test_a_general_reason_has_no_values_of_its_record(reason: str, general: str) -> None:
    """Names of columns and members, and types, stay."""
    assert general_reasons([reason, reason]).to_pylist() == [general] * 2


def test_the_records_of_a_log_come_back_with_what_is_shown_of_each_reason() -> None:
    """They are gathered in parts, and what is shown of a reason is bounded over all of them."""
    log, count = RefusedLog(), GATHERED_RECORDS + 7
    log.add(1, range(count), [2] * count, [f"no date at byte {row}" for row in range(count)], [b"x" * 999] * count)
    log.add(2, [5], [0], ["other"], [b""])
    data = log.to_bytes()
    records = RefusedRecords.from_bytes(data)
    rows = records.table.to_pylist()
    assert [(row["block_id"], row["offset"], row["length"]) for row in rows] == [
        *((1, at, 2) for at in range(count)),
        (2, 5, 0),
    ]
    assert {row["reason"] for row in rows} == {"no date at byte …", "other"}
    shown = [row for row in rows if row["detail"]]
    assert [(row["detail"], row["raw"]) for row in shown[:-1]] == [
        (f"no date at byte {row}", b"x" * SHOWN_BYTES) for row in range(SHOWN_RECORDS)
    ]
    assert shown[-1]["detail"] == "other"
    assert sum(map(len, RefusedRecords.parts(data))) == count + 1
    assert blocks_in(data) == {1, 2}
    kept = RefusedLog()
    kept.keep(records)
    assert RefusedRecords.from_bytes(kept.to_bytes()).table.to_pylist() == rows
    assert RefusedRecords.from_bytes(records.to_bytes()).table.to_pylist() == rows
    assert RefusedLog().to_bytes() == b""


def test_a_log_has_a_bounded_number_of_reasons() -> None:
    """An author's format may give each record a reason of its own."""
    log, count = RefusedLog(), MAX_REASONS + 5
    log.add(1, [0] * count, [1] * count, [f"no {'x' * row}" for row in range(count)], [b""] * count)
    records = RefusedRecords.from_bytes(log.to_bytes())
    assert len(records.table.column("reason").unique()) == MAX_REASONS + 1
    assert records.matches("reason", OTHER_REASONS.__eq__).sum() == 5


def test_a_log_of_ten_times_as_many_records_takes_little_more_memory() -> None:
    """A few bytes for each of 270,000, also while they are read again."""
    command = [sys.executable, "-c", MEMORY]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.split()
    assert int(answer[0]) == 300_000
    assert float(answer[1]) < 8

"""Groups that memory does not take are those that it takes, in the same order."""

from __future__ import annotations

import datetime
import math
import subprocess
import sys
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.api.records import RecordBatch
from operators.aggregate.aggregate import Aggregate
from operators.aggregate.aggregate_base import AggregateBase
from operators.aggregate.count_by import CountBy
from operators.aggregate.group_runs import GroupRuns
from tests.nightly import examples
from tests.operators.aggregate.test_aggregate import COLUMNS, ROWS, batch, emitted

DAY = datetime.datetime(2026, 1, 1)

KINDS: dict[pa.DataType, list[Any]] = {
    pa.int64(): [-5, 0, 7, None],
    pa.string(): ["", "a", "é", "z", "𝄞", "\uffff", None],
    pa.binary(): [b"", b"a", b"\xff", None],
    pa.float64(): [-math.inf, 0.0, 2.5, math.inf, math.nan, None],
    pa.decimal128(9, 2): [Decimal("-1.00"), Decimal("0.01"), None],
    pa.bool_(): [False, True, None],
    pa.timestamp("ns"): [1, 2, 10**18 + 1, None],
    pa.timestamp("us", "Europe/Paris"): [DAY, DAY + datetime.timedelta(hours=1), None],
    pa.date32(): [DAY.date(), None],
}


def combined(table: pa.Table) -> pa.Table:
    """One row for each pair of keys."""
    return table.group_by(["a", "b"], use_threads=False).aggregate([("n", "sum")]).rename_columns(["a", "b", "n"])


@settings(max_examples=examples(40))
@given(st.data(), st.sampled_from(list(KINDS)), st.sampled_from(list(KINDS)), st.integers(1, 4))
def test_merged_runs_are_all_groups_in_the_order_of_arrow(
    data: st.DataObject, first: pa.DataType, second: pa.DataType, rows: int
) -> None:
    """However the groups are spread over runs, and however many rows of a run are in memory."""
    row = st.tuples(st.sampled_from(KINDS[first]), st.sampled_from(KINDS[second]), st.integers(0, 9))
    runs = GroupRuns(["a", "b"], rows)
    tables = []
    for found in data.draw(st.lists(st.lists(row, min_size=1, max_size=9), min_size=1, max_size=4)):
        columns = [pa.array([each[at] for each in found], kind) for at, kind in enumerate([first, second, pa.int64()])]
        tables.append(combined(pa.table(columns, ["a", "b", "n"])))
        runs.add(tables[-1])
    keys = [("a", "ascending"), ("b", "ascending")]
    merged = pa.concat_tables(table.sort_by(keys) for table in runs.merged(combined))
    assert shown(merged) == shown(combined(pa.concat_tables(tables)).sort_by(keys))


def shown(table: pa.Table) -> list[str]:
    """All values as texts: NaN is not equal to itself, and Python's times have no nanoseconds."""
    return [column.combine_chunks().to_string(window=100) for column in table.columns]


class SmallAggregate(Aggregate):
    """Holds next to nothing in memory."""

    held_bytes = 1


class SmallCountBy(CountBy):
    """Holds next to nothing in memory."""

    held_bytes = 1


def rows_of(batches: list[Any]) -> list[str]:
    """Rows as texts, in which NaN is NaN."""
    return [str(row) for each in batches for row in each.to_pylist()]


@settings(max_examples=examples(20))
@given(st.lists(ROWS, min_size=1, max_size=6))
def test_a_result_beyond_memory_is_that_within(shares: list[list[dict[str, Any]]]) -> None:
    """In one window, and over windows that leave their parts, in order of keys."""
    pairs: list[tuple[type[AggregateBase], type[AggregateBase], dict[str, Any]]] = [
        (SmallAggregate, Aggregate, {"by": ["k", "d"], "columns": COLUMNS}),
        (SmallCountBy, CountBy, {"by": ["k", "d"]}),
    ]
    batches = [batch(share) for share in shares]
    for small, large, properties in pairs:
        wanted = rows_of(emitted(large(**properties), batches))
        assert rows_of(emitted(small(**properties), batches)) == wanted
        last = small(**properties)
        found: list[Any] = []
        last.output.connect(found.append)
        last.begin_window(9)
        for number, each in enumerate(batches):
            window: Any = small(**properties)
            window.begin_window(number)
            window.take(each)
            window.take(each.slice(0, 0))
            if (part := window.take_part()) is not None:
                last.add_part(part)
        last.end_window()
        assert rows_of(found) == wanted


@pytest.mark.parametrize("value", [2**62, 1])
def test_sums_that_need_more_digits_in_some_ranges_are_exact(value: int) -> None:
    """A part has the tables of all ranges, whatever their types."""
    rows = [{"k": f"{number:02}", "n": value if number < 8 else 1} for number in range(16)] * 2
    table = pa.RecordBatch.from_pylist(rows)
    columns = {"t": "sum(cast(n as decimal(38, 0)))", "m": "avg(n)"}
    batches = [RecordBatch(table.slice(at, 4)) for at in range(0, 32, 4)]
    assert rows_of(emitted(SmallAggregate(by="k", columns=columns), batches)) == rows_of(
        emitted(Aggregate(by="k", columns=columns), batches)
    )


class SmallLimits(Aggregate):
    """Lets groups go from some thousands on."""

    held_bytes = 48 << 10


def test_groups_that_leave_early_make_no_room_for_more() -> None:
    """Keys that never come again are held up to the same limit, however often they have left."""
    aggregate = SmallLimits(by=["k", "d"], columns={"n": "count(*)"})
    aggregate.is_partial = True
    left: list[int] = []
    aggregate.output.connect(lambda batch: left.append(len(batch)))
    aggregate.begin_window(1)
    for start in range(0, 100_000, 500):
        keys = range(start, start + 500)
        aggregate.take(RecordBatch(pa.record_batch({"k": keys, "d": keys})))
    assert len(left) > 10
    assert max(left) == left[0]


_MANY_GROUPS = """
import resource, sys
import numpy as np, pyarrow as pa
from dagflow.api.records import RecordBatch
from operators.aggregate.aggregate import Aggregate

aggregate = Aggregate(by="k", columns={"n": "count(*)", "t": "sum(k)", "m": "max(d)"})
rows, found = 4_000_000, []
aggregate.output.connect(lambda batch: found.append((len(batch), batch.to_arrow().column("k")[-1].as_py())))
aggregate.begin_window(1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
dice = np.random.default_rng(1)
for _ in range(2 * rows // 50_000):
    keys = dice.integers(0, rows, 50_000)
    aggregate.take(RecordBatch(pa.record_batch({"k": keys, "d": keys / 8})))
aggregate.end_window()
ends = [end for _, end in found]
assert sum(count for count, _ in found) > 0.8 * rows and ends == sorted(ends)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


@pytest.mark.nightly
def test_memory_does_not_follow_the_groups() -> None:
    """Three and a half million of them take 110 MiB as columns alone, and twice as much while they are sorted."""
    ran = subprocess.run([sys.executable, "-c", _MANY_GROUPS], capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 330

"""Columns that operators need."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dagflow.api.partitioning import ByName, partitions_of
from dagflow.api.records import LINE_FEED, RecordBatch
from dagflow.testing.operators import OperatorHarness
from operators.column_names import column_of
from operators.stateful import Deduplicator, KeyCounter

NO_RECORDS = RecordBatch.from_records([], LINE_FEED)


def test_a_batch_without_records_lacks_no_column() -> None:
    """A reader announces a block without records by an empty raw batch, whatever columns its format has."""
    assert column_of(NO_RECORDS, "key").to_pylist() == []
    assert partitions_of(ByName("key").keys(NO_RECORDS), 3).tolist() == []


@pytest.mark.parametrize("operator", [Deduplicator(key="key"), KeyCounter(key="key")])
def test_keyed_operators_take_a_batch_without_records(operator: Deduplicator | KeyCounter) -> None:
    """They emit nothing for it, and do not ask it for their column."""
    harness = OperatorHarness(operator)
    harness.window({"input": NO_RECORDS})
    assert harness.emitted["output"] == []


def test_a_missing_column_is_named_with_those_that_are_there() -> None:
    """Records that lack the column are refused."""
    batch = RecordBatch(pa.RecordBatch.from_pydict({"name": ["a"]}))
    with pytest.raises(LookupError, match="no column 'key'; they have name"):
        column_of(batch, "key")

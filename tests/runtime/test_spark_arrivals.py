"""What arrives at a task from others is in the order of its places, in memory or in a file."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dagflow.api.records import RecordBatch
from dagflow.execution.messages import PickledTuples, ShuffleItem
from dagflow.plan.physical import PortRef
from dagflow.runtime.spark import Place, in_order

TARGET = PortRef("sum", "input")


def item(number: int) -> ShuffleItem:
    """Records, tuples, or a part."""
    payloads: list[RecordBatch | PickledTuples | bytes] = [
        RecordBatch(pa.record_batch({"n": [number] * number})),
        PickledTuples.of([number]),
        bytes(20 * number),
    ]
    payload = payloads[number % 3]
    return ShuffleItem(1, 0, (number,), TARGET, payload)


def content(arrived: object) -> object:
    """What can be compared of an item."""
    if not isinstance(arrived, ShuffleItem):
        return arrived
    payload = arrived.payload
    if isinstance(payload, bytes):
        return arrived.order, payload
    return arrived.order, payload.tuples() if isinstance(payload, PickledTuples) else payload.to_pylist()


@given(st.permutations(range(9)), st.integers(0, 300))
def test_items_come_in_their_order(numbers: list[int], held_bytes: int) -> None:
    """Whichever of them wait in a file; what is no records goes first."""
    arrived: list[tuple[Place, Any]] = [((0, (number,)), item(number)) for number in numbers]
    arrived.insert(4, ((0, (-1,)), 77))
    found = [content(each) for each in in_order(arrived, held_bytes)]
    assert found == [77, *(content(item(number)) for number in range(9))]

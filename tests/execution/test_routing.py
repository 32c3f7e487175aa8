"""Which partitions get what: by key, to all, round robin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.api.codec import ByName, StreamCodec
from dagflow.api.hashing import partition_of
from dagflow.api.records import RecordBatch
from dagflow.errors import OperatorError
from dagflow.execution.routing import assigned_shares, router_of
from dagflow.plan.physical import Edge, Exchange, PortRef, Routing

EDGE = Edge("stream", PortRef("a", "output"), PortRef("b", "input"))
WORDS = st.lists(st.binary(max_size=3), max_size=40)


@dataclass(frozen=True, slots=True)
class Item:
    """A tuple with a name."""

    name: str


class FirstByte(StreamCodec):
    """Keys raw records by their first byte."""

    def keys(self, items: Any) -> pa.Array:
        """The first byte of each."""
        return pa.array([record[:1] for record in items.to_pylist()], pa.binary())


class Short(StreamCodec):
    """Gives one key too few."""

    def keys(self, items: Any) -> pa.Array:
        """All keys but one."""
        return pa.array([b"x"] * (len(items) - 1))


class NoArrow(StreamCodec):
    """Gives keys as Python has them."""

    def keys(self, items: Any) -> Any:
        """The names."""
        return [item.name for item in items]


class NoMember(StreamCodec):
    """Asks for a member that the items lack."""

    def keys(self, items: Any) -> Any:
        """None: it does not come to that."""
        members: dict[str, str] = {}
        return members["host"]


class Raising(StreamCodec):
    """Has a defect."""

    def keys(self, items: Any) -> pa.Array:
        """Raise."""
        raise ZeroDivisionError("no key")


def split(exchange: Exchange, payload: Any, partitions: int) -> list[tuple[int, list[Any]]]:
    """What each partition gets of one payload."""
    parts = router_of(exchange, partitions, 0)(payload)
    return [(index, part.to_pylist() if isinstance(part, RecordBatch) else list(part)) for index, part in parts]


@given(WORDS, st.integers(1, 6))
def test_each_record_goes_to_the_partition_of_its_key_in_order(words: Sequence[bytes], partitions: int) -> None:
    """Nothing is lost, nothing doubled, and the records of a key keep their order."""
    exchange = Exchange(EDGE, "by_key", FirstByte())
    found = split(exchange, RecordBatch.from_records(list(words)), partitions)
    expected: dict[int, list[bytes]] = {}
    for word in words:
        expected.setdefault(partition_of(word[:1], partitions), []).append(word)
    assert {index: records for index, records in found if records} == expected
    assert len({index for index, _ in found}) == len(found)


@given(st.lists(st.text(max_size=2).map(Item), max_size=20), st.integers(1, 6))
def test_the_driver_and_a_task_send_a_tuple_to_the_same_partition(items: list[Item], partitions: int) -> None:
    """A stream from the driver and one from a stage may meet in one operator."""
    by_task = split(Exchange(EDGE, "by_key", ByName("name")), items, partitions)
    by_driver = assigned_shares(Exchange(EDGE, "assigned_by_key", ByName("name")), items, partitions)
    assert {index: part for index, part in by_task if part} == {index: p for index, p in enumerate(by_driver) if p}
    assert Counter(item for share in by_driver for item in share) == Counter(items)


def test_a_column_is_a_key() -> None:
    """Values that are equal are together, nulls too."""
    batch = RecordBatch.from_records([{"host": host, "n": n} for n, host in enumerate(["a", None, "b", "a", None])])
    split_up = router_of(Exchange(EDGE, "by_key", ByName("host")), 50, 0)
    parts = [part.to_arrow().to_pylist() for _, part in split_up(batch)]
    assert sorted([row["n"] for row in rows] for rows in parts) == [[0, 3], [1, 4], [2]]


def test_a_raw_record_as_a_whole_is_the_column_record() -> None:
    """Equal records meet."""
    found = split(Exchange(EDGE, "by_key", ByName("record")), RecordBatch.from_records([b"a", b"b", b"a"]), 50)
    assert sorted(records for _, records in found) == [[b"a", b"a"], [b"b"]]


@given(WORDS, st.integers(1, 6))
def test_what_is_broadcast_reaches_every_partition_whole(words: list[bytes], partitions: int) -> None:
    """Each partition gets the very same records."""
    found = split(Exchange(EDGE, "to_all"), RecordBatch.from_records(words), partitions)
    assert found == [(index, words) for index in range(partitions)]


def test_round_robin_goes_around() -> None:
    """Each payload goes to the next partition."""
    splitter = router_of(Exchange(EDGE, "round_robin"), 3, 1)
    assert [index for _ in range(4) for index, _ in splitter([Item("a")])] == [2, 0, 1, 2]


@pytest.mark.parametrize(
    ("codec", "payload", "expected"),
    [
        (ByName("host"), RecordBatch.from_records([{"n": 1}]), "operator 'b': there is no column 'host' .* have n"),
        (ByName("host"), [Item("a")], "operator 'b': there is no attribute 'host' of Item"),
        (Short(), RecordBatch.from_records([b"a"]), r"keys\(\) of the codec Short .* 0 keys for 1 items"),
        (
            *(ByName("k"), RecordBatch.from_records([{"k": [1]}])),
            "operator 'b': cannot partition by 'k', which is list<item: int64>; keys are bytes, text, numbers",
        ),
        (NoArrow(), [Item("a")], r"'b': keys\(\) of the codec NoArrow .* gave a list, and keys are a pyarrow\.Array"),
        (NoMember(), [Item("a")], r"'b': keys\(\) of the codec NoMember raised KeyError: 'host'"),
        (Raising(), [Item("a")], r"keys\(\) of the codec Raising raised ZeroDivisionError: no key"),
    ],
)
@pytest.mark.parametrize("routing", ["by_key"])
def test_a_key_that_cannot_be_had_is_told_of_the_receiver(
    codec: StreamCodec, payload: Any, expected: str, routing: Routing
) -> None:
    """The error names the operator that is partitioned so, and what its input has instead."""
    with pytest.raises(OperatorError, match=expected):
        split(Exchange(EDGE, routing, codec), payload, 2)

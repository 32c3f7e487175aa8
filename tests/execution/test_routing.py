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

from dagflow.api.partitioning import ByName, StreamCodec, partitions_of_keys
from dagflow.api.ports import unbatched
from dagflow.api.records import RecordBatch
from dagflow.errors import OperatorError
from dagflow.execution.routing import assign_balanced, assigned_shares, distribute, router_of
from dagflow.plan.physical import Edge, Exchange, PortRef, Routing
from operators.files.metadata import BlockMetadata, FileVersion
from operators.files.small_file_batch import SmallFileBatch
from tests.execution.sample_operators import FirstByte

EDGE = Edge("stream", PortRef("a", "output"), PortRef("b", "input"))
WORDS = st.lists(st.binary(max_size=3), max_size=40)


@dataclass(frozen=True, slots=True)
class NamedItem:
    """A tuple with a name."""

    name: str


class GivesTooFewKeys(StreamCodec):
    """Gives one key too few."""

    def keys(self, items: Any) -> pa.Array:
        """All keys but one."""
        return pa.array([b"x"] * (len(items) - 1))


class GivesPythonKeys(StreamCodec):
    """Gives keys as Python has them."""

    def keys(self, items: Any) -> Any:
        """The names."""
        return [item.name for item in items]


class NeedsMissingMember(StreamCodec):
    """Asks for a member that the items lack."""

    def keys(self, items: Any) -> Any:
        """None: it does not come to that."""
        members: dict[str, str] = {}
        return members["host"]


class RaisesInKeys(StreamCodec):
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
        expected.setdefault(partitions_of_keys([word[:1]], partitions)[0], []).append(word)
    assert {index: records for index, records in found if records} == expected
    assert len({index for index, _ in found}) == len(found)


@given(st.lists(st.text(max_size=2).map(NamedItem), max_size=20), st.integers(1, 6))
def test_the_driver_and_a_task_send_a_tuple_to_the_same_partition(items: list[NamedItem], partitions: int) -> None:
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


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.timestamp("ns"), pa.time64("ns")])
def test_dates_and_times_are_keys(kind: pa.DataType) -> None:
    """As the error says of a key that is none."""
    batch = RecordBatch(pa.RecordBatch.from_pydict({"k": pa.array([1000, 2000, 1000], kind)}))
    parts = split(Exchange(EDGE, "by_key", ByName("k")), batch, 1)
    assert parts == [(0, batch.to_pylist())]


def test_round_robin_goes_around() -> None:
    """Each payload goes to the next partition."""
    splitter = router_of(Exchange(EDGE, "round_robin"), 3, 1)
    assert [index for _ in range(4) for index, _ in splitter([NamedItem("a")])] == [2, 0, 1, 2]


LAST = 253_402_300_799
"""The last second of the year 9999 in UTC, which is in the next year where clocks are ahead."""


@pytest.mark.parametrize(
    ("codec", "payload", "expected"),
    [
        (ByName("host"), RecordBatch.from_records([{"n": 1}]), "operator 'b': there is no column 'host' .* have n"),
        (ByName("host"), [NamedItem("a")], "operator 'b': there is no attribute 'host' of NamedItem"),
        (
            GivesTooFewKeys(),
            RecordBatch.from_records([b"a"]),
            r"keys\(\) of the codec GivesTooFewKeys .* 0 keys for 1 items",
        ),
        (
            *(ByName("k"), RecordBatch.from_records([{"k": [1]}])),
            "operator 'b': cannot partition by 'k', which is list<item: int64>; keys are bytes, text, numbers",
        ),
        (
            *(ByName("k"), RecordBatch(pa.RecordBatch.from_pydict({"k": pa.array([1], pa.timestamp("ns"))}))),
            r"cannot partition by 'k', which is timestamp\[ns\]; .* dates and times without nanoseconds",
        ),
        (
            *(
                ByName("k"),
                RecordBatch(pa.RecordBatch.from_pydict({"k": pa.array([LAST], pa.timestamp("s", "Asia/Tokyo"))})),
            ),
            r"'k', which is timestamp\[s, Asia/Tokyo\]; keys are .* without nanoseconds, from year 1 to 9999",
        ),
        (
            *(ByName("k"), RecordBatch(pa.RecordBatch.from_pydict({"k": pa.array([b"\xff"]).view(pa.string())}))),
            r"cannot partition by 'k', which is string: UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff",
        ),
        (
            GivesPythonKeys(),
            [NamedItem("a")],
            r"'b': keys\(\) of the codec GivesPythonKeys .* gave a list, and keys are a pyarrow\.Array",
        ),
        (
            NeedsMissingMember(),
            [NamedItem("a")],
            r"'b': keys\(\) of the codec NeedsMissingMember raised KeyError: 'host'",
        ),
        (RaisesInKeys(), [NamedItem("a")], r"keys\(\) of the codec RaisesInKeys raised ZeroDivisionError: no key"),
    ],
)
@pytest.mark.parametrize("routing", ["by_key"])
def test_the_error_of_a_key_that_cannot_be_had_names_the_receiver(
    codec: StreamCodec, payload: Any, expected: str, routing: Routing
) -> None:
    """The error names the operator that is partitioned so, and what its input has instead."""
    with pytest.raises(OperatorError, match=expected):
        split(Exchange(EDGE, routing, codec), payload, 2)


@given(st.lists(st.integers(0, 1000), max_size=60), st.integers(1, 20))
def test_every_item_goes_to_one_partition_and_neighbours_stay_together(sizes: list[int], partitions: int) -> None:
    """The shares, one behind the other, are the items."""
    shares = assign_balanced(sizes, partitions)
    assert len(shares) == partitions
    assert [index for share in shares for index in share] == list(range(len(sizes)))


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=60), st.integers(1, 20))
def test_no_share_exceeds_the_mean_by_more_than_the_largest_item(sizes: list[int], partitions: int) -> None:
    """Balance is as good as whole items allow."""
    shares = assign_balanced(sizes, partitions)
    heaviest = max(sum(sizes[index] for index in share) for share in shares)
    assert heaviest <= sum(sizes) / partitions + max(sizes)


def test_equal_items_are_dealt_out_evenly() -> None:
    """Sixteen blocks for four readers are four for each."""
    assert [len(share) for share in assign_balanced([64] * 16, 4)] == [4, 4, 4, 4]


def test_items_without_a_size_are_dealt_out_by_number() -> None:
    """Empty files must not all land in one partition."""
    assert [len(share) for share in assign_balanced([0] * 8, 4)] == [2, 2, 2, 2]


SIZES = st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=8), max_size=8)


@given(SIZES, st.integers(1, 12))
def test_tuple_batches_are_dealt_out_as_their_members(sizes: list[list[int]], partitions: int) -> None:
    """Batched or not, each partition gets the same tuples; a list of one is sent as a single tuple here."""
    items: list[BlockMetadata | SmallFileBatch] = []
    block_id = 1
    for group in sizes:
        urls = [f"/in/{block_id + number}" for number in range(len(group))]
        batch = SmallFileBatch.of(block_id, urls, group, group)
        items.append(batch if len(group) > 1 else next(iter(batch)))
        block_id += len(group)
    single = list(unbatched(items))
    shares = assign_balanced([block.size_bytes for block in single], partitions)
    dealt = [list(unbatched(share)) for share in distribute(items, partitions)]
    assert dealt == [[single[index] for index in share] for share in shares]


def test_a_whole_batch_goes_to_one_partition() -> None:
    """What one task must read is not divided, however large beside the rest."""
    batches = [
        SmallFileBatch.of(1 + 10 * number, [f"/in/{number}/{name}" for name in range(10)], [9] * 10, [0] * 10)
        for number in range(3)
    ]
    whole = [SmallFileBatch(p.first_id, p.base, p.names, p.sizes, p.mtimes, is_whole=True) for p in batches]
    assert [[len(batch) for batch in share] for share in distribute(whole, 2)] == [[10, 10], [10]]
    block = BlockMetadata(99, "/in/x", FileVersion(5), 0, 5, True)
    assert distribute([block], 3) == [[block], [], []]

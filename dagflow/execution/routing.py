"""Decides which partition gets which item: the same rule for tasks that emit, and for the driver that assigns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.columns.column_typing import type_name
from dagflow.api.partitioning import ByName, StreamCodec, partitions_of
from dagflow.api.ports import TupleBatch, unbatched
from dagflow.api.records import RecordBatch
from dagflow.errors import DagflowError, OperatorError, text_of
from dagflow.plan.physical import Exchange, PortRef

Router = Callable[[Any], Iterator[tuple[int, Any]]]
"""Cuts a payload into parts, each with the 0-based partition that it goes to."""


def router_of(exchange: Exchange, partitions: int, first: int) -> Router:
    """The router of a task for the items that it emits to an exchange.

    Items that go round robin start with the partition `first`, which should differ between tasks.
    """
    if exchange.routing == "to_all":
        return lambda payload: ((partition, payload) for partition in range(partitions))
    if exchange.routing == "by_key" and exchange.codec is not None:
        codec, target = exchange.codec, exchange.edge.target
        return lambda payload: _split_by_key(codec, target, payload, partitions)
    sent = first

    def route(payload: Any) -> Iterator[tuple[int, Any]]:
        nonlocal sent
        sent += 1
        yield sent % partitions, payload

    return route


def assigned_shares(exchange: Exchange, items: Sequence[Any], partitions: int) -> list[list[Any]]:
    """Assign tuples to partitions, each tuple to one partition; called in the driver."""
    if exchange.codec is None:
        return distribute(items, partitions)
    shares: list[list[Any]] = [[] for _ in range(partitions)]
    for partition, share in _split_by_key(exchange.codec, exchange.edge.target, list(items), partitions):
        shares[partition] = share
    return shares


def _split_by_key(codec: StreamCodec, target: PortRef, payload: Any, partitions: int) -> Iterator[tuple[int, Any]]:
    """The part of each partition, in order of partitions; within a part the items stay in order."""
    items = payload if isinstance(payload, RecordBatch) else list(unbatched(payload))
    if not len(items):
        # An empty batch still shows which blocks were read; any partition can record that.
        yield 0, payload
        return
    destinations = _destinations_of(codec, target, items, partitions)
    order = np.argsort(destinations, kind="stable")
    borders = np.searchsorted(destinations[order], np.arange(partitions + 1))
    for partition, (start, end) in enumerate(pairwise(borders.tolist())):
        if end > start:
            chosen = order[start:end]
            part = items.take(chosen) if isinstance(items, RecordBatch) else [items[index] for index in chosen]
            yield partition, part


_KEYS = "keys are bytes, text, numbers, truth values, or dates and times without nanoseconds, from year 1 to 9999"


def _destinations_of(codec: StreamCodec, target: PortRef, items: Any, partitions: int) -> npt.NDArray[np.int64]:
    keys = _keys_of(codec, target, items)
    try:
        return partitions_of(keys, partitions)
    except Exception as error:  # Arrow's kernels raise errors of many types
        is_no_key = isinstance(error, NotImplementedError | OverflowError) or "[ns" in str(keys.type)
        why = f"; {_KEYS}" if is_no_key else f": {type(error).__name__}: {text_of(error)}"
        text = f"cannot partition by '{codec}', which is {type_name(keys.type)}{why}"
        raise OperatorError(text, operator=target.operator) from error


def _keys_of(codec: StreamCodec, target: PortRef, items: Any) -> pa.Array:
    try:
        keys = codec.keys(items)
        if len(keys) != len(items):
            raise ValueError(f"it gave {len(keys)} keys for {len(items)} items")
        if not isinstance(keys, pa.Array | pa.ChunkedArray):
            raise TypeError(f"it gave a {type(keys).__name__}, and keys are a pyarrow.Array")
        return keys
    except DagflowError:
        raise
    except Exception as error:  # an author's codec may raise anything
        # ByName's error is a sentence, an author's may be only a key.
        if isinstance(codec, ByName) and isinstance(error, LookupError):
            raise OperatorError(str(error.args[0]), operator=target.operator) from error
        text = f"keys() of the codec {codec} raised {type(error).__name__}: {text_of(error)}"
        raise OperatorError(text, operator=target.operator) from error


def size_bytes_of(item: Any) -> int:
    """The weight of a metadata tuple: its size_bytes, or 1 for a tuple of an author's own type that has none."""
    try:
        return int(item.size_bytes)
    except AttributeError:
        return 1


def assign_balanced(sizes: Sequence[int], partitions: int) -> list[list[int]]:
    """Distribute items over partitions, balanced by size, neighbours together; a size of 0 counts as 1.

    The indices of each partition ascend without a gap; partitions beyond the number of items stay empty.
    """
    borders = _borders(np.array(sizes, np.int64), partitions)
    return [list(range(start, end)) for start, end in pairwise(borders)]


def distribute(items: Sequence[Any], partitions: int) -> list[list[Any]]:
    """Distribute tuples over partitions as assign_balanced does, member by member of tuple batches.

    Returns:
        For each partition its tuples and tuple batches; a divisible tuple batch that lies across a border is sliced.
    """
    weights = [
        item.weights if isinstance(item, TupleBatch) and item.is_divisible else [size_bytes_of(item)] for item in items
    ]
    borders = _borders(np.concatenate(weights) if weights else np.empty(0, np.int64), partitions)
    shares: list[list[Any]] = [[] for _ in range(partitions)]
    partition = position = 0
    for item, members in zip(items, map(len, weights), strict=True):
        done = 0
        while done < members:
            while borders[partition + 1] <= position:
                partition += 1
            count = min(members - done, borders[partition + 1] - position)
            shares[partition].append(item if count == members else item.slice(done, done + count))
            done += count
            position += count
    return shares


def _borders(sizes: npt.NDArray[Any], partitions: int) -> list[int]:
    """Where the consecutive items of each partition begin, followed by the number of items."""
    weights = np.maximum(sizes, 1).astype(np.float64)
    stops = np.cumsum(weights)
    # A share takes an item if more than half of it fits, so that the share ends as near to its target as possible.
    middles = stops - weights / 2
    borders = [0]
    for partition in range(partitions - 1):
        first = borders[-1]
        taken = stops[first - 1] if first else 0.0
        target = ((stops[-1] if len(stops) else 0.0) - taken) / (partitions - partition)
        end = int(np.searchsorted(middles, taken + target, side="right"))
        borders.append(min(max(end, first + 1), len(stops)))
    return [*borders, len(stops)]

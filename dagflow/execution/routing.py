"""Which partitions of a stage get what: one rule for tasks that emit to a stage and for the driver that assigns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.partitioning import ByName, StreamCodec, partitions_of
from dagflow.api.ports import TupleBatch, unbatched
from dagflow.api.records import RecordBatch
from dagflow.errors import DagflowError, OperatorError
from dagflow.plan.physical import Exchange, PortRef

Split = Callable[[Any], Iterator[tuple[int, Any]]]
"""Gives each part of a payload with the 0-based partition that it goes to."""


def router_of(exchange: Exchange, partitions: int, first: int) -> Split:
    """How a task splits what passes an exchange.

    Args:
        exchange: The exchange.
        partitions: How many partitions the receiving stage has.
        first: Partition to begin with where items go round robin; each task should begin with another one.
    """
    if exchange.routing == "to_all":
        return lambda payload: ((partition, payload) for partition in range(partitions))
    if exchange.routing == "by_key" and exchange.codec is not None:
        codec, target = exchange.codec, exchange.edge.target
        return lambda payload: _split_by_key(codec, target, payload, partitions)
    sent = first

    def split(payload: Any) -> Iterator[tuple[int, Any]]:
        nonlocal sent
        sent += 1
        yield sent % partitions, payload

    return split


def assigned_shares(exchange: Exchange, items: Sequence[Any], partitions: int) -> list[list[Any]]:
    """How the driver deals out tuples of which each goes to one partition.

    Args:
        exchange: The exchange.
        items: Tuples and tuple batches, in the order of emission.
        partitions: How many partitions the receiving stage has.

    Returns:
        The tuples of each partition.
    """
    if exchange.codec is None:
        return deal_out(items, partitions)
    shares: list[list[Any]] = [[] for _ in range(partitions)]
    for partition, share in _split_by_key(exchange.codec, exchange.edge.target, list(items), partitions):
        shares[partition] = share
    return shares


def _split_by_key(codec: StreamCodec, target: PortRef, payload: Any, partitions: int) -> Iterator[tuple[int, Any]]:
    """Each partition's part, in order of partitions; the items of each stay in their order."""
    items = payload if isinstance(payload, RecordBatch) else list(unbatched(payload))
    if not len(items):
        # Its blocks should be known downstream, to anybody.
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


def _destinations_of(codec: StreamCodec, target: PortRef, items: Any, partitions: int) -> npt.NDArray[np.int64]:
    """The partition of each item.

    Raises:
        OperatorError: The keys cannot be had, or are of a type that cannot be one.
    """
    keys = _keys_of(codec, target, items)
    try:
        return partitions_of(keys, partitions)
    except Exception as error:  # Arrow's kernels raise this and that
        text = f"cannot partition by '{codec}', which is {keys.type}; keys are bytes, text, numbers or truth values"
        raise OperatorError(text, operator=target.operator) from error


def _keys_of(codec: StreamCodec, target: PortRef, items: Any) -> pa.Array:
    """The key of each item.

    Raises:
        OperatorError: The codec failed; it is told of the operator that is partitioned so.
    """
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
        if isinstance(codec, ByName) and isinstance(error, LookupError):  # a sentence; an author's may be a mere key
            raise OperatorError(str(error.args[0]), operator=target.operator) from error
        text = f"keys() of the codec {codec} raised {type(error).__name__}: {error}"
        raise OperatorError(text, operator=target.operator) from error


def size_bytes_of(item: Any) -> int:
    """The weight of a metadata tuple: its size_bytes, or 1."""
    return int(getattr(item, "size_bytes", 1))


def assign_balanced(sizes: Sequence[int], partitions: int) -> list[list[int]]:
    """Deal items out to partitions, balanced by size, neighbours together.

    Args:
        sizes: Size of each item in its unit, in the order of emission; 0 counts as 1.
        partitions: How many partitions, at least 1.

    Returns:
        For each partition the ascending, consecutive indices of its items; partitions beyond the
        number of items stay empty.
    """
    borders = _borders(np.array(sizes, np.int64), partitions)
    return [list(range(start, end)) for start, end in pairwise(borders)]


def deal_out(items: Sequence[Any], partitions: int) -> list[list[Any]]:
    """Deal tuples out to partitions as assign_balanced does, member by member of tuple batches.

    Args:
        items: Tuples and tuple batches, in the order of emission.
        partitions: How many partitions, at least 1.

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
    """Where each partition's consecutive items begin, and behind the last the number of items."""
    weights = np.maximum(sizes, 1).astype(np.float64)
    stops = np.cumsum(weights)
    # An item that would overshoot is taken when more than half of it fits: each share ends nearest its target.
    middles = stops - weights / 2
    borders = [0]
    for partition in range(partitions - 1):
        first = borders[-1]
        taken = stops[first - 1] if first else 0.0
        target = ((stops[-1] if len(stops) else 0.0) - taken) / (partitions - partition)
        end = int(np.searchsorted(middles, taken + target, side="right"))
        borders.append(min(max(end, first + 1), len(stops)))
    return [*borders, len(stops)]

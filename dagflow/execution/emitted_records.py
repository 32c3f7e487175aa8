"""What a per-record method emits for one batch: gathered piece by piece, in columns."""

from __future__ import annotations

import contextlib
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.mappings import mappings_with, values_by_column
from dagflow.api.records import BatchTooLargeError, Delimiters, RecordBatch
from dagflow.execution.emitted_mappings import EmittedMappings

BATCH_BYTES = 8 << 20
"""Records that an operator emits one by one go on in batches of about this many bytes at most, or of one longer record:
Arrow has no batch of raw records above 2 GiB, and Spark takes 32 batches into its heap before it may spill."""

PIECE_RECORDS = 2048
"""A per-record method takes a batch in pieces of so many records: their objects stay in the processor's cache, and
their memory need not be got from the system again and again."""


def ends_of_calls(
    method: Callable[[Any], object],
    records: Iterator[Any],
    finish: Callable[[object], None],
    lists: Sequence[list[Any]],
) -> Iterator[list[int]]:
    """Call a method with each record.

    Args:
        method: The method.
        records: The records.
        finish: Takes what the method returns, where it is not None.
        lists: Grow while the method emits.

    Returns:
        For each of lists how long it was after each record.
    """
    if len(lists) == 1:
        (emitted,) = lists

        def finished(result: object) -> int:
            finish(result)
            return len(emitted)

        # Every record passes here: in a comprehension the bookkeeping costs least.
        ends_of_one = [len(emitted) if (result := method(each)) is None else finished(result) for each in records]
        return iter([ends_of_one])
    ends: list[list[int]] = [[] for _ in lists]
    pairs = list(zip(lists, ends, strict=True))
    for record in records:
        if (result := method(record)) is not None:
            finish(result)
        for emitted, end in pairs:
            end.append(len(emitted))
    return iter(ends)


@dataclass(frozen=True, slots=True)
class RecordPiece:
    """Some records of a batch, as a per-record method is called with them.

    Attributes:
        start: The position of the first one in the batch.
        records: The records.
        values: The values by column, of which the records were made; empty for raw records.
    """

    start: int
    records: Sequence[Any]
    values: Mapping[str, list[Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, batch: RecordBatch, start: int) -> Self:
        """The records from a position on, at most PIECE_RECORDS."""
        part = batch.slice(start, PIECE_RECORDS)
        values = {} if part.is_raw else values_by_column(part.to_arrow())
        return cls(start, mappings_with(values) or part.to_pylist(), values)


class EmittedRecords:
    """Gathers what a per-record method emits for a batch.

    As long as the method emits records that it was given, only their positions are kept. Other raw records are
    brought into Arrow's form piece by piece, and mappings into columns, so that few objects of Python live at a time.

    Args:
        batch: The batch that the method is called with, record by record.

    Attributes:
        count: How many records were gathered.
    """

    def __init__(self, batch: RecordBatch) -> None:
        self._batch = batch
        self._is_selection = batch.is_raw and not batch.framed().null_count
        self._counts: list[npt.NDArray[np.int64]] = []
        self._parts: list[RecordBatch] = []
        self._mappings: EmittedMappings | None = None
        self._items: list[Any] = []
        self.count = 0

    def add(self, items: list[Any], piece: RecordPiece, ends: Sequence[int]) -> None:
        """Take what was emitted for a piece of the batch, which follows the piece before.

        Args:
            items: What was emitted.
            piece: The piece.
            ends: For each record of the piece, how many of items had been emitted after it.
        """
        counts = np.fromiter(ends, np.int64, len(ends))
        counts[1:] -= counts[:-1].copy()
        if self._is_selection and not _is_selection(items, piece.records, counts):
            if piece.start:
                self._parts.append(self._selected(piece.start))
            self._is_selection = False
        self._counts.append(counts)
        self.count += len(items)
        if items and not self._is_selection:
            self._add_made(items, piece, counts)

    def _add_made(self, items: list[Any], piece: RecordPiece, counts: npt.NDArray[np.int64]) -> None:
        """Take items that are not all records of the batch."""
        kinds = set(map(type, items))
        if kinds == {bytes} and self._mappings is None and not self._items:
            sources = piece.start + np.repeat(np.arange(len(counts)), counts)
            self._parts += _raw_batches(items, self._batch.delimiters.take(sources))
        elif kinds == {dict} and not self._parts and not self._items:
            if self._mappings is None:
                self._mappings = EmittedMappings(self._batch.to_arrow())
            self._mappings.add(items, piece.values, counts)
        else:
            self._items += items

    def _selected(self, end: int) -> RecordBatch:
        """The records before a position that were emitted, if only such records were."""
        mask = np.concatenate(self._counts) > 0
        batch = self._batch if end == len(self._batch) else self._batch.slice(0, end)
        return batch.filter(pa.array(mask))

    def batches(self) -> Iterator[RecordBatch]:
        """The records with origin and delimiters, in batches of about BATCH_BYTES at most.

        Raises:
            TypeError: They are neither all bytes nor all mappings.
            ValueError: Their columns do not go together.
        """
        if self._is_selection:
            yield self._selected(len(self._batch)) if self._counts else self._batch
            return
        origin, sources = self._batch.origin, self._sources()
        if self._items or not self._parts:
            if len(sources) != len(self._batch) or not np.array_equal(sources, np.arange(len(sources))):
                origin = None if origin is None else origin.select(sources)
            if self._mappings is not None and not self._items:
                yield RecordBatch(self._mappings.to_arrow(sources), origin=origin)
            else:
                yield RecordBatch.from_records(self.items(), self._batch.delimiters.take(sources), origin)
            return
        start = 0
        for parts in _grouped(self._parts):
            end = start + sum(map(len, parts))
            part_origin = None if origin is None else origin.select(sources[start:end])
            yield RecordBatch.joined(parts, self._batch.delimiters.take(sources[start:end]), part_origin)
            start = end

    def _sources(self) -> npt.NDArray[np.int64]:
        """For each item the position in the batch of the record for which it was emitted."""
        return np.repeat(np.arange(len(self._batch)), np.concatenate(self._counts or [np.empty(0, np.int64)]))

    def items(self) -> list[Any]:
        """All that was emitted, one by one, where something other than raw records or mappings was among it."""
        items = [*itertools.chain.from_iterable(part.to_pylist() for part in self._parts)]
        if self._mappings is not None:
            items += self._mappings.mappings(self._sources())
        return items + self._items

    def has_batches(self) -> bool:
        """Whether whole batches were emitted, too, which have an origin of their own."""
        return any(issubclass(kind, (RecordBatch, pa.RecordBatch)) for kind in set(map(type, self._items)))


def _is_selection(items: list[Any], records: Sequence[Any], counts: npt.NDArray[np.int64]) -> bool:
    """Whether the items are the very records for which something was emitted.

    Identity alone does not say for which: Python has one object for all empty records.
    """
    if len(items) > len(records) or counts.max() > 1:
        return False
    selected = itertools.compress(records, counts.astype(np.uint8).tobytes())
    return all(map(operator.is_, items, selected))


def batches_of(records: list[Any], delimiters: Delimiters) -> Iterator[RecordBatch]:
    """Single records as batches, raw ones in batches of about BATCH_BYTES at most.

    Raises:
        TypeError: They are neither all bytes nor all mappings.
        ValueError: Their columns do not go together.
    """
    if set(map(type, records)) <= {bytes}:
        yield from _raw_batches(records, delimiters)
    else:
        yield RecordBatch.from_records(records)


def _raw_batches(records: list[bytes], delimiters: Delimiters) -> Iterator[RecordBatch]:
    with contextlib.suppress(BatchTooLargeError):
        batch = RecordBatch.raw(records, delimiters)
        if batch.nbytes() <= BATCH_BYTES:
            yield batch
            return
    for start, end in itertools.pairwise((0, *_batch_ends(records))):
        yield RecordBatch.raw(records[start:end], delimiters.take(np.arange(start, end)))


def _batch_ends(records: list[bytes]) -> list[int]:
    """Ends of the batches into which records of many bytes are divided."""
    ends, held = [], 0
    for position, record in enumerate(records):
        if held and held + len(record) > BATCH_BYTES:
            ends.append(position)
            held = 0
        held += len(record)
    return [*ends, len(records)]


def _grouped(parts: list[RecordBatch]) -> Iterator[list[RecordBatch]]:
    """Neighbours that together have about BATCH_BYTES at most."""
    group: list[RecordBatch] = []
    held = 0
    for part in parts:
        if group and held + part.nbytes() > BATCH_BYTES:
            yield group
            group, held = [], 0
        group.append(part)
        held += part.nbytes()
    if group:
        yield group

"""Record batches: columnar groups of records that know where each record comes from."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.columns.column_values import columns_of, columns_to_arrow, mappings_of, require_columns, with_leaves
from dagflow.frozen import frozen
from dagflow.late import compute as pc
from dagflow.storage.columns import flags_of

RECORD = "record"
"""The column of a raw record batch: the bytes of each record, without its delimiter."""

UNKNOWN = -1
"""Stands for the byte offset or the length of a record whose origin an operator did not keep."""


_MAX_BATCH_BYTES = (1 << 31) - 1
"""Arrow's offsets of bytes have 32 bits."""


class BatchTooLargeError(ValueError):
    """Raw records have more bytes than Arrow allows in one batch."""


def _selected(values: npt.NDArray[Any], selection: Any) -> npt.NDArray[Any]:
    # By positions: by a mask NumPy takes up to three times as long.
    return values[np.flatnonzero(flags_of(selection)) if isinstance(selection, pa.BooleanArray) else selection]


_VIEW = "_view"
"""Occurs in the names of all types of views."""

_PLAIN_BY_VIEW = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def _without_views(arrow: pa.RecordBatch) -> pa.RecordBatch:
    """The columns, with text and bytes in place of views of them, which take() and other functions of Arrow lack."""
    # The text of a schema takes a sixth of the time of a look at each type.
    if _VIEW not in arrow.schema.to_string(show_field_metadata=False, show_schema_metadata=False):
        return arrow
    columns = [*map(_plain, arrow.columns)]
    fields = [field.with_type(column.type) for field, column in zip(arrow.schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, arrow.schema.metadata))


def _plain(column: pa.Array) -> pa.Array:
    kind = column.type
    if _VIEW not in str(kind):
        return column
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(column.indices, _plain(column.dictionary), ordered=kind.ordered)
    return column.cast(with_leaves(kind, lambda leaf: _PLAIN_BY_VIEW.get(leaf, leaf)))


@frozen
class Delimiters:
    """The delimiter after each record of a batch.

    Attributes:
        table: The different delimiters that occur.
        codes: For each record the index of its delimiter in table; None where all have table[0].
    """

    table: tuple[bytes, ...]
    codes: npt.NDArray[np.uint8] | None = None

    @property
    def uniform(self) -> bytes | None:
        """The delimiter of every record, or None where they differ."""
        return self.table[0] if self.codes is None else None

    def lengths(self) -> npt.NDArray[np.int32] | int:
        """Bytes in each record's delimiter: one number where all are the same."""
        if self.codes is None:
            return len(self.table[0])
        return np.array([len(delimiter) for delimiter in self.table], np.int32)[self.codes]

    def select(self, selection: Any) -> Delimiters:
        """The delimiters of the records that an index array, a mask or a slice selects."""
        return self if self.codes is None else Delimiters(self.table, _selected(self.codes, selection))

    def to_array(self, count: int) -> pa.Array:
        """The delimiters as an Arrow array of count values."""
        codes = np.zeros(count, np.uint8) if self.codes is None else self.codes
        return pa.DictionaryArray.from_arrays(codes.astype(np.int8), pa.array(self.table, pa.binary())).cast(
            pa.binary()
        )


NO_DELIMITER = Delimiters((b"",))
"""Records without a delimiter, such as those of fixed length."""

LINE_FEED = Delimiters((b"\n",))
"""The delimiter of records that an operator created, when they are written."""


@frozen
class Origin:
    """Where the records of a batch begin: blocks, and byte offsets in their files.

    Selections are stored and only applied on demand, because most batches are written without any.

    Attributes:
        blocks: The blocks that the records were read from, at least one, in reading order.
        starts: Offset of each record from base, before any selection; None where offsets are unknown.
        base: Added to every start; for a batch of several blocks it may be an array with one number for each.
        block_codes: For each record, before any selection, the index of its block; None where there is one block.
        selections: Index arrays, masks or slices, applied one after the other.
    """

    blocks: tuple[Any, ...]
    starts: npt.NDArray[Any] | None = None
    base: int | npt.NDArray[np.int64] = 0
    block_codes: npt.NDArray[np.int32] | None = None
    selections: tuple[Any, ...] = ()

    def _left_of(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return functools.reduce(_selected, self.selections, values)

    def offsets(self, count: int) -> npt.NDArray[np.int64]:
        """Byte offset of each of the batch's count records in its file; UNKNOWN where it is not known."""
        if self.starts is None:
            return np.full(count, UNKNOWN, np.int64)
        base = self.base[self.block_indices(count)] if isinstance(self.base, np.ndarray) else self.base
        return self._left_of(self.starts).astype(np.int64) + base

    def block_indices(self, count: int) -> npt.NDArray[np.int32]:
        """For each of the batch's count records the index of its block in blocks; UNKNOWN where it is not known."""
        if self.block_codes is not None:
            return self._left_of(self.block_codes)
        return np.full(count, 0 if len(self.blocks) == 1 else UNKNOWN, np.int32)

    def select(self, selection: Any) -> Origin:
        """The origin of the records that an index array, a mask or a slice selects."""
        return Origin(self.blocks, self.starts, self.base, self.block_codes, (*self.selections, selection))

    def materialized(self, count: int) -> Origin:
        """The same origin with every selection applied, fit to be sent to another process."""
        offsets = None if self.starts is None else self.offsets(count)
        codes = None if self.block_codes is None else self.block_indices(count)
        return Origin(self.blocks, offsets, 0, codes)


class RecordBatch:
    """An immutable columnar group of records.

    A raw batch has one column, `record`, with the bytes of each record without its delimiter. Internally, raw records
    from a file are framed, each followed by its delimiter, so that filtering and writing them back copies every byte
    once; the column is made on demand.

    Attributes:
        origin: Where the records come from, or None for records that an operator created.
        delimiters: The delimiter of each raw record in its file.
    """

    __slots__ = ("_arrow", "_framed", "_offsets", "delimiters", "origin")

    def __init__(
        self,
        arrow: pa.RecordBatch | None = None,
        *,
        framed: pa.BinaryArray | None = None,
        delimiters: Delimiters = LINE_FEED,
        origin: Origin | None = None,
    ) -> None:
        """Wrap columns, or raw records, each of them followed by its delimiter and none of them null.

        Columns of views of text and bytes become columns of text and bytes.
        """
        if (arrow is None) == (framed is None):
            raise ValueError("a record batch is made from arrow or from framed records, not from both")
        # One of the two exists from the start; pyarrow has no types to express that.
        self._arrow: Any = None if arrow is None else _without_views(arrow)
        self._framed: Any = framed
        self.delimiters = delimiters
        self.origin = origin
        self._offsets: npt.NDArray[np.int64] | None = None

    @classmethod
    def from_records(
        cls, records: Sequence[Any], delimiters: Delimiters = LINE_FEED, origin: Origin | None = None
    ) -> RecordBatch:
        """Make a batch from single records.

        Args:
            records: Bytes for a raw batch, or mappings of column to value; a column that a record lacks is null.
            delimiters: The delimiter to write after each raw record.

        Raises:
            BatchTooLargeError: The raw records have 2 GiB or more.
            TypeError: The records are neither all bytes nor all mappings.
            ValueError: The values of a column have no common type, or no record has a column.
        """
        kinds = set(map(type, records))
        if kinds <= {bytes}:
            return cls.raw(records, delimiters, origin)
        if kinds == {dict}:
            columns = columns_of(records)
            require_columns(columns)
            return cls(columns_to_arrow(columns), origin=origin)
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise TypeError(f"records must all be bytes, or all dicts of column to value; got {names}")

    @classmethod
    def raw(
        cls, records: Sequence[bytes], delimiters: Delimiters = LINE_FEED, origin: Origin | None = None
    ) -> RecordBatch:
        """Make a batch of raw records; a BatchTooLargeError if they have 2 GiB or more."""
        uniform = delimiters.uniform
        if uniform is not None:
            return cls(framed=_concatenated(records, uniform), delimiters=delimiters, origin=origin)
        column = _concatenated(records, b"")
        return cls(pa.RecordBatch.from_arrays([column], [RECORD]), delimiters=delimiters, origin=origin)

    @classmethod
    def joined(cls, batches: Sequence[RecordBatch], delimiters: Delimiters, origin: Origin | None) -> RecordBatch:
        """Make one raw batch of several, at least one, whose records have these delimiters and this origin."""
        if delimiters.uniform is not None:
            framed = pa.concat_arrays([batch.framed() for batch in batches]) if batches[1:] else batches[0].framed()
            return cls(framed=framed, delimiters=delimiters, origin=origin)
        record = pa.concat_arrays([batch.record for batch in batches])
        return cls(pa.RecordBatch.from_arrays([record], [RECORD]), delimiters=delimiters, origin=origin)

    def __len__(self) -> int:
        return len(self._framed) if self._framed is not None else self._arrow.num_rows

    @property
    def is_raw(self) -> bool:
        """Whether the records are bytes; otherwise they have columns of their own.

        A single column that is called record does not make text or numbers raw records.
        """
        if self._framed is not None:
            return True
        schema = self._arrow.schema
        return schema.names == [RECORD] and bool(pa.types.is_binary(schema.field(0).type))

    @property
    def has_null_records(self) -> bool:
        """Whether it is raw and a record is null, which no writer could write."""
        return self._framed is None and self.is_raw and bool(self._arrow.column(0).null_count)

    def to_arrow(self) -> pa.RecordBatch:
        """The columns; a raw batch has the single column `record` of type binary."""
        if self._arrow is None:
            self._arrow = pa.RecordBatch.from_arrays([self._unframed()], [RECORD])
        return self._arrow

    @property
    def record(self) -> pa.Array:
        """The column `record`; a KeyError if the batch has columns of its own, and none of that name."""
        return self.to_arrow().column(RECORD)

    def _unframed(self) -> pa.Array:
        lengths = self.delimiters.lengths()
        if isinstance(lengths, int):
            return pc.binary_slice(self._framed, 0, -lengths) if lengths else self._framed
        record = self._framed
        for length in np.unique(lengths):
            if length:
                mask = pa.array(lengths == length)
                record = pc.if_else(mask, pc.binary_slice(self._framed, 0, -int(length)), record)
        return record

    def framed(self) -> pa.Array:
        """Each raw record followed by its delimiter, as a writer puts it into a file; a KeyError if none is raw."""
        if self._framed is None:
            if not self.is_raw:
                raise KeyError(f"the records are not raw; they have columns: {', '.join(self._arrow.schema.names)}")
            if self.delimiters.uniform == b"":
                return self.record
            self._framed = pc.binary_join_element_wise(self.record, self.delimiters.to_array(len(self)), b"")
        return self._framed

    def to_pylist(self) -> list[Any]:
        """The records one by one: bytes where they are raw, otherwise mappings of column to value."""
        if not self.is_raw:
            return mappings_of(self._arrow)
        array, step = self.raw_in_turn()
        return list(array.to_numpy(zero_copy_only=False)[::step].tolist())

    def raw_in_turn(self) -> tuple[pa.BinaryArray, int]:
        """An array, and how many of its values stand for one raw record; the first of them is the record.

        No byte is copied if the records are framed.
        """
        lengths = self.delimiters.lengths()
        if self._framed is None or (isinstance(lengths, int) and not lengths):
            return self.record, 1
        # Records and delimiters in turn. Copying the records without their delimiters costs more than making objects of
        # the delimiters, too.
        _, borders, content = self._framed.buffers()
        offsets = np.frombuffer(borders, np.int32)[self._framed.offset :][: len(self) + 1]
        in_turn = np.empty(2 * len(self) + 1, np.int32)
        in_turn[::2] = offsets
        np.subtract(offsets[1:], lengths, out=in_turn[1::2])
        return pa.Array.from_buffers(pa.binary(), 2 * len(self), [None, pa.py_buffer(in_turn), content]), 2

    def filter(self, mask: pa.BooleanArray) -> RecordBatch:
        """The records for which mask is true, and neither false nor null; origin and delimiters stay."""
        mask = mask.fill_null(False) if mask.null_count else mask
        is_whole = mask.true_count == len(self)
        return self if is_whole else self._selection(mask, lambda records: records.filter(mask))

    def take(self, indices: npt.NDArray[np.int64]) -> RecordBatch:
        """The records at the given positions, in that order; origin and delimiters stay."""
        return self._selection(indices, lambda records: records.take(pa.array(indices)))

    def slice(self, start: int, count: int) -> RecordBatch:
        """The records from a position on, at most count, without copying them; origin and delimiters stay."""
        return self._selection(slice(start, start + count), lambda records: records.slice(start, count))

    def _selection(self, selection: Any, selected: Callable[[Any], Any]) -> RecordBatch:
        origin = None if self.origin is None else self.origin.select(selection)
        delimiters = self.delimiters.select(selection)
        if self._framed is not None:
            return RecordBatch(framed=selected(self._framed), delimiters=delimiters, origin=origin)
        return RecordBatch(selected(self._arrow), delimiters=delimiters, origin=origin)

    def with_columns(self, arrow: pa.RecordBatch) -> RecordBatch:
        """New columns for the same records: a one-to-one map, with as many rows in the same order, or a ValueError."""
        if arrow.num_rows != len(self):
            raise ValueError(f"a one-to-one map of {len(self)} records gave {arrow.num_rows}")
        batch = RecordBatch(arrow, delimiters=self.delimiters, origin=self.origin)
        batch._offsets = self._offsets
        return batch

    def derive(self, arrow: pa.RecordBatch) -> RecordBatch:
        """Wrap columns that an operator made from this batch with Arrow.

        As many rows as there are records count as a one-to-one map; otherwise the position of each record is unknown,
        and only the batch's blocks stay. Filter with `filter` to keep them.
        """
        if arrow.num_rows == len(self):
            return self.with_columns(arrow)
        origin = None if self.origin is None else Origin(self.origin.blocks)
        return RecordBatch(arrow, delimiters=Delimiters(self.delimiters.table[:1]), origin=origin)

    def offsets(self) -> npt.NDArray[np.int64]:
        """Byte offset of each record in its file, which is not to be changed; UNKNOWN where it is not known."""
        # Computed once: a batch may be asked for the place of each of its records.
        if self._offsets is None:
            origin = self.origin
            self._offsets = np.full(len(self), UNKNOWN) if origin is None else origin.offsets(len(self))
            self._offsets.flags.writeable = False
        return self._offsets

    @property
    def blocks(self) -> tuple[Any, ...]:
        """The blocks that the records come from; empty for records that an operator created."""
        return () if self.origin is None else self.origin.blocks

    def block_of(self, position: int) -> Any:
        """The block of one record, or None where it is not known."""
        return self.slice(position, 1).blocks_of_records()[0]

    def blocks_of_records(self) -> list[Any]:
        """The block of each record; None where it is not known."""
        blocks = self.blocks
        indices = [UNKNOWN] * len(self) if self.origin is None else self.origin.block_indices(len(self)).tolist()
        return [None if index == UNKNOWN else blocks[index] for index in indices]

    def content_bytes(self) -> tuple[int, int]:
        """Bytes of the raw records, and of the delimiters that are stored with them because they were read together."""
        column = self._framed if self._framed is not None else self.record
        if not len(column):
            return 0, 0
        offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset :]
        total = int(offsets[len(column)] - offsets[0])
        if self._framed is None:
            return total, 0
        lengths = self.delimiters.lengths()
        delimiters = lengths * len(column) if isinstance(lengths, int) else int(lengths.sum())
        return total - delimiters, delimiters

    def nbytes(self) -> int:
        """Bytes of the records, with delimiters if they are framed."""
        if self._framed is None:
            return int(self._arrow.nbytes)
        return int(self._framed.total_values_length)

    def __reduce__(self) -> tuple[Any, ...]:
        is_framed = self._framed is not None
        batch = pa.RecordBatch.from_arrays([self._framed], [RECORD]) if is_framed else self._arrow
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        origin = None if self.origin is None else self.origin.materialized(len(self))
        return _unpickled, (sink.getvalue().to_pybytes(), is_framed, self.delimiters, origin)


def _concatenated(records: Sequence[bytes], delimiter: bytes) -> pa.BinaryArray:
    """Records as an Arrow array, each followed by a delimiter."""
    # Twice as fast as pa.array, which looks at each object, and as adding delimiters afterwards.
    borders = np.zeros(len(records) + 1, np.int64)
    borders[1:] = np.fromiter(map(len, records), np.int64, len(records))
    borders[1:] += len(delimiter)
    np.cumsum(borders, out=borders)
    if (size := int(borders[-1])) > _MAX_BATCH_BYTES:
        raise BatchTooLargeError(
            f"a batch of raw records has less than 2 GiB; these {len(records)} have {size} bytes: "
            "emit them in several batches, or one by one"
        )
    content = pa.py_buffer(delimiter.join((*records, b"")))
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(records), [None, pa.py_buffer(borders.astype(np.int32)), content]
    )


def _unpickled(stream: bytes, is_framed: bool, delimiters: Delimiters, origin: Origin | None) -> RecordBatch:
    batch = pa.ipc.open_stream(stream).read_next_batch()
    if is_framed:
        return RecordBatch(framed=batch.column(0), delimiters=delimiters, origin=origin)
    return RecordBatch(batch, delimiters=delimiters, origin=origin)

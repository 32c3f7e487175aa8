"""Records that a per-record method emits for one batch: gathered piece by piece, in columns."""

from __future__ import annotations

import contextlib
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from dagflow.api.columns.column_values import (
    ColumnValuesError,
    column_of,
    columns_of,
    mappings_with,
    require_columns,
    values_by_column,
)
from dagflow.api.records import LINE_FEED, BatchTooLargeError, Delimiters, Origin, RecordBatch
from dagflow.execution.typed_values import class_of, with_type
from dagflow.frozen import frozen

Thing = TypeVar("Thing")

BATCH_BYTES = 8 << 20
"""Records that an operator emits one by one are passed on in batches of at most about this many bytes, or of one longer
record: Arrow has no batch of raw records above 2 GiB, and Spark takes 32 batches into its heap before it may spill."""

PIECE_RECORDS = 2048
"""A per-record method takes a batch in pieces of this many records: their objects stay in the processor's cache, and
their memory need not be requested from the system again and again."""


END_OF_CALL = object()
"""Marks in a list the end of the items that one call of a per-record method has emitted there."""


def call_with_each(
    method: Callable[[Any], object],
    records: Iterator[Any],
    finish: Callable[[object], None],
    lists: Sequence[list[Any]],
) -> None:
    """Call a method with each record, and finish with its result where that is not None.

    The lists grow while the method emits; each gets END_OF_CALL after each record.
    """
    # Every record passes here. To keep the length of a list would create a number for each record.
    end_of_call = END_OF_CALL
    if len(lists) == 1:
        (emitted,) = lists
        for record in records:
            if (result := method(record)) is not None:
                finish(result)
            emitted.append(end_of_call)
        return
    for record in records:
        if (result := method(record)) is not None:
            finish(result)
        for emitted in lists:
            emitted.append(end_of_call)


def _identities(objects: npt.NDArray[np.object_]) -> npt.NDArray[np.intp]:
    """A number for each object of an array, the same for the same object, as long as all of them live."""
    # The content of the array's memory: calling id() for each object takes many times as long.
    return np.frombuffer(objects, np.intp)


_IDENTITY_OF_END = _identities(np.array([END_OF_CALL]))[0]


@frozen
class RecordPiece:
    """Some records of a batch, as a per-record method is called with them.

    Attributes:
        start: The position of the first one in the batch.
        values: The values by column, from which the records were made; empty for raw records.
        identities: For raw records, see _identities.
    """

    start: int
    records: list[Any]
    values: Mapping[str, list[Any]] = field(default_factory=dict)
    identities: npt.NDArray[np.intp] | None = None


class PieceSource:
    """Makes Python objects of the records of a batch, piece by piece."""

    def __init__(self, batch: RecordBatch) -> None:
        self._batch = batch
        self._raw = batch.raw_in_turn() if batch.is_raw else None

    def piece(self, start: int) -> RecordPiece:
        """The records from a position on, at most PIECE_RECORDS."""
        if self._raw is not None:
            array, step = self._raw
            objects = array.slice(step * start, step * PIECE_RECORDS).to_numpy(zero_copy_only=False)
            return RecordPiece(start, objects[::step].tolist(), identities=_identities(objects)[::step])
        part = self._batch.to_arrow().slice(start, PIECE_RECORDS)
        values = values_by_column(part)
        return RecordPiece(start, mappings_with(values) or part.to_pylist(), values)


class PieceOutput:
    """What the calls of a per-record method with the records of a piece emitted at one port.

    Args:
        emitted: The emitted items, with END_OF_CALL after each record.

    Attributes:
        sources: For each item the position in the piece of the record that it was emitted for; ascending.
    """

    def __init__(self, emitted: list[Any]) -> None:
        self._objects = np.fromiter(emitted, object, len(emitted))
        self._identities = _identities(self._objects)
        (self._positions,) = (self._identities != _IDENTITY_OF_END).nonzero()
        # In front of an item are the items before it and the ends of the calls before its own.
        self.sources: npt.NDArray[np.int64] = self._positions - np.arange(len(self._positions))

    def __len__(self) -> int:
        return len(self._positions)

    def items(self) -> list[Any]:
        return list(self._objects.take(self._positions).tolist())

    def has_repeated(self) -> bool:
        return len(np.unique(self._identities.take(self._positions))) < len(self)

    def is_selection(self, records: npt.NDArray[np.intp]) -> bool:
        """Whether the items are the very records that they were emitted for.

        Identity alone does not say which record: Python has one object for all empty records.
        """
        if not (self.sources[1:] > self.sources[:-1]).all():
            return False
        return bool((self._identities.take(self._positions) == records.take(self.sources)).all())


class EmittedKindError(TypeError):
    """The emitted items are neither all raw records nor all mappings.

    Attributes:
        item: The first item that is no record, or is of another kind than those before.
        position: Its position among the items.
        source: The position in a batch of the record that it was emitted for; -1 where it is not known.
    """

    def __init__(self, reason: str, item: object, position: int) -> None:
        super().__init__(reason)
        self.item = item
        self.position = position
        self.source = -1


class EmittedRecords:
    """Gathers what a per-record method emits for a batch.

    As long as the method emits records that it was given, only their positions are kept. Other raw records are
    converted to Arrow's form piece by piece, and mappings to columns, so that only few Python objects exist at a time.
    """

    def __init__(self, batch: RecordBatch) -> None:
        self._batch = batch
        self._is_selection = batch.is_raw and not batch.framed().null_count
        self._sources: list[npt.NDArray[np.int64]] = []
        self._parts: list[RecordBatch] = []
        self._mappings: EmittedMappings | None = None
        self._items: list[Any] = []
        self.count = 0

    def add(self, output: PieceOutput, piece: RecordPiece) -> None:
        """Add what was emitted for a piece of the batch, which follows the piece before."""
        if self._is_selection and (piece.identities is None or not output.is_selection(piece.identities)):
            if piece.start:
                self._parts.append(self._selected(piece.start))
            self._is_selection = False
        self._sources.append(output.sources + piece.start)
        self.count += len(output)
        if len(output) and not self._is_selection:
            self._add_made(output, piece)

    def _add_made(self, output: PieceOutput, piece: RecordPiece) -> None:
        items, sources = output.items(), output.sources
        kinds = set(map(type, items))
        if kinds == {bytes} and self._mappings is None and not self._items:
            self._parts += _raw_batches(items, self._batch.delimiters.select(sources + piece.start))
        elif kinds == {dict} and not self._parts and not self._items:
            if output.has_repeated():
                raise _repeated(dict)
            if self._mappings is None:
                self._mappings = EmittedMappings(self._batch.to_arrow())
            self._mappings.add(items, piece.values, len(piece.records), sources)
        else:
            self._items += items

    def _selected(self, end: int) -> RecordBatch:
        """The emitted records before a position, if they are all records of the batch."""
        batch = self._batch if end == len(self._batch) else self._batch.slice(0, end)
        if self.count == end:
            return batch
        mask = np.zeros(end, bool)
        mask[self._joined_sources()] = True
        return batch.filter(pa.array(mask))

    def batches(self) -> Iterator[RecordBatch]:
        """The records with origin and delimiters, in batches of about BATCH_BYTES at most.

        Raises:
            EmittedKindError: The items are neither all bytes nor all mappings.
            ValueError: The columns do not fit together.
        """
        if self._is_selection:
            yield self._selected(len(self._batch))
            return
        origin, sources = self._batch.origin, self._joined_sources()
        if self._items or not self._parts:
            if len(sources) != len(self._batch) or not np.array_equal(sources, np.arange(len(sources))):
                origin = None if origin is None else origin.select(sources)
            yield self._joined(sources, origin)
            return
        start = 0
        for parts in _grouped(self._parts, RecordBatch.nbytes):
            end = start + sum(map(len, parts))
            part_origin = None if origin is None else origin.select(sources[start:end])
            yield RecordBatch.joined(parts, self._batch.delimiters.select(sources[start:end]), part_origin)
            start = end

    def _joined(self, sources: npt.NDArray[np.int64], origin: Origin | None) -> RecordBatch:
        try:
            if self._mappings is not None and not self._items:
                return RecordBatch(self._mappings.to_arrow(sources), origin=origin)
            return _batch_of(self.items(), self._batch.delimiters.select(sources), origin)
        except (ColumnValuesError, EmittedKindError) as error:
            if error.position >= 0:
                error.source = int(sources[error.position])
            raise

    def _joined_sources(self) -> npt.NDArray[np.int64]:
        return np.concatenate(self._sources) if self._sources else np.empty(0, np.int64)

    def items(self) -> list[Any]:
        """All emitted items, one by one, where they include something other than raw records and mappings."""
        items = [*itertools.chain.from_iterable(part.to_pylist() for part in self._parts)]
        if self._mappings is not None:
            items += self._mappings.mappings(self._joined_sources())
        return items + self._items

    def has_batches(self) -> bool:
        """Whether whole batches were emitted, too, which have their own origin."""
        return any(issubclass(kind, (RecordBatch, pa.RecordBatch)) for kind in set(map(type, self._items)))


def batches_of(records: list[Any], delimiters: Delimiters) -> Iterator[RecordBatch]:
    """Single records as batches, raw ones in batches of about BATCH_BYTES at most."""
    if set(map(type, records)) <= {bytes}:
        yield from _raw_batches(records, delimiters)
    else:
        require_distinct(records)
        yield _batch_of(records)


def _batch_of(items: Sequence[Any], delimiters: Delimiters = LINE_FEED, origin: Origin | None = None) -> RecordBatch:
    try:
        return RecordBatch.from_records(items, delimiters, origin)
    except TypeError as error:
        kinds = [*map(type, items)]
        # If all items are records, the batch mixes two kinds.
        wrong = {*kinds} - {bytes, dict} or {*kinds} - {kinds[0]}
        position = next(at for at, kind in enumerate(kinds) if kind in wrong)
        raise EmittedKindError(str(error), items[position], position) from error


def require_distinct(items: Sequence[Any]) -> None:
    """Refuse a mutable object that was emitted more than once: it was most likely changed in between.

    Emitted objects are converted later, when all of them would have the last values.
    """
    # By Python's convention unhashable objects can be changed; bytes and frozen dataclasses may occur twice.
    mutable = [item for item in items if type(item).__hash__ is None]
    if len(set(map(id, mutable))) < len(mutable):
        raise _repeated(type(mutable[0]))


def _repeated(kind: type) -> ValueError:
    return ValueError(
        f"the same {kind.__name__} was emitted more than once, and all of them would have its last values; emit a new "
        f"{kind.__name__} each time, such as {'dict(record)' if kind is dict else 'copy.copy(item)'}"
    )


def _raw_batches(records: list[bytes], delimiters: Delimiters) -> Iterator[RecordBatch]:
    with contextlib.suppress(BatchTooLargeError):
        batch = RecordBatch.raw(records, delimiters)
        if batch.nbytes() <= BATCH_BYTES:
            yield batch
            return
    start = 0
    for group in _grouped(records, len):
        end = start + len(group)
        yield RecordBatch.raw(group, delimiters.select(np.arange(start, end)))
        start = end


def _grouped(things: Iterable[Thing], size_bytes: Callable[[Thing], int]) -> Iterator[list[Thing]]:
    """Things in groups of at most BATCH_BYTES, or of one larger thing."""
    group: list[Thing] = []
    held = 0
    for thing in things:
        size = size_bytes(thing)
        if group and held + size > BATCH_BYTES:
            yield group
            group, held = [], 0
        group.append(thing)
        held += size
    if group:
        yield group


class EmittedMappings:
    """Gathers mappings, piece by piece.

    A column whose values are the very objects that the method was called with is taken from the batch: it keeps the
    batch's type, and is not built again. A column with other values under a name of the batch keeps the type as well if
    all values are of its class and fit; all other types are inferred.
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        # By column and piece: the values, or None where they are those of the batch.
        self._parts: dict[str, list[list[Any] | None]] = {}
        self._lengths: list[int] = []

    def add(
        self,
        mappings: list[dict[str, Any]],
        values: Mapping[str, list[Any]],
        records: int,
        sources: npt.NDArray[np.int64],
    ) -> None:
        """Add what was emitted for a piece of the batch, which follows the piece before.

        Args:
            values: The values by column, from which the piece's records were made.
            sources: For each mapping the position in the piece of the record that it was emitted for.
        """
        columns = columns_of(mappings)
        for name in columns:
            if name not in self._parts:
                self._parts[name] = [[None] * length for length in self._lengths]
        given_to = _picker(records, sources)
        for name, parts in self._parts.items():
            made = columns.get(name) or [None] * len(mappings)
            is_same = name in values and self._is_same(name, made, given_to(values[name]))
            parts.append(None if is_same else made)
        self._lengths.append(len(mappings))

    def _is_same(self, name: str, made: list[Any], inputs: list[Any]) -> bool:
        kind = self._batch.schema.field(name).type
        if class_of(kind) is None:
            return False
        if types.is_string(kind) or types.is_binary(kind):
            return made == inputs
        # Not by ==, for which 1, 1.0 and True are equal.
        return all(map(operator.is_, made, inputs))

    def mappings(self, sources: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
        return mappings_with({name: self._values(name, parts, sources) for name, parts in self._parts.items()})

    def to_arrow(self, sources: npt.NDArray[np.int64]) -> pa.RecordBatch:
        """The gathered mappings, as columns.

        Raises:
            ColumnValuesError: The values of a column have no common type.
            ValueError: The gathered mappings have no keys.
        """
        require_columns(self._parts)
        passed = [name for name, parts in self._parts.items() if all(part is None for part in parts)]
        taken = self._taken(passed, sources)
        arrays, fields = [], []
        for name, parts in self._parts.items():
            if name in passed:
                arrays.append(taken.column(name))
                fields.append(taken.schema.field(name))
            else:
                arrays.append(self._built(name, self._values(name, parts, sources)))
                fields.append(pa.field(name, arrays[-1].type))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _taken(self, names: Iterable[str], sources: npt.NDArray[np.int64]) -> pa.RecordBatch:
        columns = self._batch.select(list(names))
        is_all = len(sources) == len(columns) and np.array_equal(sources, np.arange(len(sources)))
        return columns if is_all else columns.take(pa.array(sources))

    def _values(self, name: str, parts: Sequence[list[Any] | None], sources: npt.NDArray[np.int64]) -> list[Any]:
        values: list[Any] = []
        for part, length in zip(parts, self._lengths, strict=True):
            if part is None:
                taken = self._taken([name], sources[len(values) :][:length])
                values += values_by_column(taken)[name]
            else:
                values += part
        return values

    def _built(self, name: str, values: list[Any]) -> pa.Array:
        at = self._batch.schema.get_field_index(name) if isinstance(name, str) else -1
        if at >= 0 and (array := with_type(values, self._batch.schema.field(at).type)) is not None:
            return array
        return column_of(name, values)


def _picker(records: int, sources: npt.NDArray[np.int64]) -> Callable[[list[Any]], list[Any]]:
    """A function that picks the values at the positions `sources` from a list of one value for each record."""
    counts = np.bincount(sources, minlength=records)
    most = counts.max()
    if most == counts.min() == 1:
        return lambda values: values
    if most == 1:
        chosen = counts.astype(np.uint8).tobytes()
        return lambda values: [*itertools.compress(values, chosen)]
    positions = sources.tolist()
    return lambda values: [values[position] for position in positions]

"""Machine code that decodes records of Avro into columns of Arrow; needs numba.

A schema becomes a program, which one function carries out on the bytes of each record. An operation names the column
that it appends a value to, so that another schema of the reader, unions, and columns that are left out only change the
program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types as numba_types

from dagflow.late import compute as pc
from operators.reader.byte_source import PADDING
from operators.reader.columns.avro_types import LISTS, NUMBERS, AvroType
from operators.reader.columns.exact_casts import require_sound
from operators.reader.columns.kernels import (
    BYTES,
    Bytes,
    Offsets,
    Words,
    compiled,
    part,
    texts_of,
    validity_of,
    words_of,
)

JUMP, NULL, BYTES_OF_SIZE, ITEMS, UNION, NUMBER, BYTES_OF_LENGTH = range(7)
"""Operations; those from ITEMS on begin with a whole number."""

_FAIL = UNION, 0, 0

FOLLOWING, INNER, START, SIZE, COUNT, LEFT = range(6)
"""Of a column: that behind it and, for lists, those in it; that of the items, or -1; where its values begin, for how
many there is room, and how many there are; and how many items of a list are left."""

_OF_SIZE: dict[str, Any] = {"boolean": np.dtype("u1"), "float": np.dtype("f4"), "double": np.dtype("f8")}

_MOST_VALUES = 1 << 22
"""Values that are held together, in 9 bytes each and then in columns."""

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class AvroProgram:
    """Reads records that are written by one schema as those of the same or another one.

    Args:
        written: The type that they are written by.
        wanted: The type that they are read as.
        types: All types of both, by their numbers.
    """

    def __init__(self, written: AvroType, wanted: AvroType, types: Sequence[AvroType]) -> None:
        self._operations = list[tuple[int, int, int]]()
        self._sources = dict[int, AvroType]()
        self._defaults = dict[int, pa.Array]()
        self._add(written, wanted)
        self._program = np.array(self._operations, np.int64)
        self._columns = np.zeros((len(types), 6), np.int64)
        for type in types:
            is_list = type.kind in LISTS
            self._columns[type.number, FOLLOWING] = type.end if is_list else type.number + 1
            self._columns[type.number, INNER] = type.inner[0].column.number if is_list else -1

    def read(self, contents: Sequence[bytes], rows: Sequence[int], wanted: Sequence[AvroType]) -> list[pa.Array] | None:
        """Make columns of data blocks, which have so many rows; None where not every byte is as it should be."""
        data = np.frombuffer(b"".join([*contents, bytes(PADDING)]), np.uint8)
        words, ends, lasts = words_of(data), np.cumsum([*map(len, contents)]), np.cumsum(rows)
        columns, count = self._columns.copy(), sum(rows)
        # Where items of lists have no room, they are counted.
        columns[:, COUNT] = 1 + (2 * count if 2 * count * len(columns) <= _MOST_VALUES else 0)
        while (columns[:, COUNT] > columns[:, SIZE]).any():
            columns[:, SIZE], columns[:, COUNT] = columns[:, COUNT], 0
            columns[:, START] = np.cumsum(columns[:, SIZE]) - columns[:, SIZE]
            values, valid = (np.empty(columns[:, SIZE].sum(), kind) for kind in (np.int64, np.bool_))
            if not _decode(data, ends, lasts, self._program, columns, values, valid):
                return None

        def array(type: AvroType, rows: int, kind: pa.DataType) -> pa.Array:
            column = type.column
            part = slice(columns[column.number, START], columns[column.number, START] + rows)
            is_null = None if valid[part].all() else ~valid[part]
            if column.number in self._defaults:
                return self._defaults[column.number].take(pa.array(np.zeros(rows, np.int32)))
            if pa.types.is_struct(kind):
                members = [array(member, rows, kind.field(name).type) for name, member in column.members.items()]
                return pa.Array.from_buffers(kind, rows, [validity_of(is_null)], children=members)
            if column.number not in self._sources:
                return pa.nulls(rows, kind)
            if column.kind in LISTS:
                borders = np.append(0, values[part]).astype(np.int32)
                items = array(column.inner[0], int(borders[-1]), kind.field(0).type)
                if column.kind == "map":
                    _require_keys(items.field(0), borders)
                return pa.Array.from_buffers(
                    kind, rows, [validity_of(is_null), pa.py_buffer(borders)], children=[items]
                )
            return _plain(column.facts, self._sources[column.number], values[part], is_null, words, kind)

        try:
            arrays = [array(type, count, type.arrow) for type in wanted]
            require_sound(arrays)
        except (pa.ArrowInvalid, IndexError):
            # A number does not fit into its type, or has no symbol; a map has a key twice.
            return None
        return arrays

    def _add(self, written: AvroType, wanted: AvroType) -> None:
        """Add the operations that read values of a type as those of another one."""
        operations, column, kind, begin = self._operations, wanted.column, written.kind, len(self._operations)
        if kind == "union":
            self._add_union(written, wanted)
        elif kind == "null" and wanted.is_nullable:
            operations.append((NULL, column.number, column.end))
        elif not (_can_be(written, wanted) and self._is_read_from(column, written)):
            operations.append(_FAIL)
        elif kind in LISTS:
            operations.append((ITEMS, column.number, 0))
            self._add(written.inner[0], column.inner[0])
            # fastavro refuses empty lists of other items, too.
            is_other = operations[begin + (1 if kind == "array" else 3)] == _FAIL
            operations.append((JUMP, 0, begin))
            operations[begin] = _FAIL if is_other else (ITEMS, column.number, len(operations))
        elif kind in ("int", "long", "enum"):
            operations.append((NUMBER, column.number, 0))
        elif kind in ("bytes", "string"):
            operations.append((BYTES_OF_LENGTH, column.number, 0))
        else:
            size = _OF_SIZE[kind].itemsize if kind in _OF_SIZE else written.facts.get("size", 0)
            operations.append((BYTES_OF_SIZE, column.number, size))
            self._add_members(written, column)

    def _is_read_from(self, column: AvroType, written: AvroType) -> bool:
        """Whether all values of a column are read as those of a type."""
        source = self._sources.setdefault(column.number, written)
        return source.facts == written.facts or {source.kind, written.kind} == {"int", "long"}

    def _add_union(self, written: AvroType, wanted: AvroType) -> None:
        operations, column, ends = self._operations, wanted.column, list[int]()
        first = len(operations) + 1
        operations += [(UNION, 0, len(written.inner)), *[_FAIL] * len(written.inner)]
        for at, branch in enumerate(written.inner, first):
            operations[at] = (JUMP, 0, len(operations))
            if not written.is_apart or branch.kind == "null":
                self._add(branch, wanted)
            elif written is wanted:
                operations += [(BYTES_OF_SIZE, column.number, 0), (NULL, column.number + 1, branch.number)]
                self._add(branch, branch)
                operations.append((NULL, branch.end, column.end))
            else:
                operations.append(_FAIL)
            ends.append(len(operations))
            operations.append(_FAIL)
        for end in ends:
            operations[end] = (JUMP, 0, len(operations))

    def _add_members(self, written: AvroType, wanted: AvroType) -> None:
        missing = dict(zip(wanted.inner, wanted.facts.get("fields", ()), strict=False))
        for name, member in written.members.items():
            target = wanted.targets.get(name)
            if target is None:
                self._add(member, member)
            elif missing.pop(target, None):
                self._add(member, target)
            else:
                self._operations.append(_FAIL)
        for target, field in missing.items():
            try:
                self._defaults[target.column.number] = pa.array([field["default"]], target.arrow)
            except (KeyError, TypeError, pa.ArrowException):
                self._operations.append(_FAIL)


def _can_be(written: AvroType, wanted: AvroType) -> bool:
    """Whether values of a type can be read as those of another one."""
    kind, kinds, facts = written.kind, [each.kind for each in wanted.kept], wanted.column.facts
    if kind in NUMBERS:
        return any(kind in NUMBERS[: NUMBERS.index(other) + 1] for other in kinds if other in NUMBERS)
    if kind in ("bytes", "string"):
        return not {*kinds}.isdisjoint(("bytes", "string")) and (
            kind == "bytes" or not pa.types.is_decimal(wanted.arrow)
        )
    if kinds != [kind] or written.facts.get("size") != facts.get("size"):
        return False
    names = {written.facts.get("name", ""), written.facts.get("name", "").rpartition(".")[2]}
    return not names.isdisjoint((facts.get("name", "").rpartition(".")[2], *facts.get("aliases", ())))


def _plain(
    facts: Any, source: AvroType, values: Numbers, is_null: Mask | None, words: Words, kind: pa.DataType
) -> pa.Array:
    """Values without others in them."""
    if source.kind == "enum":
        known, default = facts["symbols"], facts.get("default")
        symbols = [symbol if symbol in known else default for symbol in source.facts["symbols"]]
        texts = pa.array(symbols, kind).take(pa.array(values, mask=is_null))
        if texts.null_count > (0 if is_null is None else is_null.sum()):
            raise pa.ArrowInvalid("a symbol is not known")
        return texts
    if source.kind in ("int", "long"):
        is_float = pa.types.is_floating(kind)
        numbers = pa.array(values.astype(np.float64) if is_float else values.copy(), mask=is_null)
        return numbers.cast(kind) if is_float else numbers.cast(f"int{kind.bit_width}").view(kind)
    starts, stops = (values.view(np.int32)[half::2].copy() for half in (0, 1))
    if source.kind in _OF_SIZE:
        numbers = words[starts].view(_OF_SIZE[source.kind])[:: 8 // _OF_SIZE[source.kind].itemsize]
        if is_null is not None:
            numbers[is_null] = 0
        if source.kind == "boolean" and numbers.max(initial=0) > 1:
            raise pa.ArrowInvalid("a boolean is neither 0 nor 1")
        return pa.array(numbers, mask=is_null).cast(kind)
    if pa.types.is_decimal(kind):
        return _decimals(words, starts, stops, is_null, kind)
    texts = texts_of(words, starts, stops, is_null, kind if source.kind != "fixed" else pa.binary())
    return texts if texts.type == kind else texts.cast(kind)


def _require_keys(keys: pa.Array, borders: Offsets) -> None:
    rows = np.repeat(np.arange(len(borders) - 1), np.diff(borders))
    codes = keys.dictionary_encode()
    if pc.count_distinct(pa.array(rows * len(codes.dictionary) + codes.indices.to_numpy())).as_py() < len(keys):
        raise pa.ArrowInvalid("a map has a key twice")


def _decimals(words: Words, starts: Offsets, stops: Offsets, is_null: Mask | None, kind: pa.DataType) -> pa.Array:
    """Decimals, whose highest byte is written first."""
    sizes = stops - starts
    if sizes.max(initial=0) > kind.byte_width:
        raise pa.ArrowInvalid("a decimal has more bytes than its type")
    first = np.where(sizes > 0, words[starts].byteswap().view(np.int64), 0)
    parts = list[Numbers]()
    for done in range(0, kind.byte_width, 8):
        lower = words[np.maximum(stops - done - 8, 0)].byteswap().view(np.int64)
        parts.append(np.where(sizes >= done + 8, lower, first >> np.clip(64 - 8 * (sizes - done), 0, 63)))
    data = pa.py_buffer(np.stack(parts, 1))
    array = pa.Array.from_buffers(kind, len(sizes), [validity_of(is_null), data])
    array.validate(full=True)
    return array


@part
def _number_at(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """The whole number at a position, and its end; -1 for one of more than 64 bits, or beyond the block."""
    number, shift = np.uint64(0), np.uint64(0)
    while at < end and shift <= np.uint64(63):
        byte = data[np.uintp(at)]
        at += 1
        if shift == np.uint64(63) and byte > 1:
            break
        number |= np.uint64(byte & 127) << shift
        if byte < 128:
            value: Any = np.int64(number >> np.uint64(1)) ^ -np.int64(number & np.uint64(1))
            return value, at
        shift += np.uint64(7)
    return 0, -1


_NUMBERS = numba_types.Array(numba_types.int64, 1, "C")


_TABLE = numba_types.Array(numba_types.int64, 2, "C")


@compiled(
    *(numba_types.boolean, BYTES, _NUMBERS, _NUMBERS, _TABLE, _TABLE, _NUMBERS),
    numba_types.Array(numba_types.boolean, 1, "C"),
)
def _decode(
    data: Bytes, ends: Numbers, lasts: Numbers, program: Numbers, columns: Numbers, values: Numbers, valid: Mask
) -> bool:
    """Carry out a program on the records of data blocks; returns whether their bytes are those of so many records.

    Bytes are their start and, in the upper half, their stop; lists are how many items there are up to their end.
    Values without room are counted.
    """
    at = row = step = held = 0
    for block in range(len(ends)):
        while row < lasts[block]:
            operation, column, more = program[step, 0], program[step, 1], program[step, 2]
            value, stop = more, column + 1
            step += 1
            if operation > ITEMS or (operation == ITEMS and columns[column, LEFT] == 0):
                value, at = _number_at(data, at, ends[block])
                if operation == ITEMS:
                    if value < 0:  # their size in bytes follows
                        value, (_, at) = -value, _number_at(data, at, ends[block])
                    if value < 0:
                        return False
                    columns[column, LEFT] = value
            if operation == JUMP:
                step, stop = more, column
            elif operation == UNION:
                if value < 0 or value >= more:
                    return False
                step, stop = step + value, column
            elif operation == ITEMS and columns[column, LEFT] > 0:
                columns[column, LEFT] -= 1
                stop = column
            elif operation == ITEMS:
                step = more
            elif operation == NULL:
                value, stop = 0, more
            elif operation != NUMBER:
                if value < 0 or value > ends[block] - at:
                    return False
                value, at = (at + value) << 32 | at, at + value
            held += stop - column
            if at < 0 or at > ends[block] or held > _MOST_VALUES:
                return False
            while column < stop:
                inner, place = columns[column, INNER], columns[column, START] + columns[column, COUNT]
                if columns[column, COUNT] < columns[column, SIZE]:
                    values[place] = columns[inner, COUNT] if inner >= 0 else value
                    valid[place] = operation != NULL
                columns[column, COUNT] += 1
                column = columns[column, FOLLOWING]
            if step == len(program):
                step = 0
                row += 1
        if at != ends[block]:
            return False
    return True

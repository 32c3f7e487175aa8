"""Records of Avro as columns of Arrow, by the schema that they are written by, or another one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.late import LateModule
from operators.reader.byte_source import PADDING
from operators.reader.columns.avro_decoding import END, ITEMS, JUMP, NUMBER, SIZED, TEXT, UNION, decode
from operators.reader.columns.avro_types import LISTS, NUMBERS, RECORDS, AvroType, require_same_units
from operators.reader.columns.exact_casts import require_sound
from operators.reader.columns.machine_code import MachineCode
from operators.reader.formats.base import BATCH_RECORDS

schemas: Any = LateModule("fastavro.schema")

AVRO_DECODER = MachineCode("operators.reader.columns.avro_kernels.decode_compiled", 4 << 20)
"""What finds values with machine code in this process; Python takes about as long for so many bytes as its import."""

_FLOATS = {"boolean": np.dtype("?"), "float": np.dtype("<f4"), "double": np.dtype("<f8")}

MOST_VALUES = 1 << 22
"""Values that are held together, in 10 bytes each and then in columns."""

_EXACT = Context(prec=77)
"""As many digits as the widest decimal of Arrow has."""

Numbers = npt.NDArray[np.int64]


class AvroRecords:
    """Reads records that are written by one schema as those of the same or another one.

    Args:
        schema: The schema that they are written by.
        reader_schema: The other one.

    Attributes:
        types: The types of both schemas, by their numbers.
        written: The type of records as they are written.
        wanted: The type that they are read as.
        schema: The names and types of its columns.

    Raises:
        ValueError: Arrow has no such types, numbers would mean something else by the other schema, or it has a union
            that is apart.
    """

    def __init__(self, schema: Any, reader_schema: Any = None) -> None:
        self.types = list[AvroType]()
        parsed = [schemas.parse_schema(each) for each in (reader_schema, schema) if each is not None]
        self.wanted = AvroType(parsed[0], self.types, {})
        if len(parsed) > 1 and any(type.is_apart for type in self.types):
            raise ValueError("unions of several types are only read by the schema of the file")
        self.written = AvroType(parsed[1], self.types, {}) if len(parsed) > 1 else self.wanted
        require_same_units(self.written, self.wanted)
        self.schema = pa.schema([(name, column.arrow) for name, column in self.wanted.columns.items()])
        operations = list[tuple[int, int, int]]()
        _add_operations(self.written, operations)
        self._program = [*zip(*operations, (END, 0, 0), strict=True)]
        self._tape = np.empty(MOST_VALUES, np.int16), np.empty(MOST_VALUES, np.int64)

    def read(self, contents: Sequence[bytes], rows: Sequence[int], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The records of data blocks, which are decompressed and have so many rows; of several, one batch.

        Raises:
            ValueError: They are damaged, or cannot be resolved to the other schema.
        """
        data: Any = b"".join([*contents, bytes(PADDING)])
        find, program = decode, tuple(self._program)
        if compiled := AVRO_DECODER.after(len(data)):
            find, program = compiled, tuple(np.array(program, np.int64))
            data = np.frombuffer(data, np.uint8)
        held = used = at = end = 0
        for content, count in zip(contents, rows, strict=True):
            end += len(content)
            while count:
                left = np.zeros(len(self.types), np.int64)
                done, at, used = find(data, at, end, min(count, BATCH_RECORDS - held), program, left, self._tape, used)
                if done < 0:
                    raise ValueError("its bytes are not those of records of its schema")
                count, held = count - done, held + done
                if count and held and len(contents) == 1:
                    yield self._batch(data, held, used, names)
                    held = used = 0
                elif count:
                    self._make_room(len(data))
            if at < end:
                raise ValueError(f"{end - at:,} of its bytes are behind its last record")
        if held:
            yield self._batch(data, held, used, names)

    def _make_room(self, size_bytes: int) -> None:
        size = len(self._tape[0])
        if size > size_bytes:
            raise ValueError("it has more values than bytes")
        self._tape = np.resize(self._tape[0], size * 2), np.resize(self._tape[1], size * 2)

    def _batch(self, data: Any, rows: int, used: int, names: Sequence[str]) -> pa.RecordBatch:
        types, values = self._tape[0][:used], self._tape[1][:used]
        ends = np.cumsum(np.bincount(types, minlength=len(self.types)))
        values_by_type = np.split(values[np.argsort(types, kind="stable")], ends[:-1])
        found = _FoundValues(np.frombuffer(data, np.uint8), values_by_type)
        arrays = found.columns(self.written, self.wanted, rows, names)
        require_sound(arrays)
        return pa.RecordBatch.from_arrays(arrays, names=[*names])


def _add_operations(type: AvroType, operations: list[tuple[int, int, int]]) -> None:
    """Add what reads a value of a type: operations, types and arguments."""
    begin, kind = len(operations), type.kind
    if kind in RECORDS:
        for inner in type.inner:
            _add_operations(inner, operations)
    elif kind in LISTS:
        operations.append((ITEMS, type.number, 0))
        _add_operations(type.inner[0], operations)
        operations.append((JUMP, 0, begin))
        operations[begin] = (ITEMS, type.number, len(operations))
    elif kind == "union":
        operations += [(UNION, type.number, len(type.inner)), *[(JUMP, 0, 0)] * len(type.inner)]
        ends = list[int]()
        for at, branch in enumerate(type.inner, begin + 1):
            operations[at] = (JUMP, 0, len(operations))
            _add_operations(branch, operations)
            ends.append(len(operations))
            operations.append((JUMP, 0, 0))
        for at in ends:
            operations[at] = (JUMP, 0, len(operations))
    elif kind in ("bytes", "string"):
        operations.append((TEXT, type.number, 0))
    elif kind in ("int", "long", "enum"):
        operations.append((NUMBER, type.number, 0))
    elif kind != "null":
        operations.append((SIZED, type.number, _FLOATS[kind].itemsize if kind in _FLOATS else type.facts["size"]))


class _FoundValues:
    """Values as columns of Arrow.

    Args:
        data: The bytes that they are in.
        values_by_type: Those of each type, by its number.

    Raises:
        ValueError: Values cannot be those of the other type.
    """

    def __init__(self, data: npt.NDArray[np.uint8], values_by_type: Sequence[Numbers]) -> None:
        self._data = data
        self._values_by_type = values_by_type

    def columns(self, written: AvroType, wanted: AvroType, rows: int, names: Sequence[str]) -> list[pa.Array]:
        """Some columns of records."""
        if wanted.kind not in RECORDS:
            return [self._array(written, wanted, rows)]
        if written.kind not in RECORDS:
            records = self._array(written, wanted, rows)
            return [records.field(name) for name in names]
        _require_resolved(written, wanted)
        return [self._member(written, wanted, name, rows) for name in names]

    def _array(self, written: AvroType, wanted: AvroType, rows: int) -> pa.Array:
        """The values of a type as those of another one."""
        kind, values = wanted.arrow, self._values_by_type[written.number]
        if written.kind == "union":
            return self._branches(written, wanted, values)
        if written.kind == "null" and wanted.is_nullable:
            return pa.nulls(rows, kind)
        _require_resolved(written, wanted)
        if written.kind in RECORDS:
            members = [self._member(written, wanted.column, name, rows) for name in wanted.column.members]
            return pa.Array.from_buffers(kind, rows, [None], children=members)
        if written.kind in LISTS:
            return self._lists(written, wanted.column, values)
        if written.kind == "enum":
            return _symbols(written.facts["symbols"], wanted.column.facts, values, kind)
        if written.kind in ("int", "long"):
            if pa.types.is_floating(kind):
                # Within a union, numbers that would be rounded are refused.
                exact = pa.array(values).cast(pa.float64(), safe=written in wanted.inner)
                return exact.cast(kind)
            return pa.array(values).cast(f"int{kind.bit_width}").view(kind)
        return self._of_bytes(written, values, kind)

    def _branches(self, written: AvroType, wanted: AvroType, branches: Numbers) -> pa.Array:
        """The values of a union."""
        kind, parts = wanted.arrow, [pa.nulls(0, wanted.arrow)]
        for branch, count in zip(written.inner, np.bincount(branches, minlength=len(written.inner)), strict=True):
            if count and wanted.is_apart and branch.kind != "null":
                members = [
                    self._array(branch, branch, count) if member is branch else pa.nulls(count, member.arrow)
                    for member in wanted.members.values()
                ]
                parts.append(pa.Array.from_buffers(kind, count, [None], children=members))
            elif count:
                parts.append(self._array(branch, wanted, count))
        order = np.empty(len(branches), np.int64)
        order[np.argsort(branches.astype(np.int16), kind="stable")] = np.arange(len(branches))
        return pa.concat_arrays(parts).take(pa.array(order))

    def _member(self, written: AvroType, wanted: AvroType, name: str, rows: int) -> pa.Array:
        """The values of a field, or its default."""
        target = wanted.members[name]
        for other, member in written.members.items():
            if wanted.targets.get(other) is target:
                return self._array(member, target, rows)
        facts = next(field for field in wanted.facts["fields"] if field["name"] == name)
        if "default" not in facts:
            raise ValueError(f"it has no field '{name}', which has no default in reader_schema")
        return pa.array([facts["default"]], target.arrow).take(pa.array(np.zeros(rows, np.int32)))

    def _lists(self, written: AvroType, wanted: AvroType, sizes: Numbers) -> pa.Array:
        """Lists or maps; where a key is there twice, its last value is taken."""
        borders = np.append(0, np.cumsum(sizes)[sizes == 0])
        rows = np.repeat(np.arange(len(borders) - 1), np.diff(borders))
        items = self._array(written.inner[0], wanted.inner[0], len(rows))
        if written.kind == "map":
            codes = items.field(0).dictionary_encode()
            keys = rows * len(codes.dictionary) + codes.indices.to_numpy()
            if len(np.unique(keys)) < len(keys):
                chosen = np.array([*dict(zip(keys.tolist(), range(len(keys)), strict=True)).values()])
                items = items.take(pa.array(chosen))
                borders = np.append(0, np.cumsum(np.bincount(rows[chosen], minlength=len(borders) - 1)))
        offsets = pa.array(borders.astype(np.int32))
        if written.kind == "map":
            # Not of a struct as its child: where its keys may be null, Arrow ends the process that shows such a map.
            return pa.MapArray.from_arrays(offsets, *items.flatten())
        return pa.ListArray.from_arrays(offsets, items, wanted.arrow)

    def _of_bytes(self, written: AvroType, values: Numbers, kind: pa.DataType) -> pa.Array:
        """Values of which the places of their bytes are known."""
        starts, stops = values & 0xFFFFFFFF, values >> 32
        if written.kind in _FLOATS:
            number = _FLOATS[written.kind]
            found = self._data[starts[:, None] + np.arange(number.itemsize)].view(number).reshape(-1)
            return pa.array(found).cast(kind)
        borders = pa.py_buffer(np.stack([starts, stops], 1).astype(np.int32))
        is_text = pa.types.is_string(kind)
        # Every other text is what is between two of them.
        texts = pa.Array.from_buffers(
            kind if is_text else pa.binary(), max(2 * len(values) - 1, 0), [None, borders, pa.py_buffer(self._data)]
        ).take(pa.array(np.arange(0, 2 * len(values), 2)))
        if pa.types.is_decimal(kind):
            numbers = (int.from_bytes(text, "big", signed=True) for text in texts.to_pylist())
            return pa.array([Decimal(number).scaleb(-kind.scale, _EXACT) for number in numbers], kind)
        return texts.cast(kind)


def _symbols(symbols: Sequence[str], facts: Any, numbers: Numbers, kind: pa.DataType) -> pa.Array:
    known = pa.array([symbol if symbol in facts["symbols"] else facts.get("default") for symbol in symbols], kind)
    texts = known.take(pa.array(numbers, mask=(numbers < 0) | (numbers >= len(known))))
    if texts.null_count:
        raise ValueError("it has a symbol that its schema, or reader_schema, lacks")
    return texts


def _require_resolved(written: AvroType, wanted: AvroType) -> None:
    """Refuse values of a type that cannot be read as those of another one."""
    kind, kinds, facts = written.kind, [each.kind for each in wanted.kept], wanted.column.facts
    if written is wanted:
        return
    if kind in NUMBERS:
        can_be = any(kind in NUMBERS[: NUMBERS.index(other) + 1] for other in kinds if other in NUMBERS)
    elif kind in ("bytes", "string"):
        is_decimal = pa.types.is_decimal(wanted.arrow)
        can_be = not {*kinds}.isdisjoint(("bytes", "string")) and not (kind == "string" and is_decimal)
    else:
        names = {written.facts.get("name", ""), written.facts.get("name", "").rpartition(".")[2]}
        is_named = not names.isdisjoint((facts.get("name", "").rpartition(".")[2], *facts.get("aliases", ())))
        can_be = is_named and kinds == [kind] and written.facts.get("size") == facts.get("size")
    if not can_be:
        raise ValueError(f"its values of type {kind} cannot be those of reader_schema, {' or '.join(kinds)}")

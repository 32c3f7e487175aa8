"""Formats whose files hold rows with columns, in units that are read whole, such as the row groups of Parquet."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field

from dagflow.api.columns.column_typing import type_name
from dagflow.api.properties import Count
from dagflow.api.records import Origin, RecordBatch
from dagflow.errors import DagflowError
from dagflow.frozen import frozen
from dagflow.late import compute as pc
from dagflow.metrics.names import SKIPPED_ROWS
from operators.files.metadata import BlockMetadata
from operators.found_values import MAX_DEPTH, is_deep_type
from operators.reader.byte_source import ByteSource, SourceEndError
from operators.reader.columns.exact_casts import cast_rows, plain_rows, plain_schema, unsound_rows, why_not_cast
from operators.reader.columns.types import ColumnTypes, schema_of
from operators.reader.formats.base import BATCH_RECORDS, ByteAccounting, FormatTraits, Parsed, RecordFormat
from operators.record_refusing import raws_of

BATCH_BYTES = 16 << 20
"""About as many bytes are in a batch of rows, so that a few long values do not take all memory."""


@frozen
class RowUnit:
    """Rows that are read together.

    Attributes:
        index: How many units the file has before it.
        start: Its first byte in the file.
        end: The first byte of the next unit; the end of the file for the last one.
        first_row: How many rows the file has before it.
        rows: How many rows it has.
    """

    index: int
    start: int
    end: int
    first_row: int
    rows: int


def tiled(starts: Sequence[int], rows: Sequence[int], size_bytes: int) -> list[RowUnit]:
    """Units that cover a file: the first one begins with the file, and each ends where the next one begins.

    Args:
        starts: First byte of each unit, in the order of the file's rows.
        rows: Number of rows of each unit; none for a file without rows, which is one unit.
        size_bytes: The size of the file.
    """
    firsts = np.maximum.accumulate(np.array([0, *starts[1:]], np.int64))
    borders = [*np.minimum(firsts, max(size_bytes - 1, 0)).tolist(), size_bytes]
    first_rows = itertools.accumulate(rows, initial=0)
    facts = zip(itertools.pairwise(borders), first_rows, rows or [0], strict=False)
    return [RowUnit(index, start, end, row, count) for index, ((start, end), row, count) in enumerate(facts)]


class TableFile(ABC):
    """An open file of rows."""

    schema: pa.Schema
    """The columns, as the file has them."""

    all_units: Sequence[RowUnit] = ()
    """The units of the file, in order; none where a file finds those of a block by itself."""

    def units(self, block: BlockMetadata) -> Iterable[RowUnit]:
        """The units whose first byte is in a block, in order."""
        return [unit for unit in self.all_units if block.start <= unit.start < block.end]

    @abstractmethod
    def read(self, unit: RowUnit, names: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """The rows of a unit, in batches of any size; at least the columns of the names, or all if None."""

    def parts(self, unit: RowUnit) -> Sequence[RowUnit]:
        """The units that one is joined of, which are read where it cannot be; none for one that is not joined."""
        return ()

    def bounds(self, unit: RowUnit) -> tuple[pa.RecordBatch, pa.RecordBatch] | None:
        """The least and the greatest values of a unit, of columns for which both are known, with their plain types."""
        return None

    def reasons(self, unit: RowUnit) -> Mapping[int, str]:
        """The rows of a unit that are refused, from 0 on, and why; called when it was read."""
        return {}


class Tabular(RecordFormat):
    """A format of rows with columns: a unit of rows belongs to the block that holds its first byte.

    The bytes of a file are those of its units. The offset of a record is its row: the number of rows before it in the
    file. A unit that cannot be read is refused as a whole, and the others are read.
    """

    traits = FormatTraits(has_columns=True, is_tabular=True, jumps=True)
    title: ClassVar[str] = ""
    """What messages call the format."""

    unit_name: ClassVar[str] = ""
    """What messages call a unit."""

    columns: Annotated[
        list[str] | ColumnTypes | None,
        Field(
            description="the columns to read, by their names, or with a type for each, such as int64, that the values "
            "are cast to; default: all columns, as the file has them"
        ),
    ] = None

    max_columns: Annotated[
        Count, Field(ge=1, description="maximum columns that are read of a file, with members of structs")
    ] = 1 << 14

    def check_properties(self) -> None:
        """Refuse columns without names, and prepare for the others."""
        if self.columns is not None and not self.columns:
            raise ValueError("columns: at least one column must be read")
        twice = [name for name, count in Counter(list(self.columns or ())).items() if count > 1]
        if twice:
            raise ValueError(f"columns: '{twice[0]}' is there twice")
        self._types = dict(self.columns) if isinstance(self.columns, dict) else {}
        self.traits = self.traits.with_columns(schema_of(self._types) if self._types else None)
        self._opened: tuple[object, Any] = (None, None)
        self._plain_schema = pa.schema([])

    @abstractmethod
    def open_table(self, source: ByteSource, block: BlockMetadata, known: Any) -> tuple[TableFile, Any]:
        """Open a file.

        Args:
            source: Its bytes.
            block: The block that is to be read.
            known: What an earlier call has returned for this version of the file, and what does not depend on the
                source; None for the first call.

        Raises:
            Exception: The file is not of the format, or is damaged.
        """

    def read(self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting) -> Iterator[RecordBatch]:
        """The rows of the units that begin in a block."""
        yield from _regrouped(self._read(source, block, accounting))

    def refuse(
        self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting, reason: str, remedy: str = ""
    ) -> None:
        """Refuse the rows of the units that begin in a block: a file may have more rows than bytes."""
        for _ in self._read(source, block, accounting, reason, remedy):
            raise AssertionError("a refused file has no records")

    def _read(
        self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting, reason: str = "", remedy: str = ""
    ) -> Iterator[RecordBatch]:
        version = (block.url, block.version)
        try:
            known = self._opened[1] if self._opened[0] == version else None
            table, known = self.open_table(source, block, known)
            self._opened = (version, known)
            units = table.units(block)
            problem = reason or self._problem_with(table.schema)
        except (DagflowError, SourceEndError):
            raise
        except Exception as error:
            accounting.refuse_file(source, block, f"the file cannot be read as {self.title}: {clause_of(error)}")
            return
        if problem and accounting.listener is None:
            accounting.refuse_file(source, block, problem, remedy)
        for unit in units:
            accounting.count_bytes(unit.end - unit.start)
            if problem and unit.rows:
                for part in table.parts(unit) or [unit]:
                    _refuse(part, part.first_row, problem, accounting)
            elif unit.rows and self._is_dropped(table, unit):
                accounting.counters[SKIPPED_ROWS] += unit.rows
            elif unit.rows:
                yield from self._rows_of(table, unit, block, accounting)

    def _is_dropped(self, table: TableFile, unit: RowUnit) -> bool:
        """Whether no row of a unit can be passed on by the next operator, nor refused by this format."""
        condition = self.wanted.condition
        if condition is None:
            return False
        plain = plain_schema(table.schema)
        read = [(name, kind.arrow) for name, kind in self._types.items() if name in plain.names]
        bounds = None if any(plain.field(name).type != kind for name, kind in read) else table.bounds(unit)
        return bounds is not None and not condition.may_hold(*bounds)

    def _rows_of(
        self, table: TableFile, unit: RowUnit, block: BlockMetadata, accounting: ByteAccounting
    ) -> Iterator[RecordBatch]:
        """The rows of a unit, with plain types, so that all batches of a file have the same."""
        row, names = unit.first_row, self._wanted(table.schema)
        try:
            for rows in table.read(unit, names):
                first_row, rows = row, rows if names is None else rows.select(names)
                # Before anything looks at its values: damaged lengths and places lead out of the memory of the rows.
                reasons = unsound_rows(rows)
                reasons |= {at - (row - unit.first_row): why for at, why in table.reasons(unit).items()}
                for index, why in reasons.items():
                    accounting.reject(row + index, 0, why, b"")
                kept = np.delete(np.arange(len(rows), dtype=np.int32), [*reasons])
                row += len(rows)
                rows = rows.take(pa.array(kept)) if reasons else rows
                most = _most_rows(rows)
                for start in range(0, len(rows), most):
                    part = rows.slice(start, most)
                    if not part.schema.equals(self._plain_schema, check_metadata=True):
                        part = plain_rows(part)
                        self._plain_schema = part.schema
                    yield RecordBatch(part, origin=Origin((block,), kept[start : start + most], first_row))
        except (DagflowError, SourceEndError):
            raise
        except Exception as error:
            parts = table.parts(unit) if row == unit.first_row else ()
            for part in parts:
                yield from self._rows_of(table, part, block, accounting)
            if not parts:
                _refuse(unit, row, f"{self.place_of(unit)} cannot be read: {clause_of(error)}", accounting)
            return
        if row != unit.first_row + unit.rows:
            has = f"has {row - unit.first_row:,} rows, and the file says {unit.rows:,}"
            _refuse(unit, row, f"{self.place_of(unit)} {has}", accounting)

    def complete_end(self, source: ByteSource) -> int | None:
        """A longer file has other rows, as its footer says."""
        return None

    def _wanted(self, schema: pa.Schema) -> list[str] | None:
        if self.columns is None:
            # Without types no value is refused, so that none of a column that is dropped is missed.
            return self.wanted.among(schema.names)
        names = {*schema.names}
        return [name for name in self.columns if name in names]

    def _problem_with(self, schema: pa.Schema) -> str:
        """Why no row of a file has the columns that the app reads; "" if its rows may have them."""
        counts = Counter(schema.names)
        twice = [name for name in self.columns or schema.names if counts[name] > 1]
        if twice:
            return f"the file has several columns '{twice[0]}'"
        if not counts:
            return "the file has no columns"
        optional: Collection[str] = [name for name, kind in self._types.items() if kind.is_optional]
        missing = [name for name in self.columns or () if name not in counts and name not in optional]
        if missing:
            return f"the file has no column '{missing[0]}'; it has {', '.join(schema.names)}"
        wanted = self._wanted(schema) or schema.names
        for name in wanted:
            if is_deep_type(schema.field(name).type):
                return f"column '{name}' is nested more than {MAX_DEPTH} levels deep; leave it out of columns"
        if (width := len(wanted) + sum(_members_in(schema.field(name).type) for name in wanted)) > self.max_columns:
            return f"it has {width:,} columns, more than max_columns, {self.max_columns:,}; let columns name some"
        for name in wanted:
            try:
                pa.nulls(0, schema.field(name).type)
            except KeyError:  # pyarrow has no arrays of it, as of intervals of months
                kind = type_name(schema.field(name).type)
                return f"column '{name}' is {kind}, which is not read; leave it out of columns"
            except pa.ArrowException:
                pass
        plain = plain_schema(schema)
        problems = (why_not_cast(plain.field(name), kind) for name, kind in self._types.items() if name in counts)
        return next(filter(None, problems), "")

    def place_of(self, unit: RowUnit) -> str:
        """What messages call a unit."""
        return f"{self.unit_name} {unit.index + 1}"

    def place_of_value(self, row: int, column: str) -> str:
        """What messages say behind the reason for which a value is refused, as ", in: …"."""
        return ""

    def parse(self, batch: RecordBatch, accounting: ByteAccounting) -> Parsed:
        """The rows with the types that the app gives; a row with a value that is not of its type is refused."""
        rows, reasons = cast_rows(batch.to_arrow(), self._types)
        if reasons:
            positions = np.array(sorted(reasons), np.int64)
            refused = batch.take(positions)
            offsets = refused.offsets().tolist()
            whys = zip(offsets, map(reasons.__getitem__, positions.tolist()), strict=True)
            clauses = [f"{why}{self.place_of_value(offset, name)}" for offset, (name, why) in whys]
            accounting.reject_ranges(offsets, [0] * len(offsets), clauses, raws_of(refused))
            kept = np.delete(np.arange(len(batch)), positions)
            batch, rows = batch.take(kept), rows.take(pa.array(kept))
        return Parsed(batch.with_columns(rows))


def _members_in(kind: pa.DataType) -> int:
    """The members of structs in a type, on all levels."""
    inner = [kind.field(index).type for index in range(kind.num_fields)]
    return (len(inner) if pa.types.is_struct(kind) else 0) + sum(map(_members_in, inner))


def _most_rows(rows: pa.RecordBatch) -> int:
    """How many of some rows are made plain at once: a dictionary has a long value once, and they have it each."""
    return max(1, BATCH_BYTES // max([1, *map(longest_in, rows.columns)]))


def longest_in(array: pa.Array) -> int:
    """Bytes of the longest text in a dictionary of an array, or of an array in it; 0 where there is none."""
    types, kind = pa.types, array.type
    if types.is_dictionary(kind):
        is_text = types.is_string(kind.value_type) or types.is_binary(kind.value_type)
        longest: int | None = pc.max(pc.binary_length(array.dictionary)).as_py() if is_text else None
        return longest or 0
    inner: list[pa.Array] = []
    if types.is_struct(kind):
        inner = array.flatten()
    elif types.is_map(kind):
        inner = [array.keys, array.items]
    elif types.is_list(kind) or types.is_large_list(kind):
        inner = [array.values]
    return max(map(longest_in, inner), default=0)


def _refuse(unit: RowUnit, row: int, reason: str, accounting: ByteAccounting) -> None:
    """Refuse the rows of a unit from one on, whose bytes were counted with the unit."""
    left = unit.first_row + unit.rows - row
    accounting.count_bytes(-left)
    accounting.reject(row, left, f"{reason}; {left:,} rows from row {row:,} on", b"")


def _regrouped(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """The same rows in batches of bounded size; small ones are joined, because each costs dozens of calls."""
    held, rows, size_bytes = list[RecordBatch](), 0, 0
    for batch in batches:
        length, batch_bytes = len(batch), max(1, batch.nbytes())
        most = max(1, min(BATCH_RECORDS, BATCH_BYTES * length // batch_bytes))
        if held and (rows + length > most or size_bytes + batch_bytes > BATCH_BYTES):
            yield _joined(held)
            held, rows, size_bytes = [], 0, 0
        held, rows, size_bytes = [*held, batch], rows + length, size_bytes + batch_bytes
        if rows > most:
            yield from (batch.slice(start, most) for start in range(0, length, most))
            held, rows, size_bytes = [], 0, 0
    if held:
        yield _joined(held)


def _joined(batches: list[RecordBatch]) -> RecordBatch:
    if len(batches) == 1:
        return batches[0]
    offsets = np.concatenate([batch.offsets() for batch in batches])
    rows = pa.concat_batches([batch.to_arrow() for batch in batches])
    return RecordBatch(rows, origin=Origin(batches[0].blocks, offsets))


def clause_of(error: Exception) -> str:
    """An error of a library, as a clause."""
    if isinstance(error, RecursionError):
        return "its types are nested too deeply"
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return text if text[:2].isupper() else text[:1].lower() + text[1:]

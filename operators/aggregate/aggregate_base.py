"""The base of operators that aggregate records: partial results that add up, over a window, a run or a time."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Collection, Sequence
from typing import Annotated, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from dagflow.api.capabilities import Accumulator, Over
from dagflow.api.operator import Operator, Unified
from dagflow.api.ports import OutputPort
from dagflow.api.records import RecordBatch
from dagflow.errors import START_OVER
from operators.expressions.sql_types import common_type, normal_type

_COMPACT_ROWS = 1 << 16
"""Number of rows at which partial results are combined: memory grows with the results, not with the records."""

_COMPACT_BYTES = 64 << 20
"""Bytes to wait for before combining again, where combining, most of the work, has not halved the rows."""

_EMITTED_ROWS = 1 << 16
"""Rows of one batch: what carries batches to another stage holds several of them, as bytes too."""


_COVERED = (
    "what one result covers: window; run, published when all input of a run is processed; or {millis: n}, published "
    "every n milliseconds; default: run, and window while following"
)

OneResult = Annotated[Over | None, Field(description=_COVERED)]
"""The span of a result that is given once."""


class AggregateBase(Operator, Accumulator, Unified):
    """Combines partial results, which are tables, and emits their result.

    A subclass says how tables are combined into one, and what is emitted of the last one.
    """

    over: Annotated[
        Over | Literal["all"] | None,
        Field(description=f"{_COVERED}; or all: each window gives the totals over all runs of the groups that it has"),
    ] = None

    output = OutputPort()

    @abstractmethod
    def combined(self, partial: pa.Table) -> pa.Table:
        """One table for the rows of several."""

    @abstractmethod
    def result(self, combined: pa.Table) -> pa.Table:
        """The rows that are emitted, in an order that depends on nothing but the rows."""

    def unifier(self, port: str) -> Operator | None:
        return None

    def begin_window(self, window_id: int) -> None:
        self._partial: list[pa.Table] = []
        self._is_combined = False
        self._begin_compaction(0)

    def _begin_compaction(self, rows: int, *, least_bytes: int = 0) -> None:
        self._rows = rows
        self._limit = max(_COMPACT_ROWS, 2 * rows)
        self._new_bytes = 0
        self._least_bytes = least_bytes

    def add(self, partial: pa.Table, *, is_combined: bool = False) -> None:
        self._is_combined = is_combined and not self._partial
        self._partial.append(partial)
        self._rows += partial.num_rows
        self._new_bytes += partial.nbytes
        # A single result has likely been combined where it comes from.
        if len(self._partial) > 1 and self._rows > self._limit and self._new_bytes >= self._least_bytes:
            before, combined = self._rows, self._combined()
            self._partial, self._is_combined = [combined], True
            is_halved = 2 * combined.num_rows <= before
            self._begin_compaction(combined.num_rows, least_bytes=0 if is_halved else _COMPACT_BYTES)

    def _combined(self) -> pa.Table:
        return self._partial[0] if self._is_combined else self.combined(concatenated(self._partial))

    def end_window(self) -> None:
        if self._partial:
            for batch in self.result(self._combined()).combine_chunks().to_batches(_EMITTED_ROWS):
                self.output.emit(RecordBatch(batch))

    def add_part(self, part: bytes) -> None:
        self.add(table_of(part), is_combined=True)

    def take_part(self) -> bytes | None:
        return bytes_of(self._combined()) if self._partial else None


def bytes_of(table: pa.Table) -> bytes:
    """The table as a checkpoint holds it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue())


def table_of(data: bytes) -> pa.Table:
    """The table that bytes_of() was given."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


def concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    """Join the rows of all tables; a column that a table lacks is null in its rows."""
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        pass  # Arrow does not convert whole numbers to a decimal of more digits than the decimals that are there
    try:
        return pa.concat_tables(_with_common_decimals(tables), promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(
            f"the batches do not go together: {error}; give the column one type, as by a cast to text, and {START_OVER}"
        ) from error


def _with_common_decimals(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """The tables with one decimal type for each column that has whole numbers in some and decimals in others.

    Raises:
        pa.ArrowInvalid: A value has more digits than a decimal.
    """
    types: dict[str, set[pa.DataType]] = {}
    for table in tables:
        for field in table.schema:
            types.setdefault(field.name, set()).add(field.type)
    common = {name: _common_decimal(found) for name, found in types.items()}
    return [
        table.cast(pa.schema([field.with_type(common[field.name] or field.type) for field in table.schema]))
        for table in tables
    ]


def _common_decimal(types: Collection[pa.DataType]) -> pa.DataType | None:
    """The decimal type for whole numbers and decimals; None if not both occur, or another type does."""
    numbers = [kind for kind in types if not pa.types.is_null(kind)]
    if not all(pa.types.is_integer(kind) or pa.types.is_decimal128(kind) for kind in numbers):
        return None
    if len({pa.types.is_integer(kind) for kind in numbers}) != 2:
        return None
    return functools.reduce(common_type, map(normal_type, numbers))


def ordered(table: pa.Table, first: Sequence[tuple[str, str]]) -> pa.Table:
    """Sort rows by the given columns, then by all others; nulls come last.

    Rows that are still equal then differ in nothing that can be sorted, so the result does not depend on the order
    in which the rows came.
    """
    named = {name for name, _ in first}
    rest = [(field.name, "ascending") for field in table.schema if field.name not in named and _is_sortable(field.type)]
    return table.take(pc.sort_indices(table, [*first, *rest]))


def _is_sortable(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind) and not pa.types.is_dictionary(kind)

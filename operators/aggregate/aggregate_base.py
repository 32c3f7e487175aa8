"""The base of operators that aggregate records: partial results that add up, over a window, a run or a time."""

from __future__ import annotations

import tempfile
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from dagflow.api.capabilities import Accumulator, Over
from dagflow.api.operator import Operator, Unified
from dagflow.api.ports import OutputPort
from dagflow.api.records import RecordBatch
from operators.aggregate.common_types import concatenated
from operators.aggregate.group_runs import GroupRuns

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

    # Without annotations, so that they are no properties.
    compact_rows = 1 << 16
    """Number of rows at which partial results are combined: memory grows with the results, not with the records."""
    compact_bytes = 64 << 20
    """Bytes to wait for before combining again, where combining, most of the work, has not halved the rows."""
    held_bytes = 48 << 20
    """Bytes of groups that are held in memory between two compactions."""

    _is_partial = False  # whether another operator combines what this one emits

    @abstractmethod
    def combined(self, partial: pa.Table) -> pa.Table:
        """One table for the rows of several."""

    @abstractmethod
    def result(self, combined: pa.Table) -> pa.Table:
        """The rows that are emitted, in an order that depends on nothing but the rows."""

    def unifier(self, port: str) -> Operator | None:
        return None

    @property
    def keys(self) -> Sequence[str]:
        """The columns of which each combination is once in a result, in its order; none if the result is small."""
        return ()

    def begin_window(self, window_id: int) -> None:
        self._runs = GroupRuns(self.keys)
        self._partial: list[pa.Table] = []
        self._is_combined = False
        self._begin_compaction(0)

    def _begin_compaction(self, rows: int, *, least_bytes: int = 0) -> None:
        self._rows = rows
        self._limit = max(self.compact_rows, 2 * rows)
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
            is_halved = 2 * combined.num_rows <= before
            self._partial, self._is_combined = [combined], True
            if self.keys and combined.nbytes > self.held_bytes:
                self._let_go()
            rows = sum(map(len, self._partial))
            self._begin_compaction(rows, least_bytes=0 if is_halved else self.compact_bytes)

    def _let_go(self) -> None:
        """Emit what another operator combines, or else store it as a run."""
        if self._is_partial:
            self._emit([self._combined()])
        else:
            self._runs.add(self._combined())
        self._partial, self._is_combined = [], False

    def _combined(self) -> pa.Table:
        return self._partial[0] if self._is_combined else self.combined(concatenated(self._partial))

    def end_window(self) -> None:
        self._emit(map(self.result, self._all_combined()))

    def _all_combined(self) -> Iterator[pa.Table]:
        """All groups, in tables whose keys follow each other."""
        if self._runs and self._partial:
            self._let_go()
        if self._runs:
            yield from self._runs.merged(self.combined)
        elif self._partial:
            yield self._combined()

    def _emit(self, tables: Iterable[pa.Table]) -> None:
        for table in tables:
            for batch in table.combine_chunks().to_batches(_EMITTED_ROWS):
                self.output.emit(RecordBatch(batch))

    def add_part(self, part: bytes) -> None:
        for table in tables_of(part):
            self.add(table, is_combined=True)

    def take_part(self) -> bytes | None:
        return bytes_of(self._all_combined()) if self._partial or self._runs else None


def bytes_of(tables: Iterable[pa.Table]) -> bytes:
    """Tables as a checkpoint holds them: a stream for each, as sums of some have more digits."""
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    # A buffer that grows would be held twice.
    with tempfile.TemporaryFile() as file:
        for table in tables:
            with pa.ipc.new_stream(file, table.schema, options=options) as writer:
                writer.write_table(table.combine_chunks())
        file.seek(0)
        return file.read()


def tables_of(data: bytes) -> Iterator[pa.Table]:
    """The tables that bytes_of() was given."""
    source = pa.BufferReader(data)
    while source.tell() < len(data):
        yield pa.ipc.open_stream(source).read_all()


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

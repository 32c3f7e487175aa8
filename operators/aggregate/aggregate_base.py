"""The base of operators that aggregate records: partial results that add up, over a window, a run or a time."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import Field

from dagflow.api.capabilities import Accumulator, Over
from dagflow.api.operator import Operator, Unified
from dagflow.api.ports import OutputPort
from dagflow.api.records import RecordBatch
from dagflow.late import compute as pc
from operators.aggregate.group_runs import GroupRuns, bytes_of, concatenated, in_order_of, tables_of

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
    """Bytes to wait for before combining again, where combining, most of the work, has not halved the rows. With the
    result they may be held twice for a moment."""
    held_bytes = 48 << 20
    """Bytes of groups that are held in memory between two compactions."""

    _is_large = False
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
        self._begin_compaction(is_halved=True)

    def _begin_compaction(self, *, is_halved: bool) -> None:
        self._rows = sum(map(len, self._partial))
        self._bytes = sum(table.nbytes for table in self._partial)
        self._limit = max(self.compact_rows, 2 * self._rows)
        self._least_bytes = 0 if is_halved else max(self.compact_bytes, self._bytes + self.compact_bytes // 4)

    def add(self, partial: pa.Table, *, is_combined: bool = False) -> None:
        self._is_combined = is_combined and not self._partial
        self._partial.append(partial)
        self._rows += partial.num_rows
        self._bytes += partial.nbytes
        # A single result has likely been combined where it comes from.
        if len(self._partial) > 1 and self._rows > self._limit and self._bytes >= self._least_bytes:
            before, combined = self._rows, self._combined()
            is_halved, is_large = 2 * combined.num_rows <= before, combined.nbytes > self.held_bytes
            del combined
            if is_large and self.keys:
                self._let_go()
            self._begin_compaction(is_halved=is_halved)

    def _let_go(self) -> None:
        """Emit what another operator combines, or else store it as a run."""
        self._combined()
        self._is_combined = False
        if self._is_partial:
            self._emit([self._partial.pop()])
        else:
            self._runs.add(self._partial.pop())

    def _combined(self) -> pa.Table:
        if not self._is_combined:
            # Nothing else refers to the rows, so that they can be let go while they are combined.
            self._partial = [self.combined(self._taken())]
            self._is_combined = True
            self._is_large |= self._bytes >= self.compact_bytes // 2
            self._release_unused()
        return self._partial[0]

    def _release_unused(self) -> None:
        # Otherwise Arrow's allocator keeps what was freed, and the next task of the process adds to it.
        if self._is_large:
            pa.default_memory_pool().release_unused()

    def teardown(self) -> None:
        self._partial = []
        self._release_unused()

    def _taken(self) -> pa.Table:
        tables, self._partial = self._partial, []
        return concatenated(tables)

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
            for batch in table.to_batches(_EMITTED_ROWS):
                self.output.emit(RecordBatch(batch))

    def add_part(self, part: bytes) -> None:
        first, *rest = itertools.islice(tables_of(pa.BufferReader(part)), 2)
        if rest:
            self._runs.add_tables(tables_of(pa.BufferReader(part)))
        else:
            self.add(first, is_combined=True)

    def take_part(self) -> bytes | None:
        if not self._partial and not self._runs:
            return None
        # The tables of several runs are a run in turn, so they must be in order.
        is_run, tables = len(self._runs) > 0, self._all_combined()
        return bytes_of(table.sort_by(in_order_of(self.keys)) if is_run else table for table in tables)


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

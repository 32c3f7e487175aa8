"""The base of operators that aggregate records: partial results that add up, over a window, a run or a time."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import Field

from dagflow.api.capabilities import Accumulator, Over
from dagflow.api.operator import Operator, Unified
from dagflow.api.ports import OutputPort
from dagflow.api.records import RecordBatch
from dagflow.late import compute as pc
from operators.aggregate.group_runs import GroupRuns, bytes_of, concatenated, in_order_of, tables_of
from operators.aggregate.hash_groups import Shares

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

    # Without an annotation, so that it is no property.
    held_bytes = 48 << 20
    """Bytes of groups that are held in memory, and of rows that wait beside them until they are combined: memory grows
    with the results, not with the records."""

    _is_large = False

    @abstractmethod
    def combined(self, partial: pa.Table) -> pa.Table:
        """One table for the rows of several."""

    @abstractmethod
    def result(self, combined: pa.Table) -> pa.Table:
        """The rows that are emitted, in an order that depends on nothing but the rows."""

    def functions(self, schema: pa.Schema) -> Sequence[tuple[str, str]] | None:
        """How rows are combined, if by sums, minima and maxima alone: each column beside the keys, and its function."""
        return None

    def is_exact(self, schema: pa.Schema) -> bool:
        """Whether rows of a schema can be combined in any grouping: sums of doubles differ in their last digits."""
        return True

    def unifier(self, port: str) -> Operator | None:
        return None

    @property
    def keys(self) -> Sequence[str]:
        """The columns of which each combination is once in a result, in its order; none if the result is small."""
        return ()

    def begin_window(self, window_id: int) -> None:
        self._runs = GroupRuns(self.keys)
        self._held = Shares(self.keys, self.combined, self._functions_if_exact)
        self._is_exact = True

    def _functions_if_exact(self, schema: pa.Schema) -> Sequence[tuple[str, str]] | None:
        return self.functions(schema) if self.is_exact(schema) else None

    def add(self, partial: pa.Table, *, are_combined: bool = False) -> None:
        held = self._held
        self._is_exact &= self.is_exact(partial.schema)
        held.add(partial, are_combined=are_combined)
        self._is_large |= held.nbytes >= self.held_bytes // 2
        if held.waiting_bytes > self.held_bytes:
            held.combine()
        if self.keys and not held.waiting_bytes and held.nbytes > self.held_bytes:
            self._let_go()

    def _let_go(self) -> None:
        """Emit what another operator combines, or else store it as a run."""
        if self.is_partial:
            self._emit(self._held.take())
        else:
            self._runs.add(concatenated([*self._held.take()]))
        self._release_unused()

    def _release_unused(self) -> None:
        # Otherwise Arrow's allocator keeps what was freed, and the next task of the process adds to it.
        if self._is_large:
            pa.default_memory_pool().release_unused()

    def teardown(self) -> None:
        self._held = Shares(self.keys, self.combined)
        self._release_unused()

    def end_window(self) -> None:
        self._emit(map(self.result, self._all_combined()))

    def _all_combined(self) -> Iterator[pa.Table]:
        """All groups, in tables whose keys follow each other."""
        if self._runs and self._held.rows:
            self._let_go()
        if self._runs:
            yield from self._runs.merged(self.combined)
        elif self._held.rows:
            yield self._held.whole()

    def _emit(self, tables: Iterable[pa.Table]) -> None:
        for table in tables:
            for batch in table.to_batches(_EMITTED_ROWS):
                self.output.emit(RecordBatch(batch))

    def add_part(self, part: Any) -> None:
        if self.is_partial:
            self._held = part
            return
        first, *rest = itertools.islice(tables_of(pa.BufferReader(part)), 2)
        if rest:
            self._runs.add_bytes(part)
        else:
            self.add(first, are_combined=True)

    def take_part(self) -> Any:
        if self.is_partial:
            if not self._is_exact:
                # Which partitions share a task is not planned, and a window that runs again must give the same bytes.
                self.end_window()
                return None
            return self._held
        if not self._held.rows and not self._runs:
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

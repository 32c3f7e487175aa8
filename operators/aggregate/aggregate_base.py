"""The base of operators that aggregate records: partial results that add up, over a window, a run or a time."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated

import pyarrow as pa
from pydantic import Field

from dagflow.api.capabilities.accumulator import Accumulator, Over
from dagflow.api.columns.column_typing import ColumnTraced, StreamColumns
from dagflow.api.operator import Operator
from dagflow.api.ports import InputPort, OutputPort
from dagflow.api.records import RecordBatch
from operators.aggregate.ordering import concatenated

_COMPACT_ROWS = 1 << 16
"""Number of rows at which partial results are combined: memory grows with the results, not with the records."""

_COMPACT_BYTES = 32 << 20
"""Bytes to wait for before combining again, where combining, most of the work, has not halved the rows."""


class AggregateBase(Operator, Accumulator, ColumnTraced):
    """Combines partial results, which are tables, and emits their result.

    A subclass says how tables are combined into one, and what is emitted of the last one.
    """

    over: Annotated[
        Over | None,
        Field(
            description="what one result covers: window; run, published when all input of a run is processed; or "
            "{millis: n}, published every n milliseconds; default: run, and window while following"
        ),
    ] = None

    output = OutputPort()

    @abstractmethod
    def combined(self, partial: pa.Table) -> pa.Table:
        """One table for the rows of several."""

    @abstractmethod
    def result(self, combined: pa.Table) -> pa.Table:
        """The rows that are emitted, in an order that depends on nothing but the rows."""

    def begin_window(self, window_id: int) -> None:
        """Start without partial results."""
        self._partial: list[pa.Table] = []
        self._is_combined = False
        self._begin_compaction(0)

    def _begin_compaction(self, rows: int, *, least_bytes: int = 0) -> None:
        self._rows = rows
        self._limit = max(_COMPACT_ROWS, 2 * rows)
        self._new_bytes = 0
        self._least_bytes = least_bytes

    def add(self, partial: pa.Table, *, is_combined: bool = False) -> None:
        """Take in a partial result.

        Args:
            partial: The result.
            is_combined: Whether combining it alone would change nothing.
        """
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
        """Emit the result."""
        if self._partial:
            for batch in self.result(self._combined()).combine_chunks().to_batches():
                self.output.emit(RecordBatch(batch))

    def add_part(self, part: bytes) -> None:
        """Take in the partial result of earlier windows."""
        with pa.ipc.open_stream(part) as reader:
            self.add(reader.read_all(), is_combined=True)

    def take_part(self) -> bytes | None:
        """The combined result as an Arrow stream."""
        if not self._partial:
            return None
        table = self._combined().combine_chunks()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue())


class PartMerger(AggregateBase):
    """Combines the partial results of all partitions of an operator; see Unified."""

    input = InputPort()

    @input.batch
    def take(self, batch: RecordBatch) -> None:
        """Add the partial results of one partition."""
        if len(batch):
            self.add(pa.Table.from_batches([batch.to_arrow()]))

    def columns_at(self, port: str, arriving: StreamColumns | None) -> StreamColumns | None:
        """The columns that the operator before it gives."""
        return arriving

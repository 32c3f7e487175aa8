"""Operators that remember the records of earlier windows by their keys."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Annotated

import numpy as np
from pydantic import Field

from dagflow.api.context import OperatorContext
from dagflow.api.keyed_state import KeyedOperator
from dagflow.api.partitioning import Key, canonical, key_bytes
from dagflow.api.ports import InputPort, OutputPort
from dagflow.api.properties import Count
from dagflow.api.records import RECORD, RecordBatch
from dagflow.metrics.names import DUPLICATES, FORGOTTEN_KEYS
from operators.column_names import column_of


class RememberedKeys(KeyedOperator):
    """An operator that remembers keys, and the window in which each came first.

    Guarantee: a key is remembered as long as it is among the newest max_keys of its partition, and so as long as it is
    among the newest max_keys of all. Keys that are forgotten are counted.
    """

    max_keys: Annotated[
        Count,
        Field(
            ge=1,
            description="maximum keys that each partition remembers; each takes about 120 bytes and its own length",
        ),
    ] = 1_000_000

    value_type = int

    _context: OperatorContext

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        self._context = context

    def begin_window(self, window_id: int) -> None:
        self._window_id = window_id

    def end_window(self) -> None:
        # Not a share of max_keys: keys are never spread evenly, and the fullest partition would forget some too early.
        surplus = len(self.state) - self.max_keys
        if surplus > 0:
            self.forget(heapq.nsmallest(surplus, self.state, key=self.state.__getitem__))

    def remember(self, keys: Iterable[Key]) -> Iterator[int | None]:
        """Remember keys that are new.

        Returns:
            For each key the window in which it first came; None for one that comes now for the first time.
        """
        for key in keys:
            first: int | None = self.state.get(key, None)
            if first is None:
                self.state[key] = self._window_id
            yield first

    def forget(self, keys: list[Key]) -> None:
        for key in keys:
            del self.state[key]
        self._context.counters[FORGOTTEN_KEYS] += len(keys)


class Deduplicator(RememberedKeys):
    """Drops the records whose key was seen before.

    Needs all records of a key in one partition: `partition: {by: KEY}`, with the same key, or `partition: 1`.
    The first record of a key is the one in the first window, and within a window the first to arrive, which is the same
    when the window is run again. A task loads all keys of its partition, so a window takes about a second longer for
    each million of keys. The text 2 is not the number 2: a run with another type of the key's column is refused, unless
    only the input shows the type, as Parquet files do; such keys are new.

    Guarantee: no further record of a remembered key is emitted. A key is remembered for horizon_windows windows
    after the window of its first record, and as long as it is among the newest max_keys of its partition; without a
    horizon and with no more keys than that, forever. Keys that are forgotten are counted, and a later record of them
    is emitted again.
    """

    key: Annotated[str, Field(min_length=1, description="column that holds the key; record: the whole raw record")] = (
        RECORD
    )
    horizon_windows: Annotated[
        Count | None, Field(ge=1, description="windows that a key is remembered for; null: no limit")
    ] = None

    input = InputPort()
    output = OutputPort()

    def begin_window(self, window_id: int) -> None:
        super().begin_window(window_id)
        if self.horizon_windows is not None:
            horizon = window_id - self.horizon_windows
            self.forget([key for key, window in self.state.items() if window < horizon])

    @input.batch
    def deduplicate(self, batch: RecordBatch) -> None:
        keys = column_of(batch, self.key).to_pylist()
        first = [position for position, window in enumerate(self.remember(keys)) if window is None]
        self._context.counters[DUPLICATES] += len(batch) - len(first)
        if len(first) == len(batch):
            self.output.emit(batch)
        elif first:
            self.output.emit(batch.take(np.array(first, np.int64)))


class KeyCounter(KeyedOperator):
    """Counts the records of each key over all windows, and emits at the end of each window the counts that changed.

    Emits a raw record for each key of the window: the key, the separator, and the count of all its records so far,
    in the order in which the keys first came. The newest record of a key holds its count. 2.0 is the key 2, and is
    written so; true is not 1, and is written True. Null and the empty text are counted separately, but both are written
    as nothing: if a column has both, replace the nulls before, as with coalesce in a Select.

    Needs all records of a key in one partition: `partition: {by: KEY}`, with the same key, or `partition: 1`.

    Guarantee: each record is counted once, whatever restarts and changes of partitions come between. All keys are
    remembered forever, and loaded by every window: each million takes about 120 MB of memory in addition to the keys,
    and makes a window about a second longer.
    """

    key: Annotated[str, Field(min_length=1, description="column that holds the key; record: the whole raw record")] = (
        RECORD
    )
    separator: Annotated[str, Field(description="text between key and count")] = "\t"

    value_type = int

    input = InputPort()
    output = OutputPort()

    _touched: dict[Key, None]

    def begin_window(self, window_id: int) -> None:
        self._touched = {}

    @input.batch
    def count(self, batch: RecordBatch) -> None:
        counted = column_of(batch, self.key).value_counts()
        keys = map(canonical, counted.field("values").to_pylist())
        for key, count in zip(keys, counted.field("counts").to_pylist(), strict=True):
            self.state[key] = self.state.get(key, 0) + count
            self._touched[key] = None

    def end_window(self) -> None:
        separator = self.separator.encode()
        for key in self._touched:
            self.output.emit(b"%s%s%d" % (key_bytes(key), separator, self.state[key]))

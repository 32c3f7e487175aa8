"""Count the records of each key."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dagflow.api.keyed_state import KeyedOperator
from dagflow.api.partitioning import Key, canonical, key_bytes
from dagflow.api.ports import InputPort, OutputPort
from dagflow.api.records import RECORD, RecordBatch
from operators.column_names import column_of


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
        """Count the records of one batch."""
        counted = column_of(batch, self.key).value_counts()
        keys = map(canonical, counted.field("values").to_pylist())
        for key, count in zip(keys, counted.field("counts").to_pylist(), strict=True):
            self.state[key] = self.state.get(key, 0) + count
            self._touched[key] = None

    def end_window(self) -> None:
        separator = self.separator.encode()
        for key in self._touched:
            self.output.emit(b"%s%s%d" % (key_bytes(key), separator, self.state[key]))

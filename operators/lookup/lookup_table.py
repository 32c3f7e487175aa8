"""The rows of a table in a task, and the indices that find them; each is made once in a process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from dagflow.api.context import SideData
from operators.lookup.compared_keys import compared_keys
from operators.lookup.key_index import KeyIndex

_KEPT = 4
"""Number of tables that a process keeps: those of windows that run at the same time, and of the operators of an app."""


class LookupTable:
    """The rows of one version of a table.

    Args:
        table: The rows, in one chunk.
    """

    def __init__(self, table: pa.Table) -> None:
        self.columns = table.combine_chunks()
        self._indices: dict[tuple[Any, ...], KeyIndex] = {}

    def column(self, name: str) -> Any:
        """The values of a column, as one array."""
        chunks = self.columns.column(name).chunks
        return chunks[0] if chunks else pa.array([], self.columns.schema.field(name).type)

    def index(self, names: Sequence[str], kinds: Sequence[pa.DataType]) -> KeyIndex:
        """The index by some columns, each cast to the type in which it is compared."""
        key = (*names, *kinds)
        if key not in self._indices:
            columns = [compared_keys(self.column(name), kind) for name, kind in zip(names, kinds, strict=True)]
            self._indices[key] = KeyIndex(columns)
        return self._indices[key]


_tables: OrderedDict[str, LookupTable] = OrderedDict()
_lock = threading.Lock()


def lookup_table(data: SideData) -> LookupTable:
    """The table that a side input holds.

    Raises:
        DagflowError: The side input cannot be read.
    """
    # Tasks may be threads of one process: only one of them reads a table.
    with _lock:
        found = _tables.pop(data.name, None)
        if found is None:
            found = LookupTable(pa.ipc.open_stream(data.read()).read_all())
        _tables[data.name] = found
        while len(_tables) > _KEPT:
            _tables.popitem(last=False)
        return found


def as_bytes(table: pa.Table) -> bytes:
    """The side input that holds a table."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())

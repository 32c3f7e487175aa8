"""Brings what arrives at a task from others into its order, in bounded memory."""

from __future__ import annotations

import contextlib
import os
import pickle
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from dagflow.api.records import RecordBatch
from dagflow.errors import StorageError
from dagflow.execution.messages import PickledTuples, ShuffleItem
from dagflow.storage.backends.local.disk import translated

HELD_BYTES = 16 << 20
"""Bytes of records that are held in memory; those of further items wait in a file."""

_DIRECTORIES = "SPARK_LOCAL_DIRS"

Place = tuple[int, tuple[int, ...]]


def in_order(arrived: Iterable[tuple[Place, Any]], held_bytes: int = HELD_BYTES) -> Iterator[Any]:
    """The items in the order of their places.

    Spark's own sorter looks at its memory only after a hundred items, and would hold half a gibibyte of them.
    """
    with contextlib.ExitStack() as stack:
        file: BinaryIO | None = None
        waiting: list[tuple[Place, Any, int]] = []
        for place, item in arrived:
            size = _size_bytes(item)
            held_bytes -= size
            if size and held_bytes < 0:
                with _disk_errors():
                    # It has no name, so that nothing is left of a task that is killed.
                    file = file or stack.enter_context(tempfile.TemporaryFile(dir=_directory()))
                    start = file.tell()
                    data = pickle.dumps(item, protocol=5)
                    file.write(data)
                    waiting.append((place, start, len(data)))
            else:
                waiting.append((place, item, 0))
        if file is not None:
            with _disk_errors():
                file.flush()
        waiting.sort(key=lambda entry: entry[0], reverse=True)
        while waiting:
            _, item, length = waiting.pop()
            if length and file is not None:
                with _disk_errors():
                    item = pickle.loads(os.pread(file.fileno(), length, item))
            yield item


def _size_bytes(item: Any) -> int:
    if not isinstance(item, ShuffleItem):
        return 0
    payload: RecordBatch | PickledTuples = item.payload
    return len(payload.data) if isinstance(payload, PickledTuples) else payload.nbytes()


def _directory() -> str | None:
    return next(iter(os.environ.get(_DIRECTORIES, "").split(",")), "") or None


@contextlib.contextmanager
def _disk_errors() -> Iterator[None]:
    place = _directory() or tempfile.gettempdir()
    try:
        with translated(place, "store records that come from another stage"):
            yield
    except StorageError as error:
        error.advise(hint="let spark.local.dir name a directory on another disk")
        raise

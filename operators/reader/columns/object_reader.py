"""Chooses the reader of flat JSON objects in a process: numpy at first, and machine code where much is read."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys

import pyarrow as pa

from dagflow.api.records import RecordBatch
from operators.reader.columns.flat_objects import FlatObjects, ReadObjects
from operators.reader.columns.uniform_objects import read_uniform
from operators.reader.scanning.framing import joined

logger = logging.getLogger(__name__)

PAYING_BYTES = 64 << 20
"""Importing the machine code takes a third of a second; reading about this many bytes with it saves that."""


class ObjectReader:
    """Reads flat JSON objects: with numpy, and faster in a process that has read much.

    Args:
        pays_bytes: Number of bytes after which machine code is used, if it can be compiled.
    """

    def __init__(self, pays_bytes: int = PAYING_BYTES) -> None:
        self._read: ReadObjects = read_uniform
        self._left_bytes = pays_bytes

    def __call__(self, batch: RecordBatch, schema: pa.Schema, *, takes_others: bool) -> FlatObjects | None:
        """Read lines; see ReadObjects."""
        if self._left_bytes > 0:
            self._left_bytes -= joined(batch).size
            if self._left_bytes <= 0:
                self._read = _compiled() or read_uniform
        return self._read(batch, schema, takes_others=takes_others)


def _compiled() -> ReadObjects | None:
    """The reader with machine code; None where that cannot be compiled."""
    # The functions take the bytes of a word to be in this order.
    if importlib.util.find_spec("numba") is None or sys.byteorder != "little":
        return None
    # The code is cached by the path of its module. In an archive that Spark ships, the path differs in each run, and
    # each process would compile the code anew.
    if not os.path.exists(__file__):
        return None
    try:
        # Here, because numba is optional and slow to import.
        from operators.reader.columns.compiled_objects import read_compiled
    except Exception as error:
        # numba refuses a numpy that is newer than it, there may be no directory for the cache, or the cached code is
        # broken. In any case, records can be read without it.
        logger.warning("numba is installed, but cannot be used; JSON is read without it: %s", error)
        return None
    return read_compiled


read_flat_objects = ObjectReader()
"""The reader of this process."""

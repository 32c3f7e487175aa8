"""Machine code that numba compiles, where it is installed."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from typing import Any

from operators.format_registry import imported

logger = logging.getLogger(__name__)


PAYING_BYTES = 32 << 20
"""Importing machine code takes a third of a second; reading four times as many bytes with it saves that."""


class MachineCode:
    """A function of a module that needs numba, in a process that has read much.

    Args:
        pays_bytes: Bytes to read without it before.
    """

    def __init__(self, path: str, pays_bytes: int = PAYING_BYTES) -> None:
        self.path = path
        self._left_bytes = pays_bytes
        self._function: Any = None

    def after(self, size_bytes: int) -> Any:
        """The function for so many more bytes; None where it would not pay, or cannot be compiled."""
        if self._left_bytes > 0:
            self._left_bytes -= size_bytes
            self._function = self._compiled() if self._left_bytes <= 0 else None
        return self._function

    def _compiled(self) -> Any:
        # The functions take the bytes of a word to be in this order.
        if importlib.util.find_spec("numba") is None or sys.byteorder != "little":
            return None
        # The code is cached by the path of its module. In an archive that Spark ships, the path differs in each run,
        # and each process would compile the code anew.
        if not os.path.exists(__file__):
            return None
        try:
            # Here, because numba is optional and slow to import.
            return imported("format", self.path)
        except Exception as error:
            # numba refuses a numpy that is newer than it, there may be no directory for the cache, or the cached code
            # is broken. In any case, records can be read without it.
            logger.warning("numba is installed, but cannot be used; records are read without it: %s", error)
            return None

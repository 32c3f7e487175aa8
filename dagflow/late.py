"""Libraries that only work on data needs: each is imported when a function of it is first called.

A short command, such as `validate`, names many of their functions and calls none. A process that forks others imports
them itself.
"""

from __future__ import annotations

import importlib
import sys
from functools import partial
from typing import Any


class LateModule:
    """The functions and classes of a module, by their names.

    Args:
        name: The module.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._name not in sys.modules:
            return partial(self._call, name)
        value = getattr(importlib.import_module(self._name), name)
        setattr(self, name, value)
        return value

    def _call(self, name: str, *arguments: Any, **options: Any) -> Any:
        return getattr(importlib.import_module(self._name), name)(*arguments, **options)


compute: Any = LateModule("pyarrow.compute")
parquet: Any = LateModule("pyarrow.parquet")

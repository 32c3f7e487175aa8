"""What kinds of functions an operator's methods may be."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

LIFE_CYCLE = (
    *("check_properties", "prepare", "setup", "restore", "begin_window", "end_window", "teardown", "snapshot"),
    *("emit_tuples", "has_news", "scan_now", "unemitted_bytes", "committed"),
)
"""Methods that are called once and are over when they return; handlers, in contrast, may pause."""

AWAITED = "asynchronous, which nobody awaits; write a plain def, and run what is asynchronous in it with asyncio.run()"
PAUSED = "a generator, which nobody runs; write it without yield: only methods that take in what arrives may pause"


def check_methods(cls: type, handlers: Iterable[str]) -> None:
    """Refuse methods whose body would never run.

    Args:
        cls: A class of operators.
        handlers: Names of its methods that take in what arrives.

    Raises:
        TypeError: A method is asynchronous, or one of the life cycle is a generator.
    """
    for name in (*handlers, *LIFE_CYCLE):
        # What the class has under the name: an override is called without the mark of the method that it replaces.
        method = getattr(cls, name, None)
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
            raise TypeError(f"{cls.__name__}.{name}() is {AWAITED}")
        if name in LIFE_CYCLE and inspect.isgeneratorfunction(method):
            raise TypeError(f"{cls.__name__}.{name}() is {PAUSED}")

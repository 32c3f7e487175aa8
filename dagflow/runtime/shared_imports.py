"""Imports in a process that forks others, which are to share the imported modules."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def shared_imports() -> Iterator[None]:
    """Import for later forks: objects that exist at the end stay shared between all forked processes."""
    # Nearly all imported objects stay: garbage collections find little, and take a sixth of the time.
    gc.disable()
    try:
        yield
        # A garbage collection would write to the pages of objects that are not frozen.
        gc.freeze()
    finally:
        gc.enable()

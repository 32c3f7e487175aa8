"""Imports of a process that forks others, which are to share what was imported."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def shared_imports() -> Iterator[None]:
    """Import for later forks: what exists at the end stays shared between all forked processes."""
    # Nearly all that is imported stays: garbage collections find little, and take a sixth of the time.
    gc.disable()
    try:
        yield
        # A garbage collection would write to the pages of what is not frozen.
        gc.freeze()
    finally:
        gc.enable()

"""Which window has read a file, found by the moment at which its splitter took it."""

from __future__ import annotations

import bisect
import time

from dagflow.journal.retention import all_windows, find_window
from dagflow.journal.state import JournalState
from dagflow.journal.windows import Window
from dagflow.report.manifest import inputs_of
from dagflow.storage.location import redacted
from dagflow.storage.objects import ObjectStore

LOOK_S = 1.0
"""About how many seconds one request reads the journal; the next page continues where it ended."""

_NEAR = 8
"""How many windows, from the one of that moment on, are searched for the first reader of the file."""


def has_read(window: Window, url: str) -> bool:
    """Whether a window reads, or is to read, some of a file."""
    return any(redacted(part.url) == url for _, part in inputs_of(window.plan))


def last_reader(store: ObjectStore, state: JournalState, url: str, taken_ms: int) -> int:
    """The last of consecutive windows that read a file version, found by the time at which it was taken; 0 for none.

    Windows are emitted in order, so a search that looks at few of them finds those of that time.

    Raises:
        JournalError: The journal cannot be read.
        StorageError: The store failed.
    """
    kept = range(state.forgotten + 1, state.last_committed + 1)
    if not taken_ms or not kept:
        return 0
    position = bisect.bisect_left(kept, taken_ms, key=lambda each: find_window(store, state, each).plan.emitted_ms)
    first, last, deadline = kept.start + max(position - 1, 0), 0, time.monotonic() + LOOK_S
    for window in all_windows(store, state, first):
        if has_read(window, url):
            last = window.plan.window_id
        elif last or window.plan.window_id > first + _NEAR or time.monotonic() > deadline:
            break
    return last

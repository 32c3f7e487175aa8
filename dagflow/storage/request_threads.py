"""Threads that wait for the answers of remote stores."""

from __future__ import annotations

import functools
import os
from concurrent.futures import ThreadPoolExecutor

REQUESTS = 32
"""Concurrent requests of one process: that many small files in one latency."""


def request_threads() -> ThreadPoolExecutor:
    """Threads that wait for requests, so that several run at a time; do not use them from one of them."""
    return _threads_of(os.getpid())


@functools.cache
def _threads_of(process: int) -> ThreadPoolExecutor:
    # A forked process has none of its parent's threads, and gets its own.
    return ThreadPoolExecutor(REQUESTS, thread_name_prefix=f"requests-{process}")

"""Chooses Arrow's memory allocator before Arrow is imported: packages that import Arrow import this module first."""

import os
import sys

_ALLOCATOR = "ARROW_DEFAULT_MEMORY_POOL"
_TASKS = {"pyspark.daemon", "pyspark.worker", "dagflow.runtime.daemon", "dagflow.runtime.worker_server"}

if _ALLOCATOR not in os.environ and _TASKS.isdisjoint(sys.orig_argv):
    # Arrow chooses its allocator while it is imported, and its Parquet writer never asks again. Arrow's own allocator
    # keeps freed memory (45 of 195 MiB of a driver), but tasks are faster with it.
    os.environ[_ALLOCATOR] = "system"
    import pyarrow  # noqa: F401  # it chooses now

    del os.environ[_ALLOCATOR]  # it is not meant for the processes that this one starts

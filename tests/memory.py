"""Measures memory where no other test allocates: threads of others in the same process are counted as well."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

# dagflow imports them when it first calls them, which would be measured.
import pyarrow.compute
import pyarrow.parquet  # noqa: F401  # for dagflow

T = TypeVar("T")


def in_own_process(measure: Callable[..., T], *arguments: object) -> T:
    """What a function of a module returns, or raises, in a new process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        return processes.submit(measure, *arguments).result()


def peak_bytes(call: Callable[[], object]) -> int:
    """The most that Python's objects take up during a call, beyond what they took up before."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

"""How many cases a fuzzer tries: a few in the day's run, or as many as a time allows."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator

SECONDS = "DAGFLOW_FUZZ_SECONDS"


def seeds(few: int) -> Iterator[int]:
    """Yield the seeds of the cases of one fuzzer, and print them: the last one printed is that of the case that fails.

    Yields 0 to `few` - 1. If DAGFLOW_FUZZ_SECONDS is set, yields new random seeds until that time is over.
    """
    if SECONDS not in os.environ:
        for seed in range(few):
            print(f"{seed=}")
            yield seed
        return
    end_s = time.monotonic() + float(os.environ[SECONDS])
    while time.monotonic() < end_s:
        seed = secrets.randbits(48)
        print(f"{seed=}")
        yield seed

"""Settling a worker process."""

from __future__ import annotations

import subprocess
import sys

PROBE = """
import gc
from dagflow.worker.process import settle
before = gc.get_freeze_count()
settle()
frozen = gc.get_freeze_count()
garbage = [[] for _ in range(1000)]
settle()
print(before, frozen > 1000, gc.get_freeze_count() == frozen)
"""


def test_a_process_is_settled_once() -> None:
    """What is loaded is frozen at the first task; a later task must not freeze what tasks leave behind."""
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "True", "True"]

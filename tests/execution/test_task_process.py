"""A worker process is prepared once."""

from __future__ import annotations

import subprocess
import sys

PROBE = """
import gc
from dagflow.execution.task_process import warm
before = gc.get_freeze_count()
with warm():
    import decimal
    inside = gc.get_freeze_count()
frozen = gc.get_freeze_count()
garbage = [[] for _ in range(1000)]
with warm():
    pass
print(before, inside, frozen > 1000, gc.get_freeze_count() == frozen)
"""


def test_a_process_is_frozen_once() -> None:
    """All that the first task loads is frozen behind it; a later task must not freeze what tasks leave behind."""
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "0", "True", "True"]

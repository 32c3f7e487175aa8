"""Threads that are left when a command ends.

A thread of Arrow that frees Python's memory while the interpreter ends makes C++ abort the process after all work was
done: "terminate called without an active exception".
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagflow.storage.concatenated import INDEX_SUFFIX
from tests.cli.processes import PATIENCE_S, environment
from tests.nightly import by_day

STATE = """
import numpy as np
from operators.splitter.index.entries import SCHEMA, decoded, encoded, entries_of
entries = entries_of([b"%06d" % number for number in range(20_000)], [np.arange(20_000)] * 5)
work = lambda: decoded(encoded(entries))
"""
INDEX = """
from dagflow.storage.concatenated import find
from dagflow.storage.context import StorageContext
work = lambda: find(StorageContext.default(), sys.argv[1], "b")
"""
COUNT = """
threads = lambda: len(os.listdir("/proc/self/task"))
before = threads()
work()
print(threads() - before)
"""


@pytest.mark.parametrize(
    "preparation", by_day(1, [STATE, INDEX]), ids=by_day(1, ["the index of files", "the index of a merged file"])
)
def test_arrow_is_left_with_no_thread(tmp_path: Path, preparation: str) -> None:
    """Neither the index of a run nor `dagflow extract` leaves a thread."""
    merged = tmp_path / "merged"
    merged.write_bytes(b"ab")
    rows = {"path": pa.array([b"a", b"b"], pa.binary()), "offset": np.array([0, 1]), "length": np.array([1, 1])}
    pq.write_table(pa.table(rows), f"{merged}{INDEX_SUFFIX}")
    program = f"import os, sys\n{preparation}{COUNT}"
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.stdout, done.stderr) == ("0\n", "")

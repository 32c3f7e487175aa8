"""Disks for the crash tests."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")


@pytest.fixture
def quick_disk(tmp_path: Path) -> Iterator[Path]:
    """A directory on a disk with fast syncs, if there is one: thousands of runs sync tens of times each."""
    if not os.access(_MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=_MEMORY, prefix="dagflow-crash-") as folder:
        yield Path(folder)

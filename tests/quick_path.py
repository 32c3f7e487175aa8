"""A directory on which waiting for the disk costs nothing, for tests that start over hundreds of times."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """An empty directory: in memory where the system has such a place, else an ordinary one."""
    if not _MEMORY.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=_MEMORY) as name:
        yield Path(name)

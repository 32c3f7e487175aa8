"""A disk of a given size, for tests of what happens when it is full; and a directory on another file system."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ATTEMPTS = 1000
"""How often a disk is mounted anew: none becomes read-only in the moment in which a file is written to."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a small disk, and mounts it again with other options."""
    path = tmp_path / "disk"
    path.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk")

    def mount(options: str) -> Path:
        again = "remount," if path.is_mount() else ""
        command = ["mount", "-t", "tmpfs", "-o", again + options, "tmpfs", str(path)]
        for _ in range(ATTEMPTS):
            done = subprocess.run(command, capture_output=True, text=True)
            if "busy" not in done.stderr:
                break
        if done.returncode:
            pytest.skip(f"no disk can be mounted here: {done.stderr}")
        return path

    yield mount
    if path.is_mount():
        # Lazily: on a slow machine a worker may not have closed a file yet.
        subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A directory on another file system than tmp_path."""
    for place in ("/dev/shm", "/var/tmp", tempfile.gettempdir()):
        if os.path.isdir(place) and os.stat(place).st_dev != os.stat(tmp_path).st_dev:
            with tempfile.TemporaryDirectory(dir=place) as folder:
                yield Path(folder)
            return
    pytest.skip("there is one file system only")

"""Directories for temporary files: of the living they stay, of the dead they go."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from dagflow.runtime.scratch import Scratch, sweep
from tests.cli.processes import environment

OWNER = """
import sys
from dagflow.runtime.scratch import Scratch
scratch = Scratch(sys.argv[1])
(scratch.path / "block").write_bytes(b"x")
print(scratch.path, flush=True)
sys.stdin.read()
"""


def owner(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that has a scratch directory, and its path."""
    command = [sys.executable, "-c", OWNER, str(parent)]
    process = subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_only_directories_of_dead_processes_are_swept(tmp_path: Path) -> None:
    """What another process or this one works in is left alone, and so is what is not dagflow's."""
    mine, other = Scratch(tmp_path), tmp_path / "dagflow-elsewhere"
    other.mkdir()
    process, path = owner(tmp_path)
    with process:
        sweep(tmp_path)
        assert sorted(tmp_path.iterdir()) == sorted([mine.path, other, path])
        assert (path / "block").exists()
        process.kill()
    sweep(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([mine.path, other])
    mine.close()
    mine.close()
    assert list(tmp_path.iterdir()) == [other]


def test_a_directory_that_is_not_locked_yet_may_be_taken_away(tmp_path: Path) -> None:
    """One without a lock is a dead one: its owner could not begin to use it."""
    (tmp_path / f"dagflow-{os.getuid()}-half").mkdir()
    sweep(tmp_path, tmp_path / "absent")
    assert list(tmp_path.iterdir()) == []


def test_a_link_of_that_name_is_not_followed(tmp_path: Path) -> None:
    """Another user who may write to the place could lead the sweep elsewhere."""
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / f"dagflow-{os.getuid()}-link").symlink_to(target)
    sweep(tmp_path)
    assert list(target.iterdir()) == []
    assert target.exists()


def test_nobody_else_may_enter(tmp_path: Path) -> None:
    """Blocks and sockets in it have the modes that Java gives them."""
    before = os.umask(0)
    try:
        scratch = Scratch(tmp_path)
    finally:
        os.umask(before)
    assert scratch.path.stat().st_mode & 0o777 == 0o700
    scratch.close()

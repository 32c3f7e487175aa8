"""Following runs in processes of their own, for the tests of pages."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.cli.processes import ENTRY, environment


@contextlib.contextmanager
def following(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A following run of the app in a directory, where it says in a file what it does; killed at the end."""
    command = [*ENTRY, "run", "app.yaml", "--follow", "--local", "-v", "--set", "splitter.scan_interval_millis=100"]
    with (
        (folder / "said.txt").open("wb") as said,
        subprocess.Popen(command, cwd=folder, env=environment(), stdout=said, stderr=said) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def await_window(folder: Path, run: subprocess.Popen[bytes]) -> None:
    """Wait for the first window of such a run."""
    while b"window committed" not in (folder / "said.txt").read_bytes():
        assert run.poll() is None, "the run ended before its first window"
        time.sleep(0.02)
